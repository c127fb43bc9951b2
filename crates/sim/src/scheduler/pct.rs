//! Probabilistic concurrency testing: priorities and a few change points (Burckhardt et al., ASPLOS 2010).
//!
//! Every actor has a random priority and the highest moves; at `depth` random moments the one that would move becomes the
//! lowest. A bug that needs d ordered preemptions is found with probability at least 1/(n·k^(d-1)) per run, however rare
//! it is under uniform choice. Two departures keep runs finite, since our actors spin and retry: an actor that moved
//! `quantum` times without a change of priority is demoted, and units of one queue pair are drawn uniformly.

use super::{JUMP_ONE_IN, Scheduler, without_jump};
use crate::choice::{Actor, Choice, Kind};
use crate::rng::Rng;
use std::collections::BTreeMap;

/// The scheduler. See the module.
#[derive(Clone, Debug)]
pub struct Pct {
    rng: Rng,
    /// Priority and moves since it was given.
    actors: BTreeMap<Actor, (u64, u32)>,
    /// Descending, so that the next one is last.
    change_points: Vec<u64>,
    step: u64,
    quantum: u32,
    /// The next demoted priority; random priorities all lie above.
    low: u64,
}

impl Pct {
    /// A schedule with `depth` change points among the first `length` steps.
    pub fn new(seed: u64, depth: usize, length: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0050_4354);
        let mut change_points: Vec<u64> = (0..depth).map(|_| rng.below(length.max(1) as usize) as u64).collect();
        change_points.sort_unstable_by(|a, b| b.cmp(a));
        let quantum = u32::try_from(length / 4).unwrap_or(u32::MAX).max(64);
        Self { rng, actors: BTreeMap::new(), change_points, step: 0, quantum, low: 1 << 32 }
    }

    fn highest(&mut self, choices: &[Choice]) -> usize {
        let mut best = (0, 0);
        for (at, choice) in choices.iter().enumerate() {
            let rng = &mut self.rng;
            let (priority, _) = *self.actors.entry(choice.actor).or_insert_with(|| (rng.next_u64() | 1 << 63, 0));
            if priority > best.0 {
                best = (priority, at);
            }
        }
        best.1
    }

    fn demote(&mut self, actor: Actor) {
        self.low -= 1;
        self.actors.insert(actor, (self.low, 0));
    }
}

impl Scheduler for Pct {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        let plain = without_jump(choices);
        if plain == 0 || (plain < choices.len() && self.rng.one_in(JUMP_ONE_IN)) {
            return choices.len() - 1;
        }
        if !matches!(choices[0].kind, Kind::Run | Kind::Step) {
            return self.rng.below(plain);
        }
        self.step += 1;
        let mut at = self.highest(&choices[..plain]);
        while self.change_points.last().is_some_and(|&point| point < self.step) {
            self.change_points.pop();
            self.demote(choices[at].actor);
            at = self.highest(&choices[..plain]);
        }
        let actor = choices[at].actor;
        if let Some((_, moves)) = self.actors.get_mut(&actor) {
            *moves += 1;
            if *moves > self.quantum {
                self.demote(actor);
            }
        }
        at
    }
}
