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
use sherman_fabric::{Call, FabricError, Memory, Peer, Request, ServerStats, Space, calls};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// One memory, and the sessions of its clients.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) host: Arc<Host>,
    pub(super) incarnations: Incarnations,
    /// Its number in the table of volumes, if it is a copy.
    pub(super) copy: Option<u16>,
    /// The way to the other copies, if this one is the primary of a volume that has others.
    mirror: RwLock<Option<Arc<dyn Mirror>>>,
}

impl Served {
    /// The memory of a plain server.
    pub(super) fn plain(host: Arc<Host>, path: Option<Arc<dyn DataPath>>) -> Self {
        Self { host, incarnations: Incarnations::new(path), copy: None, mirror: RwLock::default() }
    }

    /// The way to the other copies, if there are any. Call it with the lock of the memory held.
    pub(super) fn mirror(&self) -> Option<Arc<dyn Mirror>> {
        self.mirror.read().unwrap_or_else(PoisonError::into_inner).clone()
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

/// The copies of a host.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) plane: Arc<dyn ControlPlane>,
    /// The copies by number. No other lock is taken while this one is held.
    by_number: RwLock<BTreeMap<u16, Arc<Served>>>,
}

impl Copies {
    /// No copies.
    pub(super) fn new(plane: Arc<dyn ControlPlane>) -> Self {
        Self { plane, by_number: RwLock::default() }
    }

    /// The copy with this number, if it is served.
    pub(super) fn get(&self, copy: u16) -> Option<Arc<Served>> {
        self.by_number.read().unwrap_or_else(PoisonError::into_inner).get(&copy).cloned()
    }

    fn all(&self) -> Vec<Arc<Served>> {
        self.by_number.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Serves a copy. Returns another memory that was served under this number, whose clients must end.
    pub(super) fn install(&self, copy: u16, host: Arc<Host>) -> Option<Arc<Served>> {
        let mut copies = self.by_number.write().unwrap_or_else(PoisonError::into_inner);
        if copies.get(&copy).is_some_and(|served| Arc::ptr_eq(&served.host, &host)) {
            return None;
        }
        let (incarnations, mirror) = (Incarnations::default(), RwLock::default());
        let served = Served { host, incarnations, copy: Some(copy), mirror };
        copies.insert(copy, Arc::new(served))
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
