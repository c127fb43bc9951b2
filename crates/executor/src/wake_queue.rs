//! Wakes that come from other threads.
//!
//! A waker on another thread pushes the slot's index and unparks the owner if it is parked. **No wake-up is
//! lost**: the owner announces its park, and the waker checks for that announcement, under the same mutex. If
//! the push comes first, the owner finds a queue that is not empty, and does not park. If the announcement
//! comes first, the waker sees it and unparks. The thread's token remembers an `unpark` that comes before its
//! `park`. If the driver parks the thread, the driver ([`Unpark`]) remembers it. `tests/loom_wake.rs` checks
//! this.
//!
//! An index is in the queue at most once, so the queue is never longer than the number of slots.

use crate::Unpark;
use crate::idle::Parker;
use crate::sync::{AtomicBool, Mutex, Thread, current, park};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Slots woken by other threads, and how to unpark the owner.
#[derive(Debug)]
pub(crate) struct WakeQueue {
    owner: Thread,
    /// A hint that saves the owner the mutex while it is busy. Exact only under the mutex.
    pending: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    woken: Vec<u32>,
    /// Whether the slot with this index is in `woken`.
    queued: Vec<bool>,
    parked: Parked,
    closed: bool,
}

/// Where the owner sleeps.
#[derive(Default)]
enum Parked {
    #[default]
    Nowhere,
    InThread,
    InDriver(Arc<dyn Unpark>),
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nowhere => "Nowhere",
            Self::InThread => "InThread",
            Self::InDriver(_) => "InDriver",
        })
    }
}

impl WakeQueue {
    /// An empty queue whose owner is the calling thread.
    pub(crate) fn new() -> Self {
        Self { owner: current(), pending: AtomicBool::new(false), inner: Mutex::new(Inner::default()) }
    }

    /// Records that slot `index` was woken, and unparks the owner if it is parked. Any thread may call it.
    pub(crate) fn push(&self, index: u32) {
        let parked = self.locked(|inner| {
            if inner.closed {
                return Parked::Nowhere;
            }
            let slot = index as usize;
            if inner.queued.len() <= slot {
                inner.queued.resize(slot + 1, false);
            }
            if !std::mem::replace(&mut inner.queued[slot], true) {
                inner.woken.push(index);
                self.pending.store(true, Ordering::Relaxed);
            }
            std::mem::take(&mut inner.parked)
        });
        match parked {
            Parked::Nowhere => {}
            Parked::InThread => self.owner.unpark(),
            Parked::InDriver(unparker) => unparker.unpark(),
        }
    }

    /// Whether there is something to drain. The answer may be late; the check before a park is exact.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// Moves the woken slots into `into`, which must be empty.
    pub(crate) fn drain(&self, into: &mut Vec<u32>) {
        self.locked(|inner| {
            std::mem::swap(&mut inner.woken, into);
            for &index in into.iter() {
                inner.queued[index as usize] = false;
            }
            self.pending.store(false, Ordering::Relaxed);
        });
    }

    /// Announces `place` and runs `sleep` on the owner's thread, unless a slot was woken.
    fn sleep(&self, place: Parked, sleep: impl FnOnce()) {
        let idle = self.locked(|inner| {
            let idle = inner.woken.is_empty();
            if idle {
                inner.parked = place;
            }
            idle
        });
        if idle {
            sleep();
            // Dropped after the lock is released, because the destructor is the driver's code.
            let _place = self.locked(|inner| std::mem::take(&mut inner.parked));
        }
    }

    /// Ignores every wake from now on.
    pub(crate) fn close(&self) {
        self.locked(|inner| *inner = Inner { closed: true, ..Inner::default() });
    }

    fn locked<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        // Nothing in `change` panics half-way, so a poisoned mutex still guards a valid value.
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Parker for WakeQueue {
    fn park(&self, limit: Option<Duration>) {
        self.sleep(Parked::InThread, || park(limit));
    }

    fn park_in(&self, unparker: Arc<dyn Unpark>, park: impl FnOnce()) {
        self.sleep(Parked::InDriver(unparker), park);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn drained(queue: &WakeQueue) -> Vec<u32> {
        let mut woken = Vec::new();
        queue.drain(&mut woken);
        woken
    }

    #[test]
    fn duplicate_wakes_coalesce_until_they_are_drained() {
        let queue = WakeQueue::new();
        for index in [3, 1, 3, 3, 1] {
            queue.push(index);
        }
        assert_eq!(drained(&queue), [3, 1]);
        assert!(drained(&queue).is_empty());
        queue.push(3);
        assert_eq!(drained(&queue), [3]);
    }

    #[test]
    fn the_owner_does_not_park_while_a_wake_is_queued() {
        let queue = WakeQueue::new();
        queue.push(0);
        // Would hang if the wake were lost: no thread unparks.
        queue.park(None);
        assert_eq!(drained(&queue), [0]);
    }

    #[test]
    fn a_push_unparks_the_owner() {
        let queue = WakeQueue::new();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.push(5));
            loop {
                let woken = drained(&queue);
                if !woken.is_empty() {
                    assert_eq!(woken, [5]);
                    break;
                }
                queue.park(None);
            }
        });
    }

    #[test]
    fn a_closed_queue_ignores_wakes() {
        let queue = WakeQueue::new();
        queue.push(1);
        queue.close();
        queue.push(2);
        assert!(drained(&queue).is_empty());
        assert_eq!(
            queue.locked(|inner| inner.queued.len()),
            0,
            "nothing is kept for wakes that come too late"
        );
    }
}
