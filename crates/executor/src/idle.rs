//! Backoff of a thread that has nothing to do.
//!
//! A round is fruitless if no task is ready and [`Driver::progress`] brought nothing. The backoff counts
//! fruitless rounds:
//!
//! 1. While [`Driver::spins`] says so, 64 rounds by default, each round spins.
//! 2. Then, if the driver parks the thread itself, each round does that: see [`Driver::park`].
//! 3. Otherwise, if [`Driver::idle_for`] is zero, each round yields the processor to other threads.
//! 4. Otherwise, each round parks, for at most that long.
//!
//! Anything that makes a task ready resets the count.

use crate::sync::yield_now;
use crate::{Driver, Unpark};
use std::sync::Arc;
use std::time::Duration;

/// Where a thread sleeps so that a wake from another thread is never lost.
pub(crate) trait Parker {
    /// Parks the calling thread for at most `limit`, unless it was woken. May return early.
    fn park(&self, limit: Option<Duration>);

    /// Runs `park`, unless the thread was woken. `park` puts the calling thread to sleep until `unparker` is
    /// called.
    fn park_in(&self, unparker: Arc<dyn Unpark>, park: impl FnOnce());
}

/// Counts fruitless rounds.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    rounds: u32,
}

impl Idle {
    /// Resets the count: there was something to do.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Counts one more fruitless round: spins, yields, or parks for no longer than `longest`.
    pub(crate) fn pause<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        longest: Option<Duration>,
        parker: &impl Parker,
    ) {
        if driver.spins(self.rounds) {
            self.rounds = self.rounds.saturating_add(1);
            std::hint::spin_loop();
            return;
        }
        if let Some(unparker) = driver.unparker() {
            parker.park_in(unparker, || driver.park(longest));
            return;
        }
        match (driver.idle_for(), longest) {
            (Some(Duration::ZERO), _) => yield_now(),
            (Some(limit), Some(longest)) => parker.park(Some(limit.min(longest))),
            (limit, longest) => parker.park(limit.or(longest)),
        }
    }
}
