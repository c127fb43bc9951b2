//! The layout of a copy: a run of cache lines of 64-bit words, so that a reader can safely read all of it
//! while it changes.
//!
//! ```text
//! line 0   sequence, address, meta, used, low, high          (keys of up to 8 bytes)
//! then     samples: every 8th key | keys | children          each padded to whole lines
//!
//! line 0   sequence, address, meta, used                     (longer keys)
//! then     low | high | keys | children                      each key as several words
//! ```
//!
//! A key is stored as big-endian words, the last padded with zeros. All keys of a tree have one length, so
//! the words compare as the bytes do. A search among up to 64 short keys reads the header and one line of
//! samples. Then it reads one line of keys and the line of their children at once.

use crate::node::Shape;
use std::cmp::Ordering;

/// Words per line.
pub(super) const LINE_WORDS: usize = 8;
/// Even: the copy is whole. Odd: it is being changed.
pub(super) const SEQUENCE: usize = 0;
/// The node's address; 0 if the slot holds no copy.
pub(super) const ADDRESS: usize = 1;
/// See [`Meta`].
pub(super) const META: usize = 2;
/// The epoch the copy was last used in.
pub(super) const USED: usize = 3;
/// The fences, if a key is one word. The samples begin with the line after the header.
pub(super) const SHORT_LOW: usize = 4;
pub(super) const SHORT_HIGH: usize = 5;

/// The offsets of the parts of a copy, in words.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Words per key.
    pub key_words: usize,
    /// How many entries a copy has room for. A few more than its node, for separators learnt before the node
    /// is read again.
    pub room: usize,
    pub low_at: usize,
    pub high_at: usize,
    /// Used only if a key is one word.
    pub samples_at: usize,
    pub keys_at: usize,
    pub children_at: usize,
    /// Lines per slot.
    pub lines: usize,
}

impl Layout {
    /// Returns the layout of copies of nodes of this shape.
    pub(super) fn new(shape: &Shape) -> Self {
        let key_words = shape.key_len().div_ceil(8);
        let room = shape.capacity() + 2 + shape.capacity() / 32;
        if key_words == 1 {
            let room = room.next_multiple_of(LINE_WORDS);
            let samples = (room / LINE_WORDS).next_multiple_of(LINE_WORDS);
            let keys_at = LINE_WORDS + samples;
            let lines = (keys_at + 2 * room) / LINE_WORDS;
            return Self {
                key_words,
                room,
                low_at: SHORT_LOW,
                high_at: SHORT_HIGH,
                samples_at: LINE_WORDS,
                keys_at,
                children_at: keys_at + room,
                lines,
            };
        }
        let keys_at = LINE_WORDS + 2 * key_words;
        let children_at = keys_at + room * key_words;
        Self {
            key_words,
            room,
            low_at: LINE_WORDS,
            high_at: LINE_WORDS + key_words,
            samples_at: 0,
            keys_at,
            children_at,
            lines: (children_at + room).div_ceil(LINE_WORDS),
        }
    }
}

/// What a copy stores about its node in one word: 16-bit count, 16-bit version, 8-bit level, whether the high
/// fence is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub count: usize,
    pub version: u16,
    pub level: u8,
    pub high_open: bool,
}

impl Meta {
    pub(super) fn to_bits(self) -> u64 {
        self.count as u64 & 0xffff
            | u64::from(self.version) << 16
            | u64::from(self.level) << 32
            | u64::from(self.high_open) << 40
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            count: bits as usize & 0xffff,
            version: (bits >> 16) as u16,
            level: (bits >> 32) as u8,
            high_open: bits >> 40 & 1 == 1,
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
        for meta in [
            Meta { count: 0, version: 0, level: 1, high_open: false },
            Meta { count: 5000, version: u16::MAX, level: 63, high_open: true },
        ] {
            assert_eq!(Meta::from_bits(meta.to_bits()), meta);
        }
    }
}
