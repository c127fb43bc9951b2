//! The operations of the tree, compiled once, in this crate.
//!
//! Clients are generic in their keys and values, so every program compiles its own clients. Without these
//! functions it would compile the tree again too. Each costs one call through a pointer.

use crate::cluster::AnyEndpoint;
use sherman_core::{Check, Clearing, Error, Exchange, Op, Scan, TreeState, Worker};
use sherman_executor::outlined;

type AnyOp<'w> = Op<'w, AnyEndpoint>;

#[inline(never)]
pub(crate) fn get(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    value: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.get(tree, key, value))
}

#[inline(never)]
pub(crate) fn insert(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    value: &[u8],
    old: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.insert(tree, key, value, old))
}

#[inline(never)]
pub(crate) fn remove(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    old: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.remove(tree, key, old))
}

#[inline(never)]
pub(crate) fn insert_if_absent(
    op: &AnyOp<'_>,
    tree: &TreeState,
    key: &[u8],
    value: &[u8],
    found: &mut Vec<u8>,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.insert_if_absent(tree, key, value, found))
}

#[inline(never)]
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

#[inline(never)]
pub(crate) fn refill(
    op: &AnyOp<'_>,
    tree: &TreeState,
    scan: &mut Scan,
) -> impl Future<Output = Result<bool, Error>> {
    outlined(op.refill(tree, scan))
}

#[inline(never)]
pub(crate) fn clear_on(
    worker: &Worker<AnyEndpoint>,
    tree: &TreeState,
    clearing: &mut Clearing,
) -> impl Future<Output = Result<(), Error>> {
    outlined(worker.clear_on(tree, clearing))
}

#[inline(never)]
pub(crate) fn check(
    worker: &Worker<AnyEndpoint>,
    tree: &TreeState,
) -> impl Future<Output = Result<Check, Error>> {
    outlined(worker.check(tree))
}
