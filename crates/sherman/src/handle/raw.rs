//! Handles to trees of byte strings.

use super::HandleOptions;
use super::queue::{Job, Pushed, Queue};
use super::reply::{Receiver, reply};
use super::worker::{Bench, work};
use crate::many::Each;
use crate::operations::raw_operations;
use crate::ops::Ops;
use crate::range::{Plan, RawEntry, RawHandleRange};
use crate::raw::RawTree;
use crate::seat::SharedSeat;
use crate::stats::{Account, Ledger, Stats};
use sherman_core::{Check, Error};
use std::fmt;
use std::ops::RangeBounds;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

/// A handle to a tree of byte strings, for any number of threads and tasks. See [`Handle`](crate::Handle).
#[derive(Clone)]
pub struct RawHandle {
    workers: Arc<Workers>,
    timeout: Duration,
}

impl fmt::Debug for RawHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawHandle").field("threads", &self.workers.stats.len()).finish_non_exhaustive()
    }
}

/// The worker threads of a handle and its clones. Dropped with the last of them, which ends the threads.
struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    stats: Vec<Arc<Mutex<Account>>>,
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A worker that wakes a task may be the one to drop the last handle; it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                // A worker that panicked has said so already, and its operations were answered.
                let _ = thread.join();
            }
        }
    }
}

raw_operations!(RawHandle, call, HandleOperation);

impl RawHandle {
    pub(crate) fn start(tree: &RawTree, options: &HandleOptions) -> Result<Self, Error> {
        let count = options.threads.max(1);
        let in_flight = options.in_flight.clamp(1, sherman_core::session::MAX_IN_FLIGHT);
        let queue = Arc::new(Queue::new(options.queue.max(1), count));
        let timeout = tree.timeout();
        let mut workers = Workers { queue, threads: Vec::new(), stats: Vec::new() };
        for number in 0..count {
            // Here, so that whoever asks for the handle learns of a server that is not there.
            let seated = tree.seated()?;
            let (tree, queue) = (tree.clone(), Arc::clone(&workers.queue));
            let (ledger, account) = Ledger::shared(tree.total());
            workers.stats.push(account);
            let thread = std::thread::Builder::new().name(format!("sherman-{number}"));
            // On failure `workers` is dropped, which ends those that were started.
            let thread = thread
                .spawn(move || work(&tree, seated, queue, number, in_flight, ledger))
                .map_err(|error| Error::Thread { kind: error.kind() })?;
            workers.threads.push(thread);
        }
        Ok(Self { workers: Arc::new(workers), timeout })
    }

    /// An operation for a worker.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<T, Error> + Send + 'static,
    ) -> HandleOperation<T> {
        let (sender, receiver) = reply();
        let timeout = self.timeout;
        let job: Job = Box::new(move |bench: &Bench| bench.put(timeout, sender, operation));
        HandleOperation { queue: Arc::clone(&self.workers.queue), job: Some(job), waiting: None, receiver }
    }

    /// Has `change` say what is to become of the value under `key`, and makes it so, as
    /// [`RawClient::update`](crate::RawClient::update). Resolves to the value it had.
    ///
    /// `change` runs on a worker thread, outside any lock, and keeps the handle's other operations waiting meanwhile: it should be
    /// short. If it panics nothing is changed, and the panic goes on where the future is awaited.
    pub fn update<F>(
        &self,
        key: Vec<u8>,
        mut change: F,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + use<F>
    where
        F: FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool + Send + 'static,
    {
        let update = self.call(async move |ops| {
            let mut panic = None;
            let mut old = Vec::new();
            // A caller's panic must not take the worker with it. `change` is not asked again after one.
            let guarded = |old: Option<&[u8]>, new: &mut Vec<u8>| {
                catch_unwind(AssertUnwindSafe(|| change(old, new))).unwrap_or_else(|payload| {
                    panic = Some(payload);
                    // As it is: nothing is to be changed.
                    new.clear();
                    new.extend_from_slice(old.unwrap_or_default());
                    old.is_some()
                })
            };
            let there = ops.update(&key, &mut old, guarded).await?;
            Ok(match panic {
                Some(payload) => Err(payload),
                None => Ok(there.then_some(old)),
            })
        });
        async move { Ok(update.await?.unwrap_or_else(|payload| resume_unwind(payload))) }
    }

    /// The entries whose keys lie in `range`, ascending or [descending](RawHandleRange::descending). Not a snapshot: see
    /// [`Range`](crate::Range). Until it is dropped it counts as a clone of the handle.
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> RawHandleRange {
        RawHandleRange::new(self.clone(), Plan::of_bytes(&range))
    }

    /// How long an operation may wait for others before it fails with [`Error::Timeout`]; the time it spends in the queue is
    /// not counted.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same handle with another deadline for its operations.
    pub fn within(&self, timeout: Duration) -> Self {
        Self { workers: Arc::clone(&self.workers), timeout }
    }

    /// What the operations of this handle and its clones cost so far.
    pub fn stats(&self) -> Stats {
        let mut all = Stats::default();
        for stats in &self.workers.stats {
            all.merge(&stats.lock().unwrap_or_else(PoisonError::into_inner).read());
        }
        all
    }

    #[cfg(test)]
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.workers.queue
    }
}

/// An operation of a handle: a future that any executor can run. Nothing happens before it is first polled. Then it is queued,
/// and once accepted it runs to its end even if this is dropped; while it still waits for a place in a full queue, dropping
/// it withdraws it.
#[must_use = "nothing happens until it is awaited"]
pub struct HandleOperation<T> {
    queue: Arc<Queue>,
    /// Until the first poll.
    job: Option<Job>,
    /// Its number in the queue, if that was full.
    waiting: Option<u64>,
    receiver: Receiver<T>,
}

impl<T> fmt::Debug for HandleOperation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleOperation").finish_non_exhaustive()
    }
}

impl<T> Future for HandleOperation<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(job) = self.job.take() {
            match self.queue.push(job) {
                Pushed::Accepted => {}
                Pushed::Waiting(number) => self.waiting = Some(number),
                // Dropping it answers.
                Pushed::Refused(job) => drop(job),
            }
        }
        let answer = Pin::new(&mut self.receiver).poll(cx);
        if answer.is_ready() {
            self.waiting = None;
        }
        answer
    }
}

impl<T> Drop for HandleOperation<T> {
    fn drop(&mut self) {
        if let Some(number) = self.waiting {
            self.queue.withdraw(number);
        }
    }
}
