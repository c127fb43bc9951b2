//! Asynchronous sessions of trees of byte strings.

use crate::cluster::Cluster;
use crate::identity::Seated;
use crate::many::Each;
use crate::operations::raw_operations;
use crate::ops::Ops;
use crate::range::{Plan, RawEntry, RawSessionRange};
use crate::seat::SharedSeat;
use crate::stats::{Ledger, Stats};
use crate::within::Within;
use sherman_core::session::{Operation, Session};
use sherman_core::{Check, Error, TreeState};
use std::cell::Cell;
use std::fmt;
use std::ops::RangeBounds;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A session of a tree of byte strings: many operations in flight on one thread. Not `Send`.
///
/// An operation runs as a task of the session while the session [runs](Self::run) or [drains](Self::drain); dropping its [`Operation`] detaches it and never
/// leaves it half done. Dropping the session waits for what is in flight, within twice the cluster's timeout.
pub struct RawSession {
    session: Session<SharedSeat>,
    tree: Arc<TreeState>,
    ledger: Rc<Ledger>,
    timeout: Cell<Duration>,
}

impl fmt::Debug for RawSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSession")
            .field("tree", &self.tree.info().name)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

raw_operations!(RawSession, start, Operation);

impl RawSession {
    pub(crate) fn new(cluster: &Cluster, seated: Seated, tree: Arc<TreeState>, ledger: Ledger) -> Self {
        let timeout = Cell::new(cluster.timeout());
        let session = Session::new(SharedSeat::new(cluster, seated));
        Self { session, tree, ledger: Rc::new(ledger), timeout }
    }

    /// Starts an operation as a task of the session, with the session's deadline of now.
    pub(crate) fn start<T: 'static>(
        &self,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<T, Error> + 'static,
    ) -> Operation<T> {
        self.start_within(self.timeout.get(), operation)
    }

    pub(crate) fn start_within<T: 'static>(
        &self,
        timeout: Duration,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<T, Error> + 'static,
    ) -> Operation<T> {
        let (tree, ledger) = (Arc::clone(&self.tree), Rc::clone(&self.ledger));
        self.session.start(move |seat| async move {
            operation(Ops { seat: &*seat, tree: &tree, ledger: &ledger, timeout }).await
        })
    }

    /// Has `change` say what is to become of the value under `key`, and makes it so, as [`RawClient::update`](crate::RawClient::update).
    /// Resolves to the value it had.
    pub fn update(
        &self,
        key: Vec<u8>,
        change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool + 'static,
    ) -> Operation<Option<Vec<u8>>> {
        self.start(async move |ops| {
            let mut old = Vec::new();
            Ok(ops.update(&key, &mut old, change).await?.then_some(old))
        })
    }

    /// The entries whose keys lie in `range`, ascending or [descending](RawSessionRange::descending). Not a snapshot: see
    /// [`Range`](crate::Range).
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> RawSessionRange<'_> {
        RawSessionRange::new(self, Plan::of_bytes(&range))
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

    /// How long an operation that is started may wait for others: the cluster's timeout unless it was
    /// [set](Self::set_timeout).
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// Sets how long operations may wait that are started from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// This session with another deadline for operations started while what is returned lives.
    pub fn within(&self, timeout: Duration) -> Within<'_, Self> {
        Within::new(self, &self.timeout, timeout)
    }

    pub(crate) fn timeout_cell(&self) -> &Cell<Duration> {
        &self.timeout
    }

    /// What this session's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.ledger.read()
    }
}
