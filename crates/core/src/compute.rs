//! A compute server: what all its threads share.
//!
//! One identity towards the memory servers (the id in lanes, free marks and redo records), one local lock table, one
//! allocator, one set of redo slots.

use crate::alloc::Allocator;
use crate::error::Error;
use crate::lock::local::LocalLockTable;
use crate::redo::RedoSlots;
use crate::techniques::Techniques;
use sherman_fabric::{Caps, ClientId, Counters, Endpoint, GlobalAddress, Space, execute};
use sherman_memory_server::{Geometry, LaneWidth, ReleaseMode, SUPERBLOCK_BYTES, Superblock};
use std::sync::Arc;
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
    options: ComputeOptions,
    caps: Caps,
    pub(crate) local: LocalLockTable,
    pub(crate) alloc: Allocator,
    pub(crate) redo: RedoSlots,
}

impl ComputeServer {
    /// Reads every server's superblock through `endpoint` and takes part under its identity.
    pub async fn open<E: Endpoint>(endpoint: &E, options: ComputeOptions) -> Result<Arc<Self>, Error> {
        let counters = Counters::default();
        let mut geometry: Option<Geometry> = None;
        for server in 0..endpoint.servers() {
            let mut list = endpoint.list(server);
            let read = list.read(Space::Host, 0, SUPERBLOCK_BYTES as u32);
            let list = execute(endpoint, list, &counters).await?;
            let superblock =
                Superblock::decode(list.bytes(read)).map_err(|error| Error::Superblock { server, error })?;
            endpoint.recycle(list);
            match &geometry {
                None => geometry = Some(superblock.geometry),
                Some(first) if first.lock == superblock.geometry.lock => {}
                Some(_) => return Err(Error::Unsupported { what: "memory servers with different lock geometries" }),
            }
        }
        let geometry = geometry.ok_or(Error::Unsupported { what: "a cluster without memory servers" })?;
        let caps = endpoint.caps().clone();
        check_lanes(&geometry, &caps)?;
        Ok(Arc::new(Self {
            client: endpoint.client(),
            local: LocalLockTable::new(endpoint.servers(), geometry.lock.count),
            alloc: Allocator::new(endpoint.servers()),
            redo: RedoSlots::new(endpoint.servers(), u64::from(geometry.redo_slot_bytes)),
            geometry,
            options,
            caps,
        }))
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

    /// The redo slots.
    pub fn redo_slots(&self) -> &RedoSlots {
        &self.redo
    }

    /// The lane that protects the node at `address`.
    pub fn lane(&self, address: GlobalAddress) -> u32 {
        self.geometry.lane_of(address)
    }
}

/// Whether this fabric can serve the lanes the cluster was formatted with.
fn check_lanes(geometry: &Geometry, caps: &Caps) -> Result<(), Error> {
    if geometry.lock.width == LaneWidth::Bits16 && !caps.masked_cas {
        return Err(Error::Unsupported { what: "16-bit lock lanes without masked CAS" });
    }
    if geometry.lock.release == ReleaseMode::Write && !caps.write_releases {
        return Err(Error::Unsupported { what: "releasing a lock lane by WRITE" });
    }
    if geometry.lock.space == Space::OnChip && caps.on_chip_bytes == 0 {
        return Err(Error::Unsupported { what: "lock lanes in on-chip memory" });
    }
    Ok(())
}
