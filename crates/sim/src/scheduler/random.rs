//! Uniform choice, optionally sticky.

use super::{JUMP_ONE_IN, Scheduler, without_jump};
use crate::choice::{Actor, Choice, Kind};
use crate::rng::Rng;

/// Every enabled event equally likely. A *sticky* one stays with the actor it took last, so that others lie still while it
/// does a whole operation: uniform choice alone hardly ever lets a READ sleep through a split and a merge.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
    leave_one_in: u32,
    last: Option<Actor>,
}

impl Random {
    /// Uniform.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), leave_one_in: 1, last: None }
    }

    /// Leaves the actor it took last only once in `leave_one_in` picks.
    pub fn sticky(seed: u64, leave_one_in: u32) -> Self {
        Self { leave_one_in: leave_one_in.max(1), ..Self::new(seed) }
    }

    /// Uniform or sticky, as the seed has it.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5354_4943);
        Self::sticky(seed, [1, 1, 4, 16][rng.below(4)])
    }
}

impl Scheduler for Random {
    #[inline]
    fn pick(&mut self, choices: &[Choice]) -> usize {
        let plain = without_jump(choices);
        if plain == 0 || (plain < choices.len() && self.rng.one_in(JUMP_ONE_IN)) {
            return choices.len() - 1;
        }
        if self.leave_one_in > 1 && matches!(choices[0].kind, Kind::Run | Kind::Step) {
            if !self.rng.one_in(self.leave_one_in)
                && let Some(at) = choices[..plain].iter().position(|choice| Some(choice.actor) == self.last)
            {
                return at;
            }
            let at = self.rng.below(plain);
            self.last = Some(choices[at].actor);
            return at;
        }
        self.rng.below(plain)
    }
}
