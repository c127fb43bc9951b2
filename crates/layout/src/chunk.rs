//! An entry of the chunk table: the use and the class of one chunk.

use sherman_fabric::control::ChunkClass;

const KIND_UNUSED: u8 = 0;
const KIND_NODES: u8 = 2;
const KIND_REDO: u8 = 3;

/// What the chunk table says about one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEntry {
    /// It was never used.
    Unused,
    /// It has places for nodes.
    Nodes {
        /// Size and format of its nodes.
        class: ChunkClass,
    },
    /// This server cuts it into redo areas.
    Redo,
}

impl ChunkEntry {
    /// The entry's word: byte 0 kind, byte 1 format, bytes 4–7 node bytes.
    pub const fn to_bits(self) -> u64 {
        match self {
            Self::Unused => KIND_UNUSED as u64,
            Self::Nodes { class } => {
                KIND_NODES as u64 | (class.format as u64) << 8 | (class.node_bytes as u64) << 32
            }
            Self::Redo => KIND_REDO as u64,
        }
    }

    /// The entry stored as `bits`, if they are valid.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let class = ChunkClass { node_bytes: (bits >> 32) as u32, format: (bits >> 8) as u8 };
        match bits as u8 {
            KIND_UNUSED if bits == Self::Unused.to_bits() => Some(Self::Unused),
            KIND_NODES if bits & 0xffff_0000 == 0 => Some(Self::Nodes { class }),
            KIND_REDO if bits == Self::Redo.to_bits() => Some(Self::Redo),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_the_word_that_the_layout_draws() {
        let class = ChunkClass { node_bytes: 0x0001_0000, format: 0xab };
        assert_eq!(ChunkEntry::Nodes { class }.to_bits().to_le_bytes(), [2, 0xab, 0, 0, 0, 0, 1, 0]);
        assert_eq!(ChunkEntry::Redo.to_bits(), 3);
        assert_eq!(ChunkEntry::Unused.to_bits(), 0);
    }

    #[test]
    fn a_word_is_an_entry_iff_it_is_what_the_entry_encodes_to() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..200_000 {
            let bits = rng.u64(..) >> rng.u32(0..64) & !0xff | rng.u64(0..6);
            assert!(ChunkEntry::from_bits(bits).is_none_or(|entry| entry.to_bits() == bits), "{bits:#x}");
        }
        let class = ChunkClass { node_bytes: 512, format: 1 };
        for entry in [ChunkEntry::Unused, ChunkEntry::Nodes { class }, ChunkEntry::Redo] {
            assert_eq!(ChunkEntry::from_bits(entry.to_bits()), Some(entry));
        }
    }
}
