//! A cluster, as one compute server sees it.

pub(crate) use crate::any::AnyEndpoint;
use crate::any::AnyFabric;
use crate::codec::{Key, Value};
use crate::error::OpenError;
use crate::keeper::Keeper;
use crate::raw::{RawTree, TreeOptions};
use crate::stats::Total;
use crate::tree::Tree;
use crate::url::Url;
use sherman_core::{ComputeOptions, ComputeServer, Error, Techniques, TreeState, Worker};
use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, FabricError, Refusal, Request, Response, ServerStats};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Workers that are kept for calls that need one for a moment.
const KEPT_WORKERS: usize = 2;

/// How a compute server behaves, whatever the cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    techniques: Techniques,
    timeout: Duration,
    cache_bytes: usize,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        let defaults = ComputeOptions::default();
        Self { techniques: defaults.techniques, timeout: defaults.timeout, cache_bytes: defaults.cache_bytes }
    }
}

impl ClusterOptions {
    /// The defaults: every technique, ten seconds of patience, 64 MiB of index cache a tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which techniques to use.
    pub fn techniques(mut self, techniques: Techniques) -> Self {
        self.techniques = techniques;
        self
    }

    /// How long an operation may wait for others before it fails with [`Error::Timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Bytes of index cache per tree.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }
}

/// Memory in use on one memory server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerUsage {
    /// Chunks there are.
    pub chunks: u64,
    /// Chunks handed out.
    pub chunks_used: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
}

/// A handle to a cluster: one compute server, with one identity, one local lock table and one index cache per tree,
/// whatever the number of threads. Cheap to clone; clones are the same compute server.
///
/// It has two threads of its own, which sleep nearly always (see [Membership](#membership)). When the last handle to it goes, and
/// the last tree, client, session and handle made from it, they end and the compute server leaves the cluster.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    /// Stopped, and gone, before anything else is.
    keeper: Option<Keeper>,
    /// Workers of calls that need one for a moment: on a network an endpoint is a connection to every server.
    spare: Mutex<Vec<Worker<AnyEndpoint>>>,
    fabric: AnyFabric,
    compute: Arc<ComputeServer>,
    options: ClusterOptions,
    /// The trees that are open, so that all handles to one share its index cache.
    trees: Mutex<BTreeMap<String, Weak<TreeState>>>,
    /// What its callers' operations cost.
    total: Total,
}

impl Drop for Inner {
    /// Nothing is in flight any more: whoever posts anything holds a handle to the cluster.
    fn drop(&mut self) {
        drop(self.keeper.take());
        // A doomed compute server does not leave: the others recover it when its lease has run out.
        if self.compute.is_doomed() {
            return self.fabric.abandon();
        }
        let worker = match self.spare.get_mut().unwrap_or_else(PoisonError::into_inner).pop() {
            Some(worker) => Ok(worker),
            None => self.fabric.endpoint().map(|endpoint| Worker::new(endpoint, Arc::clone(&self.compute))),
        };
        // The same if it cannot reach a server now.
        let departed = worker.map_err(Error::from).and_then(|worker| block_on(worker.endpoint(), worker.depart()));
        if departed.is_err() {
            self.fabric.abandon();
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("client", &self.inner.compute.client()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Opens the cluster that `url` names, with default options.
    ///
    /// `embedded:` makes memory servers inside this process, private to this handle and those made from it by
    /// [`Cluster::join`]. Parameters: `servers` (1), `memory` per server (1GiB; pages never written cost nothing),
    /// `on-chip` (256KiB), `chunk` (8MiB), `lease` (3s), `lane-bits` (16, 64), `locks` (on-chip, host), `release` (write, faa,
    /// cas), `atomicity` (line, verb).
    ///
    /// `tcp://a:7000,b:7000`, `unix:/run/0.sock,/run/1.sock` and `shm:/run/0.sock` name memory servers in their order. Parameters:
    /// `secret-file`, `patience` (5s), `connect` (5s). `verbs://a:7000` reaches their memory through an RDMA device, in builds with the
    /// feature `verbs`; besides these, `device`, `port`, `gid`, `mtu` and `rd-atomic`.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_with(url, ClusterOptions::default())
    }

    /// Opens the cluster that `url` names.
    pub fn open_with(url: &str, options: ClusterOptions) -> Result<Self, OpenError> {
        Self::take_part(AnyFabric::join(Url::parse(url)?)?, options)
    }

    fn take_part(fabric: AnyFabric, options: ClusterOptions) -> Result<Self, OpenError> {
        let endpoint = fabric.endpoint().map_err(Error::from)?;
        let compute_options = ComputeOptions {
            techniques: options.techniques,
            timeout: options.timeout,
            cache_bytes: options.cache_bytes,
            ..ComputeOptions::default()
        };
        let compute = block_on(&endpoint, ComputeServer::open(&endpoint, compute_options))?;
        let keeper = Some(Keeper::start(Worker::new(endpoint, Arc::clone(&compute)), fabric.clone())?);
        let (spare, trees, total) = (Mutex::default(), Mutex::default(), Total::default());
        Ok(Self { inner: Arc::new(Inner { keeper, spare, fabric, compute, options, trees, total }) })
    }

    /// Another compute server on the same memory: another identity, its own locks and caches. What a second process would be,
    /// and how to go on after [`Error::Fenced`].
    pub fn join(&self) -> Result<Self, OpenError> {
        self.join_with(self.inner.options.clone())
    }

    /// Another compute server on the same memory, with options of its own.
    pub fn join_with(&self, options: ClusterOptions) -> Result<Self, OpenError> {
        Self::take_part(self.inner.fabric.join_again()?, options)
    }

    /// What the threads of this compute server share.
    pub(crate) fn compute(&self) -> &ComputeServer {
        &self.inner.compute
    }

    /// A worker for the calling thread.
    pub(crate) fn worker(&self) -> Result<Worker<AnyEndpoint>, Error> {
        let endpoint = self.inner.fabric.endpoint().inspect_err(|error| self.inner.compute.note_failure(error))?;
        Ok(Worker::new(endpoint, Arc::clone(&self.inner.compute)))
    }

    /// Runs one thing to its end on a worker that is then kept for the next.
    pub(crate) fn run<T>(&self, task: impl AsyncFnOnce(&Worker<AnyEndpoint>) -> Result<T, Error>) -> Result<T, Error> {
        let spare = || self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = spare().pop();
        let worker = kept.map_or_else(|| self.worker(), Ok)?;
        let outcome = block_on(worker.endpoint(), task(&worker));
        let mut spare = spare();
        if spare.len() < KEPT_WORKERS && !self.inner.compute.is_doomed() {
            spare.push(worker);
        }
        outcome
    }

    /// Where its callers tell what their operations cost.
    pub(crate) fn total(&self) -> Total {
        Arc::clone(&self.inner.total)
    }

    /// How long operations may wait, unless they say otherwise.
    pub(crate) fn timeout(&self) -> Duration {
        self.inner.options.timeout
    }

    /// Opens the tree `name`, or creates it empty, with default options for these types.
    ///
    /// # Errors
    /// [`Error::TreeMismatch`] if it exists with other key or value sizes or options; [`Error::OutOfMemory`].
    pub fn tree<K: Key, V: Value>(&self, name: &str) -> Result<Tree<K, V>, Error> {
        self.tree_with(name, &TreeOptions::new())
    }

    /// Opens the tree `name`, or creates it empty.
    pub fn tree_with<K: Key, V: Value>(&self, name: &str, options: &TreeOptions) -> Result<Tree<K, V>, Error> {
        let options = options.clone().sizes(K::LEN, V::LEN);
        Ok(Tree::new(self.raw_tree(name, &options)?))
    }

    /// Opens the tree `name`, or creates it empty, for keys and values as byte strings of the sizes in `options`.
    pub fn raw_tree(&self, name: &str, options: &TreeOptions) -> Result<RawTree, Error> {
        let spec = options.spec()?;
        Ok(self.adopt(self.run(async |worker| worker.tree(name, &spec).await)?))
    }

    /// As [`raw_tree`](Self::raw_tree); also whether this call created the tree.
    pub fn raw_tree_or_new(&self, name: &str, options: &TreeOptions) -> Result<(RawTree, bool), Error> {
        let spec = options.spec()?;
        let tree = self.run(async |worker| worker.tree(name, &spec).await)?;
        let created = tree.was_created();
        Ok((self.adopt(tree), created))
    }

    /// The tree as this compute server has it open already, or as it was just opened: all share one index cache.
    pub(crate) fn adopt(&self, opened: Arc<TreeState>) -> RawTree {
        let name = opened.info().name.as_str();
        let mut trees = self.inner.trees.lock().unwrap_or_else(PoisonError::into_inner);
        trees.retain(|_, known| known.strong_count() > 0);
        let known = trees.get(name).and_then(Weak::upgrade).filter(|known| known.info().id == opened.info().id);
        let state = known.unwrap_or_else(|| Arc::clone(&opened));
        trees.insert(name.to_owned(), Arc::downgrade(&state));
        drop(trees);
        RawTree::new(self.clone(), state)
    }

    /// What each memory server has counted since it was started; `None` where it counts nothing, as in this process, and of a server
    /// that is declared lost.
    pub fn server_stats(&self) -> Result<Vec<Option<ServerStats>>, Error> {
        self.run(async |worker| {
            let (endpoint, counters) = (worker.endpoint(), Counters::default());
            let mut all = Vec::with_capacity(usize::from(endpoint.servers()));
            for server in 0..endpoint.servers() {
                all.push(match sherman_fabric::call(endpoint, server, Request::Stats, &counters).await {
                    Ok(Response::Stats(stats)) => Some(*stats),
                    Ok(_) => return Err(Error::Unsupported { what: "the memory server's answer about its counters" }),
                    Err(FabricError::Refused(Refusal::BadRequest { .. }) | FabricError::ServerLost { .. }) => None,
                    Err(error) => return Err(error.into()),
                });
            }
            Ok(all)
        })
    }

    /// Memory in use, server by server; a server that is declared lost has none.
    pub fn usage(&self) -> Result<Vec<ServerUsage>, Error> {
        self.run(async |worker| {
            let (endpoint, counters) = (worker.endpoint(), Counters::default());
            let mut usage = Vec::with_capacity(usize::from(endpoint.servers()));
            for server in 0..endpoint.servers() {
                match sherman_fabric::call(endpoint, server, Request::Usage, &counters).await {
                    Ok(Response::Usage { chunks, chunks_used, chunk_bytes, .. }) => {
                        usage.push(ServerUsage { chunks, chunks_used, chunk_bytes });
                    }
                    Err(FabricError::ServerLost { .. }) => {
                        usage.push(ServerUsage { chunks: 0, chunks_used: 0, chunk_bytes: 0 });
                    }
                    Err(error) => return Err(error.into()),
                    Ok(_) => return Err(Error::Unsupported { what: "the memory server's answer about its usage" }),
                }
            }
            Ok(usage)
        })
    }
}
