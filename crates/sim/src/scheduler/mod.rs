//! Schedulers: they pick the next event.
//!
//! A step of the world takes at most two picks. The first selects the *actor* (a task, a queue pair, an
//! endpoint's calls, the clock). On a queue pair the second selects *which* of its enabled events. Two small
//! picks are cheaper than one among all units of all verbs, and give a wide READ no more weight than a small
//! one. The world asks a scheduler only if there is more than one possibility. The list of its answers names
//! the schedule.
//!
//! | scheduler | purpose |
//! |---|---|
//! | [`Random`] | breadth: uniform, or sticky so that an actor is left behind for long |
//! | [`Pct`] | depth: priorities with few change points finds bugs that need few, badly placed preemptions |
//! | [`Fair`] | every actor gets its turn: timing properties hold here |
//! | [`Exhaustive`] | small worlds: every schedule, equal states merged |
//! | [`Replay`] | a schedule that was recorded by [`Recording`] |

mod exhaustive;
mod fair;
mod pct;
mod random;
mod replay;

pub use exhaustive::{Bounds, Exhaustive, Report};
pub use fair::Fair;
pub use pct::Pct;
pub use random::Random;
pub use replay::{Recording, Replay};

use crate::choice::{Choice, ChoiceKind};

/// Picks the next event.
pub trait Scheduler {
    /// Returns the index of the event to take. `choices` always has at least two elements. If time may jump,
    /// that choice is last and has [`ChoiceKind::Advance`]: a random scheduler should take it rarely.
    fn pick(&mut self, choices: &[Choice]) -> usize;

    /// Whether the scheduler needs [`Scheduler::enter`] calls. Computing the state costs some hundred
    /// nanoseconds per step.
    fn wants_state(&self) -> bool {
        false
    }

    /// Receives the state's hash before each step if [`Scheduler::wants_state`]. False ends the run: the
    /// state is known.
    fn enter(&mut self, _state: u64) -> bool {
        true
    }
}

impl<S: Scheduler + ?Sized> Scheduler for &mut S {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        (**self).pick(choices)
    }

    fn wants_state(&self) -> bool {
        (**self).wants_state()
    }

    fn enter(&mut self, state: u64) -> bool {
        (**self).enter(state)
    }
}

/// A random scheduler lets time jump once in this many picks while other events are possible.
const JUMP_ONE_IN: u32 = 256;

/// Returns how many of `choices` are not a jump of time.
fn without_jump(choices: &[Choice]) -> usize {
    choices.len() - usize::from(choices.last().is_some_and(|last| last.kind == ChoiceKind::Advance))
}
