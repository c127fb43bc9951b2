//! Putting an entry that fits a line without taking the node up: what to WRITE is read off the image.
//!
//! The same change as [`Draft::upsert`](super::Draft::upsert) makes, for whoever needs no draft of all of the node: one WRITE
//! inside one line, from the entry to the line's end, with the version read under the lane as its stamp (I19).

use super::header::AT_STAMP;
use super::shape::{AT_BITMAP, Body};
use super::view::{Lookup, Node};
use super::{LINE, get_u16, order, put_u16, slots};
use crate::mutant::{Mutant, planted};
use std::ops::Range;

/// One entry to be written.
#[derive(Clone, Debug)]
pub struct EntryWrite {
    line: [u8; LINE],
    /// Where in the line the bytes to be written begin.
    from: usize,
    /// Where in the node the line begins.
    at: usize,
    /// Whether the key was there.
    pub updated: bool,
}

impl EntryWrite {
    /// Where in the node to write.
    pub fn range(&self) -> Range<usize> {
        self.at + self.from..self.at + LINE
    }

    /// What.
    pub fn bytes(&self) -> &[u8] {
        &self.line[self.from..]
    }
}

impl Node<'_> {
    /// What to write to put `value` under `key`, which is inside the fences; `old` receives the value it replaces. `None` if the
    /// leaf is full, or not one whose entries lie several to a line. The caller holds the lane.
    pub fn entry_write(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Option<EntryWrite> {
        let Body::Slots { first_line, per_line } = self.shape.body else { return None };
        let (slot, updated) = match self.find(key) {
            Lookup::Found(_) if planted(Mutant::MovedUpdate) => return None,
            Lookup::Found(slot) => {
                self.value_into(slot, old);
                (slot, true)
            }
            Lookup::Absent => (self.free_slot(key)?, false),
            Lookup::Torn => return None,
        };
        let at = (first_line + slot / per_line) * LINE;
        let from = slot % per_line * self.shape.entry_len();
        let mut line = [0; LINE];
        line.copy_from_slice(&self.image[at..at + LINE]);
        line[from..from + key.len()].copy_from_slice(key);
        line[from + key.len()..from + key.len() + value.len()].copy_from_slice(value);
        let bits = get_u16(&line, AT_BITMAP) | 1 << (slot % per_line);
        put_u16(&mut line, AT_BITMAP, bits);
        if !planted(Mutant::NoRestamp) {
            put_u16(&mut line, AT_STAMP, self.header.version);
        }
        Some(EntryWrite { line, from, at, updated })
    }

    /// A slot for a new `key`: near its neighbours if that can be had, else the first that is empty or a ghost's.
    pub(super) fn free_slot(&self, key: &[u8]) -> Option<usize> {
        order::slot_between(self, key)
            .or_else(|| slots::first_empty(self.shape, self.image))
            .or_else(|| order::first_outside(self))
    }
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
