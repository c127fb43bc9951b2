//! What a thread does while it has nothing to do.
//!
//! Back-off, counted in fruitless rounds (nothing ready, and [`Driver::progress`] brought nothing):
//!
//! 1. as long as [`Driver::spins`] says so, 64 rounds by default, each round spins;
//! 2. then, if the driver parks the thread itself, each round does that: see [`Driver::park`];
//! 3. otherwise, if [`Driver::idle_for`] is zero, each round yields the processor to other threads;
//! 4. and if it is not, each round parks, for at most that long.
//!
//! Anything that makes a task ready starts the count afresh.

use crate::sync::yield_now;
use crate::{Driver, Unpark};
use std::sync::Arc;
use std::time::Duration;

/// Where a thread sleeps so that a wake from another thread is never lost.
pub(crate) trait Bed {
    /// Parks the calling thread for at most `limit`, unless it was woken. May return early.
    fn park(&self, limit: Option<Duration>);

    /// Runs `park`, which puts the calling thread to sleep until `unparker` is called, unless it was woken.
    fn park_in(&self, unparker: Arc<dyn Unpark>, park: impl FnOnce());
}

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

    /// One more fruitless round: spins, yields, or parks for no longer than `longest`.
    pub(crate) fn pause<D: Driver + ?Sized>(&mut self, driver: &D, longest: Option<Duration>, bed: &impl Bed) {
        if driver.spins(self.rounds) {
            self.rounds = self.rounds.saturating_add(1);
            std::hint::spin_loop();
            return;
        }
        if let Some(unparker) = driver.unparker() {
            bed.park_in(unparker, || driver.park(longest));
            return;
        }
        match (driver.idle_for(), longest) {
            (Some(Duration::ZERO), _) => yield_now(),
            (Some(limit), Some(longest)) => bed.park(Some(limit.min(longest))),
            (limit, longest) => bed.park(limit.or(longest)),
        }
    }
}
