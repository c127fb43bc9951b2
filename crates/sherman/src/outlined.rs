//! The operations of the tree, compiled once, in this crate.
//!
//! Clients are generic in their keys and values, so every program compiles its own clients. Without these
//! functions it would compile the tree again too. They cost a call for each poll.

use crate::client::RawClient;
use crate::cluster::AnyEndpoint;
use sherman_core::tree::now::{Begun, Now};
use sherman_core::{Check, Clearing, Error, Exchange, Op, Scan, TreeState, Worker};
use sherman_executor::outlined;
use std::slice::from_ref;

/// Calls every operation that is not compiled here anyway. No program needs to call this function: it exists
/// so that the operations are compiled with it.
#[doc(hidden)]
pub fn compile_operations(client: &RawClient) {
    let key = Vec::new();
    drop(client.insert_if_absent(&key, &key));
    drop(client.compare_exchange(&key, None, None));
    drop(client.first());
    drop(client.get_many(from_ref(&key)));
    drop(client.clear());
    drop(client.check());
}

type AnyOp<'w> = Op<'w, AnyEndpoint>;

#[inline]
pub(crate) fn get(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    value: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.get(tree, key, value))
}

#[inline]
pub(crate) fn insert(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    value: &[u8],
    old: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.insert(tree, key, value, old))
}

/// Not a future, so it is compiled here and called.
#[inline(never)]
pub(crate) fn get_now(op: &AnyOp<'_>, tree: &TreeState, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
    op.get_now(tree, key, value)
}

/// Not a future, so it is compiled here and called.
#[inline(never)]
pub(crate) fn insert_at_once<'w>(
    op: &AnyOp<'w>,
    tree: &TreeState,
    key: &[u8],
    value: &[u8],
    old: &mut Vec<u8>,
) -> Now<'w> {
    op.insert_at_once(tree, key, value, old)
}

pub(crate) fn resume_insert<'w>(
    op: &AnyOp<'w>,
    tree: &TreeState,
    begun: Box<Begun<'w>>,
    key: &[u8],
    value: &[u8],
    old: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(Box::pin(op.resume_insert(tree, begun, key, value, old)))
}

#[inline]
pub(crate) fn remove(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    old: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.remove(tree, key, old))
}

#[inline]
pub(crate) fn insert_if_absent(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    value: &[u8],
    found: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.insert_if_absent(tree, key, value, found))
}

#[inline]
pub(crate) fn compare_exchange(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    expected: Option<&[u8]>,
    new: Option<&[u8]>,
    found: &mut Vec<u8>,
) -> impl Future<Output = Result<Exchange, Error>> {
    outlined(op.compare_exchange(tree, key, expected, new, found))
}

#[inline]
pub(crate) fn refill(
    op: &AnyOp<'_>,
    tree: &TreeState,
    scan: &mut Scan,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.refill(tree, scan))
}

#[inline]
pub(crate) fn clear_on(
    worker: &Worker<AnyEndpoint>,
    tree: &TreeState,
    clearing: &mut Clearing,
) -> impl Future<Output = Result<(), Error>> {
    outlined(worker.clear_on(tree, clearing))
}

#[inline]
pub(crate) fn check(
    worker: &Worker<AnyEndpoint>,
    tree: &TreeState,
) -> impl Future<Output = Result<Check, Error>> {
    outlined(worker.check(tree))
}
