//! Blocking clients of trees of byte strings.

use crate::cluster::AnyEndpoint;
use crate::ops::Ops;
use crate::stats::{Ledger, Stats};
use crate::within::Within;
use sherman_core::{Error, TreeState, Worker};
use sherman_executor::block_on;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A blocking client of a tree of byte strings, for one thread at a time. Every call returns when it is done or its deadline
/// passed.
pub struct RawClient {
    worker: Worker<AnyEndpoint>,
    tree: Arc<TreeState>,
    ledger: Ledger,
    timeout: Cell<Duration>,
}

impl fmt::Debug for RawClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawClient").field("tree", &self.tree.info().name).finish_non_exhaustive()
    }
}

impl RawClient {
    pub(crate) fn new(worker: Worker<AnyEndpoint>, tree: Arc<TreeState>) -> Self {
        let timeout = Cell::new(worker.compute().timeout());
        Self { worker, tree, ledger: Ledger::default(), timeout }
    }

    #[inline]
    pub(crate) fn ops(&self) -> Ops<'_> {
        Ops { worker: &self.worker, tree: &self.tree, ledger: &self.ledger, timeout: self.timeout.get() }
    }

    /// Runs one operation to its end.
    #[inline]
    pub(crate) fn run<'a, F: Future>(&'a self, operation: impl FnOnce(Ops<'a>) -> F) -> F::Output {
        block_on(self.worker.endpoint(), operation(self.ops()))
    }

    /// Looks `key` up; `value` receives what is found. One round trip when the cache knows the leaf. Linearizable.
    ///
    /// # Errors
    /// [`Error::KeySize`]; [`Error::Timeout`] if a dead client left the leaf torn.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(|ops| async move { ops.get(key, value).await })
    }

    /// Puts `value` under `key`; whether the key was there, and its old value in `old`. Two round trips when the cache
    /// knows the leaf and nobody else holds its lane. Linearizable.
    ///
    /// # Errors
    /// [`Error::KeySize`], [`Error::ValueSize`], [`Error::OutOfMemory`], [`Error::Timeout`]: nothing was changed.
    /// [`Error::OutcomeUnknown`]: it may have been.
    pub fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(|ops| async move { ops.insert(key, value, old).await })
    }

    /// How long its operations may wait for others before they fail with [`Error::Timeout`]: the cluster's timeout unless it
    /// was [set](Self::set_timeout). Time counts from the first obstacle; an operation that meets none reads no clock.
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// Sets how long operations may wait from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// This client with another deadline, for as long as what is returned lives.
    pub fn within(&self, timeout: Duration) -> Within<'_, Self> {
        Within::new(self, &self.timeout, timeout)
    }

    pub(crate) fn timeout_cell(&self) -> &Cell<Duration> {
        &self.timeout
    }

    /// What this client's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.ledger.read()
    }
}
