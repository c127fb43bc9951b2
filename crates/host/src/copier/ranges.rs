//! Which bytes a copy must have, and which of them differ.

use sherman_control::wire::frame::MAX_FILL;
use sherman_embedded::host::Host;
pub(super) use sherman_embedded::host::tables;
use sherman_fabric::control::DIGEST_BYTES;
use std::ops::Range;

/// Bytes that one digest stands for.
pub(super) const BLOCK: u64 = DIGEST_BYTES as u64;

/// Everything that a copy must have: the tables, and the chunks of nodes.
pub(super) fn ranges(primary: &Host) -> Vec<Range<u64>> {
    primary.look(sherman_embedded::host::ranges)
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
