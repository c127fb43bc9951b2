//! What a change to a node must WRITE.

use std::ops::Range;

/// Byte ranges of the new image, to be WRITten in this order.
///
/// If the patch is not logged, each range lies inside one unit. Then every prefix of the ranges leaves a node
/// that readers and the next holder can use. If it is logged, a redo record with all ranges must precede the
/// first (I24–I26 of `docs/INVARIANTS.md`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Patch {
    steps: [Range<usize>; 3],
    len: usize,
    logged: bool,
}

impl Patch {
    /// A patch of one range.
    pub(super) fn one(range: Range<usize>) -> Self {
        Self { steps: [range, 0..0, 0..0], len: 1, logged: false }
    }

    /// Adds a range to be written after the others.
    pub(super) fn then(mut self, range: Range<usize>) -> Self {
        assert!(self.len < self.steps.len(), "a patch has at most three steps");
        self.steps[self.len] = range;
        self.len += 1;
        self
    }

    /// Marks the steps as valid only together, so that the patch is logged.
    pub(super) fn together(mut self) -> Self {
        self.logged = true;
        self
    }

    /// The ranges, in order.
    pub fn steps(&self) -> &[Range<usize>] {
        &self.steps[..self.len]
    }

    /// Whether a redo record must come first, if the death of a client can cut its WRITE at multiples of
    /// `crash_unit` bytes.
    pub fn needs_redo(&self, crash_unit: u32) -> bool {
        let unit = crash_unit.max(1) as usize;
        self.logged || self.steps().iter().any(|range| range.start / unit != (range.end.max(1) - 1) / unit)
    }

    /// Bytes to be written.
    pub fn bytes(&self) -> usize {
        self.steps().iter().map(ExactSizeIterator::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_inside_one_unit_needs_no_redo() {
        assert!(!Patch::one(64..128).needs_redo(64));
        assert!(!Patch::one(70..87).needs_redo(64));
        assert!(Patch::one(120..137).needs_redo(64));
        assert!(Patch::one(64..80).needs_redo(8));
        assert!(Patch::one(0..64).together().needs_redo(64));
        assert_eq!(Patch::one(0..64).then(70..87).bytes(), 81);
    }
}
