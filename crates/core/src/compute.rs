//! A compute server: what all its threads share.
//!
//! One identity towards the memory servers (the id in lanes, free marks and redo records), one local lock table, one
//! allocator, one set of redo slots.

use crate::alloc::{Allocator, Census};
use crate::ended::End;
use crate::error::Error;
use crate::lock::local::LocalLockTable;
use crate::membership::{Membership, Participation, Pulse};
use crate::node::{LINE, get_u64};
use crate::redo::RedoSlots;
use crate::techniques::Techniques;
use crate::tree::drop::UnfinishedDrops;
use crate::worker::Worker;
use sherman_fabric::execute;
use sherman_fabric::{Caps, ClientId, Counters, Endpoint, FabricError, GlobalAddress, Request, Response, Space};
use sherman_memory_server::{Geometry, LaneWidth, ReleaseMode, SUPERBLOCK_BYTES, Superblock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How a compute server behaves.
#[derive(Clone, Debug)]
pub struct ComputeOptions {
    /// Which techniques it uses.
    pub techniques: Techniques,
    /// How long an operation may wait for others before it fails.
    pub timeout: Duration,
    /// Bytes each tree's index cache may take.
    pub cache_bytes: usize,
    /// Opens trees of a format whose readers can be fooled where READs tear. Only for showing that they are.
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

/// The shared part of a compute server.
#[derive(Debug)]
pub struct ComputeServer {
    client: ClientId,
    geometry: Geometry,
    /// By server: all but the size of memory, and what follows from it, is alike.
    geometries: Vec<Geometry>,
    options: ComputeOptions,
    caps: Caps,
    pub(crate) local: LocalLockTable,
    pub(crate) alloc: Allocator,
    pub(crate) redo: RedoSlots,
    pub(crate) membership: Membership,
    pub(crate) drops: UnfinishedDrops,
    /// Whether this compute server may change memory: see [`Worker::activate`].
    active: AtomicBool,
    /// Which holder of its id it is; known once it is active.
    incarnation: AtomicU32,
    pub(crate) end: End,
}

impl ComputeServer {
    /// Reads every server's superblock through `endpoint` and takes part under its identity. One READ per server. A server that the
    /// cluster has declared lost is passed over.
    pub async fn open<E: Endpoint>(endpoint: &E, options: ComputeOptions) -> Result<Arc<Self>, Error> {
        let counters = Counters::default();
        let mut first: Option<Superblock> = None;
        let mut geometries: Vec<Geometry> = Vec::new();
        let alloc = Allocator::new(endpoint.servers(), endpoint.client());
        for server in 0..endpoint.servers() {
            let mut list = endpoint.list(server);
            let read = list.read(Space::Host, 0, SUPERBLOCK_BYTES as u32);
            let list = match (execute(endpoint, list, &counters).await, first.as_ref()) {
                (Ok(list), _) => list,
                (Err(error @ FabricError::ServerLost { .. }), Some(first)) => {
                    // Nobody knows how large it was; whatever follows a pointer there gets `ServerLost`.
                    let memory_bytes = GlobalAddress::OFFSET_LIMIT;
                    geometries.push(Geometry { memory_bytes, ..first.geometry });
                    alloc.note_failure(&error);
                    continue;
                }
                (Err(error), _) => return Err(error.into()),
            };
            let superblock =
                Superblock::decode(list.bytes(read)).map_err(|error| Error::Superblock { server, error })?;
            endpoint.recycle(list);
            check_server(&superblock, first.as_ref(), server, endpoint.servers())?;
            geometries.push(superblock.geometry);
            first.get_or_insert(superblock);
        }
        let geometry = first.ok_or(Error::Unsupported { what: "a cluster without memory servers" })?.geometry;
        let caps = endpoint.caps().clone();
        check_caps(&geometry, &caps)?;
        Ok(Arc::new(Self {
            client: endpoint.client(),
            local: LocalLockTable::new(endpoint.servers(), geometry.lock.count),
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
            end: End::default(),
        }))
    }

    /// Whether it may change memory: server 0 knows that something of it may have to be recovered.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Which holder of its id it is, once it is active.
    pub fn incarnation(&self) -> Option<u32> {
        self.is_active().then(|| self.incarnation.load(Ordering::Relaxed))
    }

    /// Whether this identity is at its end: fenced, disconnected, or wedged. Open the cluster again for another.
    pub fn is_doomed(&self) -> bool {
        self.membership.is_doomed()
    }

    /// How it has taken part in the cluster so far.
    pub fn participation(&self) -> Participation {
        self.membership.participation()
    }

    /// Ends this identity: nothing is renewed any more, and whoever waits hears of it.
    pub(crate) fn doom(&self) {
        if self.membership.doom() {
            self.local.wake_all();
        }
    }

    /// Completes when there is something for [`Worker::recover_others`](crate::Worker::recover_others) to do, or this identity has ended.
    pub async fn recoverer_wanted(&self) {
        std::future::poll_fn(|cx| {
            self.membership.set_recoverer(cx.waker());
            let wanted = self.membership.is_wanted() || self.membership.is_doomed() || !self.drops.is_empty();
            if wanted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes note of a failed list, call or connection: some end this identity.
    #[cold]
    pub fn note_failure(&self, error: &FabricError) {
        if Membership::is_fatal(error) {
            self.end.note(error);
            self.doom();
        }
    }

    pub(crate) fn suspect(&self, client: ClientId) {
        self.membership.suspect(client);
    }

    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.membership.pulse()
    }

    /// Whether `bytes` at `address` are memory of the cluster: a pointer is checked before it is followed.
    pub(crate) fn check_pointer(&self, address: GlobalAddress, bytes: usize) -> Result<(), Error> {
        let memory = self.memory_bytes(address.server());
        if address.is_null() || !within(address.offset(), bytes as u64, memory) || !address.offset().is_multiple_of(64)
        {
            return Err(Error::Corrupt { address, invariant: "I1: a pointer names memory of the cluster" });
        }
        Ok(())
    }

    /// Whether a memory server's answer names memory it has.
    pub(crate) fn is_memory(&self, server: u16, offset: u64, bytes: u64) -> bool {
        within(offset, bytes, self.memory_bytes(server))
    }

    /// The most nodes of a size that all memory servers can hold.
    pub(crate) fn places(&self, node_bytes: usize) -> u64 {
        self.geometries.iter().map(|geometry| geometry.memory_bytes / node_bytes.max(1) as u64).sum()
    }

    fn memory_bytes(&self, server: u16) -> u64 {
        self.geometries.get(usize::from(server)).map_or(0, |geometry| geometry.memory_bytes)
    }

    /// One server's geometry; server 0's for one that there is not.
    pub fn geometry_of(&self, server: u16) -> &Geometry {
        self.geometries.get(usize::from(server)).unwrap_or(&self.geometry)
    }

    /// Its identity.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The cluster's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The techniques in use.
    pub fn techniques(&self) -> &Techniques {
        &self.options.techniques
    }

    /// All options.
    pub fn options(&self) -> &ComputeOptions {
        &self.options
    }

    /// The fabric's capabilities.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The default deadline of operations.
    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// The local lock table.
    pub fn local_locks(&self) -> &LocalLockTable {
        &self.local
    }

    /// Its node memory in numbers.
    pub fn census(&self) -> Census {
        self.alloc.census()
    }

    /// Every place for a node that is free here.
    pub fn free_places(&self) -> Vec<GlobalAddress> {
        self.alloc.free_places()
    }

    /// The redo slots.
    pub fn redo_slots(&self) -> &RedoSlots {
        &self.redo
    }

    /// The lane that protects the node at `address`.
    pub fn lane(&self, address: GlobalAddress) -> u32 {
        self.geometry.lane_of(address)
    }
}

impl<E: Endpoint> Worker<E> {
    /// Lets this compute server change memory. It asks server 0 for a redo area, and when it has that every other server: from then on
    /// server 0 knows that something of it may have to be recovered (I43). Until then it takes no lane and no span, so it may go or die at any moment
    /// and its id is free at once. Two round trips, once; nothing from then on. The first change does it: call it to have the first change
    /// cost what the others do.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a server has no room for a redo area.
    pub async fn activate(&self) -> Result<(), Error> {
        self.activate_as(false).await
    }

    /// The same, in order to recover others: where memory is full, servers keep a few redo areas for that.
    pub(crate) async fn activate_to_recover(&self) -> Result<(), Error> {
        self.activate_as(true).await
    }

    async fn activate_as(&self, recovers: bool) -> Result<(), Error> {
        if self.compute.is_active() {
            return Ok(());
        }
        let op = self.op();
        let redo = self.compute.techniques().redo;
        let areas =
            |servers: std::ops::Range<u16>| servers.map(|server| (server, Request::RedoArea { recovers })).collect();
        let geometry = *self.compute.geometry();
        let mut list = self.endpoint.list(0);
        let read = list.read(Space::Host, geometry.member_entry(self.compute.client()), 8);
        let list = op.execute(list).await?;
        self.compute.incarnation.store((get_u64(list.bytes(read), 0) >> 32) as u32, Ordering::Relaxed);
        self.endpoint.recycle(list);
        for servers in [0..1, 1..if redo { self.endpoint.servers() } else { 1 }] {
            for (server, answer) in servers.clone().zip(op.call_all(areas(servers)).await) {
                match answer {
                    Ok(Response::RedoArea { offset, bytes }) if self.compute.is_memory(server, offset, bytes) => {
                        if redo {
                            self.compute.redo.open(server, offset, bytes);
                        }
                    }
                    Ok(_) => {
                        return Err(Error::Unsupported { what: "the memory server's answer to a redo request" });
                    }
                    Err(FabricError::ServerLost { .. }) if server != 0 => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.compute.active.store(true, Ordering::Release);
        Ok(())
    }
}

/// Whether `offset..offset + bytes` lies within `memory`.
fn within(offset: u64, bytes: u64, memory: u64) -> bool {
    offset.checked_add(bytes).is_some_and(|end| end <= memory)
}

/// Whether the server in this place is the one that belongs there.
fn check_server(found: &Superblock, first: Option<&Superblock>, server: u16, servers: u16) -> Result<(), Error> {
    if (found.server, found.servers) != (server, servers) {
        return Err(Error::Unsupported {
            what: "memory servers in another order or number than they were formatted for",
        });
    }
    let Some(first) = first else { return Ok(()) };
    if found.cluster_id != first.cluster_id {
        return Err(Error::Unsupported { what: "memory servers of two clusters" });
    }
    let fixed = |superblock: &Superblock| {
        let geometry = &superblock.geometry;
        (geometry.lock, geometry.redo_slot_bytes, geometry.chunk_bytes, geometry.lease_nanos)
    };
    if fixed(found) != fixed(first) {
        return Err(Error::Unsupported { what: "memory servers with different geometries" });
    }
    Ok(())
}

/// Whether this fabric can serve the cluster as it was formatted.
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
        return Err(Error::Unsupported { what: "as many lock lanes in on-chip memory" });
    }
    Ok(())
}
