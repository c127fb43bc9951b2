//! The root word: one 64-bit word per tree in server 0's catalog, changed by CAS alone.
//!
//! 16-bit server, 42-bit offset in lines, 6-bit level.

use sherman_fabric::GlobalAddress;

const LEVEL_BITS: u32 = 6;
const LINE_SHIFT: u32 = 6;

/// A root word, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootWord {
    /// The root node.
    pub address: GlobalAddress,
    /// Its level: the tree's height minus one.
    pub level: u8,
}

impl RootWord {
    /// The highest possible level.
    pub const MAX_LEVEL: u8 = (1 << LEVEL_BITS) - 1;

    /// Encodes the root word.
    pub fn to_bits(self) -> u64 {
        debug_assert!(self.level <= Self::MAX_LEVEL && self.address.offset().is_multiple_of(1 << LINE_SHIFT));
        u64::from(self.address.server()) << 48
            | (self.address.offset() >> LINE_SHIFT) << LEVEL_BITS
            | u64::from(self.level)
    }

    /// Decodes the root word from `bits`.
    pub fn from_bits(bits: u64) -> Self {
        let lines = bits >> LEVEL_BITS & ((1 << 42) - 1);
        Self {
            address: GlobalAddress::new((bits >> 48) as u16, lines << LINE_SHIFT),
            level: (bits & u64::from(Self::MAX_LEVEL)) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_word_keeps_server_offset_and_level() {
        for (server, offset, level) in [(0, 64, 0), (7, 1 << 20, 3), (u16::MAX, (1 << 48) - 64, 63)] {
            let root = RootWord { address: GlobalAddress::new(server, offset), level };
            assert_eq!(RootWord::from_bits(root.to_bits()), root);
        }
    }
}
