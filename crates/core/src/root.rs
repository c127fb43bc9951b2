//! The root word: one 64-bit word per tree, in the root table of a volume, changed by CAS alone.
//!
//! It leads to the root: 16-bit server, 42-bit offset in lines, 6-bit level. Before its tree has a root, and
//! after its tree has ended, it holds no root but the id of the last tree that ended there: 26 bits of zero,
//! the 32-bit id, and 6 bits of ones. A word that never had a tree is 0.
//!
//! The words of one place change as follows. The catalog gives a place to another tree only after the tree
//! before has ended, and ids grow. So no value without a root ever comes back, and a CAS that expects one can
//! only be that of the tree that it is meant for (I53, I54).
//!
//! ```text
//!  ended: a ---- tree b gets its first leaf ----> root of b ---- b is dropped ----> ended: b ----> …
//! ```

use sherman_fabric::GlobalAddress;

const LEVEL_BITS: u32 = 6;
const LINE_SHIFT: u32 = 6;
/// In the place of a level: the word holds no root.
const NO_ROOT: u64 = (1 << LEVEL_BITS) - 1;

/// A root word that leads to a root, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootWord {
    /// The root node.
    pub address: GlobalAddress,
    /// Its level: the tree's height minus one.
    pub level: u8,
}

/// What the root word of a tree says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootState {
    /// The tree has no root yet, so it is empty.
    Rootless,
    /// The root of the tree, unless another tree has the place of the word by now.
    Root(RootWord),
    /// The tree has ended.
    Ended,
}

impl RootWord {
    /// The highest possible level.
    pub const MAX_LEVEL: u8 = (1 << LEVEL_BITS) - 2;

    /// Encodes the root word.
    pub fn to_bits(self) -> u64 {
        debug_assert!(self.level <= Self::MAX_LEVEL && self.address.offset().is_multiple_of(1 << LINE_SHIFT));
        u64::from(self.address.server()) << 48
            | (self.address.offset() >> LINE_SHIFT) << LEVEL_BITS
            | u64::from(self.level)
    }

    /// Decodes the root word from `bits`, which hold a root.
    pub fn from_bits(bits: u64) -> Self {
        let lines = bits >> LEVEL_BITS & ((1 << 42) - 1);
        Self {
            address: GlobalAddress::new((bits >> 48) as u16, lines << LINE_SHIFT),
            level: (bits & NO_ROOT) as u8,
        }
    }

    /// The word of a tree that has ended.
    pub fn ended(tree: u32) -> u64 {
        u64::from(tree) << LEVEL_BITS | NO_ROOT
    }

    /// What the word says about `tree`, which had the word's place at some time.
    pub fn of(bits: u64, tree: u32) -> RootState {
        if bits != 0 && bits & NO_ROOT != NO_ROOT {
            return RootState::Root(Self::from_bits(bits));
        }
        let last_ended = bits >> LEVEL_BITS;
        if last_ended < u64::from(tree) { RootState::Rootless } else { RootState::Ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_word_keeps_server_offset_and_level() {
        for (server, offset, level) in [(0, 64, 0), (7, 1 << 20, 3), (u16::MAX, (1 << 48) - 64, 62)] {
            let root = RootWord { address: GlobalAddress::new(server, offset), level };
            assert_eq!(RootWord::from_bits(root.to_bits()), root);
            assert_eq!(RootWord::of(root.to_bits(), u32::MAX), RootState::Root(root));
        }
    }

    #[test]
    fn a_word_without_a_root_tells_trees_to_come_from_trees_that_have_ended() {
        for (bits, tree, says) in [
            (0, 1, RootState::Rootless),
            (0, u32::MAX, RootState::Rootless),
            (RootWord::ended(6), 7, RootState::Rootless),
            (RootWord::ended(7), 7, RootState::Ended),
            (RootWord::ended(8), 7, RootState::Ended),
            (RootWord::ended(u32::MAX), u32::MAX, RootState::Ended),
        ] {
            assert_eq!(RootWord::of(bits, tree), says, "{bits:#x} {tree}");
        }
    }
}
