//! Uniform choice, optionally sticky.

use super::{JUMP_ONE_IN, Scheduler, without_jump};
use crate::choice::{Actor, Choice, ChoiceKind};
use crate::rng::Rng;

/// Picks every enabled event with equal probability. A *sticky* scheduler stays with its last actor, so that
/// the other actors stand still while that actor completes a whole operation. Uniform choice alone hardly
/// ever lets a READ wait through a split and a merge.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
    leave_one_in: u32,
    last: Option<Actor>,
}

impl Random {
    /// Creates a uniform scheduler.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), leave_one_in: 1, last: None }
    }

    /// Creates a scheduler that leaves its last actor only once in `leave_one_in` picks.
    pub fn sticky(seed: u64, leave_one_in: u32) -> Self {
        Self { leave_one_in: leave_one_in.max(1), ..Self::new(seed) }
    }

    /// Creates a uniform or sticky scheduler, as the seed decides.
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
        if self.leave_one_in > 1 && matches!(choices[0].kind, ChoiceKind::Run | ChoiceKind::Step) {
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
