//! The tree on embedded memory, in real time: threads of many compute servers, and compute servers that die.
//!
//! One binary, because each binary compiles the tree again.
#![cfg(not(loom))]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod kills;
mod stress;
#[path = "../support/mod.rs"]
mod support;

use std::sync::RwLock;

/// A test that measures time holds this alone. All other tests of this binary share it.
static ALONE: RwLock<()> = RwLock::new(());
