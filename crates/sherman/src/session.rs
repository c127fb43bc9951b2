//! Asynchronous sessions of trees of byte strings.

use crate::cluster::AnyEndpoint;
use crate::stats::{OpKind, Stats};
use sherman_core::session::{Operation, Session};
use sherman_core::{TreeState, Worker};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

/// A session of a tree of byte strings: many operations in flight on one thread. Not `Send`.
///
/// An operation runs as a task of the session once the session runs; dropping its [`Operation`] detaches it and never
/// leaves it half done. Dropping the session waits for what is in flight, within twice the cluster's timeout.
pub struct RawSession {
    session: Session<AnyEndpoint>,
    tree: Arc<TreeState>,
    stats: Rc<RefCell<Stats>>,
}

impl fmt::Debug for RawSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSession")
            .field("tree", &self.tree.info().name)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl RawSession {
    pub(crate) fn new(worker: Worker<AnyEndpoint>, tree: Arc<TreeState>) -> Self {
        Self { session: Session::new(worker), tree, stats: Rc::default() }
    }

    /// Looks `key` up. It makes progress only while the session runs: await it inside [`RawSession::run`], or drain.
    pub fn get(&self, key: Vec<u8>) -> Operation<Option<Vec<u8>>> {
        let (tree, stats) = (Arc::clone(&self.tree), Rc::clone(&self.stats));
        self.session.start(|worker| async move {
            let op = worker.op();
            let mut value = Vec::new();
            let found = op.get(&tree, &key, &mut value).await;
            stats.borrow_mut().count(found.is_ok().then_some(OpKind::Get), &op);
            Ok(found?.then_some(value))
        })
    }

    /// Puts `value` under `key`; resolves to the old value. It makes progress only while the session runs.
    pub fn insert(&self, key: Vec<u8>, value: Vec<u8>) -> Operation<Option<Vec<u8>>> {
        let (tree, stats) = (Arc::clone(&self.tree), Rc::clone(&self.stats));
        self.session.start(|worker| async move {
            let op = worker.op();
            let mut old = Vec::new();
            let updated = op.insert(&tree, &key, &value, &mut old).await;
            stats.borrow_mut().count(OpKind::of_insert(&updated), &op);
            Ok(updated?.then_some(old))
        })
    }

    /// Runs `future` and every operation in flight until `future` is done.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.session.run(future)
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    /// Waits for everything in flight. Returns how many operations are left after twice the cluster's timeout.
    pub fn drain(&self) -> usize {
        self.session.drain()
    }

    /// What this session's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.stats.borrow().clone()
    }
}
