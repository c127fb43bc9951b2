//! Which bytes a copy must have, and which of them differ.

use sherman_control::wire::frame::MAX_FILL;
use sherman_embedded::host::Host;
use sherman_fabric::Space;
use sherman_fabric::control::DIGEST_BYTES;
use sherman_layout::{ChunkEntry, Geometry};
use std::ops::Range;

/// Bytes that one digest stands for.
pub(super) const BLOCK: u64 = DIGEST_BYTES as u64;

/// The tables, which the CPU changes: everything in front of the chunks but the lanes.
pub(super) fn tables(geometry: &Geometry) -> Vec<Range<u64>> {
    let (lock, end) = (&geometry.lock, geometry.chunks_offset);
    let lanes = match lock.space {
        Space::OnChip => end..end,
        Space::Host => lock.offset..lock.offset + lock.table_bytes(),
    };
    let all = [0..lanes.start, lanes.end..end];
    all.into_iter().filter(|range| !range.is_empty()).collect()
}

/// Everything that a copy must have: the tables, and the chunks of nodes.
pub(super) fn ranges(primary: &Host) -> Vec<Range<u64>> {
    let geometry = primary.superblock().geometry;
    let mut ranges = tables(&geometry);
    primary.look(|server| {
        for index in 0..geometry.chunks {
            if !matches!(server.volume.chunk(index), Some(ChunkEntry::Nodes { .. })) {
                continue;
            }
            let from = geometry.chunk_offset(index);
            let chunk = from..from + geometry.chunk_bytes;
            match ranges.last_mut() {
                Some(last) if last.end == chunk.start => last.end = chunk.end,
                _ => ranges.push(chunk),
            }
        }
    });
    ranges
}

/// The parts of `part` whose digests differ, of [`MAX_FILL`] bytes at most.
pub(super) fn differing(part: &Range<u64>, ours: &[u64], theirs: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (at, (one, other)) in part.clone().step_by(BLOCK as usize).zip(ours.iter().zip(theirs)) {
        if one == other {
            continue;
        }
        let end = part.end.min(at + BLOCK);
        match runs.last_mut() {
            Some(last) if last.end == at && end - last.start <= u64::from(MAX_FILL) => last.end = end,
            _ => runs.push(at..end),
        }
    }
    runs
}

/// `range` in pieces of `len` bytes at most.
pub(super) fn pieces(range: Range<u64>, len: u64) -> impl Iterator<Item = Range<u64>> {
    range.clone().step_by(len as usize).map(move |at| at..range.end.min(at + len))
}
