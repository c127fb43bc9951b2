//! A compute server: the state that all its threads share.
//!
//! The memory servers see one identity: the id in lanes, free marks and redo records. The threads share one
//! local lock table, one allocator, and one set of redo slots.

use crate::alloc::{Allocator, Census};
use crate::ended::End;
use crate::error::Error;
use crate::lock::job::{Job, JobResult};
use crate::lock::local::LocalLockTable;
use crate::membership::{Membership, Participation, Pulse};
use crate::node::LINE;
use crate::redo::RedoSlots;
use crate::replicas::Replicas;
use crate::share::SharedReads;
use crate::techniques::Techniques;
use crate::tree::drop::UnfinishedDrops;
use crate::worker::Worker;
use sherman_fabric::{Call, Caps, ComputeId, Counters, Endpoint, FabricError, GlobalAddress, Space, calls};
use sherman_fabric::{Peer, RequestId, execute};
use sherman_layout::{Geometry, LaneWidth, ReleaseMode, SUPERBLOCK_BYTES, Superblock};
use sherman_replica::VolumeTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Options of a compute server.
#[derive(Clone, Debug)]
pub struct ComputeOptions {
    /// The techniques it uses.
    pub techniques: Techniques,
    /// How long an operation may wait for other clients before it fails.
    pub timeout: Duration,
    /// Bytes each tree's index cache may take.
    pub cache_bytes: usize,
    /// Opens trees of a format whose readers can accept torn images where READs tear. Only for demonstrating
    /// that they do.
    pub allow_torn_reads: bool,
}

impl Default for ComputeOptions {
    fn default() -> Self {
        Self {
            techniques: Techniques::default(),
            timeout: Duration::from_secs(10),
            cache_bytes: 64 << 20,
            allow_torn_reads: false,
        }
    }
}

/// Clusters with fewer lanes have fewer slots for shared READs too: one for this many lanes of a server.
const LANES_PER_READ_SLOT: u32 = 8;

/// The shared state of a compute server.
#[derive(Debug)]
pub struct ComputeServer {
    client: ComputeId,
    geometry: Geometry,
    /// One geometry per server. They differ only in the size of memory and what follows from it.
    geometries: Vec<Geometry>,
    options: ComputeOptions,
    caps: Caps,
    pub(crate) local: LocalLockTable<Job, JobResult>,
    pub(crate) reads: SharedReads,
    pub(crate) alloc: Allocator,
    pub(crate) redo: RedoSlots,
    pub(crate) membership: Membership,
    pub(crate) drops: UnfinishedDrops,
    /// Whether this compute server may change memory; see [`Worker::activate`].
    active: AtomicBool,
    /// The incarnation of its id. Known once the compute server is active.
    incarnation: AtomicU32,
    /// How many requests it has named.
    named: AtomicU64,
    pub(crate) end: End,
    /// The copies of volumes; `None` without replication.
    pub(crate) replicas: Option<Replicas>,
}

impl ComputeServer {
    /// Reads every server's superblock through `endpoint`, and takes part in the cluster under the endpoint's
    /// identity. Costs one READ per server. Skips servers that the cluster has declared lost.
    pub async fn open<E: Endpoint>(endpoint: &E, options: ComputeOptions) -> Result<Arc<Self>, Error> {
        Self::open_with(endpoint, options, None).await
    }

    /// Like [`ComputeServer::open`], for a cluster with replication: `table` is the table of volumes that the
    /// endpoint uses, and that this identity uses until it ends (rule E).
    pub async fn open_replicated<E: Endpoint>(
        endpoint: &E,
        options: ComputeOptions,
        table: Arc<VolumeTable>,
    ) -> Result<Arc<Self>, Error> {
        Self::open_with(endpoint, options, Replicas::new(table)).await
    }

    async fn open_with<E: Endpoint>(
        endpoint: &E,
        options: ComputeOptions,
        replicas: Option<Replicas>,
    ) -> Result<Arc<Self>, Error> {
        let counters = Counters::default();
        let mut first: Option<Superblock> = None;
        // `None` for a server whose memory is gone: its size is unknown.
        let mut geometries: Vec<Option<Geometry>> = Vec::new();
        let alloc = Allocator::new(endpoint.servers(), endpoint.client());
        let mut lost: Option<FabricError> = None;
        for server in 0..endpoint.servers() {
            let mut list = endpoint.list(server);
            let read = list.read(Space::Host, 0, SUPERBLOCK_BYTES as u32);
            let list = match execute(endpoint, list, &counters).await {
                Ok(list) => list,
                Err(error) if error.lost().is_some() => {
                    geometries.push(None);
                    alloc.note_failure(&error);
                    lost.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let superblock =
                Superblock::decode(list.bytes(read)).map_err(|error| Error::Superblock { server, error })?;
            endpoint.recycle(list);
            check_server(&superblock, first.as_ref(), server, endpoint.servers())?;
            geometries.push(Some(superblock.geometry));
            first.get_or_insert(superblock);
        }
        let nothing =
            || lost.map_or(Error::Unsupported { what: "a cluster without memory servers" }, Error::from);
        let geometry = first.ok_or_else(nothing)?.geometry;
        // An operation that follows a pointer to lost memory gets an error.
        let unknown = Geometry { memory_bytes: GlobalAddress::OFFSET_LIMIT, ..geometry };
        let geometries = geometries.into_iter().map(|found| found.unwrap_or(unknown)).collect();
        let caps = endpoint.caps().clone();
        check_caps(&geometry, &caps)?;
        // A READ that completes inside `post` is never in flight for others to see.
        let read_slots = (geometry.lock.count / LANES_PER_READ_SLOT).max(1) as usize;
        let shares = options.techniques.shared_reads && !endpoint.executes_inline();
        Ok(Arc::new(Self {
            client: endpoint.client(),
            local: LocalLockTable::new(endpoint.servers(), geometry.lock.count),
            reads: SharedReads::new(if shares { read_slots } else { 0 }),
            alloc,
            redo: RedoSlots::new(endpoint.servers(), u64::from(geometry.redo_slot_bytes)),
            geometry,
            geometries,
            options,
            caps,
            membership: Membership::default(),
            drops: UnfinishedDrops::default(),
            active: AtomicBool::new(false),
            incarnation: AtomicU32::new(0),
            named: AtomicU64::new(0),
            end: End::default(),
            replicas,
        }))
    }

    /// Whether it may change memory. If so, control knows that this client may have to be recovered.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// The incarnation of its id, once it is active or [noted](Self::note_incarnation).
    pub fn incarnation(&self) -> Option<u32> {
        let known = self.incarnation.load(Ordering::Relaxed);
        (self.is_active() || known != 0).then_some(known)
    }

    /// A name for a request that control must not carry out twice.
    pub(crate) fn name_request(&self) -> RequestId {
        let number = 1 + self.named.fetch_add(1, Ordering::Relaxed);
        RequestId { client: self.client, incarnation: self.incarnation.load(Ordering::Relaxed), number }
    }

    /// Notes the incarnation of its id, which the backend knows from the join. Then a successor ends this
    /// identity also if it was never active. Where volumes have copies, nobody waits for its lease (E6).
    pub fn note_incarnation(&self, incarnation: u32) {
        self.incarnation.store(incarnation, Ordering::Relaxed);
    }

    /// Whether this identity has ended: fenced, disconnected, or wedged. Open the cluster again for a new
    /// identity.
    #[inline]
    pub fn is_terminated(&self) -> bool {
        self.membership.is_terminated()
    }

    /// Counts of its lease renewals and recoveries so far.
    pub fn participation(&self) -> Participation {
        self.membership.participation()
    }

    /// Ends this identity. The keeper stops renewing the lease, and all waiting operations wake up.
    pub(crate) fn terminate(&self) {
        if self.membership.terminate() {
            self.local.wake_all();
            self.reads.wake_all();
        }
    }

    /// Completes when [`Worker::recover_others`](crate::Worker::recover_others) has work to do, or this
    /// identity has ended.
    pub async fn recoverer_wanted(&self) {
        std::future::poll_fn(|cx| {
            self.membership.set_recoverer(cx.waker());
            let wanted =
                self.membership.is_wanted() || self.membership.is_terminated() || !self.drops.is_empty();
            if wanted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Records a failed list, call or connection. Some failures end this identity.
    #[cold]
    pub fn note_failure(&self, error: &FabricError) {
        if Membership::is_fatal(error) {
            self.end.note(error);
            self.terminate();
        }
    }

    pub(crate) fn suspect(&self, client: ComputeId) {
        self.membership.suspect(client);
    }

    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.membership.pulse()
    }

    /// Checks that `bytes` at `address` are memory of the cluster. Operations call it before they follow a
    /// pointer.
    #[inline]
    pub(crate) fn check_pointer(&self, address: GlobalAddress, bytes: usize) -> Result<(), Error> {
        let memory = self.memory_bytes(address.server());
        if address.is_null()
            || !within(address.offset(), bytes as u64, memory)
            || !address.offset().is_multiple_of(64)
        {
            return Err(Error::Corrupt { address, invariant: "I1: a pointer names memory of the cluster" });
        }
        Ok(())
    }

    /// Checks that a root word can be at `address`.
    pub(crate) fn check_root_word(&self, address: GlobalAddress) -> Result<(), Error> {
        let geometry = self.geometries.get(usize::from(address.server()));
        // The geometry of a lost server is that of another one, whose root table has the same place.
        if geometry.is_some_and(|geometry| geometry.is_root_word(address.offset())) {
            return Ok(());
        }
        Err(Error::Corrupt { address, invariant: "I53: a catalog entry names a root word of a volume" })
    }

    /// Whether a memory server's answer names memory that it has.
    pub(crate) fn is_memory(&self, server: u16, offset: u64, bytes: u64) -> bool {
        within(offset, bytes, self.memory_bytes(server))
    }

    /// The most nodes of this size that all memory servers together can hold.
    pub(crate) fn places(&self, node_bytes: usize) -> u64 {
        self.geometries.iter().map(|geometry| geometry.memory_bytes / node_bytes.max(1) as u64).sum()
    }

    #[inline]
    fn memory_bytes(&self, server: u16) -> u64 {
        self.geometries.get(usize::from(server)).map_or(0, |geometry| geometry.memory_bytes)
    }

    /// One volume's geometry, or volume 0's if there is no such server.
    pub fn geometry_of(&self, server: u16) -> &Geometry {
        self.geometries.get(usize::from(server)).unwrap_or(&self.geometry)
    }

    /// Its identity.
    pub fn client(&self) -> ComputeId {
        self.client
    }

    /// The cluster's geometry.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The techniques in use.
    #[inline]
    pub fn techniques(&self) -> &Techniques {
        &self.options.techniques
    }

    /// All options.
    pub fn options(&self) -> &ComputeOptions {
        &self.options
    }

    /// The fabric's capabilities.
    #[inline]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The default deadline of operations.
    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// The local lock table.
    pub fn local_locks(&self) -> &LocalLockTable<Job, JobResult> {
        &self.local
    }

    /// The READs that its gets share.
    pub fn shared_reads(&self) -> &SharedReads {
        &self.reads
    }

    /// Statistics of its node memory.
    pub fn census(&self) -> Census {
        self.alloc.census()
    }

    /// Every free place for a node that this compute server has.
    pub fn free_places(&self) -> Vec<GlobalAddress> {
        self.alloc.free_places()
    }

    /// The redo slots.
    pub fn redo_slots(&self) -> &RedoSlots {
        &self.redo
    }

    /// The lane that protects the node at `address`.
    #[inline]
    pub fn lane(&self, address: GlobalAddress) -> u32 {
        self.geometry.lane_of(address)
    }
}

impl<E: Endpoint> Worker<E> {
    /// Lets this compute server change memory. It tells control, which from then on has it recovered if it
    /// dies (I43). Then it asks every volume for a redo area. Before that the client takes no lane and no
    /// span. So it may leave or die at any moment, and its id is free at once.
    ///
    /// Costs two rounds of requests, once. The first change activates by itself. Call this earlier
    /// so that the first change costs no more than later ones.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a volume has no room for a redo area.
    pub async fn activate(&self) -> Result<(), Error> {
        if self.compute.is_active() {
            return Ok(());
        }
        let op = self.op();
        // Every change activates first, so it waits here for volumes that are closed.
        op.await_open().await?;
        let redo = self.compute.techniques().redo;
        let incarnation = op.call(Peer::Control, calls::Activate).await?;
        self.compute.incarnation.store(incarnation, Ordering::Relaxed);
        let volumes = 0..if redo { self.endpoint.servers() } else { 0 };
        let areas = volumes.clone().map(|volume| (Peer::Volume(volume), calls::RedoArea)).collect();
        for (volume, answer) in volumes.zip(op.call_all(areas).await) {
            match answer {
                Ok(area) if !self.compute.is_memory(volume, area.offset, area.bytes) => {
                    return Err(calls::RedoArea::UNEXPECTED.into());
                }
                Ok(area) => self.compute.redo.open(volume, area.offset, area.bytes),
                Err(error) if error.lost().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.compute.active.store(true, Ordering::Release);
        Ok(())
    }
}

/// Whether `offset..offset + bytes` lies within `memory`.
#[inline]
fn within(offset: u64, bytes: u64, memory: u64) -> bool {
    offset.checked_add(bytes).is_some_and(|end| end <= memory)
}

/// Checks that the server at this position is the one that belongs there.
fn check_server(
    found: &Superblock,
    first: Option<&Superblock>,
    server: u16,
    servers: u16,
) -> Result<(), Error> {
    if (found.server, found.servers) != (server, servers) {
        return Err(Error::Unsupported {
            what: "a list of memory servers in another order or number than they were formatted for",
        });
    }
    let Some(first) = first else { return Ok(()) };
    if found.cluster_id != first.cluster_id {
        return Err(Error::Unsupported { what: "memory servers of two clusters" });
    }
    let fixed = |superblock: &Superblock| {
        let geometry = &superblock.geometry;
        let roots = (geometry.root_offset, geometry.catalog_capacity);
        (geometry.lock, roots, geometry.redo_slot_bytes, geometry.chunk_bytes, geometry.lease_nanos)
    };
    if fixed(found) != fixed(first) {
        return Err(Error::Unsupported { what: "memory servers with different geometries" });
    }
    Ok(())
}

/// Checks that this fabric can serve the cluster as it was formatted.
fn check_caps(geometry: &Geometry, caps: &Caps) -> Result<(), Error> {
    if caps.atomic_unit < LINE as u32 {
        return Err(Error::Unsupported { what: "a fabric whose atomic unit is smaller than a line (F1)" });
    }
    if geometry.lock.width == LaneWidth::Bits16 && !caps.masked_cas {
        return Err(Error::Unsupported { what: "16-bit lock lanes without masked CAS" });
    }
    if geometry.lock.release == ReleaseMode::Write && !caps.write_releases {
        return Err(Error::Unsupported { what: "releasing a lock lane by WRITE" });
    }
    if geometry.lock.space == Space::OnChip && caps.on_chip_bytes < geometry.lock.table_bytes() {
        return Err(Error::Unsupported { what: "more lock lanes than the on-chip memory holds" });
    }
    Ok(())
}
