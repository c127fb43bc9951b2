//! Redo records: a record that decodes stays the same when it is encoded and decoded again, and its pieces
//! lie inside the slot.

use crate::Reached;
use crate::source::Source;
use sherman_core::redo::{Record, RecordKind};
use sherman_fabric::{ComputeId, GlobalAddress};
use twox_hash::XxHash3_64;

const AT_MAGIC: usize = 0;
const AT_KIND: usize = 4;
const AT_CHECKSUM: usize = 8;
const AT_LEN: usize = 16;
const HEADER: usize = 80;
/// Largest record in these inputs, in bytes.
const SLOT: usize = 1024;

/// Every kind of record.
pub(crate) const KINDS: [RecordKind; 7] = [
    RecordKind::Image,
    RecordKind::Split,
    RecordKind::Grow,
    RecordKind::Merge,
    RecordKind::Replace,
    RecordKind::Load,
    RecordKind::Drop,
];

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let slot = slot(&mut source);
    let Some(record) = Record::decode(&slot) else { return Reached::Refused };
    let bytes: usize = record.pieces.iter().map(|(_, piece)| piece.len()).sum();
    assert!(bytes + HEADER <= slot.len(), "pieces lie inside the slot, one after the other");
    assert_eq!(Record::decode(&record.encode()).as_ref(), Some(&record));
    let _ = record.split_happened(source.u16());
    Reached::Taken
}

/// Returns a slot with some contents.
pub(crate) fn slot(source: &mut Source<'_>) -> Vec<u8> {
    let how = source.byte();
    let mut slot = if how & 1 == 0 {
        let len = source.below(SLOT);
        source.bytes(len)
    } else {
        let mut slot = honest(source).encode();
        slot.resize(slot.len() + source.below(64), 0);
        source.damage(&mut slot);
        slot
    };
    if how & 2 != 0 {
        seal(&mut slot);
    }
    slot
}

/// Returns a record as a correct client writes it.
pub(crate) fn honest(source: &mut Source<'_>) -> Record {
    let pieces = (0..source.below(4)).map(|_| {
        let (at, len) = (u32::from(source.u16()), source.below(200));
        (at, source.bytes(len))
    });
    let pieces = pieces.collect();
    Record {
        owner: ComputeId(source.u16()),
        kind: source.pick(&KINDS),
        tree: u32::from(source.byte()),
        spec: crate::frames::spec(source),
        node: GlobalAddress::from_bits(source.u64()),
        made: GlobalAddress::from_bits(source.u64()),
        version: source.u16(),
        made_version: source.u16(),
        level: source.byte(),
        root: (source.u64(), source.u64()),
        pieces,
    }
}

/// Makes magic, length and checksum fit the contents.
pub(crate) fn seal(slot: &mut [u8]) {
    if slot.len() < HEADER {
        return;
    }
    slot[AT_MAGIC..AT_MAGIC + 4].copy_from_slice(b"RDO2");
    let u32_at =
        |slot: &[u8], at: usize| u32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
    let len = u32_at(slot, AT_LEN) as usize;
    let len = if (HEADER..=slot.len()).contains(&len) { len } else { slot.len() };
    slot[AT_LEN..AT_LEN + 4].copy_from_slice(&(len as u32).to_le_bytes());
    let sum = XxHash3_64::oneshot_with_seed(u64::from(u32_at(slot, AT_KIND)), &slot[AT_LEN..len]);
    slot[AT_CHECKSUM..AT_CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
}
