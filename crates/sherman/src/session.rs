//! Asynchronous sessions: many operations in flight on one thread.
//!
//! An operation is a *task of the session*; the future a caller holds is a handle to it. Dropping the handle detaches: the
//! operation still runs to its end, so no lane stays held and nothing is left half made (design §3). Dropping the session
//! drains what is in flight, bounded by the cluster's timeout.

use crate::cluster::AnyEndpoint;
use crate::stats::{OpKind, Stats};
use sherman_core::{Error, TreeState, Worker};
use sherman_executor::{JoinHandle, LocalExecutor};
use sherman_fabric::{Clock, FabricError};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A session of a tree of byte strings. Not `Send`.
pub struct RawSession {
    executor: LocalExecutor,
    inner: Rc<Inner>,
}

struct Inner {
    worker: Worker<AnyEndpoint>,
    tree: Arc<TreeState>,
    stats: RefCell<Stats>,
}

/// An operation in flight. Resolves when it is done; dropping it detaches, it does not cancel.
#[must_use = "an operation's outcome is told by awaiting it"]
pub struct Operation<T> {
    handle: JoinHandle<Result<T, Error>>,
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").finish_non_exhaustive()
    }
}

impl<T> Future for Operation<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The task is gone only if its session was dropped and could not drain in time.
        let lost = Err(Error::OutcomeUnknown { source: FabricError::Unsupported { what: "finish after its session" } });
        Pin::new(&mut self.handle).poll(cx).map(|outcome| outcome.unwrap_or(lost))
    }
}

impl fmt::Debug for RawSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSession")
            .field("tree", &self.inner.tree.info().name)
            .field("in_flight", &self.executor.tasks())
            .finish_non_exhaustive()
    }
}

impl RawSession {
    pub(crate) fn new(worker: Worker<AnyEndpoint>, tree: Arc<TreeState>) -> Self {
        Self { executor: LocalExecutor::new(), inner: Rc::new(Inner { worker, tree, stats: RefCell::default() }) }
    }

    /// Looks `key` up. Starts when the session runs; see [`RawSession::run`].
    pub fn get(&self, key: Vec<u8>) -> Operation<Option<Vec<u8>>> {
        let inner = Rc::clone(&self.inner);
        let handle = self.executor.spawn(async move {
            let op = inner.worker.op();
            let mut value = Vec::new();
            let found = op.get(&inner.tree, &key, &mut value).await;
            inner.stats.borrow_mut().count(found.is_ok().then_some(OpKind::Get), &op);
            Ok(found?.then_some(value))
        });
        Operation { handle }
    }

    /// Puts `value` under `key`; resolves to the old value.
    pub fn insert(&self, key: Vec<u8>, value: Vec<u8>) -> Operation<Option<Vec<u8>>> {
        let inner = Rc::clone(&self.inner);
        let handle = self.executor.spawn(async move {
            let op = inner.worker.op();
            let mut old = Vec::new();
            let updated = op.insert(&inner.tree, &key, &value, &mut old).await;
            inner.stats.borrow_mut().count(OpKind::of_insert(&updated), &op);
            Ok(updated?.then_some(old))
        });
        Operation { handle }
    }

    /// Runs `future` and every operation in flight until `future` is done.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.executor.run_until(self.inner.worker.endpoint(), future)
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.executor.tasks()
    }

    /// Waits for everything in flight, at most the cluster's timeout. Returns how many operations are left.
    pub fn drain(&self) -> usize {
        let endpoint = self.inner.worker.endpoint();
        let patience = u64::try_from(self.inner.worker.compute().timeout().as_nanos()).unwrap_or(u64::MAX);
        // An operation that waits gives up by itself at its own deadline: allow for one that has only begun to.
        let deadline = endpoint.now().saturating_add(patience.saturating_mul(2));
        self.executor.drain(endpoint, || endpoint.now() >= deadline)
    }

    /// What this session's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.inner.stats.borrow().clone()
    }
}

impl Drop for RawSession {
    fn drop(&mut self) {
        self.drain();
    }
}
