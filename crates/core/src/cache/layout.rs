//! The layout of a copy: 64-bit words in two places, so that a reader can safely read all of it while it
//! changes. The **head** has a fixed size and place. The **run** has as many lines as the copy needs.
//!
//! ```text
//! head     line 0: sequence, address, meta, used, low, high, run, base      keys of up to 8 bytes
//!          then samples: every 8th key, padded to whole lines
//! run      one group for each sample: the 7 keys that follow it | the 8 children of these 8 keys
//!
//! head     line 0: sequence, address, meta, used, -, -, run, base           longer keys
//! run      low | high | keys | children                                     each key as several words
//! ```
//!
//! A key is stored as big-endian words, the last padded with zeros. All keys of a tree have one length, so
//! the words compare as the bytes do. A search among up to 64 short keys reads the two lines of the head and
//! one group. Children are stored as the bytes in which they differ from a base ([`ChildCode`]).
//!
//! The nodes that a bulk load or a growing client writes lie side by side. There a child takes one byte, and
//! a group is one line: 48 children take 128 bytes of head and 384 bytes of run. If the children of a node
//! lie anywhere on eight servers of 128 GiB, a child takes four bytes and a group eleven words.

use crate::node::Shape;
use sherman_fabric::GlobalAddress;
use std::cmp::Ordering;

/// Words per line.
pub(super) const LINE_WORDS: usize = 8;
/// Entries of a group. The key of the first one is the group's sample.
pub(super) const GROUP: usize = 8;
/// Words of the keys of a group.
pub(super) const GROUP_KEYS: usize = GROUP - 1;
/// Words that a reader takes to read a group: at least its keys, and children of up to eight bytes.
pub(super) const WINDOW: usize = 16;
/// Even: the copy is whole. Odd: it is being changed.
pub(super) const SEQUENCE: usize = 0;
/// The node's address; 0 if the head holds no copy.
pub(super) const ADDRESS: usize = 1;
/// See [`Meta`].
pub(super) const META: usize = 2;
/// The epoch the copy was last used in.
pub(super) const USED: usize = 3;
/// The fences, if a key is one word.
pub(super) const SHORT_LOW: usize = 4;
pub(super) const SHORT_HIGH: usize = 5;
/// See [`Run`]. In a free head: the next free head.
pub(super) const RUN: usize = 6;
/// The address that children are counted from.
pub(super) const BASE: usize = 7;

/// The sizes of copies of nodes of one shape.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Words per key.
    pub key_words: usize,
    /// How many entries a copy has room for. A few more than its node, for separators learnt before the node
    /// is read again.
    pub room: usize,
    /// Lines of a head.
    pub head_lines: usize,
    /// Lines of the longest run.
    pub most_lines: usize,
}

impl Layout {
    /// Returns the layout of copies of nodes of this shape.
    pub(super) fn new(shape: &Shape) -> Self {
        let key_words = shape.key_len().div_ceil(8);
        let room = shape.capacity() + 2 + shape.capacity() / 32;
        let samples = if key_words == 1 { room.div_ceil(GROUP) } else { 0 };
        let mut layout =
            Self { key_words, room, head_lines: 1 + samples.div_ceil(LINE_WORDS), most_lines: 0 };
        layout.most_lines = layout.run_lines(room, ChildCode::MOST_BYTES);
        layout
    }

    /// Words of a group whose children take `child_bytes` bytes each.
    #[inline(always)]
    pub(super) fn group_words(child_bytes: usize) -> usize {
        GROUP_KEYS + child_bytes
    }

    /// The word of a run where the children of `count` long keys begin.
    pub(super) fn long_children_at(&self, count: usize) -> usize {
        (2 + count) * self.key_words
    }

    /// Lines of the run of a copy of `count` entries.
    pub(super) fn run_lines(&self, count: usize, child_bytes: usize) -> usize {
        let words = if self.key_words == 1 {
            count.div_ceil(GROUP) * Self::group_words(child_bytes)
        } else {
            self.long_children_at(count) + (count * child_bytes).div_ceil(8)
        };
        words.div_ceil(LINE_WORDS)
    }
}

/// The run of a copy, as one word: 32-bit first line, 32-bit number of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    pub lines: u32,
}

impl Run {
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.first) | u64::from(self.lines) << 32
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self { first: bits as u32, lines: (bits >> 32) as u32 }
    }
}

/// How the children of a copy are stored: by their distance from a base, server and offset apart, in as few
/// bytes as the farthest child needs. Offsets are counted in the largest unit that all of them share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChildCode {
    /// Bytes per child, 1 to 8.
    pub bytes: usize,
    /// Bits of an offset. The server's bits come above them.
    pub offset_bits: u32,
    /// The binary logarithm of the unit of offsets.
    pub shift: u32,
}

fn bits_of(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// Bits of a server's distance from the base, of all children together.
fn server_bits(servers: u16) -> u32 {
    seam!(cache::server_bits());
    bits_of(u64::from(servers))
}

impl ChildCode {
    /// The most bytes of a child.
    pub(super) const MOST_BYTES: usize = 8;

    /// Returns the code for these children, and their base.
    pub(super) fn of(children: &[u64]) -> (Self, u64) {
        let parts = || children.iter().map(|&bits| GlobalAddress::from_bits(bits));
        let server = parts().map(GlobalAddress::server).min().unwrap_or(0);
        let offset = parts().map(GlobalAddress::offset).min().unwrap_or(0);
        let base = GlobalAddress::new(server, offset).to_bits();
        let offsets = parts().fold(0, |all, child| all | (child.offset() - offset));
        let servers = parts().fold(0, |all, child| all | (child.server() - server));
        let shift = if offsets == 0 { 0 } else { offsets.trailing_zeros() };
        let offset_bits = bits_of(offsets >> shift);
        let bytes = (server_bits(servers) + offset_bits).div_ceil(8).max(1) as usize;
        (Self { bytes, offset_bits, shift }, base)
    }

    pub(super) fn encode(self, base: u64, child: u64) -> u64 {
        let (base, child) = (GlobalAddress::from_bits(base), GlobalAddress::from_bits(child));
        (child.offset() - base.offset()) >> self.shift
            | u64::from(child.server() - base.server()) << self.offset_bits
    }

    /// Any `code` gives an address: a reader may see one while it changes.
    #[inline(always)]
    pub(super) fn decode(self, base: u64, code: u64) -> u64 {
        let server = code.wrapping_shr(self.offset_bits);
        let offset = code ^ server.wrapping_shl(self.offset_bits);
        base.wrapping_add(server << 48).wrapping_add(offset.wrapping_shl(self.shift))
    }
}

/// What a copy stores about its node in one word: 16-bit count, 16-bit version, 8-bit level, whether the high
/// fence is open, and the code of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub count: usize,
    pub version: u16,
    pub level: u8,
    pub high_open: bool,
    pub code: ChildCode,
}

impl Meta {
    pub(super) fn to_bits(self) -> u64 {
        self.count as u64 & 0xffff
            | u64::from(self.version) << 16
            | u64::from(self.level) << 32
            | u64::from(self.high_open) << 40
            | (self.code.bytes as u64 & 15) << 41
            | u64::from(self.code.offset_bits & 63) << 45
            | u64::from(self.code.shift & 63) << 51
    }

    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            count: bits as usize & 0xffff,
            version: (bits >> 16) as u16,
            level: (bits >> 32) as u8,
            high_open: bits >> 40 & 1 == 1,
            code: ChildCode {
                bytes: (bits >> 41) as usize & 15,
                offset_bits: (bits >> 45) as u32 & 63,
                shift: (bits >> 51) as u32 & 63,
            },
        }
    }
}

/// Word `index` of `key`.
pub(super) fn key_word(key: &[u8], index: usize) -> u64 {
    let rest = key.get(index * 8..).unwrap_or_default();
    if let Some(word) = rest.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(word)
}

/// A key to search for, as one word if it fits.
pub(super) trait SearchKey: Copy {
    /// Whether the key is one word.
    const SHORT: bool;

    /// Word `index`.
    fn word(self, index: usize) -> u64;

    /// Compares the stored key, whose words `stored` returns, with this one.
    fn compare(self, words: usize, stored: impl Fn(usize) -> u64) -> Ordering;
}

/// A key of up to eight bytes.
#[derive(Clone, Copy)]
pub(super) struct Short(pub u64);

/// A longer key.
#[derive(Clone, Copy)]
pub(super) struct Long<'a>(pub &'a [u8]);

impl SearchKey for Short {
    const SHORT: bool = true;

    fn word(self, _: usize) -> u64 {
        self.0
    }

    fn compare(self, _: usize, stored: impl Fn(usize) -> u64) -> Ordering {
        stored(0).cmp(&self.0)
    }
}

impl SearchKey for Long<'_> {
    const SHORT: bool = false;

    fn word(self, index: usize) -> u64 {
        key_word(self.0, index)
    }

    fn compare(self, words: usize, stored: impl Fn(usize) -> u64) -> Ordering {
        let mut order = Ordering::Equal;
        for index in 0..words {
            order = stored(index).cmp(&self.word(index));
            if order.is_ne() {
                break;
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_compare_as_the_bytes_do() {
        let keys: [&[u8]; 5] = [&[0; 11], b"abcdefghijk", b"abcdefghijl", b"abcdefgiaaa", &[0xff; 11]];
        for a in keys {
            for b in keys {
                assert_eq!(Long(b).compare(2, |index| key_word(a, index)), a.cmp(b));
            }
        }
        assert!(key_word(b"ab", 0) < key_word(b"b\0", 0));
    }

    #[test]
    fn a_meta_word_keeps_its_parts() {
        let near = ChildCode { bytes: 1, offset_bits: 6, shift: 10 };
        let far = ChildCode { bytes: 8, offset_bits: 48, shift: 0 };
        for meta in [
            Meta { count: 0, version: 0, level: 1, high_open: false, code: near },
            Meta { count: 5000, version: u16::MAX, level: 63, high_open: true, code: far },
        ] {
            assert_eq!(Meta::from_bits(meta.to_bits()), meta);
        }
        let run = Run { first: u32::MAX, lines: 7 };
        assert_eq!(Run::from_bits(run.to_bits()), run);
    }

    #[test]
    fn children_take_the_bytes_that_the_farthest_needs() {
        let last = GlobalAddress::OFFSET_LIMIT - 1;
        let cases: [(&[(u16, u64)], usize); 7] = [
            (&[(3, 1 << 20)], 1),
            (&[(3, 1 << 20), (3, (1 << 20) + 47 * 1024)], 1),
            (&[(0, 64), (0, 64 + 255 * 64)], 1),
            (&[(0, 64), (0, 128), (0, 64 + 256 * 64)], 2),
            (&[(0, 1024), (7, (128 << 30) - 1024), (5, 4096)], 4),
            (&[(0, 64), (0, 128), (65_535, (256 << 30) - 64)], 6),
            (&[(0, 0), (65_535, last), (9, 77)], 8),
        ];
        for (children, bytes) in cases {
            let children: Vec<u64> = children
                .iter()
                .map(|&(server, offset)| GlobalAddress::new(server, offset).to_bits())
                .collect();
            let (code, base) = ChildCode::of(&children);
            assert_eq!(code.bytes, bytes, "{children:x?}");
            for child in children {
                assert_eq!(code.decode(base, code.encode(base, child)), child);
            }
        }
    }

    #[test]
    fn any_bits_decode_to_something() {
        for bits in [0, u64::MAX, 0x5555_5555_5555_5555] {
            let meta = Meta::from_bits(bits);
            meta.code.decode(bits, bits);
        }
    }
}
