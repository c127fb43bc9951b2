//! From a violation to the smallest schedule that still shows it.
//!
//! What is cut: mishaps one by one, clients, then operations from their ends; after each cut the schedule is another, so a
//! bounded number of scheduler seeds is tried, and a cut is kept if any of them shows a violation of the same property. At last
//! the picks themselves: a prefix of them, with the first choice from there on, and stretches of them replaced by it. Of
//! everything that still violates, the run of fewest events is kept.

use super::case::Case;
use super::check::Property;
use super::explored::Seen;
use super::schedule::Explorer;
use crate::trace::Event;

/// Scheduler seeds tried for each cut.
const SEEDS_PER_CUT: u64 = 24;
/// Runs spent on picks.
const RUNS_ON_PICKS: u32 = 400;

/// The smallest case found, and what it came to.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The case: run it again by [`Explorer::run_case`].
    pub case: Case,
    /// What it came to.
    pub seen: Seen,
    /// Its events.
    pub events: Vec<Event>,
    /// Runs it took.
    pub runs: u32,
}

/// The search for it.
struct Shrinking<'e> {
    explorer: &'e mut Explorer,
    property: Property,
    best: Case,
    steps: u64,
    runs: u32,
}

impl Explorer {
    /// Looks for a smaller case that violates the same property as `seed` does; `None` if that violates none.
    pub fn shrink(&mut self, seed: u64) -> Option<Shrunk> {
        let case = self.case(seed);
        let (seen, _) = self.run_case(&case, false);
        let property = seen.violation.as_ref()?.property;
        let (clients, steps) = (seen.clients as usize, seen.run.steps);
        let operations = self.lab().map_or(0, |lab| lab.scenario.operations);
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
    /// Whether a case still violates; if so, it is the best so far, if it is as small in events or `always`.
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

    /// The same for whatever scheduler seed shows it.
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

    /// Whole clients first, then their last operations one by one.
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
        // The shortest prefix that shows it: what shows it need not grow with the prefix, so this finds a short one.
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
