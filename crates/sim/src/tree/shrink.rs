//! Shrinks a violation to the smallest schedule that still shows it.
//!
//! The search removes faults one by one, then clients, then operations from their ends. After each cut the
//! schedule is a different one. So the search tries a bounded number of scheduler seeds, and keeps a cut if
//! any of them shows a violation of the same property. At the end it shortens the picks. It keeps a prefix
//! and takes the first choice after it, and replaces stretches of picks by the first choice. Of all runs that
//! still violate the property, it keeps the one with the fewest events.

use super::case::Case;
use super::check::Property;
use super::explored::Seen;
use super::schedule::Explorer;
use crate::trace::Event;

/// Number of scheduler seeds tried for each cut.
const SEEDS_PER_CUT: u64 = 24;
/// Number of runs spent on picks.
const RUNS_ON_PICKS: u32 = 400;

/// The smallest case found, and its result.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The case. Run it again with [`Explorer::run_case`].
    pub case: Case,
    /// The result of the case.
    pub seen: Seen,
    /// The events of the case.
    pub events: Vec<Event>,
    /// Number of runs that the search took.
    pub runs: u32,
}

/// The state of the search.
struct Shrinking<'e> {
    explorer: &'e mut Explorer,
    property: Property,
    best: Case,
    steps: u64,
    runs: u32,
}

impl Explorer {
    /// Searches a smaller case that violates the same property as `seed`. Returns `None` if `seed` violates
    /// none.
    pub fn shrink(&mut self, seed: u64) -> Option<Shrunk> {
        let case = self.case(seed);
        let (seen, _) = self.run_case(&case, false);
        let property = seen.violation.as_ref()?.property;
        let (clients, steps) = (seen.clients as usize, seen.run.steps);
        let operations = self.fixture().map_or(0, |fixture| fixture.scenario.operations);
        let whole = Case { operations: vec![operations; clients], ..case };
        let mut shrinking = Shrinking { explorer: self, property, best: whole, steps, runs: 1 };
        shrinking.cut_mishaps();
        shrinking.cut_operations();
        shrinking.cut_mishaps();
        shrinking.cut_picks();
        let Shrinking { best, runs, .. } = shrinking;
        let (seen, events) = self.run_case(&best, true);
        Some(Shrunk { case: best, seen, events, runs })
    }
}

impl Shrinking<'_> {
    /// Whether a case still violates the property. If so, and if it has no more events than the best case or
    /// `always` is set, it becomes the best case.
    fn keeps(&mut self, case: Case, always: bool) -> bool {
        self.runs += 1;
        let (seen, _) = self.explorer.run_case(&case, false);
        let same = seen.violation.is_some_and(|violation| violation.property == self.property);
        if same && (always || seen.run.steps <= self.steps) {
            (self.steps, self.best) = (seen.run.steps, case);
            return true;
        }
        false
    }

    /// Like `keeps`, with any scheduler seed that shows the violation.
    fn keeps_by_any(&mut self, case: &Case) -> bool {
        let first = self.best.schedule;
        let seeds = std::iter::once(first).chain((1..SEEDS_PER_CUT).map(|at| first.wrapping_add(at)));
        seeds.into_iter().any(|schedule| self.keeps(Case { schedule, ..case.clone() }, true))
    }

    fn cut_mishaps(&mut self) {
        for at in (0..self.best.mishaps.len()).rev() {
            let mut case = self.best.clone();
            case.mishaps.remove(at);
            self.keeps_by_any(&case);
        }
    }

    /// Removes whole clients first, then their last operations one by one.
    fn cut_operations(&mut self) {
        for client in 0..self.best.operations.len() {
            let mut case = self.best.clone();
            case.operations[client] = 0;
            self.keeps_by_any(&case);
        }
        for client in 0..self.best.operations.len() {
            while self.best.operations[client] > 0 {
                let mut case = self.best.clone();
                case.operations[client] -= 1;
                if !self.keeps_by_any(&case) {
                    break;
                }
            }
        }
    }

    fn cut_picks(&mut self) {
        let until = self.runs + RUNS_ON_PICKS;
        let mut picks = self.explorer.picks_of(&self.best);
        self.runs += 1;
        let with = |case: &Case, picks: &[u32]| Case { picks: Some(picks.to_vec()), ..case.clone() };
        // Search a short prefix that shows the violation. A longer prefix need not show it, so the result may
        // not be the shortest.
        let (mut low, mut high) = (0, picks.len());
        while low < high && self.runs < until {
            let middle = (low + high) / 2;
            let case = with(&self.best, &picks[..middle]);
            if self.keeps(case, false) { high = middle } else { low = middle + 1 }
        }
        picks.truncate(high.max(low));
        let mut stretch = (picks.len() / 2).max(1);
        while stretch >= 1 && self.runs < until {
            for from in (0..picks.len()).step_by(stretch) {
                let to = picks.len().min(from + stretch);
                if self.runs >= until || picks[from..to].iter().all(|&pick| pick == 0) {
                    continue;
                }
                let mut tamer = picks.clone();
                tamer[from..to].fill(0);
                let case = with(&self.best, &tamer);
                if self.keeps(case, false) {
                    picks = tamer;
                }
            }
            stretch /= 2;
        }
    }
}
