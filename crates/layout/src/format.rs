//! Options of a new memory server, and the geometry that follows from them.
//!
//! The defaults are the paper's: 8 MiB chunks, 131,072 16-bit lanes in 256 KiB of on-chip memory (§4.2.4,
//! §4.3). Every number can shrink, so that a simulated server fills up after a few requests. Planning is
//! pure; a memory server writes the plan to memory.

use crate::bytes::LINE;
use crate::geometry::{
    CHUNK_ENTRY_BYTES, CHUNKS_ALIGN, LANE_HASH_MULTIPLICATIVE, SPAN_ENTRY_BYTES, SPAN_PLACES_MAX,
};
use crate::geometry::{Geometry, LaneWidth, LockGeometry, ReleaseMode, TABLES_OFFSET};
use sherman_fabric::{GlobalAddress, Space};
use std::time::Duration;

/// Bytes of a full lock table: the on-chip memory of the paper's NICs.
pub const LANE_TABLE_BYTES: u64 = 256 << 10;

/// The shortest lease of a server with real clients. A client renews three times in a lease, so it has 33 ms
/// for one renewal. A scheduler pause on a busy machine, or one lost packet, must not make a healthy client
/// look dead. Simulated time may be shorter.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(100);
/// The longest lease of a server with real clients.
pub const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// Options of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// Where the table lies. [`Space::Host`] is the paper's baseline, without the on-chip technique.
    pub space: Space,
    /// Bits of a lane.
    pub width: LaneWidth,
    /// How many lanes, a power of two. `None`: as many as fit into [`LANE_TABLE_BYTES`] and, on chip, into
    /// the available memory.
    pub lanes: Option<u32>,
    /// How lanes are released.
    pub release: ReleaseMode,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self { space: Space::OnChip, width: LaneWidth::Bits16, lanes: None, release: ReleaseMode::Write }
    }
}

/// The choices made when a memory server is formatted. Memory sizes come from the memory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// The identity of the memory: a random number, not 0, that the caller draws again for every format. The
    /// state machine draws no random numbers and refuses 0.
    pub memory_id: u64,
    /// A number that stands for the cluster's name.
    pub cluster_id: u64,
    /// This server's index.
    pub server: u16,
    /// How many servers the cluster has.
    pub servers: u16,
    /// Bytes of a chunk, a multiple of 64.
    pub chunk_bytes: u64,
    /// The most places of a span, 1 to 64. A place is room for one node. A span is the unit that a client
    /// asks for.
    pub span_places: u32,
    /// Bytes of a redo slot, a multiple of 64. The default holds a record about the largest node.
    pub redo_slot_bytes: u32,
    /// Bytes of a client's redo area, a multiple of 64, from one slot to one chunk.
    pub redo_area_bytes: u64,
    /// The largest member id, at most 65,535.
    pub member_capacity: u32,
    /// How many trees there can be.
    pub catalog_capacity: u32,
    /// The length of a lease in nanoseconds: how long a compute server counts as alive after its last
    /// renewal.
    pub lease_nanos: u64,
    /// The lock table.
    pub locks: LockOptions,
    /// Whether to zero the chunks too. Without it they must be zero already: a fresh mapping or file. A later
    /// recovery that walks a chunk could mistake old bytes for nodes.
    pub wipe_chunks: bool,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            memory_id: 0,
            cluster_id: 0,
            server: 0,
            servers: 1,
            chunk_bytes: 8 << 20,
            span_places: SPAN_PLACES_MAX,
            redo_slot_bytes: (64 << 10) + (4 << 10),
            redo_area_bytes: 1 << 20,
            member_capacity: 4096,
            catalog_capacity: 256,
            lease_nanos: 3_000_000_000,
            locks: LockOptions::default(),
            wipe_chunks: false,
        }
    }
}

sherman_fabric::errors! {
    /// Why a memory cannot be formatted. Nothing was written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum FormatError {
        /// The host memory cannot hold the reserved area and one chunk.
        TooSmall {
            /// Available bytes.
            memory: u64,
            /// Bytes needed at least.
            minimum: u64,
        } => "{memory} bytes of memory are too few: the reserved area and one chunk need {minimum}",
        /// The on-chip memory cannot hold the lock table.
        OnChipTooSmall {
            /// Available bytes.
            on_chip: u64,
            /// Bytes needed at least.
            minimum: u64,
        } => "{on_chip} bytes of on-chip memory are too few: the lock table needs {minimum}; choose fewer \
            lanes or put it in host memory",
        /// The caller drew no random number as the memory's identity.
        NoIdentity => "the memory has no identity: the system gives no random numbers",
        /// The options do not fit together.
        BadGeometry {
            /// The violated condition.
            what: &'static str,
        } => "the memory cannot be laid out: {what}",
    }
}

/// Hands out line-aligned regions one after another.
struct Cursor(u64);

impl Cursor {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.0;
        self.0 += bytes.next_multiple_of(LINE);
        at
    }
}

impl FormatOptions {
    /// The geometry of a server with this much memory. Neither reads nor writes memory.
    pub fn plan(&self, host_bytes: u64, on_chip_bytes: u64) -> Result<Geometry, FormatError> {
        self.check_numbers(host_bytes)?;
        let minimum = self.minimum_memory(on_chip_bytes)?;
        if host_bytes < minimum {
            return Err(FormatError::TooSmall { memory: host_bytes, minimum });
        }
        let geometry = self.lay_out(host_bytes, self.lock_geometry(on_chip_bytes)?);
        geometry.validate().map_err(|what| FormatError::BadGeometry { what })?;
        Ok(geometry)
    }

    /// The fewest bytes of host memory that these options need: the reserved area and one chunk.
    pub fn minimum_memory(&self, on_chip_bytes: u64) -> Result<u64, FormatError> {
        self.check_numbers(0)?;
        let lock = self.lock_geometry(on_chip_bytes)?;
        // The chunk table (8 bytes a chunk) and the span table grow with the memory, so this reaches its
        // fixed point in a few steps.
        let mut minimum = self.chunk_bytes;
        loop {
            let next = self.lay_out(minimum, lock).chunks_offset + self.chunk_bytes;
            if next <= minimum {
                return Ok(minimum);
            }
            minimum = next;
        }
    }

    /// Checks the numbers before anything is computed from them, so that nothing overflows or divides by
    /// zero.
    fn check_numbers(&self, host_bytes: u64) -> Result<(), FormatError> {
        let check = |holds: bool, what: &'static str| {
            if holds { Ok(()) } else { Err(FormatError::BadGeometry { what }) }
        };
        let limit = GlobalAddress::OFFSET_LIMIT;
        check(self.server < self.servers, "the server's index is not below the number of servers")?;
        check(host_bytes <= limit, "memory exceeds what a 48-bit offset can name")?;
        check(
            self.chunk_bytes >= LINE && self.chunk_bytes.is_multiple_of(LINE),
            "chunk_bytes is not a multiple of 64",
        )?;
        check(self.chunk_bytes <= limit, "chunk_bytes exceeds what a 48-bit offset can name")?;
        check(host_bytes / self.chunk_bytes <= u64::from(u32::MAX), "there are more than 2^32 chunks")?;
        check((1..=SPAN_PLACES_MAX).contains(&self.span_places), "a span has 1 to 64 places")?;
        check(self.member_capacity <= u32::from(u16::MAX), "member_capacity exceeds 16-bit ids")
    }

    fn lock_geometry(&self, on_chip_bytes: u64) -> Result<LockGeometry, FormatError> {
        let LockOptions { space, width, lanes, release } = self.locks;
        let room = match space {
            Space::Host => LANE_TABLE_BYTES,
            Space::OnChip => LANE_TABLE_BYTES.min(on_chip_bytes),
        };
        let most = (room / width.bytes()).checked_ilog2().map_or(0, |log| 1 << log);
        let count = lanes.unwrap_or(most);
        let lock = LockGeometry { space, offset: 0, width, count, hash: LANE_HASH_MULTIPLICATIVE, release };
        if space == Space::OnChip && (count == 0 || lock.table_bytes() > on_chip_bytes) {
            let minimum = lock.table_bytes().max(width.bytes());
            return Err(FormatError::OnChipTooSmall { on_chip: on_chip_bytes, minimum });
        }
        Ok(lock)
    }

    /// Places the tables. `chunks` is 0 if the memory is too small for any.
    fn lay_out(&self, memory_bytes: u64, lock: LockGeometry) -> Geometry {
        let mut geometry = Geometry {
            memory_bytes,
            chunk_bytes: self.chunk_bytes,
            chunks_offset: 0,
            chunks: 0,
            redo_slot_bytes: self.redo_slot_bytes,
            redo_area_bytes: self.redo_area_bytes,
            root_offset: 0,
            member_capacity: self.member_capacity,
            client_offset: 0,
            chunk_table_offset: 0,
            span_places: self.span_places,
            span_table_offset: 0,
            catalog_capacity: self.catalog_capacity,
            lease_nanos: self.lease_nanos,
            server_capacity: u32::from(self.servers),
            lock,
        };
        let mut cursor = Cursor(TABLES_OFFSET);
        if lock.space == Space::Host {
            geometry.lock.offset = cursor.take(lock.table_bytes());
        }
        // Before all tables whose size may differ between servers.
        geometry.root_offset = cursor.take(geometry.root_table_bytes());
        geometry.client_offset = cursor.take(geometry.client_table_bytes());
        // The number of chunks depends on where they begin, which depends on the size of these tables. So the
        // tables get room for as many chunks as there would be without a reserved area.
        let most = memory_bytes / self.chunk_bytes;
        geometry.chunk_table_offset = cursor.take(most * CHUNK_ENTRY_BYTES);
        geometry.span_table_offset = cursor.take(most * geometry.spans_per_chunk() * SPAN_ENTRY_BYTES);
        geometry.chunks_offset = cursor.0.next_multiple_of(CHUNKS_ALIGN);
        geometry.chunks = (memory_bytes.saturating_sub(geometry.chunks_offset) / self.chunk_bytes) as u32;
        geometry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::small_options;

    #[test]
    fn the_defaults_reserve_less_than_a_five_hundredth_of_the_memory() {
        for space in [Space::Host, Space::OnChip] {
            let locks = LockOptions { space, ..LockOptions::default() };
            let options = FormatOptions { locks, ..FormatOptions::default() };
            let geometry = options.plan(64 << 30, LANE_TABLE_BYTES).unwrap();
            assert!(geometry.chunks_offset * 500 < 64 << 30, "{}", geometry.chunks_offset);
            assert_eq!(geometry.chunks, 8183);
            assert_eq!(geometry.redo_slots(geometry.redo_area_bytes), 15);
        }
    }

    #[test]
    fn a_full_table_has_the_paper_s_lanes_and_a_smaller_chip_fewer() {
        let lanes = |width, on_chip| {
            let locks = LockOptions { width, ..LockOptions::default() };
            FormatOptions { locks, ..FormatOptions::default() }.plan(1 << 30, on_chip).map(|g| g.lock.count)
        };
        assert_eq!(lanes(LaneWidth::Bits16, 256 << 10), Ok(131_072));
        assert_eq!(lanes(LaneWidth::Bits64, 256 << 10), Ok(32_768));
        assert_eq!(lanes(LaneWidth::Bits16, 1 << 20), Ok(131_072));
        assert_eq!(lanes(LaneWidth::Bits16, 100 << 10), Ok(32_768));
        assert_eq!(lanes(LaneWidth::Bits64, 8), Ok(1));
        assert_eq!(lanes(LaneWidth::Bits64, 0), Err(FormatError::OnChipTooSmall { on_chip: 0, minimum: 8 }));
        let locks = LockOptions { lanes: Some(64), ..LockOptions::default() };
        let refused = FormatOptions { locks, ..small_options() }.plan(1 << 20, 100);
        assert_eq!(refused, Err(FormatError::OnChipTooSmall { on_chip: 100, minimum: 128 }));
    }

    #[test]
    fn the_minimum_named_is_the_minimum() {
        for (options, chunk_bytes) in
            [(FormatOptions::default(), 8 << 20), (small_options(), 4096), (small_options(), 1 << 16)]
        {
            for space in [Space::Host, Space::OnChip] {
                let locks = LockOptions { space, ..options.locks };
                let options = FormatOptions { chunk_bytes, locks, ..options };
                let minimum = options.minimum_memory(1 << 20).unwrap();
                assert_eq!(
                    options.plan(minimum - 1, 1 << 20),
                    Err(FormatError::TooSmall { memory: minimum - 1, minimum })
                );
                assert_eq!(options.plan(minimum, 1 << 20).unwrap().chunks, 1);
                assert_eq!(options.plan(0, 1 << 20), Err(FormatError::TooSmall { memory: 0, minimum }));
            }
        }
    }

    #[test]
    fn every_plan_is_valid_and_wastes_less_than_a_chunk() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let space = if rng.bool() { Space::Host } else { Space::OnChip };
            let width = if rng.bool() { LaneWidth::Bits16 } else { LaneWidth::Bits64 };
            let options = FormatOptions {
                chunk_bytes: 64 * rng.u64(16..2048),
                span_places: rng.u32(1..=64),
                redo_slot_bytes: 64 * rng.u32(1..4),
                redo_area_bytes: 64 * rng.u64(4..16),
                member_capacity: rng.u32(1..100),
                catalog_capacity: rng.u32(1..10),
                locks: LockOptions {
                    space,
                    width,
                    lanes: Some(1 << rng.u32(0..8)),
                    release: ReleaseMode::Cas,
                },
                ..FormatOptions::default()
            };
            let memory = rng.u64(0..2 << 20);
            match options.plan(memory, 4096) {
                Ok(g) => {
                    assert_eq!(g.validate(), Ok(()));
                    assert_eq!(g.chunks_offset % 4096, 0);
                    let end = g.chunks_offset + u64::from(g.chunks) * g.chunk_bytes;
                    assert!(end <= memory && memory - end < g.chunk_bytes);
                }
                Err(FormatError::TooSmall { minimum, .. }) => assert!(memory < minimum),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn options_that_do_not_fit_together_are_refused() {
        let small = small_options();
        let lanes = |lanes| LockOptions { lanes: Some(lanes), space: Space::Host, ..small.locks };
        for bad in [
            FormatOptions { server: 2, servers: 2, ..small },
            FormatOptions { chunk_bytes: 0, ..small },
            FormatOptions { chunk_bytes: 4096 + 8, ..small },
            FormatOptions { chunk_bytes: u64::MAX - 63, ..small },
            FormatOptions { span_places: 0, ..small },
            FormatOptions { span_places: 65, ..small },
            FormatOptions { redo_slot_bytes: 0, ..small },
            FormatOptions { redo_slot_bytes: 100, ..small },
            FormatOptions { redo_area_bytes: 0, ..small },
            FormatOptions { redo_area_bytes: small.chunk_bytes + 64, ..small },
            FormatOptions { member_capacity: 0, ..small },
            FormatOptions { member_capacity: 1 << 16, ..small },
            FormatOptions { catalog_capacity: 0, ..small },
            FormatOptions { locks: lanes(0), ..small },
            FormatOptions { locks: lanes(48), ..small },
        ] {
            let refused = bad.plan(1 << 20, 4096);
            assert!(matches!(refused, Err(FormatError::BadGeometry { .. })), "{bad:?}: {refused:?}");
        }
        assert!(matches!(small.plan((1 << 48) + 1, 4096), Err(FormatError::BadGeometry { .. })));
    }
}
