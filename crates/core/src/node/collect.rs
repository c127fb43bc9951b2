//! Reads all of a node: how many entries it holds, and which of them lie within a range.

use super::order::Scratch;
use super::shape::{Body, MAX_KEY};
use super::stream::Stream;
use super::view::{Node, Position};
use super::{order, slots};
use std::cmp::Ordering;

impl Node<'_> {
    /// Number of live entries inside the fences. A key that appears twice (legal in an unlocked image of an
    /// unsorted leaf) counts twice.
    pub fn len(&self) -> usize {
        match self.shape.body {
            Body::Sorted(stream) => self.sorted_inside(stream),
            _ => order::count_inside(self),
        }
    }

    /// Whether no live entry lies inside the fences.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the key in `slot` lies inside the fences. `buffer` is scratch space for a key.
    pub(super) fn slot_inside(&self, slot: usize, buffer: &mut [u8; MAX_KEY]) -> bool {
        let key = &mut buffer[..self.shape.key_len];
        slots::load(self.shape, self.image, slot, 0, key);
        self.position(key) == Position::Inside
    }

    /// Appends the live entries inside the fences and within `first..=last` to `out`, key and then payload,
    /// ascending. Each key appears once: if an unlocked image shows a key twice, either entry is used.
    /// Returns false if some entry is torn. Then `out` is unchanged, and the caller must read the node again.
    pub fn collect(
        &self,
        first: &[u8],
        last: Option<&[u8]>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> bool {
        let entry_len = self.shape.entry_len();
        let start = out.len();
        if let Body::Sorted(stream) = self.shape.body {
            let end = self.sorted_inside(stream);
            let from = self.sorted_while(stream, end, first, Ordering::is_lt);
            let to = last.map_or(end, |last| self.sorted_while(stream, end, last, Ordering::is_le));
            if from < to {
                out.resize(start + (to - from) * entry_len, 0);
                stream.load(self.image, from * entry_len, &mut out[start..]);
            }
            return true;
        }
        if !self.entries_whole() {
            return false;
        }
        if order::collect_pairs(self, first, last, scratch, out) {
            return true;
        }
        let ordered = scratch.gather(self, first, last);
        out.resize(start + ordered.len() * entry_len, 0);
        for (place, slot) in out[start..].chunks_exact_mut(entry_len).zip(ordered.slots()) {
            slots::load(self.shape, self.image, slot, 0, place);
        }
        true
    }

    /// How many entries of a sorted body are below the high fence.
    fn sorted_inside(&self, stream: Stream) -> usize {
        let count = usize::from(self.header.count);
        if self.header.flags.high_open {
            return count;
        }
        let mut fence = [0; MAX_KEY];
        let fence = &mut fence[..self.shape.key_len];
        self.shape.fences.load(self.image, self.shape.key_len, fence);
        self.sorted_while(stream, count, fence, Ordering::is_lt)
    }

    /// How many leading entries, among the first `count` of a sorted body, compare with `key` as `holds`
    /// requires.
    fn sorted_while(
        &self,
        stream: Stream,
        count: usize,
        key: &[u8],
        holds: impl Fn(Ordering) -> bool,
    ) -> usize {
        let (key_len, entry_len) = (self.shape.key_len, self.shape.entry_len());
        let shared = &key[..key.len().min(key_len)];
        let rest = key_len.cmp(&key.len());
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if holds(stream.compare(self.image, middle * entry_len, shared).then(rest)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
