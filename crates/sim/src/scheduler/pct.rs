//! Probabilistic concurrency testing: priorities and a few change points (Burckhardt et al., ASPLOS 2010).
//!
//! Every actor has a random priority, and the actor with the highest priority moves. At `depth` random steps
//! the actor that would move gets the lowest priority. A bug that needs d ordered preemptions is found with
//! probability at least 1/(n·k^(d-1)) per run, however rare it is under uniform choice. Actors here spin and
//! retry, so two deviations keep runs finite. An actor that moved `quantum` times without a change of
//! priority is demoted, and units of one queue pair are drawn uniformly.

use super::{JUMP_ONE_IN, Scheduler, without_jump};
use crate::choice::{Actor, Choice, ChoiceKind};
use crate::rng::Rng;

/// An actor's priority (0 before it has one), and its moves since it got that priority.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    priority: u64,
    moves: u32,
}

/// The scheduler. See the module.
#[derive(Clone, Debug)]
pub struct Pct {
    rng: Rng,
    tasks: Vec<Rank>,
    controls: Vec<Rank>,
    /// Ranks by endpoint, then server.
    queue_pairs: Vec<Vec<Rank>>,
    /// In descending order, so that the next one is last.
    change_points: Vec<u64>,
    step: u64,
    quantum: u32,
    /// The next demoted priority. All random priorities are higher.
    low: u64,
}

impl Pct {
    /// Creates a schedule with `depth` change points among the first `length` steps.
    pub fn new(seed: u64, depth: usize, length: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0050_4354);
        let mut change_points: Vec<u64> =
            (0..depth).map(|_| rng.below(length.max(1) as usize) as u64).collect();
        change_points.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            rng,
            tasks: Vec::new(),
            controls: Vec::new(),
            queue_pairs: Vec::new(),
            change_points,
            step: 0,
            quantum: u32::try_from(length / 4).unwrap_or(u32::MAX).max(64),
            low: 1 << 32,
        }
    }

    #[inline]
    fn rank(&mut self, actor: Actor) -> &mut Rank {
        let (ranks, at) = match actor {
            Actor::Task(task) => (&mut self.tasks, task as usize),
            Actor::QueuePair { endpoint, server } => {
                (entry(&mut self.queue_pairs, endpoint as usize), usize::from(server))
            }
            // The clock never competes: the scheduler decides on it separately.
            Actor::Control(_) | Actor::Clock => {
                (&mut self.controls, if let Actor::Control(endpoint) = actor { endpoint as usize } else { 0 })
            }
        };
        entry(ranks, at)
    }

    fn highest(&mut self, choices: &[Choice]) -> usize {
        let mut best = (0, 0);
        for (at, choice) in choices.iter().enumerate() {
            let mut priority = self.rank(choice.actor).priority;
            if priority == 0 {
                priority = self.rng.next_u64() | 1 << 63;
                self.rank(choice.actor).priority = priority;
            }
            if priority > best.0 {
                best = (priority, at);
            }
        }
        best.1
    }

    fn demote(&mut self, actor: Actor) {
        self.low -= 1;
        *self.rank(actor) = Rank { priority: self.low, moves: 0 };
    }
}

/// Returns the element at `at`. Extends the vector if it is too short.
#[inline]
fn entry<T: Default + Clone>(items: &mut Vec<T>, at: usize) -> &mut T {
    if items.len() <= at {
        items.resize(at + 1, T::default());
    }
    &mut items[at]
}

impl Scheduler for Pct {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        let plain = without_jump(choices);
        if plain == 0 || (plain < choices.len() && self.rng.one_in(JUMP_ONE_IN)) {
            return choices.len() - 1;
        }
        if !matches!(choices[0].kind, ChoiceKind::Run | ChoiceKind::Step) {
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
        let quantum = self.quantum;
        let rank = self.rank(actor);
        rank.moves += 1;
        if rank.moves > quantum {
            self.demote(actor);
        }
        at
    }
}
