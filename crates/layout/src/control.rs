//! Where everything lies in the memory of the control state, and its first bytes, the *control block*.
//!
//! The control state has a memory of its own, which no verb reaches. Its bytes are its whole state
//! (`docs/LAYOUT.md`, part E). Format writes the control block once. The sizes in it determine where the
//! tables lie. All functions are pure. A geometry obtained from [`ControlGeometry::plan`] or
//! [`ControlBlock::decode`] has passed [`ControlGeometry::validate`].

use crate::bytes::{LINE, WORD, get_u32, get_u64, put};
use crate::geometry::{
    CATALOG_ENTRY_BYTES, MEMBER_ENTRY_BYTES, NODE_BYTES_MAX, NODE_BYTES_MIN, ROOT_WORD_BYTES,
    SERVER_ENTRY_BYTES,
};
use crate::{FormatOptions, Geometry, SuperblockError};
use sherman_fabric::{ComputeId, GlobalAddress};
use twox_hash::XxHash3_64;

/// Bytes of the control block.
pub const CONTROL_BLOCK_BYTES: usize = 128;
/// The first eight bytes.
pub const CONTROL_MAGIC: [u8; 8] = *b"SHRMCTL\0";
/// The format version this crate reads and writes.
pub const CONTROL_VERSION: u32 = 1;

/// Offset of the state line: the words that change and belong to no table.
pub const STATE_OFFSET: u64 = CONTROL_BLOCK_BYTES as u64;
/// Offset of the word that holds the next tree id.
pub const NEXT_TREE_ID_OFFSET: u64 = STATE_OFFSET;
/// Offset of the word that holds the member id issued last.
pub const LAST_MEMBER_OFFSET: u64 = STATE_OFFSET + WORD;
/// Offset of the word that holds the member that ran out of memory last, or 0.
pub const SHORT_MEMBER_OFFSET: u64 = STATE_OFFSET + 2 * WORD;
/// Offset of the word that holds when that was.
pub const SHORT_AT_OFFSET: u64 = STATE_OFFSET + 3 * WORD;
/// Where the member table begins.
pub const MEMBER_OFFSET: u64 = STATE_OFFSET + LINE;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 8;
const AT_CLUSTER: usize = 16;
const AT_LEASE: usize = 24;
const AT_MEMBER_CAPACITY: usize = 32;
const AT_CATALOG_CAPACITY: usize = 36;
const AT_SERVERS: usize = 40;
const AT_ROOT_OFFSET: usize = 48;
const AT_CHUNK_BYTES: usize = 56;
const AT_CHECKSUM: usize = CONTROL_BLOCK_BYTES - 8;

const _: () = assert!(AT_CHUNK_BYTES + 8 <= AT_CHECKSUM && STATE_OFFSET.is_multiple_of(LINE));
const _: () = assert!(SHORT_AT_OFFSET + WORD <= MEMBER_OFFSET);

/// Where everything lies in the memory of the control state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControlGeometry {
    /// The largest member id.
    pub member_capacity: u32,
    /// How many trees the catalog can hold.
    pub catalog_capacity: u32,
    /// How many memory servers the cluster has.
    pub server_capacity: u32,
    /// The length of a lease in nanoseconds.
    pub lease_nanos: u64,
    /// Where the root table begins, on every volume.
    pub root_offset: u64,
    /// Bytes of a volume's chunk, which bounds the size of a node.
    pub chunk_bytes: u64,
}

impl ControlGeometry {
    /// The control state of a cluster whose volumes have this geometry.
    pub const fn plan(volume: &Geometry) -> Self {
        Self {
            member_capacity: volume.member_capacity,
            catalog_capacity: volume.catalog_capacity,
            server_capacity: volume.server_capacity,
            lease_nanos: volume.lease_nanos,
            root_offset: volume.root_offset,
            chunk_bytes: volume.chunk_bytes,
        }
    }

    /// Bytes of the memory of the control state of a cluster with these options.
    pub const fn bytes_of(options: &FormatOptions) -> u64 {
        let of_members = (options.member_capacity as u64 + 1) * MEMBER_ENTRY_BYTES;
        let of_catalog = options.catalog_capacity as u64 * CATALOG_ENTRY_BYTES;
        (MEMBER_OFFSET + of_members + of_catalog + options.servers as u64 * SERVER_ENTRY_BYTES)
            .next_multiple_of(LINE)
    }

    /// Bytes of the memory: a multiple of 64.
    pub const fn bytes(&self) -> u64 {
        (self.server_offset() + self.server_table_bytes()).next_multiple_of(LINE)
    }

    /// Whether `client` is an id that the member table has an entry for.
    pub const fn is_client(&self, client: ComputeId) -> bool {
        client.0 != 0 && client.0 as u32 <= self.member_capacity
    }

    /// Where the member table begins.
    pub const fn member_offset(&self) -> u64 {
        MEMBER_OFFSET
    }

    /// Bytes of the member table: an entry per id, and one for id 0, which no client has.
    pub const fn member_table_bytes(&self) -> u64 {
        (self.member_capacity as u64 + 1) * MEMBER_ENTRY_BYTES
    }

    /// Where the member table entry of `client` is.
    pub const fn member_entry(&self, client: ComputeId) -> u64 {
        debug_assert!(self.is_client(client));
        MEMBER_OFFSET + client.0 as u64 * MEMBER_ENTRY_BYTES
    }

    /// Where the catalog begins.
    pub const fn catalog_offset(&self) -> u64 {
        MEMBER_OFFSET + self.member_table_bytes()
    }

    /// Bytes of the catalog.
    pub const fn catalog_bytes(&self) -> u64 {
        self.catalog_capacity as u64 * CATALOG_ENTRY_BYTES
    }

    /// Where catalog entry `index` is.
    pub const fn catalog_entry(&self, index: u32) -> u64 {
        debug_assert!(index < self.catalog_capacity);
        self.catalog_offset() + index as u64 * CATALOG_ENTRY_BYTES
    }

    /// Where the server table begins.
    pub const fn server_offset(&self) -> u64 {
        self.catalog_offset() + self.catalog_bytes()
    }

    /// Bytes of the server table.
    pub const fn server_table_bytes(&self) -> u64 {
        self.server_capacity as u64 * SERVER_ENTRY_BYTES
    }

    /// Where the server table entry of `server` is.
    pub const fn server_entry(&self, server: u16) -> u64 {
        debug_assert!((server as u32) < self.server_capacity);
        self.server_offset() + server as u64 * SERVER_ENTRY_BYTES
    }

    /// The address of the root word of catalog entry `index`. Root words are spread over the volumes.
    pub const fn root_word(&self, index: u32) -> GlobalAddress {
        let volume = index % self.server_capacity;
        GlobalAddress::new(volume as u16, self.root_offset + index as u64 * ROOT_WORD_BYTES)
    }

    /// Whether a chunk can be cut into nodes of `node_bytes`.
    pub const fn allows_node_bytes(&self, node_bytes: u32) -> bool {
        node_bytes >= NODE_BYTES_MIN
            && node_bytes <= NODE_BYTES_MAX
            && (node_bytes as u64).is_multiple_of(LINE)
            && node_bytes as u64 <= self.chunk_bytes
    }

    /// Checks that the numbers fit together; if not, returns the violated condition. It must accept any
    /// bytes, so nothing here may overflow.
    pub fn validate(&self) -> Result<(), &'static str> {
        let check = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        check(self.member_capacity > 0, "member_capacity is 0")?;
        check(self.member_capacity <= u32::from(u16::MAX), "member_capacity exceeds 16-bit ids")?;
        check(self.catalog_capacity > 0, "catalog_capacity is 0")?;
        check(self.server_capacity > 0, "there is no server")?;
        check(self.server_capacity <= u32::from(u16::MAX), "there are more servers than 16-bit numbers")?;
        check(self.lease_nanos > 0, "lease_nanos is 0")?;
        check(self.root_offset.is_multiple_of(LINE), "the root table does not begin at a multiple of 64")?;
        let roots = u64::from(self.catalog_capacity) * ROOT_WORD_BYTES;
        let end = self.root_offset.checked_add(roots);
        check(
            end.is_some_and(|end| end <= GlobalAddress::OFFSET_LIMIT),
            "the root table exceeds what a 48-bit offset can name",
        )
    }
}

/// The contents of the control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlBlock {
    /// The cluster: the identity of volume 0's memory.
    pub cluster: u64,
    /// Where everything lies.
    pub geometry: ControlGeometry,
}

impl ControlBlock {
    /// Encodes the control block.
    pub fn encode(&self) -> [u8; CONTROL_BLOCK_BYTES] {
        let mut bytes = [0; CONTROL_BLOCK_BYTES];
        let (out, g) = (&mut bytes[..], &self.geometry);
        put(out, AT_MAGIC, CONTROL_MAGIC);
        put(out, AT_VERSION, CONTROL_VERSION.to_le_bytes());
        put(out, AT_CLUSTER, self.cluster.to_le_bytes());
        put(out, AT_LEASE, g.lease_nanos.to_le_bytes());
        put(out, AT_MEMBER_CAPACITY, g.member_capacity.to_le_bytes());
        put(out, AT_CATALOG_CAPACITY, g.catalog_capacity.to_le_bytes());
        put(out, AT_SERVERS, g.server_capacity.to_le_bytes());
        put(out, AT_ROOT_OFFSET, g.root_offset.to_le_bytes());
        put(out, AT_CHUNK_BYTES, g.chunk_bytes.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&out[..AT_CHECKSUM]);
        put(out, AT_CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Decodes `bytes`, which may be longer than [`CONTROL_BLOCK_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let corrupt = |what| SuperblockError::Corrupt { what };
        let bytes =
            bytes.get(..CONTROL_BLOCK_BYTES).ok_or(corrupt("fewer bytes than a control block has"))?;
        if bytes[AT_MAGIC..AT_MAGIC + CONTROL_MAGIC.len()] != CONTROL_MAGIC {
            return Err(SuperblockError::NotFormatted);
        }
        let found = get_u32(bytes, AT_VERSION);
        if found != CONTROL_VERSION {
            return Err(SuperblockError::VersionMismatch { found, supported: CONTROL_VERSION });
        }
        if XxHash3_64::oneshot(&bytes[..AT_CHECKSUM]) != get_u64(bytes, AT_CHECKSUM) {
            return Err(corrupt("the checksum of the control block does not match"));
        }
        let geometry = ControlGeometry {
            member_capacity: get_u32(bytes, AT_MEMBER_CAPACITY),
            catalog_capacity: get_u32(bytes, AT_CATALOG_CAPACITY),
            server_capacity: get_u32(bytes, AT_SERVERS),
            lease_nanos: get_u64(bytes, AT_LEASE),
            root_offset: get_u64(bytes, AT_ROOT_OFFSET),
            chunk_bytes: get_u64(bytes, AT_CHUNK_BYTES),
        };
        geometry.validate().map_err(corrupt)?;
        let cluster = get_u64(bytes, AT_CLUSTER);
        if cluster == 0 {
            return Err(corrupt("the control state belongs to no cluster"));
        }
        Ok(Self { cluster, geometry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::small_options;

    fn sample() -> ControlBlock {
        let options = FormatOptions { servers: 3, ..small_options() };
        let geometry = ControlGeometry::plan(&options.plan(128 << 10, 0).unwrap());
        assert_eq!(geometry.bytes(), ControlGeometry::bytes_of(&options));
        ControlBlock { cluster: 0x99aa_bbcc_ddee_ff01, geometry }
    }

    #[test]
    fn decode_is_the_inverse_of_encode_and_any_flipped_bit_is_noticed() {
        let image = sample().encode();
        assert_eq!(ControlBlock::decode(&image), Ok(sample()));
        for bit in 0..CONTROL_BLOCK_BYTES * 8 {
            let mut bytes = image;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ControlBlock::decode(&bytes).is_err(), "bit {bit}");
        }
        assert_eq!(ControlBlock::decode(&[0; 128]), Err(SuperblockError::NotFormatted));
        assert!(ControlBlock::decode(&image[..127]).is_err());
    }

    #[test]
    fn tables_lie_one_after_the_other() {
        let g = sample().geometry;
        assert_eq!(g.member_entry(ComputeId(16)) + MEMBER_ENTRY_BYTES, g.catalog_offset());
        assert_eq!(g.catalog_entry(3) + CATALOG_ENTRY_BYTES, g.server_offset());
        assert_eq!(g.server_entry(2) + SERVER_ENTRY_BYTES, g.server_offset() + g.server_table_bytes());
        assert!(g.bytes() >= g.server_offset() + g.server_table_bytes() && g.bytes().is_multiple_of(LINE));
        assert_eq!((g.root_word(4).server(), g.root_word(4).offset()), (1, g.root_offset + 32));
    }
}
