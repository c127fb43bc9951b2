//! Handles: a tree for any number of threads and tasks, on any executor.
//!
//! Each worker thread owns a session. A handle sends an operation to the workers through a bounded [`queue`]
//! and receives the answer through a [`reply`]. The caller awaits an ordinary future. Idle workers sleep.

mod queue;
mod reply;
#[cfg(test)]
mod tests;
mod worker;

use crate::operations::face::*;
use crate::range::HandleRange;
use crate::stats::Account;
use crate::tree::RawTree;
use queue::{Job, Pushed, Queue};
use reply::{Receiver, reply};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use worker::{Bench, work};

/// Options of a [`Handle`]'s workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleOptions {
    threads: usize,
    queue: usize,
    in_flight: usize,
}

impl Default for HandleOptions {
    fn default() -> Self {
        Self { threads: 1, queue: 1024, in_flight: 256 }
    }
}

impl HandleOptions {
    /// The defaults: one thread, 1024 operations queued, 256 in flight.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of worker threads, at least one.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The most operations that are accepted but not yet begun, at least one. Beyond that, an awaited
    /// operation waits for a slot.
    pub fn queue(mut self, operations: usize) -> Self {
        self.queue = operations;
        self
    }

    /// The most operations that a thread has in flight at once, at least one.
    pub fn in_flight(mut self, operations: usize) -> Self {
        self.in_flight = operations;
        self
    }
}

/// A handle to a tree for any number of threads and tasks: `Send`, `Sync` and cheap to clone.
///
/// Its operations are those of [`Client`](crate::Client), as ordinary futures for tokio or any other
/// executor. Worker threads of the handle do the work. Compared with a client or a
/// [`Session`](crate::Session), an operation takes two more thread switches.
///
/// - **An operation starts with the call**, as with a session. It makes progress whether or not its future is
///   polled.
/// - **Back-pressure**: when the [queue](HandleOptions::queue) is full, further operations wait, in order of
///   arrival.
/// - **Dropping a future** detaches it: an accepted operation still runs, and an operation that waits for a
///   slot is withdrawn.
/// - **Dropping the last clone** finishes all queued operations and ends the threads. It blocks that long: at
///   most the timeout for every [batch in flight](HandleOptions::in_flight).
/// - If the workers are gone, operations fail with [`Error::HandleClosed`].
///
/// ```
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let orders = cluster.tree::<u64, u64>("orders")?.handle()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
/// runtime.block_on(async {
///     let task = tokio::spawn(orders.insert(7, 700));
///     assert_eq!(task.await??, None);
///     assert_eq!(orders.get(7).await?, Some(700));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Handle<K, V> {
    workers: Arc<Workers>,
    timeout: Duration,
    types: PhantomData<fn(K) -> V>,
}

/// A [`Handle`] to a tree of byte strings.
pub type RawHandle = Handle<Vec<u8>, Vec<u8>>;

/// An operation of a [`Handle`], which has started: a future of its outcome, on any executor. Dropping it
/// detaches the operation. While the operation waits for a slot in a full queue, dropping it withdraws it.
///
/// The outcome is a `T` or an `E`. Until it is decoded it is a `W`, which callers need not name.
pub type HandleOperation<T, W = T, E = Error> = Started<Queued<W>, T, W, E>;

/// The worker threads of a handle and its clones. Dropping the last clone drops this and ends the threads.
struct Workers {
    tree: Arc<TreeState>,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    stats: Vec<Arc<Mutex<Account>>>,
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A worker that wakes a task may drop the last handle itself. It cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                // A worker that panicked has already printed that, and its operations were answered.
                let _ = thread.join();
            }
        }
    }
}

operations!(Handle, handle, start, HandleRange);

impl<K, V> Clone for Handle<K, V> {
    fn clone(&self) -> Self {
        self.within(self.timeout)
    }
}

impl<K, V> Handle<K, V> {
    pub(crate) fn new(tree: &RawTree, options: &HandleOptions) -> Result<Self, Error> {
        let count = options.threads.max(1);
        let in_flight = options.in_flight.clamp(1, sherman_core::session::MAX_IN_FLIGHT);
        let queue = Arc::new(Queue::new(options.queue.max(1), count));
        let timeout = tree.cluster().timeout();
        let state = Arc::clone(tree.state());
        let mut workers = Workers { tree: state, queue, threads: Vec::new(), stats: Vec::new() };
        for number in 0..count {
            // Connected here, so that the creator of the handle gets the error if a server is not reachable.
            let seated = tree.cluster().seated()?;
            let (tree, queue) = (tree.clone(), Arc::clone(&workers.queue));
            let (ledger, account) = Ledger::shared(tree.cluster().total());
            workers.stats.push(account);
            let thread = std::thread::Builder::new().name(format!("sherman-{number}"));
            // On failure `workers` is dropped, which ends the threads that were started.
            let thread = thread
                .spawn(move || work(&tree, seated, queue, number, in_flight, ledger))
                .map_err(|error| Error::Thread { kind: error.kind() })?;
            workers.threads.push(thread);
        }
        Ok(Self { workers: Arc::new(workers), timeout, types: PhantomData })
    }

    fn tree(&self) -> &TreeState {
        &self.workers.tree
    }

    fn source(&self) -> Self {
        self.clone()
    }

    /// Queues an operation for a worker.
    fn queue<W: Send + 'static>(
        &self,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<W, Error> + Send + 'static,
    ) -> Queued<W> {
        let (sender, receiver) = reply();
        let timeout = self.timeout;
        let job: Job = Box::new(move |bench: &Bench| bench.put(timeout, sender, operation));
        let waiting = match self.workers.queue.push(job) {
            Pushed::Accepted => None,
            Pushed::Waiting(number) => Some((Arc::clone(&self.workers.queue), number)),
            Pushed::Refused(job) => {
                // Dropping the job answers the caller.
                drop(job);
                None
            }
        };
        Queued { waiting, receiver }
    }

    fn start<W: Send + 'static, T, E>(
        &self,
        count: usize,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<W, Error> + Send + 'static,
        decode: fn(Result<W, Error>, usize) -> Result<T, E>,
    ) -> HandleOperation<T, W, E> {
        Started { operation: self.queue(operation), decode, count }
    }

    /// How long an operation may wait for other clients before it fails with [`Error::Timeout`]. The time in
    /// the queue is not counted.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same handle with another deadline for its operations.
    pub fn within(&self, timeout: Duration) -> Self {
        Self { workers: Arc::clone(&self.workers), timeout, types: PhantomData }
    }

    /// The cost of the operations of this handle and its clones so far.
    pub fn stats(&self) -> Stats {
        let mut all = Stats::default();
        for stats in &self.workers.stats {
            all.merge(&stats.lock().unwrap_or_else(PoisonError::into_inner).read());
        }
        all
    }

    /// The same handle, for byte strings.
    pub fn raw(&self) -> RawHandle {
        Handle { workers: Arc::clone(&self.workers), timeout: self.timeout, types: PhantomData }
    }
}

impl<K: Stored, V: Stored> Handle<K, V> {
    /// Replaces the value under `key` by the result of `change` (`None`: absent), as
    /// [`Client::update`](crate::Client::update). Resolves to the old value.
    ///
    /// `change` runs on a worker thread, outside any lock. It should be short, because other operations of
    /// the handle wait meanwhile. If it panics, nothing is changed, and the panic continues where the future
    /// is awaited.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// # let visits = cluster.tree::<u64, u64>("visits")?.handle()?;
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    /// # runtime.block_on(async {
    /// let visitors: Vec<_> =
    ///     (0..100).map(|_| visits.update(7, |count| Some(count.unwrap_or(0) + 1))).collect();
    /// for visitor in visitors {
    ///     visitor.await?;
    /// }
    /// assert_eq!(visits.get(7).await?, Some(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update(
        &self,
        key: impl Arg<K>,
        mut change: impl FnMut(Option<V>) -> Option<V> + Send + 'static,
    ) -> HandleOperation<Option<V>, std::thread::Result<Option<Packed>>> {
        let key = packed!(handle, K, &key);
        let update = async move |ops: Ops<'_, _>| {
            let mut panic = None;
            // A panic of the caller's `change` must not end the worker. `change` does not run again after a
            // panic.
            let guarded = |old: Option<&[u8]>, new: &mut Vec<u8>| {
                let changed = catch_unwind(AssertUnwindSafe(|| encode_change(&mut change, old, new)));
                changed.unwrap_or_else(|payload| {
                    panic = Some(payload);
                    // Returns the old value, so that nothing is changed.
                    new.clear();
                    new.extend_from_slice(old.unwrap_or_default());
                    old.is_some()
                })
            };
            let old = ops.find(async |old| ops.update(&key, old, guarded).await).await?;
            Ok(panic.map_or(Ok(old), Err))
        };
        self.start(0, update, |answer, at| {
            let old = answer?.unwrap_or_else(|payload| resume_unwind(payload));
            found::<Packed, V>(Ok(old), at)
        })
    }
}

/// An operation on its way to a worker, and its answer on its way back.
pub struct Queued<W> {
    /// The operation's queue and number, if the queue was full.
    waiting: Option<(Arc<Queue>, u64)>,
    receiver: Receiver<W>,
}

impl<W> Future for Queued<W> {
    type Output = Result<W, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.receiver).poll(cx);
        if answer.is_ready() {
            self.waiting = None;
        }
        answer
    }
}

impl<W> Drop for Queued<W> {
    fn drop(&mut self) {
        if let Some((queue, number)) = self.waiting.take() {
            queue.withdraw(number);
        }
    }
}

impl<K: Stored, V: Stored> Source for Handle<K, V> {
    type Key = K;
    type Value = V;
    type Read = Queued<Option<Box<Scan>>>;

    fn read(&self, reading: Reading) -> Self::Read {
        self.queue(async move |ops| ops.read_on(reading).await)
    }

    /// The buffers belong to the workers' threads.
    fn end(&self, _: Box<Scan>) {}
}

impl<K: Stored, V: Stored> AsyncSource for Handle<K, V> {}
