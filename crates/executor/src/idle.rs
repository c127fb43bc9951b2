//! What a thread does while it has nothing to do.
//!
//! Back-off, counted in fruitless rounds (nothing ready, and [`Driver::progress`] brought nothing):
//!
//! 1. the first 64 rounds spin: completions of a fast backend arrive within a microsecond or two;
//! 2. then, if [`Driver::idle_for`] is zero, each round yields the processor to other threads;
//! 3. otherwise each round parks, for at most [`Driver::idle_for`].
//!
//! Anything that makes a task ready starts the count afresh.

use crate::Driver;
use crate::sync::yield_now;
use std::time::Duration;

/// Fruitless rounds before the thread stops spinning. loom explores every round, so there it has none.
const SPIN_ROUNDS: u32 = if cfg!(loom) { 0 } else { 64 };

/// Counts fruitless rounds.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    rounds: u32,
}

impl Idle {
    /// There was something to do.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.rounds = 0;
    }

    /// One more fruitless round: spins, yields, or calls `park` with a limit that is no longer than `longest`.
    pub(crate) fn pause<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        longest: Option<Duration>,
        park: impl FnOnce(Option<Duration>),
    ) {
        if self.rounds < SPIN_ROUNDS {
            self.rounds += 1;
            std::hint::spin_loop();
            return;
        }
        match (driver.idle_for(), longest) {
            (Some(Duration::ZERO), _) => yield_now(),
            (Some(limit), Some(longest)) => park(Some(limit.min(longest))),
            (limit, longest) => park(limit.or(longest)),
        }
    }
}
