//! Wakes that come from other threads.
//!
//! A foreign waker pushes the slot's index and unparks the owner if it is parked. **No wake-up is lost**: the owner
//! announces that it parks, and the waker asks whether it does, under the same mutex. Either the push comes first and the
//! owner finds the queue not empty and does not park, or the announcement comes first and the waker sees it and unparks;
//! an `unpark` before the `park` it is meant for is remembered by the thread's token, or by the driver ([`Unpark`]) if it is
//! the driver that parks the thread. `tests/loom_wake.rs` checks it.
//!
//! An index is in the queue at most once, so the queue is no longer than the executor's slots are many.

use crate::Unpark;
use crate::idle::Bed;
use crate::sync::{AtomicBool, Mutex, Thread, current, park};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Slots woken by other threads, and how to unpark the owner.
#[derive(Debug)]
pub(crate) struct WakeQueue {
    owner: Thread,
    /// A hint that spares the owner the mutex while it is busy. Exact only under the mutex.
    pending: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    woken: Vec<u32>,
    /// By slot: is it in `woken`?
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

    /// Notes that slot `index` was woken, and unparks the owner if it is parked. From any thread.
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

    /// Whether there is something to drain. May be late, which parking is not.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// Moves what was woken into `into`, which must be empty.
    pub(crate) fn drain(&self, into: &mut Vec<u32>) {
        self.locked(|inner| {
            std::mem::swap(&mut inner.woken, into);
            for &index in into.iter() {
                inner.queued[index as usize] = false;
            }
            self.pending.store(false, Ordering::Relaxed);
        });
    }

    /// Runs `sleep` on the owner's thread, announced as `place`, unless something was woken.
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
            // Dropped when the lock is free again: a driver's destructor is not ours.
            let _place = self.locked(|inner| std::mem::take(&mut inner.parked));
        }
    }

    /// Ignores every wake from now on.
    pub(crate) fn close(&self) {
        self.locked(|inner| *inner = Inner { closed: true, ..Inner::default() });
    }

    fn locked<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        // Nothing in here panics half-way, so what a poisoned mutex guards is still whole.
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Bed for WakeQueue {
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
        // Would hang: nobody unparks.
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
        assert_eq!(queue.locked(|inner| inner.queued.len()), 0, "nothing is kept for wakes that come too late");
    }
}
