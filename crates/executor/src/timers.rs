//! Deadlines of sleeping tasks.
//!
//! An endpoint that keeps time has a [`Timers`]. It fires the timers from its `progress`, and parks no longer
//! than until [`Timers::next`]. The endpoint defines the time: nanoseconds, real or virtual.
//!
//! **Bounded by the number of wakers, not of calls.** A future that waits for a deadline asks to be woken on
//! every poll, often with a deadline that moved. So a waker has one entry: the earliest deadline it asked
//! for. A later one gets no entry beside it. When the earlier one fires, the task is polled, looks at the
//! clock, and asks again. **A task that is woken and still waits must ask again**, and a poll does that.
//! Wakers belong to slots (see `wake.rs`), so the entries of tasks that ended before their deadline cannot
//! pile up either.
//!
//! The order is deterministic: by deadline, then in the order in which the entries were made. The identity of
//! a waker (its address) serves only for lookup, and never decides a visible order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::task::Waker;

/// Wakers by deadline.
#[derive(Default)]
pub struct Timers {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    by_deadline: BTreeMap<Due, Waker>,
    by_waker: BTreeMap<Identity, Due>,
    next_seq: u64,
}

/// When an entry is due, and its rank among entries due at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    seq: u64,
}

/// Tells wakers apart. Unique while the waker lives, and an entry keeps its waker alive.
type Identity = (usize, usize);

fn identity(waker: &Waker) -> Identity {
    (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
}

impl Timers {
    /// No deadlines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes `waker` at `at`, or at an earlier deadline that it already asked for.
    pub fn insert(&self, at: u64, waker: &Waker) {
        let inner = &mut *self.inner.borrow_mut();
        let due = Due { at, seq: inner.next_seq };
        let identity = identity(waker);
        let entry = match inner.by_waker.get(&identity) {
            Some(known) if known.at <= at => return,
            Some(later) => inner.by_deadline.remove(later),
            None => None,
        };
        inner.next_seq += 1;
        inner.by_waker.insert(identity, due);
        inner.by_deadline.insert(due, entry.unwrap_or_else(|| waker.clone()));
    }

    /// Calls every waker whose deadline is `now` or earlier. Returns whether it called any.
    pub fn fire(&self, now: u64) -> bool {
        let mut any = false;
        // One at a time, with nothing borrowed: a waker may do anything, including an insertion.
        while let Some(waker) = self.pop_due(now) {
            waker.wake();
            any = true;
        }
        any
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<u64> {
        self.inner.borrow().by_deadline.first_key_value().map(|(due, _)| due.at)
    }

    /// How many wakers have a deadline.
    pub fn len(&self) -> usize {
        self.inner.borrow().by_deadline.len()
    }

    /// Whether there is no deadline.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pop_due(&self, now: u64) -> Option<Waker> {
        let inner = &mut *self.inner.borrow_mut();
        let first = inner.by_deadline.first_entry()?;
        if first.key().at > now {
            return None;
        }
        let waker = first.remove();
        inner.by_waker.remove(&identity(&waker));
        Some(waker)
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("len", &self.len()).field("next", &self.next()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    struct Logged {
        name: u32,
        log: Arc<Mutex<Vec<u32>>>,
    }

    impl Wake for Logged {
        fn wake(self: Arc<Self>) {
            self.log.lock().expect("not poisoned").push(self.name);
        }
    }

    fn wakers<const N: usize>() -> ([Waker; N], Arc<Mutex<Vec<u32>>>) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut name = 0;
        let wakers = [(); N].map(|()| {
            name += 1;
            Waker::from(Arc::new(Logged { name, log: Arc::clone(&log) }))
        });
        (wakers, log)
    }

    fn taken(log: &Mutex<Vec<u32>>) -> Vec<u32> {
        std::mem::take(&mut *log.lock().expect("not poisoned"))
    }

    #[test]
    fn deadlines_fire_in_order_and_equal_ones_in_order_of_insertion() {
        let ([a, b, c, d], log) = wakers();
        let timers = Timers::new();
        for (at, waker) in [(20, &d), (10, &c), (10, &a), (5, &b)] {
            timers.insert(at, waker);
        }
        assert_eq!(timers.next(), Some(5));
        assert!(!timers.fire(4));
        assert!(timers.fire(10));
        assert_eq!(taken(&log), [2, 3, 1]);
        assert_eq!(timers.next(), Some(20));
        assert!(timers.fire(u64::MAX));
        assert_eq!(taken(&log), [4]);
        assert!(timers.is_empty() && !timers.fire(u64::MAX));
    }

    #[test]
    fn a_waker_has_one_entry_however_often_it_asks() {
        let ([a, b], log) = wakers();
        let timers = Timers::new();
        for at in 0..1_000 {
            timers.insert(1_000 + at, &a);
            timers.insert(3_000 - at, &b.clone());
        }
        assert_eq!(timers.len(), 2);
        assert_eq!(timers.next(), Some(1_000), "a later wish does not move an earlier one");
        assert!(timers.fire(2_001));
        assert_eq!(taken(&log), [1, 2], "an earlier wish replaces a later one");
        assert!(timers.is_empty());
        timers.insert(9, &a);
        assert_eq!(timers.next(), Some(9), "once fired, a waker may ask again");
    }
}
