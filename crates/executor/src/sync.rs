//! The few pieces of `std` that loom replaces: one source is both shipped and model-checked.
//!
//! Reference counts stay `std`'s in both worlds: [`std::task::Wake`] asks for them, and they guard no protocol of ours.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8};
    pub(crate) use std::thread::{Thread, current, yield_now};
    use std::time::Duration;

    /// Parks the calling thread until it is unparked, `limit` has passed, or for no reason at all.
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

    /// loom has no time: a park always lasts until somebody unparks, which makes every lost wake-up a deadlock.
    pub(crate) fn park(_limit: Option<Duration>) {
        loom::thread::park();
    }
}

pub(crate) use real::{AtomicBool, AtomicU8, Mutex, Thread, current, park, yield_now};
