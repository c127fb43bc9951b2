//! Writes an entry that fits a line without making a draft of the node: the WRITE is derived from the image.
//!
//! It makes the same change as [`Draft::upsert`](super::Draft::upsert), for callers that need no draft of the
//! whole node. The change is one WRITE inside one line, from the entry to the line's end. Its stamp is the
//! version read under the lane (I19).

use super::header::AT_STAMP;
use super::shape::{AT_BITMAP, Body};
use super::view::{Lookup, Node};
use super::{LINE, Shape, dense, get_u16, hashed, order, put_u16, slots};
use std::ops::Range;

/// The WRITE of one entry.
#[derive(Clone, Debug)]
pub struct EntryWrite {
    line: [u8; LINE],
    /// Offset in the line of the first byte to write.
    from: usize,
    /// Offset of the line in the node.
    at: usize,
    /// Whether the key was there.
    pub updated: bool,
}

impl EntryWrite {
    /// The write of the line at `at`, an offset in the node, from its byte `from` on.
    pub(super) fn new(line: [u8; LINE], at: usize, from: usize, updated: bool) -> Self {
        Self { line, from, at, updated }
    }

    /// The range of the node to write.
    pub fn range(&self) -> Range<usize> {
        self.at + self.from..self.at + LINE
    }

    /// The bytes to write.
    pub fn bytes(&self) -> &[u8] {
        &self.line[self.from..]
    }
}

impl Node<'_> {
    /// Returns the WRITE that stores `value` under `key`, which is inside the fences. `old` receives the
    /// value it replaces. Returns `None` if the leaf is full, or does not have several entries per line. The
    /// caller holds the lane.
    pub fn entry_write(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Option<EntryWrite> {
        let (first_line, per_line) = self.lines_of_entries()?;
        let (slot, updated) = match self.find(key) {
            Lookup::Found(slot) => {
                self.value_into(slot, old);
                (slot, true)
            }
            Lookup::Absent => (self.free_slot(key)?, false),
            Lookup::Torn => return None,
        };
        let at = (first_line + slot / per_line) * LINE;
        let mut line = [0; LINE];
        line.copy_from_slice(&self.image[at..at + LINE]);
        let low = dense::base(self.shape, self.image);
        let from = put_in_line(self.shape, &mut line, slot % per_line, low, key, value);
        restamp(&mut line, self.header.version);
        Some(EntryWrite { line, from, at, updated })
    }

    /// Returns the first line of entries and the entries per line, if a line holds several.
    #[inline]
    fn lines_of_entries(&self) -> Option<(usize, usize)> {
        seam!(node::lines_of_entries());
        match self.shape.body {
            Body::Slots { first_line, per_line } => Some((first_line, per_line)),
            _ => None,
        }
    }

    /// Finds a slot for a new `key`: near its neighbours if possible, else the first slot that is empty or
    /// holds a ghost (an entry outside the fences). A dense leaf has no slot for a key that is too far from
    /// its low fence.
    pub(super) fn free_slot(&self, key: &[u8]) -> Option<usize> {
        if let (true, Body::Slots { first_line, per_line }) = (self.shape.is_hashed(), self.shape.body) {
            if self.shape.is_dense {
                dense::distance(dense::base(self.shape, self.image), key)?;
            }
            let window = hashed::window_of(self.shape, key);
            let lines = &self.image.as_chunks().0[window.clone()];
            let (line, index) = hashed::free_slot(self.shape, lines, per_line)?;
            return Some((window.start - first_line + line) * per_line + index);
        }
        order::slot_between(self, key)
            .or_else(|| slots::first_empty(self.shape, self.image))
            .or_else(|| order::first_outside(self))
    }
}

/// Puts an entry into the slot `index` of a line. `low` is the low fence, if the line is dense. Returns where
/// the entry begins.
#[inline]
pub(super) fn put_in_line(
    shape: &Shape,
    line: &mut [u8; LINE],
    index: usize,
    low: u64,
    key: &[u8],
    value: &[u8],
) -> usize {
    if shape.is_dense {
        return dense::put(line, index, low, key, value);
    }
    let from = index * (key.len() + value.len());
    let entry = &mut line[from..from + key.len() + value.len()];
    // The compiler knows the most common lengths, so no copy is a function call.
    if let (Ok(key), Ok(value), [to_key, to_value]) =
        (<&[u8; 8]>::try_from(key), <&[u8; 8]>::try_from(value), entry.as_chunks_mut().0)
    {
        *to_key = *key;
        *to_value = *value;
    } else {
        entry[..key.len()].copy_from_slice(key);
        entry[key.len()..].copy_from_slice(value);
    }
    let bits = get_u16(line, AT_BITMAP) | 1 << index;
    put_u16(line, AT_BITMAP, bits);
    from
}

/// Stamps the line of an entry that is written with the version read under the lane.
#[inline]
pub(super) fn restamp(line: &mut [u8], version: u16) {
    seam!(node::restamp());
    put_u16(line, AT_STAMP, version);
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use crate::Format;
    use crate::node::draft::Upsert;

    #[test]
    fn an_entry_is_written_as_a_draft_would_write_it() {
        for (key_len, value_len) in [(8, 8), (8, 4), (16, 8), (4, 0), (1, 30)] {
            let shape = leaf_shape(Format::LineStamped, key_len, value_len, 512);
            let mut draft = whole_range(&shape, 0, 77);
            let mut numbers = Numbers(key_len as u64);
            let (mut puts, mut refusals) = (0, 0);
            for _ in 0..500 {
                let mut key = vec![0; key_len];
                key[key_len - 1] = numbers.below(200) as u8;
                let value = numbers.bytes(value_len);
                let (mut old, mut drafts_old) = (Vec::new(), Vec::new());
                let node = draft.node();
                let written = node.entry_write(&key, &value, &mut old);
                let mut image = draft.image().to_vec();
                match (draft.upsert(&key, &value, &mut drafts_old), written) {
                    (Upsert::Updated(patch) | Upsert::Inserted(patch), Some(written)) => {
                        image[written.range()].copy_from_slice(written.bytes());
                        assert_eq!(patch.steps(), [written.range()]);
                        assert!(image == draft.image());
                        assert_eq!(old, drafts_old);
                        puts += 1;
                    }
                    (Upsert::Full, None) => refusals += 1,
                    (upsert, written) => panic!("{upsert:?} but {written:?}"),
                }
            }
            assert!(puts > 15 && (refusals > 0 || shape.capacity() >= 200), "{puts} {refusals}");
        }
        let shape = leaf_shape(Format::TwoLevel, 8, 8, 512);
        assert!(whole_range(&shape, 0, 1).node().entry_write(&[1; 8], &[2; 8], &mut Vec::new()).is_none());
    }
}
