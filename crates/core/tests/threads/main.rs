//! The tree on embedded memory, in real time: threads of many compute servers, and compute servers that die.
//!
//! One binary, because each binary compiles the tree again.
#![cfg(not(loom))]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod kills;
mod stress;
#[path = "../support/mod.rs"]
mod support;

use sherman_core::tree::now::Now;
use sherman_core::{Error, Op, TreeState};
use sherman_embedded::EmbeddedEndpoint;
use std::sync::RwLock;

/// A test that measures time holds this alone. All other tests of this binary share it.
static ALONE: RwLock<()> = RwLock::new(());

/// Looks a key up as clients of the library do: at once if nothing has to be waited for.
async fn get(
    op: &Op<'_, EmbeddedEndpoint>,
    tree: &TreeState,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool, Error> {
    match op.get_now(tree, key, value) {
        Some(found) => Ok(found),
        None => op.get(tree, key, value).await,
    }
}

/// Puts an entry as clients of the library do: at once as far as nothing has to be waited for.
async fn insert(
    op: &Op<'_, EmbeddedEndpoint>,
    tree: &TreeState,
    key: &[u8],
    value: &[u8],
    old: &mut Vec<u8>,
) -> Result<bool, Error> {
    match op.insert_at_once(tree, key, value, old) {
        Now::Done(updated) => Ok(updated),
        Now::No => op.insert(tree, key, value, old).await,
        Now::Begun(begun) => op.resume_insert(tree, begun, key, value, old).await,
    }
}
