//! Synchronisation types. Loom's types replace them in loom's tests, so the shipped source is also the
//! model-checked one.

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, atomic::AtomicU8};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, atomic::AtomicU8};
