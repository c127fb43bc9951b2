//! The few parts of `std` that loom replaces: the same source is shipped and model-checked.
//!
//! Reference counts come from `std` in both cases: [`std::task::Wake`] requires them, and they guard no
//! protocol of this crate.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8};
    pub(crate) use std::thread::{Thread, current, yield_now};
    use std::time::Duration;

    /// Parks the calling thread until it is unparked or `limit` has passed. May return early without a
    /// reason.
    pub(crate) fn park(limit: Option<Duration>) {
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8};
    pub(crate) use loom::thread::{Thread, current, yield_now};
    use std::time::Duration;

    /// loom has no time: a park always lasts until another thread unparks. So every lost wake-up is a
    /// deadlock.
    pub(crate) fn park(_limit: Option<Duration>) {
        loom::thread::park();
    }
}

pub(crate) use real::{AtomicBool, AtomicU8, Mutex, Thread, current, park, yield_now};
