//! Wakes that come from other threads.
//!
//! A foreign waker pushes the slot's index and unparks the owner if it is parked. **No wake-up is lost**: the owner
//! announces that it parks, and the waker asks whether it does, under the same mutex. Either the push comes first and the
//! owner finds the queue not empty and does not park, or the announcement comes first and the waker sees it and unparks;
//! an `unpark` before the `park` it is meant for is remembered by the thread's token. `tests/loom_wake.rs` checks it.
//!
//! An index is in the queue at most once, so the queue is no longer than the executor's slots are many.

use crate::sync::{AtomicBool, Mutex, Thread, current, park};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
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
    parked: bool,
    closed: bool,
}

impl WakeQueue {
    /// An empty queue whose owner is the calling thread.
    pub(crate) fn new() -> Self {
        Self { owner: current(), pending: AtomicBool::new(false), inner: Mutex::new(Inner::default()) }
    }

    /// Notes that slot `index` was woken, and unparks the owner if it is parked. From any thread.
    pub(crate) fn push(&self, index: u32) {
        let unpark = self.locked(|inner| {
            if inner.closed {
                return false;
            }
            let slot = index as usize;
            if inner.queued.len() <= slot {
                inner.queued.resize(slot + 1, false);
            }
            if !std::mem::replace(&mut inner.queued[slot], true) {
                inner.woken.push(index);
                self.pending.store(true, Ordering::Relaxed);
            }
            std::mem::replace(&mut inner.parked, false)
        });
        if unpark {
            self.owner.unpark();
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

    /// Parks the owner for at most `limit`, unless something was woken. May return early.
    pub(crate) fn park(&self, limit: Option<Duration>) {
        let idle = self.locked(|inner| {
            inner.parked = inner.woken.is_empty();
            inner.parked
        });
        if idle {
            park(limit);
            self.locked(|inner| inner.parked = false);
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
