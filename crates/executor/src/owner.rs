//! Data in shared memory that belongs to one thread.
//!
//! Any thread may call a waker, but nearly always the thread that runs the task calls it. So the ready queue
//! is an [`OwnerCell`]: the owner thread gets it without a lock, and any other thread gets nothing.
//!
//! This file and `outlined` hold the only `unsafe` of the crate.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers threads in the order of their first call. A number is never reused, unlike an address in
/// thread-local storage.
static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

#[cfg(not(loom))]
std::thread_local! {
    // No destructor and no lazy initialisation: a thread can read it at any moment of its life, at the cost
    // of one load.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

#[cfg(loom)]
loom::thread_local! {
    static THREAD: Cell<u64> = Cell::new(0);
}

/// The calling thread's number.
#[inline]
fn this_thread() -> u64 {
    THREAD.with(|number| match number.get() {
        0 => {
            let fresh = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
            number.set(fresh);
            fresh
        }
        known => known,
    })
}

/// A value that only the thread that made it can reach.
#[derive(Debug)]
pub(crate) struct OwnerCell<T> {
    owner: u64,
    value: T,
}

// SAFETY: `&OwnerCell<T>` gives out `&T` in one place, `get`, and only on the thread whose number is `owner`.
// Numbers are never reused, so no two threads ever hold `&T` through a shared cell: `T: Sync` is not needed.
// The cell may still be moved to, and dropped on, another thread (by the last `Arc` around it), which `T:
// Send` permits. No thread can hold `&T` then, since a borrow of the cell keeps it from being moved or
// dropped.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    /// A cell owned by the calling thread.
    pub(crate) fn new(value: T) -> Self {
        Self { owner: this_thread(), value }
    }

    /// The value, if the calling thread is the owner.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        (self.owner == this_thread()).then_some(&self.value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_made_a_cell_reaches_its_value() {
        let cell = OwnerCell::new(Cell::new(7));
        assert_eq!(cell.get().map(Cell::get), Some(7));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(cell.get().is_none()));
        });
        cell.get().expect("still the owner").set(8);
        assert_eq!(cell.get().map(Cell::get), Some(8));
    }

    #[test]
    fn a_cell_that_was_moved_keeps_its_owner() {
        let cell = OwnerCell::new(Cell::new(7));
        let cell = std::thread::spawn(move || {
            assert!(cell.get().is_none());
            cell
        })
        .join()
        .expect("the other thread saw nothing");
        assert_eq!(cell.get().map(Cell::get), Some(7));
    }
}
