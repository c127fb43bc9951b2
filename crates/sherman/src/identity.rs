//! One identity of a compute server: its membership from joining the cluster until it leaves or is ended.
//!
//! A [`Cluster`](crate::Cluster) has one identity at a time. After one has ended, the keeper joins again and
//! installs the next one ([`crate::mend`]). Workers of the old identity stay with their operations in flight
//! and keep the identity alive. Dropping the last of them abandons it. An identity that has ended never
//! leaves in order (I40): recovery frees what it left behind.

use crate::any::{AnyEndpoint, AnyFabric};
use crate::cluster::ClusterOptions;
use crate::error::OpenError;
use crate::keeper::{Stop, StoppableThread, recover};
use sherman_core::{ComputeOptions, ComputeServer, Error, Worker};
use sherman_executor::block_on;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many workers are kept for short calls.
const KEPT_WORKERS: usize = 2;

/// An identity, with its workers and its recoverer thread.
pub(crate) struct Identity {
    /// How many identities the handle had before this one.
    pub(crate) generation: u64,
    /// Workers for short calls. They are kept because on a network an endpoint is a connection to every
    /// server.
    spare: Mutex<Vec<Worker<AnyEndpoint>>>,
    recoverer: Mutex<Option<StoppableThread>>,
    pub(crate) compute: Arc<ComputeServer>,
    pub(crate) fabric: AnyFabric,
}

/// No panic leaves it half changed: it holds handles, flags and unused workers.
impl std::panic::RefUnwindSafe for Identity {}

impl Identity {
    /// Makes the compute server a member through `fabric`, which has joined the cluster. `former` is the
    /// previous identity, if any. Also returns the keeper's worker.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system cannot start a thread; otherwise the reason why the memory is not
    /// usable.
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
        let compute = match fabric.table().cloned() {
            Some(table) => {
                block_on(&endpoint, ComputeServer::open_replicated(&endpoint, compute_options, table))?
            }
            None => block_on(&endpoint, ComputeServer::open(&endpoint, compute_options))?,
        };
        fabric.incarnation().into_iter().for_each(|incarnation| compute.note_incarnation(incarnation));
        fabric.end_with_epoch(&compute);
        let worker = Worker::new(endpoint, Arc::clone(&compute));
        let generation = former.map_or(0, |former| former.generation + 1);
        let (spare, recoverer) = (Mutex::default(), Mutex::default());
        let identity = Arc::new(Self { generation, spare, recoverer, compute, fabric });
        let (itself, former) = (Arc::clone(&identity), former.map(|former| Arc::clone(&former.compute)));
        // The thread ends with the identity, and is stopped before the identity leaves. So it does not keep
        // the identity alive permanently.
        let thread =
            StoppableThread::spawn("sherman-recover", move |stop: &Stop| recover(&itself, former, stop))?;
        *identity.recoverer() = Some(thread);
        Ok((identity, worker))
    }

    /// Joins the memory servers of this identity again, under a new identity.
    ///
    /// # Errors
    /// As [`AnyFabric::join_again`] and [`Identity::establish`]; and an error if the servers now form another
    /// cluster.
    pub(crate) fn next(
        &self,
        options: &ClusterOptions,
    ) -> Result<(Arc<Self>, Worker<AnyEndpoint>), OpenError> {
        let fabric = self.fabric.join_again()?;
        self.fabric.expect_same_cluster(&fabric)?;
        self.fabric.drop_copies(&fabric);
        Self::establish(fabric, options, Some(self))
    }

    /// Whether the identity has ended, so that no operation can succeed under it.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.compute.is_terminated()
    }

    /// A worker of this identity, for a thread of its own.
    pub(crate) fn worker(&self) -> Result<Worker<AnyEndpoint>, Error> {
        let endpoint = self.fabric.endpoint().inspect_err(|error| self.compute.note_failure(error))?;
        Ok(Worker::new(endpoint, Arc::clone(&self.compute)))
    }

    /// A worker for a short call.
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

    /// Stops the recoverer after the recovery in progress, and waits for that. If the identity has ended, the
    /// thread ends without a request. The call then does not wait, because the thread may be waiting for a
    /// silent server.
    pub(crate) fn stop_recoverer(&self) {
        let thread = self.recoverer().take();
        if let Some(thread) = thread {
            thread.stop(!self.has_ended());
        }
    }

    /// Leaves the cluster in order, if it still can. Nothing is in flight under the identity any more.
    /// Returns false if a next identity must recover this one: the cluster answers, but has a newer table.
    pub(crate) fn leave(&self) -> bool {
        self.stop_recoverer();
        if self.has_ended() {
            return !self.compute.epoch_has_ended();
        }
        // An identity that cannot reach a server now cannot leave either. Other members recover it after its
        // lease has expired.
        let departed = self.borrow_worker().and_then(|worker| block_on(worker.endpoint(), worker.depart()));
        if departed.is_ok() {
            return true;
        }
        if self.compute.epoch_has_ended() {
            self.fabric.end();
            return false;
        }
        self.fabric.abandon();
        true
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

/// A worker that keeps its identity alive.
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
