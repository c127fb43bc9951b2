//! Sorted bodies: separators and children of internal nodes, keys and values of `Sorted` leaves.
//!
//! Entry `i` of an internal node leads to the child responsible for keys from its key up to the next entry's.
//! The first entry's key is the node's low fence. Such a body is always written whole. So in the lined
//! formats all its lines carry the stamp of that write, and entries may straddle lines.

use super::header::Header;
use super::shape::Shape;
use super::stream::Stream;
use super::view::{Node, Position};
use std::cmp::Ordering;

/// A sorted body, copied out of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedBody {
    key_len: usize,
    entry_len: usize,
    bytes: Vec<u8>,
}

impl SortedBody {
    /// Creates a body without entries for nodes of this shape.
    pub fn empty(shape: &Shape) -> Self {
        Self { key_len: shape.key_len, entry_len: shape.entry_len(), bytes: Vec::new() }
    }

    /// Creates a body of these entries: key and payload of each, one after the other in ascending order.
    pub(super) fn from_entries(shape: &Shape, entries: &[u8]) -> Self {
        Self { bytes: entries.to_vec(), ..Self::empty(shape) }
    }

    /// Copies the entries out of a validated image, without those outside the fences, which do not exist.
    pub(super) fn decode(stream: Stream, image: &[u8], header: &Header, shape: &Shape) -> Self {
        let mut body = Self::empty(shape);
        body.bytes.resize(usize::from(header.count) * shape.entry_len(), 0);
        stream.load(image, 0, &mut body.bytes);
        let node = Node { shape, image, header: *header };
        let inside = body.partition(|key| node.position(key) != Position::Right);
        body.bytes.truncate(inside * body.entry_len);
        body
    }

    /// Binary search in place, without copying the body: returns the index of `key`, or its insertion index.
    pub(super) fn search(
        stream: Stream,
        image: &[u8],
        count: usize,
        shape: &Shape,
        key: &[u8],
    ) -> Result<usize, usize> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            match stream.compare(image, middle * shape.entry_len(), key) {
                Ordering::Equal => return Ok(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.entry_len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All entries, one after the other.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key of entry `index`.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.entry_len..index * self.entry_len + self.key_len]
    }

    /// The value or child of entry `index`.
    pub fn payload(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.entry_len + self.key_len..(index + 1) * self.entry_len]
    }

    /// The number of leading entries whose key satisfies `holds`.
    fn partition(&self, holds: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if holds(self.key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The index of `key`, or its insertion index.
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let at = self.partition(|entry| entry < key);
        if at < self.len() && self.key(at) == key { Ok(at) } else { Err(at) }
    }

    /// The entry responsible for `key`: the last whose key is not greater. `None` if all are greater.
    pub fn responsible(&self, key: &[u8]) -> Option<usize> {
        self.partition(|entry| entry <= key).checked_sub(1)
    }

    /// Inserts an entry before `index`.
    pub fn insert(&mut self, index: usize, key: &[u8], payload: &[u8]) {
        let at = index * self.entry_len;
        self.bytes.splice(at..at, key.iter().chain(payload).copied());
    }

    /// Removes entry `index`. In an internal node this forgets the child and does not free it.
    pub fn remove(&mut self, index: usize) {
        self.bytes.drain(index * self.entry_len..(index + 1) * self.entry_len);
    }

    /// Replaces the payload of entry `index`.
    pub fn set_payload(&mut self, index: usize, payload: &[u8]) {
        let at = index * self.entry_len + self.key_len;
        self.bytes[at..at + payload.len()].copy_from_slice(payload);
    }

    /// Cuts off the entries from `index` on and returns them.
    pub fn split_off(&mut self, index: usize) -> Self {
        Self { bytes: self.bytes.split_off(index * self.entry_len), ..*self }
    }

    /// Bytes of memory the body takes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}
