//! Asynchronous sessions.

use crate::cluster::Cluster;
use crate::identity::Seated;
use crate::operations::face::*;
use crate::range::SessionRange;
use crate::within::Within;
use sherman_core::session::{Operation as Task, Session as Tasks};
use std::cell::Cell;
use std::rc::Rc;

/// An asynchronous session, for one thread: many operations in flight at once. Not `Send`.
///
/// - **An operation starts with the call**, and makes progress while the session [runs](Session::run) or
///   [drains](Session::drain).
/// - **Dropping a future** detaches its operation, which still runs until it ends.
/// - **Dropping the session** waits for all operations in flight, for at most twice the cluster's timeout.
///
/// Its operations are those of [`Client`](crate::Client), at the same cost.
///
/// ```
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// # let orders = cluster.tree::<u64, u64>("orders")?;
/// let session = orders.session()?;
/// let (first, second) = (session.insert(1, 10), session.insert(2, 20)); // both are in flight
/// session.run(async {
///     first.await?;
///     second.await?;
///     let mut entries = session.range(2..);
///     while let Some(entry) = entries.next().await {
///         assert_eq!(entry?, (2, 20));
///     }
///     Ok::<(), sherman::Error>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session<K, V> {
    tasks: Tasks<SharedSeat>,
    tree: Arc<TreeState>,
    ledger: Rc<Ledger>,
    timeout: Cell<Duration>,
    types: PhantomData<fn(K) -> V>,
}

/// A [`Session`] for a tree of byte strings.
pub type RawSession = Session<Vec<u8>, Vec<u8>>;

/// An operation of a [`Session`], which has started: a future of its outcome. Dropping it detaches the
/// operation.
///
/// The outcome is a `T` or an `E`. Until it is decoded it is a `W`, which callers need not name.
pub type Operation<T, W = T, E = Error> = Started<Task<W>, T, W, E>;

operations!(Session, session, start, SessionRange<'_>);

impl<K, V> Session<K, V> {
    pub(crate) fn new(cluster: &Cluster, seated: Seated, tree: Arc<TreeState>, ledger: Ledger) -> Self {
        let (timeout, ledger) = (Cell::new(cluster.timeout()), Rc::new(ledger));
        let tasks = Tasks::new(SharedSeat::new(cluster, seated));
        Self { tasks, tree, ledger, timeout, types: PhantomData }
    }

    fn tree(&self) -> &TreeState {
        &self.tree
    }

    fn source(&self) -> &Self {
        self
    }

    /// Starts an operation as a task of the session.
    pub(crate) fn spawn<W: 'static>(
        &self,
        timeout: Duration,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<W, Error> + 'static,
    ) -> Task<W> {
        let (tree, ledger) = (Arc::clone(&self.tree), Rc::clone(&self.ledger));
        self.tasks.start(move |seat| async move {
            operation(Ops { seat: &*seat, tree: &tree, ledger: &ledger, timeout }).await
        })
    }

    fn start<W: 'static, T, E>(
        &self,
        count: usize,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<W, Error> + 'static,
        decode: fn(Result<W, Error>, usize) -> Result<T, E>,
    ) -> Operation<T, W, E> {
        Started { operation: self.spawn(self.timeout.get(), operation), decode, count }
    }

    /// Runs `future` and every operation in flight until `future` is done.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.tasks.run(future)
    }

    /// Number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.tasks.in_flight()
    }

    /// Waits for all operations in flight. Returns how many operations remain after twice the cluster's
    /// timeout.
    pub fn drain(&self) -> usize {
        self.tasks.drain()
    }

    /// How long a started operation may wait for other clients. This is the cluster's timeout unless the
    /// caller [set](Self::set_timeout) another.
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// Sets how long operations started from now on may wait.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// This session with another deadline, for operations that start while the returned value lives.
    pub fn within(&self, timeout: Duration) -> Within<'_, Self> {
        Within::new(self, &self.timeout, timeout)
    }

    /// The cost of this session's operations so far.
    pub fn stats(&self) -> Stats {
        self.ledger.read()
    }

    /// The same session, for byte strings.
    pub fn into_raw(self) -> RawSession {
        let Self { tasks, tree, ledger, timeout, .. } = self;
        Session { tasks, tree, ledger, timeout, types: PhantomData }
    }
}

impl<K: Stored, V: Stored> Session<K, V> {
    /// Replaces the value under `key` by the result of `change` (`None`: absent), as
    /// [`Client::update`](crate::Client::update). Resolves to the old value.
    pub fn update(
        &self,
        key: impl Arg<K>,
        mut change: impl FnMut(Option<V>) -> Option<V> + 'static,
    ) -> Operation<Option<V>, Option<Packed>> {
        let key = packed!(session, K, &key);
        let update = async move |ops: Ops<'_, _>| {
            let change = |old: Option<&[u8]>, new: &mut _| encode_change(&mut change, old, new);
            ops.find(async |old| ops.update(&key, old, change).await).await
        };
        self.start(0, update, found)
    }
}

impl<K: Stored, V: Stored> Source for &Session<K, V> {
    type Key = K;
    type Value = V;
    type Read = Task<Option<Box<Scan>>>;

    fn read(&self, reading: Reading) -> Self::Read {
        self.spawn(self.timeout.get(), async move |ops| ops.read_on(reading).await)
    }

    fn end(&self, scan: Box<Scan>) {
        let seat = &**self.tasks.seat();
        Ops { seat, tree: &self.tree, ledger: &self.ledger, timeout: self.timeout.get() }.end_scan(scan);
    }
}

impl<K: Stored, V: Stored> AsyncSource for &Session<K, V> {}
