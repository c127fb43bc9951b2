//! Blocking clients.

use crate::cluster::AnyEndpoint;
use crate::stats::{OpKind, Stats};
use sherman_core::{Error, TreeState, Worker};
use sherman_executor::block_on;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// A blocking client of a tree of byte strings, for one thread. Every call returns when it is done or its deadline passed.
pub struct RawClient {
    worker: Worker<AnyEndpoint>,
    tree: Arc<TreeState>,
    stats: RefCell<Stats>,
}

impl fmt::Debug for RawClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawClient").field("tree", &self.tree.info().name).finish_non_exhaustive()
    }
}

impl RawClient {
    pub(crate) fn new(worker: Worker<AnyEndpoint>, tree: Arc<TreeState>) -> Self {
        Self { worker, tree, stats: RefCell::default() }
    }

    /// Looks `key` up; `value` receives what is found. One round trip when the cache knows the leaf. Linearizable.
    ///
    /// # Errors
    /// [`Error::KeySize`]; [`Error::Timeout`] if a dead client left the leaf torn.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.worker.op();
        let found = block_on(self.worker.endpoint(), op.get(&self.tree, key, value));
        self.stats.borrow_mut().count(found.is_ok().then_some(OpKind::Get), &op);
        found
    }

    /// Puts `value` under `key`; whether the key was there, and its old value in `old`. Two round trips when the cache
    /// knows the leaf and nobody else holds its lane. Linearizable.
    ///
    /// # Errors
    /// [`Error::KeySize`], [`Error::ValueSize`], [`Error::OutOfMemory`], [`Error::Timeout`]: nothing was changed.
    /// [`Error::OutcomeUnknown`]: it may have been.
    pub fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.worker.op();
        let updated = block_on(self.worker.endpoint(), op.insert(&self.tree, key, value, old));
        self.stats.borrow_mut().count(OpKind::of_insert(&updated), &op);
        updated
    }

    /// What this client's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.stats.borrow().clone()
    }
}

impl OpKind {
    /// The kind of a finished insert.
    pub(crate) fn of_insert(outcome: &Result<bool, Error>) -> Option<Self> {
        match outcome {
            Ok(true) => Some(Self::Update),
            Ok(false) => Some(Self::Insert),
            Err(_) => None,
        }
    }
}
