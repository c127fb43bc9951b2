//! A cluster, as one compute server sees it.

pub(crate) use crate::any::AnyEndpoint;
use crate::any::AnyFabric;
use crate::codec::{Key, TreeValue, tree_types};
use crate::error::OpenError;
use crate::event::{Event, Listener};
use crate::identity::{Identity, Seated};
use crate::keeper::{StoppableThread, keep, leave_after};
use crate::mend::Shared;
use crate::stats::Total;
use crate::tree::{RawTree, Tree};
use crate::tree_options::TreeOptions;
use crate::url;
use sherman_core::{ComputeOptions, Creation, Error, Techniques, TreeState, Walk, Worker};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{
    Counters, Endpoint, FabricError, Peer, Refusal, ServerStats, TreeTypes, calls, control,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The pause before a retry to connect a worker, if the server has no room for its connection now.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Options of a compute server, for any cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub(crate) techniques: Techniques,
    pub(crate) timeout: Duration,
    pub(crate) cache_bytes: usize,
    pub(crate) rejoin: bool,
    pub(crate) events: Listener,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        let defaults = ComputeOptions::default();
        Self {
            techniques: defaults.techniques,
            timeout: defaults.timeout,
            cache_bytes: defaults.cache_bytes,
            rejoin: true,
            events: Listener::default(),
        }
    }
}

impl ClusterOptions {
    /// The defaults: every technique, a timeout of ten seconds, 64 MiB of index cache per tree, automatic
    /// rejoin.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which techniques to use.
    pub fn techniques(mut self, techniques: Techniques) -> Self {
        self.techniques = techniques;
        self
    }

    /// How long an operation may wait before it fails: for other clients ([`Error::Timeout`]), or for a new
    /// identity ([`Error::NotRejoined`]). The time counts from the operation's first obstacle.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Bytes of index cache per tree.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Whether the compute server joins the cluster again automatically after its identity has ended. The
    /// default is true. If false, every call then fails with [`Error::Fenced`], and the caller can go on with
    /// another compute server from [`Cluster::join`].
    pub fn rejoin(mut self, rejoin: bool) -> Self {
        self.rejoin = rejoin;
        self
    }

    /// Calls `listener` when an identity has ended and when the compute server has joined the cluster again.
    /// The listener runs on the thread of the cluster that renews the lease and joins again. So it must
    /// return soon, and must not wait for operations of this cluster.
    ///
    /// ```
    /// use sherman::{Cluster, ClusterOptions, Event};
    ///
    /// let options = ClusterOptions::new().on_event(|event| match event {
    ///     Event::IdentityEnded { client, reason } => eprintln!("identity {client} ended: {reason}"),
    ///     Event::Rejoined { client, after, .. } => eprintln!("joined again as {client} after {after:?}"),
    ///     event => eprintln!("{event:?}"),
    /// });
    /// let cluster = Cluster::open_with("embedded:?memory=64MiB", options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.events = Listener(Some(Arc::new(listener)));
        self
    }
}

/// Memory in use on one memory server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerUsage {
    /// Number of chunks.
    pub chunks: u64,
    /// Number of chunks in use.
    pub chunks_used: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes in node chunks that members own. Members create nodes there.
    pub bytes_owned: u64,
    /// Bytes in node chunks that no member owns and that may have room for nodes.
    pub bytes_free: u64,
}

impl From<control::Usage> for ServerUsage {
    fn from(usage: control::Usage) -> Self {
        let control::Usage { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free, .. } = usage;
        Self { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free }
    }
}

/// A handle to a cluster. It is one compute server for any number of threads. It has one identity at a time,
/// one local lock table and one index cache per tree. It is cheap to clone; clones are the same compute
/// server.
///
/// It has two threads of its own, which sleep nearly always (see [Membership](#membership)). The last clone,
/// tree, client, session or `Handle` made from it ends them when it is dropped. The compute server then
/// leaves the cluster.
///
/// # When its identity ends
///
/// The compute server's identity ends when a connection breaks, when a memory server restarts, or when the
/// process was stopped for longer than its lease. The cluster then joins again automatically, under a new
/// [id](Self::id), and everything made from it goes on. Trees keep their index caches. Clients, sessions,
/// handles and ranges in progress use the new identity. Operations wait for it until their deadline.
///
/// - Reads are always repeated, and a range continues after the last key that it returned.
/// - A change that provably did not happen is repeated.
/// - A change that may or may not have happened fails with [`Error::OutcomeUnknown`], and so does a
///   [drop](Self::drop_tree) of a tree.
/// - A bulk load fails with [`Error::LoadInterrupted`], because it has consumed its entries.
///   [`fence`](Self::fence) is not repeated either.
///
/// [`ClusterOptions::on_event`] reports when this happens, and [`Cluster::rejoins`] how often.
/// [`ClusterOptions::rejoin`] turns it off.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    /// Stopped and dropped before all other fields.
    keeper: Option<StoppableThread>,
    shared: Arc<Shared>,
    /// The open trees, so that all handles to one tree share its index cache.
    trees: Mutex<BTreeMap<String, Weak<TreeState>>>,
    /// The cost of the callers' operations.
    total: Total,
}

/// No panic leaves it half changed.
impl std::panic::RefUnwindSafe for Inner {}

impl Drop for Inner {
    /// Nothing is in flight here, because every caller that posts verbs holds a handle to the cluster.
    fn drop(&mut self) {
        let joining = self.shared.close();
        let identity = self.shared.current();
        // The keeper stops last: it renews the lease while the recoverer works.
        identity.stop_recoverer();
        let joins_soon = joining && identity.compute.epoch_has_ended();
        let mut is_over = !joining;
        if let Some(keeper) = self.keeper.take() {
            match joins_soon {
                true => {
                    let lease = Duration::from_nanos(identity.compute.geometry().lease_nanos);
                    is_over = keeper.stop_within(lease);
                }
                false => keeper.stop(!joining),
            }
        }
        let left = identity.leave();
        if !left && is_over && self.shared.options.rejoin {
            leave_after(identity, &self.shared.options);
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("client", &self.id()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Opens the cluster that `url` names, with default options.
    ///
    /// `embedded:` creates memory servers inside this process. They are private to this handle and to handles
    /// made from it by [`Cluster::join`]. Parameters: `servers` (1), `memory` per server (1GiB; pages never
    /// written cost nothing), `on-chip` (256KiB), `chunk` (8MiB), `lease` (3s), `lane-bits` (16, 64), `locks`
    /// (on-chip, host), `release` (write, faa, cas), `atomicity` (line, verb). With `replicas=2` the servers
    /// keep everything twice and may die ([`Cluster::local_hosts`]). Further parameters are then `volumes`
    /// (as many as servers) and `volume-memory` (an equal part of `memory`).
    ///
    /// `tcp://a:7000,b:7000`, `unix:/run/0.sock,/run/1.sock` and `shm:/run/0.sock` name the memory servers in
    /// order. Parameters: `secret-file`, `patience` (5s), `connect` (5s). `verbs://a:7000` reaches their
    /// memory through an RDMA device, in builds with the feature `verbs`. It has the same parameters and
    /// `device`, `port`, `gid`, `mtu` and `rd-atomic`.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_with(url, ClusterOptions::default())
    }

    /// Opens the cluster that `url` names.
    pub fn open_with(url: &str, options: ClusterOptions) -> Result<Self, OpenError> {
        Self::take_part(AnyFabric::join(url::parse(url)?)?, options)
    }

    /// The first identity of a handle. A host that is lost between the join and the first reads ends the
    /// identity. Then the compute server joins again, as it would later.
    fn establish(
        mut fabric: AnyFabric,
        options: &ClusterOptions,
    ) -> Result<(Arc<Identity>, Worker<AnyEndpoint>), OpenError> {
        let until = Instant::now() + options.timeout;
        loop {
            match Identity::establish(fabric.clone(), options, None) {
                Err(error) if fabric.table().is_some() && error.may_pass() && Instant::now() < until => {
                    std::thread::sleep(CONNECT_PAUSE);
                    fabric = fabric.join_again()?;
                }
                established => return established,
            }
        }
    }

    pub(crate) fn take_part(fabric: AnyFabric, options: ClusterOptions) -> Result<Self, OpenError> {
        let (identity, worker) = Self::establish(fabric, &options)?;
        let shared = Arc::new(Shared::new(options, Arc::clone(&identity)));
        let theirs = Arc::clone(&shared);
        let keeper =
            StoppableThread::spawn("sherman-keeper", move |stop| keep(&theirs, identity, worker, stop));
        let (keeper, failed) = match keeper {
            Ok(keeper) => (Some(keeper), None),
            Err(error) => (None, Some(error)),
        };
        let (trees, total) = (Mutex::default(), Total::default());
        // Dropped on failure, so that the new member leaves.
        let cluster = Self { inner: Arc::new(Inner { keeper, shared, trees, total }) };
        failed.map_or(Ok(cluster), |error| Err(error.into()))
    }

    /// Another compute server on the same memory, with its own identity, locks and caches. A second process
    /// would be the same.
    pub fn join(&self) -> Result<Self, OpenError> {
        self.join_with(self.inner.shared.options.clone())
    }

    /// Another compute server on the same memory, with its own options.
    pub fn join_with(&self, options: ClusterOptions) -> Result<Self, OpenError> {
        Self::take_part(self.shared().current().fabric.join_again()?, options)
    }

    /// The current identity, and the means to get the next one.
    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Whether the compute server joins again automatically after its identity has ended.
    pub(crate) fn rejoins_by_itself(&self) -> bool {
        self.inner.shared.options.rejoin
    }

    /// A worker of the caller's own. If there is no identity now, waits for one, within the cluster's
    /// timeout.
    pub(crate) fn seated(&self) -> Result<Seated, Error> {
        self.under_identity(|identity| Seated::new(Arc::clone(identity)), |_, seated| Ok(seated))
    }

    /// Runs `task` on a worker and keeps the worker for the next call. If the identity ends meanwhile, runs
    /// `task` again under the next one. Only for tasks that may be repeated after a failure because an
    /// identity has ended.
    pub(crate) fn run<T>(
        &self,
        task: impl AsyncFn(&Worker<AnyEndpoint>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.under_identity(
            |identity| identity.borrow_worker(),
            |identity, worker| {
                let outcome = block_on(worker.endpoint(), task(&worker));
                identity.keep_worker(worker);
                outcome
            },
        )
    }

    /// As `run`, for a task that must not be repeated. It begins under an identity that has not ended, as far
    /// as this process knows.
    pub(crate) fn run_once<T>(
        &self,
        task: impl AsyncFnOnce(&Worker<AnyEndpoint>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let seated = self.seated()?;
        block_on(seated.endpoint(), task(&seated))
    }

    /// Runs `task` on a worker of the current identity. If that identity has ended or ends, runs it on a
    /// worker of the next one.
    fn under_identity<W, T>(
        &self,
        worker: impl Fn(&Arc<Identity>) -> Result<W, Error>,
        task: impl Fn(&Arc<Identity>, W) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let shared = self.shared();
        let (mut identity, mut since) = (shared.current(), None);
        loop {
            let client = identity.compute.client();
            let worker = if identity.has_ended() { Err(Error::Fenced { client }) } else { worker(&identity) };
            let no_room = matches!(worker, Err(Error::Unsupported { .. }));
            let error = match worker.and_then(|worker| task(&identity, worker)) {
                Err(error) if shared.options.rejoin => error,
                outcome => return outcome,
            };
            let left = self.timeout().saturating_sub(since.get_or_insert_with(Instant::now).elapsed());
            if error.ends_identity(client) {
                identity.compute.end();
                identity = shared.wait_newer(identity.generation, left)?;
            } else if no_room && shared.rejoins() > 0 && !left.is_zero() {
                // Connections of the former identity may still occupy the room.
                std::thread::sleep(left.min(CONNECT_PAUSE));
            } else {
                return Err(error);
            }
        }
    }

    /// The counter to which callers add the cost of their operations.
    pub(crate) fn total(&self) -> Total {
        Arc::clone(&self.inner.total)
    }

    /// How long operations may wait by default.
    pub(crate) fn timeout(&self) -> Duration {
        self.inner.shared.options.timeout
    }

    /// Opens the tree `name`, or creates it empty, with default options for these types.
    ///
    /// The catalog keeps the names of the types ([`Value::type_name`](crate::Value::type_name)) with a new
    /// tree, and later calls must name the same types. [`raw_tree`](Self::raw_tree) creates trees without
    /// types, which open with any types of their sizes.
    ///
    /// # Errors
    /// [`Error::TreeMismatch`] if it exists with other key or value sizes or options; [`Error::TypeMismatch`]
    /// if it exists with other types; [`Error::OutOfMemory`].
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// cluster.tree::<u64, u64>("orders")?;
    /// let refused = cluster.tree::<i64, u64>("orders").expect_err("other keys");
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "tree \"orders\" holds keys of type u64 and values of type u64, not i64 and u64"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tree<K: Key, V: TreeValue>(&self, name: &str) -> Result<Tree<K, V>, Error> {
        self.tree_with(name, &TreeOptions::new())
    }

    /// As [`tree`](Self::tree), with other options.
    pub fn tree_with<K: Key, V: TreeValue>(
        &self,
        name: &str,
        options: &TreeOptions,
    ) -> Result<Tree<K, V>, Error> {
        let options = options.clone().sizes(K::LEN, V::FIXED.unwrap_or_default());
        let options = if V::FIXED.is_none() { options.values_of_any_length() } else { options };
        let (spec, types) = (options.spec()?, tree_types::<K, V>());
        Ok(self.adopt(self.find_or_create(name, &spec, types.as_ref())?).typed())
    }

    /// Opens the tree `name`, or creates it empty, for keys and values as byte strings of the sizes in
    /// `options`. Opens typed trees too, and creates a tree without types.
    pub fn raw_tree(&self, name: &str, options: &TreeOptions) -> Result<RawTree, Error> {
        let spec = options.spec()?;
        Ok(self.adopt(self.find_or_create(name, &spec, None)?))
    }

    /// As [`raw_tree`](Self::raw_tree); also whether this call created the tree.
    pub fn raw_tree_or_new(&self, name: &str, options: &TreeOptions) -> Result<(RawTree, bool), Error> {
        let spec = options.spec()?;
        let tree = self.find_or_create(name, &spec, None)?;
        let created = tree.was_created();
        Ok((self.adopt(tree), created))
    }

    /// If the identity ends meanwhile, the next one still learns whether this call created the tree.
    fn find_or_create(
        &self,
        name: &str,
        spec: &TreeSpec,
        types: Option<&TreeTypes>,
    ) -> Result<Arc<TreeState>, Error> {
        let creation = Creation::default();
        self.run(async |worker| worker.typed_tree_again(name, spec, types, &creation).await)
    }

    /// The tree that this compute server already has open, or the one just opened. All users share one index
    /// cache.
    pub(crate) fn adopt(&self, opened: Arc<TreeState>) -> RawTree {
        let name = opened.info().name.as_str();
        let mut trees = self.inner.trees.lock().unwrap_or_else(PoisonError::into_inner);
        trees.retain(|_, known| known.strong_count() > 0);
        let known =
            trees.get(name).and_then(Weak::upgrade).filter(|known| known.info().id == opened.info().id);
        let state = known.unwrap_or_else(|| Arc::clone(&opened));
        trees.insert(name.to_owned(), Arc::downgrade(&state));
        drop(trees);
        RawTree::new(self.clone(), state)
    }

    /// Visits every node of a tree. Compiled here, unlike the generic methods of a tree.
    pub(crate) fn walk(&self, tree: &TreeState) -> Result<Walk, Error> {
        self.run(async |worker| worker.op().walk(tree).await)
    }

    /// The counters of each memory server since its start. `None` for a server that counts nothing, as in
    /// this process, and for a server that is declared lost.
    pub fn server_stats(&self) -> Result<Vec<Option<ServerStats>>, Error> {
        self.run(async |worker| {
            let (endpoint, counters) = (worker.endpoint(), Counters::default());
            let mut all = Vec::with_capacity(usize::from(endpoint.servers()));
            for server in 0..endpoint.servers() {
                all.push(
                    match sherman_fabric::call(endpoint, Peer::Volume(server), calls::Stats, &counters).await
                    {
                        Ok(stats) => Some(stats),
                        Err(FabricError::Refused(Refusal::BadRequest { .. })) => None,
                        Err(error) if error.lost().is_some() => None,
                        Err(error) => return Err(error.into()),
                    },
                );
            }
            Ok(all)
        })
    }

    /// Memory in use per server. A server that is declared lost has none.
    pub fn usage(&self) -> Result<Vec<ServerUsage>, Error> {
        self.run(async |worker| {
            let (endpoint, counters) = (worker.endpoint(), Counters::default());
            let mut usage = Vec::with_capacity(usize::from(endpoint.servers()));
            for server in 0..endpoint.servers() {
                usage.push(
                    match sherman_fabric::call(endpoint, Peer::Volume(server), calls::Usage, &counters).await
                    {
                        Ok(found) => ServerUsage::from(found),
                        Err(error) if error.lost().is_some() => ServerUsage::default(),
                        Err(error) => return Err(error.into()),
                    },
                );
            }
            Ok(usage)
        })
    }
}
