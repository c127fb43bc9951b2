//! The memories that a server serves.
//!
//! A plain memory server serves one memory, for as long as it runs. A *host* serves copies of volumes
//! (`docs/REPLICATION.md`), which come and go with the table of volumes. Each copy has its own clients: what
//! fences a client on one copy does not touch the others.
//!
//! Every connection of a member holds its own [`Served`]. So verbs never look at the set of copies.

use super::incarnations::Incarnations;
use sherman_control::path::DataPath;
use sherman_control::plane::{ControlPlane, Mirror};
use sherman_embedded::host::Host;
use sherman_fabric::control::Usage;
use sherman_fabric::{Call, FabricError, Memory, Peer, Refusal, Request, ServerStats, Space, calls};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A memory to serve, and perhaps another way to it than lists in frames.
#[derive(Clone, Debug)]
pub struct ServedMemory {
    /// The memory.
    pub host: Arc<Host>,
    /// The other way.
    pub path: Option<Arc<dyn DataPath>>,
}

impl From<Arc<Host>> for ServedMemory {
    fn from(host: Arc<Host>) -> Self {
        Self { host, path: None }
    }
}

/// One memory, and the sessions of its clients.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) host: Arc<Host>,
    pub(super) incarnations: Incarnations,
    /// Its number in the table of volumes, if it is a copy.
    pub(super) copy: Option<u16>,
    /// The way to the other copies, if this one is the primary of a volume that has others.
    mirror: RwLock<Option<Arc<dyn Mirror>>>,
    /// While the copy is being made: the newest connection that asked for digests or sent bytes, or 0. Only
    /// that one may go on. So bytes that a former connection delivers late change nothing.
    filler: Mutex<Option<u64>>,
}

impl Served {
    /// The memory of a plain server.
    pub(super) fn plain(host: Arc<Host>, path: Option<Arc<dyn DataPath>>) -> Self {
        Self {
            host,
            incarnations: Incarnations::new(path),
            copy: None,
            mirror: RwLock::default(),
            filler: Mutex::default(),
        }
    }

    /// The other way to the memory, if there is one.
    pub(super) fn path(&self) -> Option<&dyn DataPath> {
        self.incarnations.path()
    }

    /// Whether this memory executes lists in frames.
    pub(super) fn takes_frames(&self) -> bool {
        self.path().is_none_or(|path| path.takes_frames())
    }

    /// The way to the other copies, if there are any. Call it with the lock of the memory held.
    pub(super) fn mirror(&self) -> Option<Arc<dyn Mirror>> {
        self.mirror.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the copy is being made. Then nobody may reach it but the host of the primary.
    pub(super) fn is_filling(&self) -> bool {
        self.filler().is_some()
    }

    /// Lets the host of the primary, over its connection `number`, look at a copy that is being made or store
    /// bytes there. Only one connection at a time does.
    pub(super) fn filling<T>(
        &self,
        number: u64,
        act: impl FnOnce(&Host) -> Result<T, FabricError>,
    ) -> Result<T, FabricError> {
        let mut filler = self.filler();
        let newest = filler.as_mut().ok_or(FabricError::Refused(Refusal::BadRequest { what: NOT_MADE }))?;
        if number < *newest {
            return Err(FabricError::Refused(Refusal::BadRequest { what: OTHER_FILLER }));
        }
        *newest = number;
        act(&self.host)
    }

    /// The copy is made: waits for bytes that are being stored, and takes no more.
    fn end_filling(&self) {
        *self.filler() = None;
    }

    fn filler(&self) -> MutexGuard<'_, Option<u64>> {
        self.filler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number that clients know it by.
    pub(super) fn number(&self) -> u16 {
        self.copy.unwrap_or(self.host.superblock().server)
    }

    /// Whether the cluster's control state lies beside this memory.
    pub(super) fn keeps_control(&self) -> bool {
        self.copy.is_none() && self.host.superblock().server == Peer::Control.server()
    }

    /// Fences every client, and admits none any more.
    pub(super) fn end(&self) {
        // Under the lock of the memory, as every change of the sessions.
        self.host.look(|_| self.incarnations.end());
    }

    /// Adds its members and memory to `stats`.
    pub(super) fn add_to(&self, stats: &mut ServerStats) {
        let (memory, census) = (self.host.memory(), self.host.census());
        stats.ids += census.ids;
        stats.ids_free += census.ids_free;
        stats.members_live += census.live;
        stats.members_leaving += census.leaving;
        stats.members_dead += census.dead;
        stats.members_waiting += census.waiting;
        stats.chunks += census.chunks;
        stats.chunks_used += census.chunks_used;
        stats.bytes_owned += census.bytes_owned;
        stats.bytes_free += census.bytes_free;
        stats.host_bytes += memory.size(Space::Host);
        stats.on_chip_bytes += memory.size(Space::OnChip);
    }
}

/// Everything that a server serves.
#[derive(Debug)]
pub(super) enum Serves {
    /// The memory of a plain server.
    Memory(Arc<Served>),
    /// Copies of volumes.
    Copies(Copies),
}

impl Serves {
    /// The server's number.
    pub(super) fn number(&self) -> u16 {
        match self {
            Self::Memory(served) => served.number(),
            Self::Copies(copies) => copies.plane.host(),
        }
    }

    /// All memories that are served now.
    pub(super) fn all(&self) -> Vec<Arc<Served>> {
        match self {
            Self::Memory(served) => vec![Arc::clone(served)],
            Self::Copies(copies) => copies.all(),
        }
    }
}

/// Why a copy takes no bytes that is complete, or was never to be made.
const NOT_MADE: &str = "this copy is not being made";
/// Why a copy takes no bytes from a former connection.
const OTHER_FILLER: &str = "another connection fills this copy";

/// What became of a memory that is to be served.
enum Put {
    /// It was served before.
    Before(Arc<Served>),
    /// It is served, in the place of another one perhaps.
    InPlaceOf(Option<Arc<Served>>),
}

/// The copies of a host.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) plane: Arc<dyn ControlPlane>,
    /// The copies by number. No other lock is taken while this one is held.
    by_number: RwLock<BTreeMap<u16, Arc<Served>>>,
    /// How many connections of hosts there were.
    connections: AtomicU64,
}

impl Copies {
    /// No copies.
    pub(super) fn new(plane: Arc<dyn ControlPlane>) -> Self {
        Self { plane, by_number: RwLock::default(), connections: AtomicU64::new(0) }
    }

    /// The copy with this number, if it is served.
    pub(super) fn get(&self, copy: u16) -> Option<Arc<Served>> {
        self.by_number.read().unwrap_or_else(PoisonError::into_inner).get(&copy).cloned()
    }

    fn all(&self) -> Vec<Arc<Served>> {
        self.by_number.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The number of a connection of another host. A later connection has a higher one.
    pub(super) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Relaxed) + 1
    }

    /// Serves a copy. Returns another memory that was served under this number, whose clients must end.
    pub(super) fn install(&self, copy: u16, memory: ServedMemory) -> Option<Arc<Served>> {
        match self.put(copy, memory, None) {
            Put::Before(served) => {
                served.end_filling();
                None
            }
            Put::InPlaceOf(served) => served,
        }
    }

    /// Takes the bytes of a copy that is being made. Does nothing if this memory is served already.
    pub(super) fn install_filling(&self, copy: u16, memory: ServedMemory) -> Option<Arc<Served>> {
        match self.put(copy, memory, Some(0)) {
            Put::Before(_) => None,
            Put::InPlaceOf(served) => served,
        }
    }

    fn put(&self, copy: u16, memory: ServedMemory, filler: Option<u64>) -> Put {
        let ServedMemory { host, path } = memory;
        let mut copies = self.by_number.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(served) = copies.get(&copy).filter(|served| Arc::ptr_eq(&served.host, &host)) {
            return Put::Before(Arc::clone(served));
        }
        let (incarnations, mirror) = (Incarnations::new(path), RwLock::default());
        let served = Served { host, incarnations, copy: Some(copy), mirror, filler: Mutex::new(filler) };
        Put::InPlaceOf(copies.insert(copy, Arc::new(served)))
    }

    /// Sets the way from this copy to the other copies of its volume.
    pub(super) fn set_mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>) {
        if let Some(served) = self.get(copy) {
            // Under the lock of the memory: a request is answered either before or after.
            served.host.look(|_| {
                *served.mirror.write().unwrap_or_else(PoisonError::into_inner) = mirror;
            });
        }
    }

    /// Serves this copy no more. Returns it; its clients must end.
    pub(super) fn remove(&self, copy: u16) -> Option<Arc<Served>> {
        self.by_number.write().unwrap_or_else(PoisonError::into_inner).remove(&copy)
    }

    /// The memory of all copies together, and the clients that have a redo area on any of them.
    pub(super) fn usage(&self) -> Result<Usage, FabricError> {
        let mut sum = Usage::default();
        for served in self.all() {
            let one = served.host.administer(&Request::Usage).and_then(calls::Usage::expect)?;
            sum.chunks += one.chunks;
            sum.chunks_used += one.chunks_used;
            sum.chunk_bytes = sum.chunk_bytes.max(one.chunk_bytes);
            sum.bytes_owned += one.bytes_owned;
            sum.bytes_free += one.bytes_free;
            sum.members.extend(one.members);
        }
        sum.members.sort_unstable();
        sum.members.dedup();
        Ok(sum)
    }
}
