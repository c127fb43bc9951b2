//! One identity of a compute server: from joining the cluster to leaving it, or to its end.
//!
//! A [`Cluster`](crate::Cluster) has one identity at a time. When one has ended, the keeper joins again and puts the next in its place
//! ([`crate::mend`]). Workers of the old one stay with the operations that are in flight on them, and keep it alive; the last to go
//! abandons it. An identity that has ended never leaves in order (I40): recovery frees what it left behind.

use crate::any::{AnyEndpoint, AnyFabric};
use crate::cluster::ClusterOptions;
use crate::error::OpenError;
use crate::keeper::{Stop, StoppableThread, recover};
use sherman_core::{ComputeOptions, ComputeServer, Error, Worker};
use sherman_executor::block_on;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Workers that are kept for calls that need one for a moment.
const KEPT_WORKERS: usize = 2;

/// An identity, and what acts under it.
pub(crate) struct Identity {
    /// How many identities the handle had before this one.
    pub(crate) generation: u64,
    /// Workers of calls that need one for a moment: on a network an endpoint is a connection to every server.
    spare: Mutex<Vec<Worker<AnyEndpoint>>>,
    recoverer: Mutex<Option<StoppableThread>>,
    pub(crate) compute: Arc<ComputeServer>,
    pub(crate) fabric: AnyFabric,
}

/// Nothing of it is ever half changed: handles, flags and workers that nobody uses.
impl std::panic::RefUnwindSafe for Identity {}

impl Identity {
    /// Takes part in the cluster that `fabric` has joined, after `former` if that is given. Also the keeper's worker.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system starts no thread; otherwise why the memory cannot be used.
    pub(crate) fn establish(
        fabric: AnyFabric,
        options: &ClusterOptions,
        former: Option<&Identity>,
    ) -> Result<(Arc<Self>, Worker<AnyEndpoint>), OpenError> {
        let endpoint = fabric.endpoint().map_err(Error::from)?;
        let compute_options = ComputeOptions {
            techniques: options.techniques,
            timeout: options.timeout,
            cache_bytes: options.cache_bytes,
            ..ComputeOptions::default()
        };
        let compute = block_on(&endpoint, ComputeServer::open(&endpoint, compute_options))?;
        let worker = Worker::new(endpoint, Arc::clone(&compute));
        let generation = former.map_or(0, |former| former.generation + 1);
        let (spare, recoverer) = (Mutex::default(), Mutex::default());
        let identity = Arc::new(Self { generation, spare, recoverer, compute, fabric });
        let (itself, former) = (Arc::clone(&identity), former.map(|former| Arc::clone(&former.compute)));
        // The thread ends by itself when the identity does, and is stopped before the identity leaves: it keeps neither for ever.
        let thread = StoppableThread::spawn("sherman-recover", move |stop: &Stop| recover(&itself, former, stop))?;
        *identity.recoverer() = Some(thread);
        Ok((identity, worker))
    }

    /// Joins the memory servers of this identity again, under another.
    ///
    /// # Errors
    /// As [`AnyFabric::join_again`] and [`Identity::establish`]; and if the cluster there is another one.
    pub(crate) fn next(&self, options: &ClusterOptions) -> Result<(Arc<Self>, Worker<AnyEndpoint>), OpenError> {
        let fabric = self.fabric.join_again()?;
        self.fabric.expect_same_cluster(&fabric)?;
        Self::establish(fabric, options, Some(self))
    }

    /// Whether nothing can be done under it any more.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.compute.is_doomed()
    }

    /// A worker of this identity, for a thread of its own.
    pub(crate) fn worker(&self) -> Result<Worker<AnyEndpoint>, Error> {
        let endpoint = self.fabric.endpoint().inspect_err(|error| self.compute.note_failure(error))?;
        Ok(Worker::new(endpoint, Arc::clone(&self.compute)))
    }

    /// A worker for a moment.
    pub(crate) fn borrow_worker(&self) -> Result<Worker<AnyEndpoint>, Error> {
        let kept = self.spare().pop();
        kept.map_or_else(|| self.worker(), Ok)
    }

    /// Keeps a worker for the next call.
    pub(crate) fn keep_worker(&self, worker: Worker<AnyEndpoint>) {
        let mut spare = self.spare();
        if spare.len() < KEPT_WORKERS && !self.has_ended() {
            spare.push(worker);
        }
    }

    /// Stops the recoverer, once a recovery under way has ended, and waits for that. If the identity has ended the thread ends by itself
    /// and nobody waits: it may be talking to a server that is silent.
    pub(crate) fn stop_recoverer(&self) {
        let thread = self.recoverer().take();
        if let Some(thread) = thread {
            thread.stop(!self.has_ended());
        }
    }

    /// Leaves the cluster in order, if it still can. Nothing of it is in flight any more.
    pub(crate) fn leave(&self) {
        self.stop_recoverer();
        if self.has_ended() {
            return;
        }
        // An identity that cannot reach a server now does not leave either: the others recover it when its lease has run out.
        let departed = self.borrow_worker().and_then(|worker| block_on(worker.endpoint(), worker.depart()));
        if departed.is_err() {
            self.fabric.abandon();
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Worker<AnyEndpoint>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recoverer(&self) -> MutexGuard<'_, Option<StoppableThread>> {
        self.recoverer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        if self.has_ended() {
            self.fabric.abandon();
        }
    }
}

/// A worker of an identity, which it keeps alive.
pub(crate) struct Seated {
    worker: Worker<AnyEndpoint>,
    pub(crate) identity: Arc<Identity>,
}

impl Seated {
    /// A new worker of `identity`.
    pub(crate) fn new(identity: Arc<Identity>) -> Result<Self, Error> {
        Ok(Self { worker: identity.worker()?, identity })
    }
}

impl Deref for Seated {
    type Target = Worker<AnyEndpoint>;

    #[inline]
    fn deref(&self) -> &Worker<AnyEndpoint> {
        &self.worker
    }
}
