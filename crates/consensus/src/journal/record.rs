//! One record of the log: header, payload, padding.

use twox_hash::XxHash3_64;

/// What a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first record of a segment: its generation.
    Begin = 1,
    /// A snapshot.
    Snapshot = 2,
    /// An entry of the log. It replaces those with the same or a higher index.
    Entry = 3,
    /// Term, vote and commit index. The last one counts.
    Hard = 4,
    /// The base is whole.
    End = 5,
    /// The only record of its segment: the other one has the log, of this generation at least.
    Retired = 6,
}

const KINDS: [Kind; 6] = [Kind::Begin, Kind::Snapshot, Kind::Entry, Kind::Hard, Kind::End, Kind::Retired];

const MAGIC: [u8; 4] = *b"SHCL";
const AT_KIND: usize = 4;
const AT_LENGTH: usize = 8;
const AT_DURABLE: usize = 16;
const AT_CHECKSUM: usize = 24;
/// Bytes of a record before its payload.
pub(super) const HEADER: usize = 32;
/// Records begin at multiples of this.
pub(super) const ALIGN: usize = 8;

/// A record as it was read.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    /// Bytes of the segment that were durable when the node made the record.
    pub(super) durable: u64,
    pub(super) payload: &'a [u8],
    /// Where the next record begins.
    pub(super) next: usize,
}

/// Appends a record that lies at `offset` of its segment.
pub(super) fn put_record(
    bytes: &mut Vec<u8>,
    kind: Kind,
    generation: u64,
    offset: u64,
    durable: u64,
    payload: &[u8],
) {
    let mut header = [0; HEADER];
    header[..AT_KIND].copy_from_slice(&MAGIC);
    header[AT_KIND] = kind as u8;
    header[AT_LENGTH..AT_DURABLE].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    header[AT_DURABLE..AT_CHECKSUM].copy_from_slice(&durable.to_le_bytes());
    let sum = checksum(&header[..AT_CHECKSUM], payload, seed(kind, generation, offset));
    header[AT_CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
}

/// The record at `offset`, if it is intact and belongs to this generation and place.
pub(super) fn record(segment: &[u8], offset: usize, generation: u64) -> Option<Record<'_>> {
    let header = segment.get(offset..offset.checked_add(HEADER)?)?;
    if header[..AT_KIND] != MAGIC {
        return None;
    }
    let kind = KINDS.into_iter().find(|kind| *kind as u8 == header[AT_KIND])?;
    let length = usize::try_from(word(header, AT_LENGTH)).ok()?;
    let from = offset + HEADER;
    let end = from.checked_add(length)?;
    let payload = segment.get(from..end)?;
    let sum = checksum(&header[..AT_CHECKSUM], payload, seed(kind, generation, offset as u64));
    if sum != word(header, AT_CHECKSUM) {
        return None;
    }
    let next = end.next_multiple_of(ALIGN).min(segment.len());
    Some(Record { kind, durable: word(header, AT_DURABLE), payload, next })
}

/// The checksum covers the record's place, so that old bytes elsewhere are no records. A segment's first
/// record names its generation, so its checksum does not cover that.
fn seed(kind: Kind, generation: u64, offset: u64) -> u64 {
    if matches!(kind, Kind::Begin | Kind::Retired) { offset } else { generation.rotate_left(32) ^ offset }
}

fn checksum(header: &[u8], payload: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(seed, header), payload)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}
