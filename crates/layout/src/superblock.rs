//! The superblock: the first 256 bytes of a memory server's host memory.
//!
//! It says what the memory is (magic, format version, features), where it belongs (cluster, server) and where
//! everything lies ([`Geometry`]). Format writes it once, and it never changes. A client READs
//! [`SUPERBLOCK_BYTES`] at offset 0 in one verb, and the checksum proves that no line of it is torn or
//! foreign. Words that do change lie behind it, in the state line (`docs/LAYOUT.md`).
//!
//! Decoding checks magic and version before the checksum, since a later version may put its checksum
//! elsewhere. It accepts any bytes: the result is either consistent or refused.

use crate::bytes::{get_u16, get_u32, get_u64, put};
use crate::geometry::{Geometry, LaneWidth, LockGeometry, ReleaseMode};
use sherman_fabric::Space;
use twox_hash::XxHash3_64;

/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 256;
/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"SHERMAN\0";
/// The format version this crate reads and writes.
pub const FORMAT_VERSION: u32 = 4;
/// Feature bits that a reader must know or refuse.
pub const REQUIRED_FEATURES: u64 = 0x0000_0000_ffff_ffff;
/// Feature bits this crate knows. Format version 4 defines none.
pub const KNOWN_FEATURES: u64 = 0;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 8;
const AT_FEATURES: usize = 16;
const AT_CLUSTER: usize = 24;
const AT_SERVER: usize = 32;
const AT_SERVERS: usize = 34;
const AT_MEMORY_ID: usize = 40;

const AT_MEMORY_BYTES: usize = 64;
const AT_CHUNK_BYTES: usize = 72;
const AT_CHUNKS_OFFSET: usize = 80;
const AT_CHUNKS: usize = 88;
const AT_REDO_SLOT_BYTES: usize = 92;
const AT_REDO_AREA_BYTES: usize = 96;
const AT_SPAN_TABLE_OFFSET: usize = 104;
const AT_SPAN_PLACES: usize = 112;

const AT_CLIENT_OFFSET: usize = 136;
const AT_CHUNK_TABLE_OFFSET: usize = 144;
const AT_MEMBER_CAPACITY: usize = 160;
const AT_CATALOG_CAPACITY: usize = 164;
const AT_LEASE: usize = 168;
const AT_SERVER_CAPACITY: usize = 184;

const AT_LOCK_OFFSET: usize = 192;
const AT_LANES: usize = 200;
const AT_LOCK_SPACE: usize = 204;
const AT_LANE_BITS: usize = 205;
const AT_LANE_HASH: usize = 206;
const AT_RELEASE: usize = 207;
const AT_ROOT_OFFSET: usize = 208;

const AT_CHECKSUM: usize = SUPERBLOCK_BYTES - 8;

const _: () = assert!(
    AT_SERVERS + 2 <= AT_MEMORY_ID
        && AT_MEMORY_ID + 8 <= AT_MEMORY_BYTES
        && AT_MEMORY_BYTES.is_multiple_of(64)
);
const _: () = assert!(AT_SPAN_PLACES + 4 <= AT_CLIENT_OFFSET);
const _: () = assert!(AT_SERVER_CAPACITY + 4 <= AT_LOCK_OFFSET && AT_LOCK_OFFSET.is_multiple_of(64));
const _: () = assert!(AT_RELEASE < AT_ROOT_OFFSET && AT_ROOT_OFFSET + 8 <= AT_CHECKSUM);

/// The contents of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Feature bits; a reader must know all set bits of the low half.
    pub features: u64,
    /// The identity of this memory: a random number, not 0, drawn at every format. Two servers never share
    /// one, and a server that was restarted empty has a new one.
    pub memory_id: u64,
    /// A number that stands for the cluster's name.
    pub cluster_id: u64,
    /// The server's index in it.
    pub server: u16,
    /// How many servers it has.
    pub servers: u16,
    /// Where everything lies.
    pub geometry: Geometry,
}

sherman_fabric::errors! {
    /// Why bytes are not a superblock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum SuperblockError {
        /// The magic is missing: this memory was never formatted, or its formatting did not finish.
        NotFormatted => "the memory is not formatted",
        /// It was formatted by another version.
        VersionMismatch {
            /// The version in memory.
            found: u32,
            /// The version this crate supports.
            supported: u32,
        } => "the memory has format version {found}; this build supports {supported}. Dump its trees with \
            the build that made it, start on empty memory, and load them again",
        /// It uses features that this crate does not know.
        UnknownFeatures {
            /// The unknown required bits.
            bits: u64,
        } => "the memory uses features {bits:#x} that this build does not know",
        /// It is damaged.
        Corrupt {
            /// The violated condition.
            what: &'static str,
        } => "the superblock is corrupt: {what}",
    }
}

impl Superblock {
    /// Encodes the superblock.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let out = &mut bytes[..];
        let g = &self.geometry;
        put(out, AT_MAGIC, MAGIC);
        put(out, AT_VERSION, FORMAT_VERSION.to_le_bytes());
        put(out, AT_FEATURES, self.features.to_le_bytes());
        put(out, AT_CLUSTER, self.cluster_id.to_le_bytes());
        put(out, AT_MEMORY_ID, self.memory_id.to_le_bytes());
        put(out, AT_SERVER, self.server.to_le_bytes());
        put(out, AT_SERVERS, self.servers.to_le_bytes());
        put_geometry(out, g);
        put(out, AT_LOCK_OFFSET, g.lock.offset.to_le_bytes());
        put(out, AT_LANES, g.lock.count.to_le_bytes());
        put(out, AT_LOCK_SPACE, [space_number(g.lock.space)]);
        put(out, AT_LANE_BITS, [lane_bits(g.lock.width)]);
        put(out, AT_LANE_HASH, [g.lock.hash]);
        put(out, AT_RELEASE, [release_number(g.lock.release)]);
        let checksum = XxHash3_64::oneshot(&out[..AT_CHECKSUM]);
        put(out, AT_CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Decodes `bytes`, which may be longer than [`SUPERBLOCK_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let corrupt = |what| SuperblockError::Corrupt { what };
        let bytes = bytes.get(..SUPERBLOCK_BYTES).ok_or(corrupt("fewer bytes than a superblock has"))?;
        if bytes[AT_MAGIC..AT_MAGIC + MAGIC.len()] != MAGIC {
            return Err(SuperblockError::NotFormatted);
        }
        let found = get_u32(bytes, AT_VERSION);
        if found != FORMAT_VERSION {
            return Err(SuperblockError::VersionMismatch { found, supported: FORMAT_VERSION });
        }
        if XxHash3_64::oneshot(&bytes[..AT_CHECKSUM]) != get_u64(bytes, AT_CHECKSUM) {
            return Err(corrupt("the checksum does not match"));
        }
        let features = get_u64(bytes, AT_FEATURES);
        let unknown = features & REQUIRED_FEATURES & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(SuperblockError::UnknownFeatures { bits: unknown });
        }
        let (server, servers) = (get_u16(bytes, AT_SERVER), get_u16(bytes, AT_SERVERS));
        if server >= servers {
            return Err(corrupt("the server's index is not below the number of servers"));
        }
        let memory_id = get_u64(bytes, AT_MEMORY_ID);
        if memory_id == 0 {
            return Err(corrupt("the memory has no identity"));
        }
        let geometry = decode_geometry(bytes).map_err(corrupt)?;
        geometry.validate().map_err(corrupt)?;
        if geometry.server_capacity != u32::from(servers) {
            return Err(corrupt("the server table has another size than the cluster"));
        }
        Ok(Self { features, memory_id, cluster_id: get_u64(bytes, AT_CLUSTER), server, servers, geometry })
    }
}

fn decode_geometry(bytes: &[u8]) -> Result<Geometry, &'static str> {
    let lock = LockGeometry {
        space: match bytes[AT_LOCK_SPACE] {
            0 => Space::Host,
            1 => Space::OnChip,
            _ => return Err("the lock table's space is unknown"),
        },
        offset: get_u64(bytes, AT_LOCK_OFFSET),
        width: match bytes[AT_LANE_BITS] {
            16 => LaneWidth::Bits16,
            64 => LaneWidth::Bits64,
            _ => return Err("the lane width is neither 16 nor 64"),
        },
        count: get_u32(bytes, AT_LANES),
        hash: bytes[AT_LANE_HASH],
        release: match bytes[AT_RELEASE] {
            1 => ReleaseMode::Write,
            2 => ReleaseMode::Faa,
            3 => ReleaseMode::Cas,
            _ => return Err("the release mode is unknown"),
        },
    };
    Ok(read_geometry(bytes, lock))
}

/// Makes the functions that write and read a geometry, apart from its lock table.
macro_rules! geometry {
    ($($field:ident: $get:ident at $at:ident,)+) => {
        fn put_geometry(out: &mut [u8], geometry: &Geometry) {
            $(put(out, $at, geometry.$field.to_le_bytes());)+
        }

        fn read_geometry(bytes: &[u8], lock: LockGeometry) -> Geometry {
            Geometry { $($field: $get(bytes, $at),)+ lock }
        }
    };
}

geometry! {
    memory_bytes: get_u64 at AT_MEMORY_BYTES,
    chunk_bytes: get_u64 at AT_CHUNK_BYTES,
    chunks_offset: get_u64 at AT_CHUNKS_OFFSET,
    chunks: get_u32 at AT_CHUNKS,
    redo_slot_bytes: get_u32 at AT_REDO_SLOT_BYTES,
    redo_area_bytes: get_u64 at AT_REDO_AREA_BYTES,
    root_offset: get_u64 at AT_ROOT_OFFSET,
    member_capacity: get_u32 at AT_MEMBER_CAPACITY,
    client_offset: get_u64 at AT_CLIENT_OFFSET,
    chunk_table_offset: get_u64 at AT_CHUNK_TABLE_OFFSET,
    span_places: get_u32 at AT_SPAN_PLACES,
    span_table_offset: get_u64 at AT_SPAN_TABLE_OFFSET,
    catalog_capacity: get_u32 at AT_CATALOG_CAPACITY,
    lease_nanos: get_u64 at AT_LEASE,
    server_capacity: get_u32 at AT_SERVER_CAPACITY,
}

const fn space_number(space: Space) -> u8 {
    match space {
        Space::Host => 0,
        Space::OnChip => 1,
    }
}

const fn lane_bits(width: LaneWidth) -> u8 {
    match width {
        LaneWidth::Bits16 => 16,
        LaneWidth::Bits64 => 64,
    }
}

const fn release_number(release: ReleaseMode) -> u8 {
    match release {
        ReleaseMode::Write => 1,
        ReleaseMode::Faa => 2,
        ReleaseMode::Cas => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FormatOptions;
    use crate::LockOptions;
    use crate::testing::{numbered_options, small_options};

    fn sample() -> Superblock {
        let geometry = FormatOptions { servers: 3, ..numbered_options() }.plan(1 << 30, 256 << 10).unwrap();
        let memory_id = 0x99aa_bbcc_ddee_ff01;
        Superblock {
            features: 0,
            memory_id,
            cluster_id: 0x1122_3344_5566_7788,
            server: 1,
            servers: 3,
            geometry,
        }
    }

    fn seal(bytes: &mut [u8]) {
        let checksum = XxHash3_64::oneshot(&bytes[..AT_CHECKSUM]);
        put(bytes, AT_CHECKSUM, checksum.to_le_bytes());
    }

    #[test]
    fn the_golden_image_of_version_4_does_not_change() {
        let row = |row: &[u8]| row.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let image: Vec<_> = sample().encode().chunks(16).map(row).collect();
        assert_eq!(image.join("\n"), include_str!("golden/superblock.hex").trim_end());
    }

    #[test]
    fn decode_is_the_inverse_of_encode() {
        for space in [Space::Host, Space::OnChip] {
            for width in [LaneWidth::Bits16, LaneWidth::Bits64] {
                for release in [ReleaseMode::Write, ReleaseMode::Faa, ReleaseMode::Cas] {
                    let locks = LockOptions { space, width, lanes: Some(16), release };
                    let geometry =
                        FormatOptions { locks, servers: 3, ..small_options() }.plan(128 << 10, 4096).unwrap();
                    let block = Superblock { features: 1 << 40, geometry, ..sample() };
                    assert_eq!(Superblock::decode(&block.encode()), Ok(block));
                }
            }
        }
    }

    #[test]
    fn foreign_memory_is_not_formatted() {
        assert_eq!(Superblock::decode(&[0; SUPERBLOCK_BYTES]), Err(SuperblockError::NotFormatted));
        assert_eq!(Superblock::decode(&[0xff; SUPERBLOCK_BYTES]), Err(SuperblockError::NotFormatted));
        let short = Superblock::decode(&sample().encode()[..SUPERBLOCK_BYTES - 1]);
        assert!(matches!(short, Err(SuperblockError::Corrupt { .. })));
    }

    #[test]
    fn another_version_is_named_even_if_its_checksum_is_elsewhere() {
        let mut bytes = sample().encode();
        for found in [1, 3] {
            put(&mut bytes, AT_VERSION, u32::to_le_bytes(found));
            let refused = Superblock::decode(&bytes).unwrap_err();
            assert_eq!(refused, SuperblockError::VersionMismatch { found, supported: 4 });
            let text = format!("format version {found}; this build supports 4. Dump its trees");
            assert!(refused.to_string().contains(&text), "{refused}");
        }
    }

    #[test]
    fn an_unknown_required_feature_is_refused_and_an_optional_one_is_kept() {
        let required = Superblock { features: 1 << 3 | 1 << 40, ..sample() };
        assert_eq!(
            Superblock::decode(&required.encode()),
            Err(SuperblockError::UnknownFeatures { bits: 1 << 3 })
        );
        let optional = Superblock { features: 1 << 32, ..sample() };
        assert_eq!(Superblock::decode(&optional.encode()).map(|block| block.features), Ok(1 << 32));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let image = sample().encode();
        for bit in 0..SUPERBLOCK_BYTES * 8 {
            let mut bytes = image;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_together_are_refused_under_a_good_checksum() {
        for (at, value) in [
            (AT_SERVERS, 0u8),
            (AT_SERVERS, 4),
            (AT_SERVER_CAPACITY, 2),
            (AT_ROOT_OFFSET, 65),
            (AT_LOCK_SPACE, 2),
            (AT_LANE_BITS, 32),
            (AT_LANE_HASH, 2),
            (AT_RELEASE, 0),
            (AT_LANES, 3),
            (AT_CHUNK_BYTES, 1),
            (AT_REDO_SLOT_BYTES, 1),
            (AT_LOCK_OFFSET, 64),
        ] {
            let mut bytes = sample().encode();
            bytes[at] = value;
            seal(&mut bytes);
            assert!(matches!(Superblock::decode(&bytes), Err(SuperblockError::Corrupt { .. })), "byte {at}");
        }
        for at in [AT_LEASE, AT_MEMORY_ID] {
            let mut zeroed = sample().encode();
            put(&mut zeroed, at, [0; 8]);
            seal(&mut zeroed);
            assert!(matches!(Superblock::decode(&zeroed), Err(SuperblockError::Corrupt { .. })), "byte {at}");
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut accepted = 0;
        for round in 0..300_000u32 {
            let mut bytes = sample().encode();
            match round % 3 {
                0 => rng.fill(&mut bytes),
                1 => {
                    rng.fill(&mut bytes[AT_FEATURES + 4..]);
                    let servers = [bytes[AT_SERVERS], bytes[AT_SERVERS + 1], 0, 0];
                    put(&mut bytes, AT_SERVER_CAPACITY, servers);
                    bytes[AT_LOCK_SPACE..=AT_RELEASE].copy_from_slice(&[round as u8 / 3 % 2, 16, 1, 1]);
                    put(&mut bytes, AT_LANES, (1u32 << rng.u32(0..32)).to_le_bytes());
                }
                _ => {
                    for _ in 0..rng.usize(1..4) {
                        let at = rng.usize(AT_MEMORY_BYTES..AT_CHECKSUM / 8 * 8) / 8 * 8;
                        let word = rng.u64(..) >> rng.u32(0..64);
                        put(&mut bytes, at, word.to_le_bytes());
                    }
                }
            }
            seal(&mut bytes);
            if let Ok(block) = Superblock::decode(&bytes) {
                accepted += 1;
                assert_eq!(Superblock::decode(&block.encode()), Ok(block));
            }
        }
        assert!(accepted > 0, "some of these reach the end of validation");
    }
}
