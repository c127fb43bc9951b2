//! Where everything lies in a memory server, and the arithmetic that clients and server share.
//!
//! The geometry is fixed when a server is formatted, and is kept in its superblock (`docs/LAYOUT.md`). A
//! client reads it once and then computes every offset itself. All functions are pure. A geometry obtained
//! from [`FormatOptions::plan`](crate::FormatOptions::plan) or
//! [`Superblock::decode`](crate::Superblock::decode) has passed [`Geometry::validate`]: tables are
//! line-aligned, lie in host memory and do not overlap.

use crate::bytes::{LINE, WORD};
use crate::superblock::SUPERBLOCK_BYTES;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ComputeId, GlobalAddress, Space};

/// Offset of the state line: the words that the server's CPU changes while it runs.
pub const STATE_OFFSET: u64 = SUPERBLOCK_BYTES as u64;
/// Bytes of the state line.
pub const STATE_BYTES: u64 = LINE;
/// Offset of the word that names the cluster of this memory: the identity of its volume 0's memory, or 0.
pub const CLUSTER_OFFSET: u64 = STATE_OFFSET;
/// Where the first table may begin.
pub const TABLES_OFFSET: u64 = STATE_OFFSET + STATE_BYTES;

/// Bytes of a member table entry.
pub const MEMBER_ENTRY_BYTES: u64 = 64;
/// Bytes of a client table entry.
pub const CLIENT_ENTRY_BYTES: u64 = 8;
/// Bytes of a chunk table entry.
pub const CHUNK_ENTRY_BYTES: u64 = 8;
/// Bytes of a span table entry: one word that the server writes, and one that clients write.
pub const SPAN_ENTRY_BYTES: u64 = 2 * WORD;
/// Bytes of a server table entry.
pub const SERVER_ENTRY_BYTES: u64 = 16;
/// Bytes of a root word.
pub const ROOT_WORD_BYTES: u64 = WORD;
/// Bytes of a catalog entry.
pub const CATALOG_ENTRY_BYTES: u64 = 256;

/// Chunks begin at a multiple of this.
pub const CHUNKS_ALIGN: u64 = 4096;
/// The smallest node.
pub const NODE_BYTES_MIN: u32 = 256;
/// The largest node.
pub const NODE_BYTES_MAX: u32 = 64 << 10;
/// The most bytes of a block: a place for a long value.
pub const BLOCK_BYTES_MAX: u32 = 2 << 20;
/// The most places that a span may have: one work list can read that many.
pub const SPAN_PLACES_MAX: u32 = 64;
/// Nodes of at most this size have the most places in a span ([`Geometry::span_places`]).
const SPAN_NODE_BYTES: u32 = 1024;
/// The only lane hash: multiplicative, over the line number.
pub const LANE_HASH_MULTIPLICATIVE: u8 = 1;
/// 2^64 divided by the golden ratio, made odd: consecutive multiples of any stride spread evenly over the
/// high bits.
const LANE_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

const _: () = assert!(STATE_OFFSET.is_multiple_of(LINE) && TABLES_OFFSET.is_multiple_of(LINE));
const _: () = assert!(CLUSTER_OFFSET + WORD <= TABLES_OFFSET);
const _: () = assert!(LINE.is_multiple_of(CHUNK_ENTRY_BYTES) && LINE.is_multiple_of(CLIENT_ENTRY_BYTES));
const _: () = assert!(MEMBER_ENTRY_BYTES == LINE && CATALOG_ENTRY_BYTES.is_multiple_of(LINE));

/// The width of a lock lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneWidth {
    /// Four lanes share a word; taking one needs a masked CAS (paper §4.3).
    Bits16,
    /// A lane is a word.
    Bits64,
}

impl LaneWidth {
    /// Bytes of a lane.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bits16 => 2,
            Self::Bits64 => 8,
        }
    }
}

/// How a client releases a lane. All clients of a server use the same mode, since a CAS is atomic only
/// against operations that the NIC treats as atomics (F4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseMode {
    /// By a plain WRITE of the lane's bytes. Needs `caps.write_releases`.
    Write,
    /// By subtracting the stored value.
    Faa,
    /// By a CAS back to zero.
    Cas,
}

/// The shape of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockGeometry {
    /// The memory that holds the table.
    pub space: Space,
    /// Its first byte there; 0 in [`Space::OnChip`].
    pub offset: u64,
    /// Bits of a lane.
    pub width: LaneWidth,
    /// How many lanes, a power of two.
    pub count: u32,
    /// Which hash maps an address to a lane: [`LANE_HASH_MULTIPLICATIVE`].
    pub hash: u8,
    /// How lanes are released.
    pub release: ReleaseMode,
}

impl LockGeometry {
    /// Bytes of the table, in whole words.
    pub const fn table_bytes(&self) -> u64 {
        (self.count as u64 * self.width.bytes()).next_multiple_of(WORD)
    }
}

/// Where everything lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Bytes of host memory that the server uses.
    pub memory_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Where the first chunk begins: the end of the reserved area.
    pub chunks_offset: u64,
    /// How many chunks there are.
    pub chunks: u32,
    /// Bytes of one slot of a redo area.
    pub redo_slot_bytes: u32,
    /// Bytes of a client's redo area.
    pub redo_area_bytes: u64,
    /// Where the root table begins: a word for each catalog entry, whichever volume has the root word of its
    /// tree. The same on every volume of a cluster.
    pub root_offset: u64,
    /// The largest member id.
    pub member_capacity: u32,
    /// Where the client table begins.
    pub client_offset: u64,
    /// Where the chunk table begins.
    pub chunk_table_offset: u64,
    /// The most places of a span.
    pub span_places: u32,
    /// Where the span table begins.
    pub span_table_offset: u64,
    /// How many trees the catalog can hold.
    pub catalog_capacity: u32,
    /// The length of a lease in nanoseconds: how long a member counts as alive after its last renewal.
    pub lease_nanos: u64,
    /// How many memory servers the cluster has.
    pub server_capacity: u32,
    /// The lock table.
    pub lock: LockGeometry,
}

impl Geometry {
    /// The lane that guards the node at `address`, on the node's own server.
    #[inline]
    pub const fn lane_of(&self, address: GlobalAddress) -> u32 {
        let mixed = (address.offset() / LINE).wrapping_mul(LANE_MULTIPLIER);
        // Two shifts: for a table of one lane, a single shift would be by all 64 bits.
        ((mixed >> 1) >> (63 - self.lock.count.trailing_zeros())) as u32
    }

    /// The word that holds `lane`, and the lane's position in it: `(space, word offset, mask, shift)`. A CAS
    /// takes the lane: under `mask` it compares with 0 and stores `id << shift`.
    #[inline]
    pub const fn lane_word(&self, lane: u32) -> (Space, u64, u64, u32) {
        debug_assert!(lane < self.lock.count);
        match self.lock.width {
            LaneWidth::Bits16 => {
                let shift = lane % 4 * 16;
                (self.lock.space, self.lock.offset + lane as u64 / 4 * WORD, 0xffff << shift, shift)
            }
            LaneWidth::Bits64 => (self.lock.space, self.lock.offset + lane as u64 * WORD, u64::MAX, 0),
        }
    }

    /// The bytes of `lane`, `(offset, len)` in the lock table's space: a release by WRITE zeroes them. Words
    /// are little-endian, so these bytes are exactly the bits under [`Geometry::lane_word`]'s mask.
    #[inline]
    pub const fn lane_byte_range(&self, lane: u32) -> (u64, u64) {
        debug_assert!(lane < self.lock.count);
        let bytes = self.lock.width.bytes();
        (self.lock.offset + lane as u64 * bytes, bytes)
    }

    /// How many redo slots an area of `area_bytes` has.
    pub const fn redo_slots(&self, area_bytes: u64) -> u32 {
        (area_bytes / self.redo_slot_bytes as u64) as u32
    }

    /// Where the slots of the redo area at `area` are, and their lengths.
    pub fn redo_stretches(&self, area: u64) -> Vec<(u64, u32)> {
        let slots = 0..u64::from(self.redo_slots(self.redo_area_bytes));
        slots.map(|slot| (area + slot * u64::from(self.redo_slot_bytes), self.redo_slot_bytes)).collect()
    }

    /// How many redo areas a chunk is cut into.
    pub const fn redo_areas_per_chunk(&self) -> u64 {
        self.chunk_bytes / self.redo_area_bytes
    }

    /// Where chunk `index` begins.
    pub const fn chunk_offset(&self, index: u32) -> u64 {
        debug_assert!(index < self.chunks);
        self.chunks_offset + index as u64 * self.chunk_bytes
    }

    /// The chunk that `offset` lies in, if it lies in one.
    pub const fn chunk_at(&self, offset: u64) -> Option<u32> {
        if offset < self.chunks_offset {
            return None;
        }
        let index = (offset - self.chunks_offset) / self.chunk_bytes;
        if index < self.chunks as u64 { Some(index as u32) } else { None }
    }

    /// Where the table entry of chunk `index` is.
    pub const fn chunk_entry(&self, index: u32) -> u64 {
        debug_assert!(index < self.chunks);
        self.chunk_table_offset + index as u64 * CHUNK_ENTRY_BYTES
    }

    /// Span table entries per chunk: the number of spans in a chunk of the smallest nodes.
    pub const fn spans_per_chunk(&self) -> u64 {
        self.chunk_bytes.div_ceil(NODE_BYTES_MIN as u64 * self.span_places as u64)
    }

    /// How many places a span for nodes of `node_bytes` has. Larger nodes get fewer, so that a client that
    /// makes one node does not own megabytes. The last span of a chunk may have fewer.
    pub const fn places_per_span(&self, node_bytes: u32) -> u64 {
        let (most, least) = (self.span_places as u64, self.span_places as u64 / 8);
        let fitting = most * SPAN_NODE_BYTES as u64 / node_bytes as u64;
        let places = if fitting < most { fitting } else { most };
        let places = if places < least { least } else { places };
        if places == 0 { 1 } else { places }
    }

    /// The number of spans in a chunk of nodes of `node_bytes`.
    pub const fn spans_in_chunk(&self, node_bytes: u32) -> u64 {
        (self.chunk_bytes / node_bytes as u64).div_ceil(self.places_per_span(node_bytes))
    }

    /// Where span `number` of chunk `index` begins, and its size.
    pub const fn span_range(&self, index: u32, node_bytes: u32, number: u64) -> (u64, u64) {
        let (node, whole) = (node_bytes as u64, self.places_per_span(node_bytes) * node_bytes as u64);
        let (from, end) = (number * whole, self.chunk_bytes / node * node);
        let to = if from + whole < end { from + whole } else { end };
        (self.chunk_offset(index) + from, to - from)
    }

    /// The span that `offset` lies in, if it lies in a chunk: the chunk, and the span's number there.
    pub const fn span_at(&self, offset: u64, node_bytes: u32) -> Option<(u32, u64)> {
        let Some(index) = self.chunk_at(offset) else { return None };
        let number =
            (offset - self.chunk_offset(index)) / (self.places_per_span(node_bytes) * node_bytes as u64);
        if number < self.spans_in_chunk(node_bytes) { Some((index, number)) } else { None }
    }

    /// Where the table entry of a span is: its first word, which the server writes.
    pub const fn span_entry(&self, index: u32, number: u64) -> u64 {
        debug_assert!(index < self.chunks && number < self.spans_per_chunk());
        self.span_table_offset + (index as u64 * self.spans_per_chunk() + number) * SPAN_ENTRY_BYTES
    }

    /// Where a span's hint is, the word of its entry that clients write. A hint that is not 0 says that the
    /// span may have free places.
    pub const fn span_hint(&self, index: u32, number: u64) -> u64 {
        self.span_entry(index, number) + WORD
    }

    /// Bytes of the span table.
    pub const fn span_table_bytes(&self) -> u64 {
        self.chunks as u64 * self.spans_per_chunk() * SPAN_ENTRY_BYTES
    }

    /// Whether `client` is an id this server has table entries for.
    pub const fn is_client(&self, client: ComputeId) -> bool {
        client.0 != 0 && client.0 as u32 <= self.member_capacity
    }

    /// Where the client table word of `client` is (every server).
    pub const fn client_entry(&self, client: ComputeId) -> u64 {
        debug_assert!(self.is_client(client));
        self.client_offset + client.0 as u64 * CLIENT_ENTRY_BYTES
    }

    /// Where the root word of catalog entry `index` is, on the volume that has it.
    pub const fn root_word(&self, index: u32) -> u64 {
        debug_assert!(index < self.catalog_capacity);
        self.root_offset + index as u64 * ROOT_WORD_BYTES
    }

    /// Whether a root word can be at `offset`.
    pub const fn is_root_word(&self, offset: u64) -> bool {
        offset >= self.root_offset
            && offset - self.root_offset < self.root_table_bytes()
            && (offset - self.root_offset).is_multiple_of(ROOT_WORD_BYTES)
    }

    /// Bytes of the root table.
    pub const fn root_table_bytes(&self) -> u64 {
        self.catalog_capacity as u64 * ROOT_WORD_BYTES
    }

    /// Bytes of the client table.
    pub const fn client_table_bytes(&self) -> u64 {
        (self.member_capacity as u64 + 1) * CLIENT_ENTRY_BYTES
    }

    /// Bytes of the chunk table.
    pub const fn chunk_table_bytes(&self) -> u64 {
        self.chunks as u64 * CHUNK_ENTRY_BYTES
    }

    /// Whether a chunk can be cut into nodes of `node_bytes`.
    pub const fn allows_node_bytes(&self, node_bytes: u32) -> bool {
        node_bytes >= NODE_BYTES_MIN
            && node_bytes <= NODE_BYTES_MAX
            && (node_bytes as u64).is_multiple_of(LINE)
            && node_bytes as u64 <= self.chunk_bytes
    }

    /// Whether a chunk can be cut into places of this class.
    pub const fn allows_class(&self, class: ChunkClass) -> bool {
        if !class.is_block() {
            return self.allows_node_bytes(class.node_bytes);
        }
        class.node_bytes >= NODE_BYTES_MIN
            && class.node_bytes <= BLOCK_BYTES_MAX
            && (class.node_bytes as u64).is_multiple_of(LINE)
            && class.node_bytes as u64 <= self.chunk_bytes
    }

    /// Checks that the numbers fit together; if not, returns the violated condition. It must accept any bytes
    /// of a superblock, so nothing here may overflow.
    pub fn validate(&self) -> Result<(), &'static str> {
        let check = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        check(
            self.memory_bytes <= GlobalAddress::OFFSET_LIMIT,
            "memory exceeds what a 48-bit offset can name",
        )?;
        check(self.chunk_bytes.is_multiple_of(LINE), "chunk_bytes is not a multiple of 64")?;
        check(self.chunk_bytes >= u64::from(NODE_BYTES_MIN), "chunk_bytes is less than the smallest node")?;
        check(self.chunks > 0, "there is no chunk")?;
        check(self.span_places > 0, "span_places is 0")?;
        check(self.span_places <= SPAN_PLACES_MAX, "a span has more places than one list reads")?;
        check(self.redo_slot_bytes > 0, "redo_slot_bytes is 0")?;
        check(
            u64::from(self.redo_slot_bytes).is_multiple_of(LINE),
            "redo_slot_bytes is not a multiple of 64",
        )?;
        check(self.redo_area_bytes.is_multiple_of(LINE), "redo_area_bytes is not a multiple of 64")?;
        check(
            self.redo_area_bytes >= u64::from(self.redo_slot_bytes),
            "a redo area holds less than one slot",
        )?;
        check(self.redo_area_bytes <= self.chunk_bytes, "a redo area does not fit in a chunk")?;
        check(self.member_capacity > 0, "member_capacity is 0")?;
        check(self.member_capacity <= u32::from(u16::MAX), "member_capacity exceeds 16-bit ids")?;
        check(self.catalog_capacity > 0, "catalog_capacity is 0")?;
        check(self.lease_nanos > 0, "lease_nanos is 0")?;
        check(self.server_capacity > 0, "server_capacity is 0")?;
        check(self.server_capacity <= u32::from(u16::MAX), "server_capacity exceeds 16-bit numbers")?;
        check(self.lock.count.is_power_of_two(), "the number of lanes is not a power of two")?;
        check(self.lock.hash == LANE_HASH_MULTIPLICATIVE, "the lane hash is unknown")?;
        check(
            self.lock.space == Space::Host || self.lock.offset == 0,
            "an on-chip lock table does not begin at offset 0",
        )?;
        self.validate_regions()
    }

    fn validate_regions(&self) -> Result<(), &'static str> {
        let host_lanes = if self.lock.space == Space::Host { self.lock.table_bytes() } else { 0 };
        let chunks = u64::from(self.chunks)
            .checked_mul(self.chunk_bytes)
            .ok_or("the chunks exceed what a 48-bit offset can name")?;
        let spans = u64::from(self.chunks)
            .checked_mul(self.spans_per_chunk())
            .and_then(|spans| spans.checked_mul(SPAN_ENTRY_BYTES))
            .ok_or("a region reaches outside the memory")?;
        let mut regions = [
            (self.lock.offset.max(if host_lanes == 0 { TABLES_OFFSET } else { 0 }), host_lanes),
            (self.root_offset, self.root_table_bytes()),
            (self.client_offset, self.client_table_bytes()),
            (self.chunk_table_offset, self.chunk_table_bytes()),
            (self.span_table_offset, spans),
            (self.chunks_offset, chunks),
        ];
        regions.sort_unstable();
        let mut free_from = TABLES_OFFSET;
        for (offset, bytes) in regions {
            if !offset.is_multiple_of(LINE) {
                return Err("a table does not begin at a multiple of 64");
            }
            if offset < free_from {
                return Err("two regions overlap");
            }
            free_from = offset.checked_add(bytes).ok_or("a region reaches outside the memory")?;
        }
        if free_from > self.memory_bytes {
            return Err("a region reaches outside the memory");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::small_options;
    use crate::{FormatOptions, LockOptions};
    use std::collections::BTreeMap;

    fn with_locks(space: Space, width: LaneWidth, lanes: u32) -> Geometry {
        let locks = LockOptions { space, width, lanes: Some(lanes), ..LockOptions::default() };
        FormatOptions { locks, ..small_options() }.plan(256 << 10, 256 << 10).unwrap()
    }

    #[test]
    fn a_lane_s_mask_covers_exactly_the_bytes_that_release_it() {
        for space in [Space::Host, Space::OnChip] {
            for width in [LaneWidth::Bits16, LaneWidth::Bits64] {
                let geometry = with_locks(space, width, 32);
                for lane in 0..32 {
                    let (in_space, word, mask, shift) = geometry.lane_word(lane);
                    let (offset, len) = geometry.lane_byte_range(lane);
                    assert_eq!((in_space, word % 8, mask.trailing_zeros()), (space, 0, shift));
                    assert_eq!(mask.count_ones() as u64, len * 8);
                    let mut bytes = [0u8; 8];
                    bytes[(offset - word) as usize..(offset - word + len) as usize].fill(0xff);
                    assert_eq!(u64::from_le_bytes(bytes), mask);
                }
            }
        }
    }

    #[test]
    fn lanes_do_not_share_bits() {
        let geometry = with_locks(Space::Host, LaneWidth::Bits16, 64);
        let mut taken = BTreeMap::<u64, u64>::new();
        for lane in 0..64 {
            let (_, word, mask, _) = geometry.lane_word(lane);
            let bits = taken.entry(word).or_default();
            assert_eq!(*bits & mask, 0);
            *bits |= mask;
        }
        assert_eq!(taken.len(), 16);
        assert!(taken.values().all(|&bits| bits == u64::MAX));
    }

    #[test]
    fn the_nodes_of_a_chunk_spread_over_the_lanes() {
        for node_bytes in [256u64, 1024, 1088, 65536] {
            let geometry = with_locks(Space::Host, LaneWidth::Bits16, 4096);
            let mut load = vec![0u32; 4096];
            for node in 0..4096u64 {
                load[geometry.lane_of(GlobalAddress::new(3, 0x5000 + node * node_bytes)) as usize] += 1;
            }
            assert!(load.iter().all(|&nodes| nodes <= 4), "{node_bytes}: {:?}", load.iter().max());
        }
        let one = with_locks(Space::Host, LaneWidth::Bits16, 1);
        assert_eq!(one.lane_of(GlobalAddress::new(0, 0xffff_ffff_ffc0)), 0);
    }

    #[test]
    fn the_lane_hash_is_the_one_that_the_format_version_names() {
        let geometry = FormatOptions::default().plan(1 << 30, 256 << 10).unwrap();
        assert_eq!(geometry.lock.count, 131_072);
        let lanes = [0x40u64, 0x80, 0x10_0000, 0xffff_ffff_ffc0]
            .map(|offset| geometry.lane_of(GlobalAddress::new(7, offset)));
        assert_eq!(lanes, [81006, 30941, 113_884, 71_537]);
    }

    #[test]
    fn an_offset_belongs_to_the_chunk_that_contains_it() {
        let geometry = with_locks(Space::Host, LaneWidth::Bits64, 16);
        for index in [0, 1, geometry.chunks - 1] {
            let offset = geometry.chunk_offset(index);
            assert_eq!(geometry.chunk_at(offset), Some(index));
            assert_eq!(geometry.chunk_at(offset + geometry.chunk_bytes - 1), Some(index));
        }
        assert_eq!(geometry.chunk_at(geometry.chunks_offset - 1), None);
        assert_eq!(
            geometry.chunk_at(geometry.chunk_offset(geometry.chunks - 1) + geometry.chunk_bytes),
            None
        );
        assert_eq!(geometry.chunk_at(u64::MAX), None);
    }

    #[test]
    fn overlapping_or_outlying_regions_are_refused() {
        let good = with_locks(Space::Host, LaneWidth::Bits16, 64);
        assert_eq!(good.validate(), Ok(()));
        let overlap = Geometry { client_offset: good.root_offset, ..good };
        assert_eq!(overlap.validate(), Err("two regions overlap"));
        let by_a_line = Geometry { client_offset: good.client_offset - 64, ..good };
        assert_eq!(by_a_line.validate(), Err("two regions overlap"));
        let wrapped = Geometry { root_offset: u64::MAX - 63, ..good };
        assert_eq!(wrapped.validate(), Err("a region reaches outside the memory"));
        let on_superblock = Geometry { root_offset: 0, ..good };
        assert_eq!(on_superblock.validate(), Err("two regions overlap"));
        let lanes_on_superblock = Geometry { lock: LockGeometry { offset: 64, ..good.lock }, ..good };
        assert_eq!(lanes_on_superblock.validate(), Err("two regions overlap"));
        let outside = Geometry { chunks: good.chunks + 1, ..good };
        assert_eq!(outside.validate(), Err("a region reaches outside the memory"));
        let skewed = Geometry { chunks_offset: good.chunks_offset + 8, chunks: 1, ..good };
        assert_eq!(skewed.validate(), Err("a table does not begin at a multiple of 64"));
    }
}
