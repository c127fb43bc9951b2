//! The first bytes of a memory server: a superblock that decodes describes a possible server.

use crate::Reached;
use crate::source::Source;
use sherman_fabric::{ComputeId, GlobalAddress, Space};
use sherman_layout::{
    FormatOptions, Geometry, LaneWidth, LockOptions, ReleaseMode, SUPERBLOCK_BYTES, Superblock,
    SuperblockError,
};
use twox_hash::XxHash3_64;

const AT_CHECKSUM: usize = SUPERBLOCK_BYTES - 8;

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let how = source.byte();
    let mut bytes = if how & 1 == 0 {
        source.bytes(SUPERBLOCK_BYTES)
    } else {
        let mut bytes = honest(&mut source).encode().to_vec();
        source.damage(&mut bytes);
        bytes
    };
    if how & 2 != 0 {
        seal(&mut bytes);
    }
    if how & 0xf0 == 0xf0 {
        bytes.truncate(source.below(SUPERBLOCK_BYTES));
    }
    match Superblock::decode(&bytes) {
        Ok(block) => {
            assert_eq!(Superblock::decode(&block.encode()), Ok(block));
            measure(&block.geometry, &mut source);
            Reached::Taken
        }
        Err(
            SuperblockError::NotFormatted
            | SuperblockError::VersionMismatch { .. }
            | SuperblockError::UnknownFeatures { .. }
            | SuperblockError::Corrupt { .. },
        ) => Reached::Refused,
        Err(other) => panic!("an unknown error: {other}"),
    }
}

/// Makes the checksum fit.
pub(crate) fn seal(bytes: &mut [u8]) {
    let sum = XxHash3_64::oneshot(&bytes[..AT_CHECKSUM]);
    bytes[AT_CHECKSUM..SUPERBLOCK_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Returns a superblock as `format` writes it.
fn honest(source: &mut Source<'_>) -> Superblock {
    let locks = LockOptions {
        space: source.pick(&[Space::Host, Space::OnChip]),
        width: source.pick(&[LaneWidth::Bits16, LaneWidth::Bits64]),
        lanes: Some(1 << source.below(10)),
        release: source.pick(&[ReleaseMode::Write, ReleaseMode::Faa, ReleaseMode::Cas]),
    };
    let chunk_bytes = 4096 << source.below(12);
    let servers = 1 + u16::from(source.byte());
    let options = FormatOptions {
        servers,
        chunk_bytes,
        redo_slot_bytes: 512,
        redo_area_bytes: 1024,
        member_capacity: 1 + u32::from(source.byte()),
        catalog_capacity: 1 + u32::from(source.byte()),
        locks,
        ..FormatOptions::default()
    };
    let geometry = options.plan(1 << 26, 1 << 16).expect("these options fit");
    let memory_id = source.u64().max(1);
    Superblock { features: 0, memory_id, cluster_id: source.u64(), server: 0, servers, geometry }
}

/// Asserts that the arithmetic of clients on a geometry stays inside the memory it describes.
fn measure(geometry: &Geometry, source: &mut Source<'_>) {
    assert!(geometry.memory_bytes <= GlobalAddress::OFFSET_LIMIT);
    if geometry.chunks > 0 {
        let last = geometry.chunk_offset(geometry.chunks - 1);
        assert!(last + geometry.chunk_bytes <= geometry.memory_bytes);
        assert_eq!(geometry.chunk_at(last), Some(geometry.chunks - 1));
        assert!(geometry.chunk_entry(geometry.chunks - 1) + 8 <= geometry.memory_bytes);
    }
    for _ in 0..4 {
        let lane = geometry.lane_of(GlobalAddress::from_bits(source.u64()));
        assert!(lane < geometry.lock.count);
        let (space, word, mask, shift) = geometry.lane_word(lane);
        let (at, len) = geometry.lane_byte_range(lane);
        let end = geometry.lock.offset + geometry.lock.table_bytes();
        assert!(word + 8 <= end && at + len <= end && mask != 0 && shift < 64);
        assert!(space == Space::OnChip || end <= geometry.memory_bytes);
    }
    let last = ComputeId(u16::try_from(geometry.member_capacity).expect("ids have 16 bits"));
    assert!(geometry.is_client(last) && !geometry.is_client(ComputeId::NOBODY));
    assert!(geometry.redo_areas_per_chunk() > 0 && geometry.redo_slots(geometry.redo_area_bytes) > 0);
}
