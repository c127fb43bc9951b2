//! What is fixed when a cluster of hosts is made.

use super::bytes::{Put, Reader};
use super::hosts::MOST_HOSTS;
use sherman_fabric::Space;
use sherman_layout::{
    ControlGeometry, FormatError, FormatOptions, Geometry, LaneWidth, LockOptions, ReleaseMode,
};

/// The most volumes of a cluster: a table has room for two copies of each.
pub const MOST_VOLUMES: u16 = (sherman_replica::table::MOST / 2) as u16;
/// The most bytes of the control state: every host keeps all of it.
const MOST_CONTROL_BYTES: u64 = 64 << 20;
/// Distinguishes the memories of the volumes of one cluster. Odd, so that no two volumes share one.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is fixed when a cluster of hosts is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// How many copies a volume has: 1 or 2. A cluster with fewer hosts has fewer.
    pub replicas: u8,
    /// How many volumes the cluster has.
    pub volumes: u16,
    /// How many hosts must have registered before the volumes are placed.
    pub hosts: u16,
    /// Bytes of host memory of a copy.
    pub volume_bytes: u64,
    /// Bytes of on-chip memory of a copy.
    pub on_chip_bytes: u64,
    /// How copies are formatted. What depends on the volume is ignored: `memory_id`, `server` and `servers`.
    pub format: FormatOptions,
}

/// The identity that the memory of every copy of `volume` has in this cluster. For volume 0 it is the
/// cluster's own. It is never 0, and no two volumes share one.
pub fn memory_id(cluster: u64, volume: u16) -> u64 {
    let id = |volume: u32| cluster.wrapping_add(u64::from(volume).wrapping_mul(STEP));
    match id(u32::from(volume)) {
        0 => id(1 << 16),
        other => other,
    }
}

impl ClusterSettings {
    /// How many copies every volume gets when the cluster is formed.
    pub fn copies_per_volume(&self) -> u16 {
        u16::from(self.replicas).min(self.hosts)
    }

    /// The most copies that one host gets when the cluster is formed.
    pub fn copies_per_host(&self) -> u16 {
        self.volumes.div_ceil(self.hosts.max(1)).saturating_mul(self.copies_per_volume())
    }

    /// The bytes of host memory that each of the first hosts must offer.
    pub fn bytes_per_host(&self) -> u64 {
        self.volume_bytes.saturating_mul(u64::from(self.copies_per_host()))
    }

    /// The options with which every copy of `volume` is formatted in this cluster.
    pub fn volume_format(&self, cluster: u64, volume: u16) -> FormatOptions {
        let memory_id = memory_id(cluster, volume);
        FormatOptions { memory_id, server: volume, servers: self.volumes, ..self.format }
    }

    /// Checks everything. Returns the geometry of the volumes.
    pub(super) fn check(&self, cluster: u64) -> Result<Geometry, FormatError> {
        let check = |holds: bool, what: &'static str| {
            if holds { Ok(()) } else { Err(FormatError::BadGeometry { what }) }
        };
        check((1..=2).contains(&self.replicas), "a volume has 1 or 2 copies")?;
        check((1..=MOST_VOLUMES).contains(&self.volumes), "a cluster has 1 to 2048 volumes")?;
        check((1..=MOST_HOSTS as u16).contains(&self.hosts), "a cluster begins with 1 to 256 hosts")?;
        if cluster == 0 {
            return Err(FormatError::NoIdentity);
        }
        let geometry = self.volume_format(cluster, 0).plan(self.volume_bytes, self.on_chip_bytes)?;
        check(self.control_bytes() <= MOST_CONTROL_BYTES, "the control state needs more than 64 MiB")?;
        Ok(geometry)
    }

    /// Bytes of the memory of the control state.
    pub(super) fn control_bytes(&self) -> u64 {
        ControlGeometry::bytes_of(&FormatOptions { servers: self.volumes, ..self.format })
    }

    /// The settings as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let format = &self.format;
        out.put_u8(self.replicas);
        [self.volumes, self.hosts, format.server, format.servers].iter().for_each(|&n| out.put_u16(n));
        let words = [
            self.volume_bytes,
            self.on_chip_bytes,
            format.memory_id,
            format.cluster_id,
            format.chunk_bytes,
            format.redo_area_bytes,
            format.lease_nanos,
        ];
        words.iter().for_each(|&word| out.put_u64(word));
        let numbers =
            [format.span_places, format.redo_slot_bytes, format.member_capacity, format.catalog_capacity];
        numbers.iter().for_each(|&number| out.put_u32(number));
        let LockOptions { space, width, lanes, release } = format.locks;
        out.put_u8(u8::from(space == Space::OnChip));
        out.put_u8(u8::from(width == LaneWidth::Bits64));
        out.put_u8(u8::from(lanes.is_some()));
        out.put_u32(lanes.unwrap_or(0));
        out.put_u8(match release {
            ReleaseMode::Write => 0,
            ReleaseMode::Faa => 1,
            ReleaseMode::Cas => 2,
        });
        out.put_u8(format.wipe_chunks.into());
        out
    }

    /// The settings in `bytes`, if these are exactly that. They may be impossible ones.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let replicas = reader.u8()?;
        let [volumes, hosts, server, servers] = reader.several(Reader::u16)?;
        let [volume_bytes, on_chip_bytes, memory_id, cluster_id, chunk_bytes, redo_area_bytes, lease_nanos] =
            reader.several(Reader::u64)?;
        let [span_places, redo_slot_bytes, member_capacity, catalog_capacity] =
            reader.several(Reader::u32)?;
        let space = if reader.flag()? { Space::OnChip } else { Space::Host };
        let width = if reader.flag()? { LaneWidth::Bits64 } else { LaneWidth::Bits16 };
        let (some, lanes) = (reader.flag()?, reader.u32()?);
        if !some && lanes != 0 {
            return None;
        }
        let release = match reader.u8()? {
            0 => ReleaseMode::Write,
            1 => ReleaseMode::Faa,
            2 => ReleaseMode::Cas,
            _ => return None,
        };
        let locks = LockOptions { space, width, lanes: some.then_some(lanes), release };
        let wipe_chunks = reader.flag()?;
        reader.end()?;
        let format = FormatOptions {
            memory_id,
            cluster_id,
            server,
            servers,
            chunk_bytes,
            span_places,
            redo_slot_bytes,
            redo_area_bytes,
            member_capacity,
            catalog_capacity,
            lease_nanos,
            locks,
            wipe_chunks,
        };
        Some(Self { replicas, volumes, hosts, volume_bytes, on_chip_bytes, format })
    }
}
