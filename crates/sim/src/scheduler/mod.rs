//! Who picks the next event.
//!
//! A step of the world is at most two picks: first *who* moves (a task, a queue pair, an endpoint's calls, the clock),
//! then, on a queue pair, *which* of its enabled events. Two small picks instead of one among all units of all verbs keep
//! a step cheap and give a wide READ no more weight than a small one. A scheduler is asked only where there is more than
//! one possibility; the list of its answers names the schedule.
//!
//! | scheduler | for |
//! |---|---|
//! | [`Random`] | breadth: uniform, or sticky so that an actor is left behind for long |
//! | [`Pct`] | depth: priorities with few change points finds bugs that need few, badly placed preemptions |
//! | [`Fair`] | turns for everybody: what must hold of time holds here |
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

use crate::choice::{Choice, Kind};

/// Picks the next event.
pub trait Scheduler {
    /// The index of the event to take. Never called with fewer than two choices. If time may jump, that choice is last
    /// and has [`Kind::Advance`]: a scheduler that draws should take it rarely.
    fn pick(&mut self, choices: &[Choice]) -> usize;

    /// Whether [`Scheduler::enter`] wants the state; it costs some hundred nanoseconds a step.
    fn wants_state(&self) -> bool {
        false
    }

    /// Told the state's hash before each step if [`Scheduler::wants_state`]. False ends the run: the state is known.
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

/// How rarely a drawing scheduler lets time jump while something else could happen.
const JUMP_ONE_IN: u32 = 256;

/// How many of `choices` are not a jump of time.
fn without_jump(choices: &[Choice]) -> usize {
    choices.len() - usize::from(choices.last().is_some_and(|last| last.kind == Kind::Advance))
}
