//! A fair scheduler: every actor gets its turn.

use super::{Scheduler, without_jump};
use crate::choice::{Actor, Choice, ChoiceKind};
use crate::rng::Rng;

/// One in this many picks is uniform, so that seeds differ.
const UNIFORM_ONE_IN: u32 = 4;

/// Mostly picks the actor whose last move is longest ago. No actor starves, as on machines that are not
/// overloaded. A lease that is long compared to a round trip then expires only for a reason.
#[derive(Clone, Debug)]
pub struct Fair {
    rng: Rng,
    picks: u64,
    last: Vec<(Actor, u64)>,
}

impl Fair {
    /// Creates a fair scheduler.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed ^ 0x4641_4952), picks: 0, last: Vec::new() }
    }

    fn last_move(&self, actor: Actor) -> u64 {
        self.last.iter().find(|(known, _)| *known == actor).map_or(0, |(_, at)| *at)
    }
}

impl Scheduler for Fair {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        let plain = without_jump(choices);
        if plain == 0 {
            return choices.len() - 1;
        }
        if !matches!(choices[0].kind, ChoiceKind::Run | ChoiceKind::Step) {
            return self.rng.below(plain);
        }
        let oldest = (0..plain).min_by_key(|&at| self.last_move(choices[at].actor)).unwrap_or(0);
        let at = if self.rng.one_in(UNIFORM_ONE_IN) { self.rng.below(plain) } else { oldest };
        self.picks += 1;
        let actor = choices[at].actor;
        match self.last.iter_mut().find(|(known, _)| *known == actor) {
            Some((_, last)) => *last = self.picks,
            None => self.last.push((actor, self.picks)),
        }
        at
    }
}
