//! Synchronisation types, swapped for loom's in its tests: one source is both shipped and model-checked.

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, atomic::AtomicU8};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, atomic::AtomicU8};
