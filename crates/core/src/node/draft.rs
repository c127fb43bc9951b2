//! A node being changed by whoever holds its lane.
//!
//! Every change leaves the local image as the remote one is to become, and returns the [`Patch`] that gets it there.
//! What each format writes (`docs/LAYOUT.md`):
//!
//! | change | `LineStamped` | `TwoLevel` | `Sorted`, `SortedStamped` |
//! |---|---|---|---|
//! | put into a leaf | the entry to the end of its line, stamp = version | the entry with both versions | the node |
//! | remove from a leaf | the line's bitmap and stamp; of a long entry, its lines | the entry, version 0 | the node |
//! | split, left half of a leaf | the header line; then the new entry's line if it stays left | the node | the node |
//! | internal node | the node, floor = version; the header line alone if a split adds nothing to the left half | the node | the node |
//! | merge into the left neighbour, clear | the node, floor = version | the node | the node |
//! | link, free | the header line; the version stays | the header line | the header line |

mod merge;
mod split;

use super::header::{AT_CHECKSUM, AT_FRONT, Flags, Header};
use super::shape::Body;
use super::stream::set_stamp;
use super::view::{Node, checksum};
use super::{Format, LINE, Lookup, Patch, Shape, SortedBody, put_u64, slots};
use crate::mutant::{Mutant, planted};
use sherman_fabric::{ClientId, GlobalAddress};

/// A header-only split rewrites every line instead when the window of legal stamps would reach this: a quarter of the
/// stamp's range, so that serial comparison stays unambiguous whatever a reader has in hand (`docs/LAYOUT.md`).
const MAX_WINDOW: u16 = 1 << 14;

/// A node image under change.
#[derive(Clone, Debug)]
pub struct Draft<'s> {
    shape: &'s Shape,
    image: Vec<u8>,
    header: Header,
}

/// What [`Draft::upsert`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upsert {
    /// The key was there; its old value is in the caller's buffer.
    Updated(Patch),
    /// The key is new.
    Inserted(Patch),
    /// No slot is left: split.
    Full,
    /// An entry is torn although the lane is held: its writer died, and nobody mended it.
    Torn,
}

/// What [`Draft::remove`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// The key was there; its value is in the caller's buffer.
    Gone(Patch),
    /// The key was not there: nothing changed, nothing is to be written.
    Absent,
    /// An entry is torn although the lane is held: its writer died, and nobody mended it.
    Torn,
}

/// The right half of a split.
#[derive(Clone, Debug)]
pub struct SplitOff<'s> {
    /// The lowest key of the right half: the left half's new high fence.
    pub separator: Vec<u8>,
    /// The right half, marked pending.
    pub right: Draft<'s>,
    /// What to write of the left half.
    pub left: Patch,
}

/// Where the right half of a split goes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its address.
    pub address: GlobalAddress,
    /// The version it starts with: one more than the place last had, so that no old line passes for a new one.
    pub version: u16,
    /// Who makes it.
    pub owner: ClientId,
}

impl<'s> Draft<'s> {
    /// An empty node, not linked anywhere.
    pub fn new(
        shape: &'s Shape,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
        sibling: GlobalAddress,
        place: Place,
    ) -> Self {
        let header = Header {
            format: shape.format.number(),
            level,
            flags: Flags { free: false, pending: true, high_open: high.is_none() },
            owner: place.owner,
            count: 0,
            tree: shape.tree,
            version: place.version,
            floor: place.version,
            sibling,
        };
        let mut draft = Self { shape, image: vec![0; shape.node_bytes], header };
        shape.fences.store(&mut draft.image, 0, low);
        if let Some(high) = high {
            shape.fences.store(&mut draft.image, shape.key_len, high);
        }
        draft.seal_all();
        draft
    }

    /// Takes up a validated image. The caller holds its lane.
    pub fn of(shape: &'s Shape, node: &Node<'_>, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.extend_from_slice(node.image);
        Self { shape, image: buffer, header: node.header }
    }

    /// The image as it is to become.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// The header as it is to become.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Gives the buffer back.
    pub fn into_image(self) -> Vec<u8> {
        self.image
    }

    /// The node as it is to become.
    pub fn node(&self) -> Node<'_> {
        Node { shape: self.shape, image: &self.image, header: self.header }
    }

    /// Writes the header, and what proves that it belongs to the rest: header stamps, nibbles, checksum.
    fn seal(&mut self) {
        self.header.encode(&mut self.image);
        match self.shape.format {
            Format::LineStamped | Format::SortedStamped => {
                for line in 0..self.shape.header_lines {
                    set_stamp(&mut self.image, line, self.header.version);
                }
            }
            Format::TwoLevel => {
                let nibble = (self.header.version & 0x0f) as u8;
                self.image[AT_FRONT] = self.image[AT_FRONT] & 0xf0 | nibble;
                let last = self.image.len() - 1;
                self.image[last] = nibble;
            }
            Format::Sorted => {
                let sum = checksum(&self.image);
                put_u64(&mut self.image, AT_CHECKSUM, sum);
            }
        }
    }

    /// Seals a wholly rewritten node: every line is of this version, no older one is acceptable.
    fn seal_all(&mut self) -> Patch {
        if !planted(Mutant::FloorNotRaised) {
            self.header.floor = self.header.version;
        }
        if self.shape.format.is_lined() {
            for line in 0..self.shape.lines() {
                set_stamp(&mut self.image, line, self.header.version);
            }
        }
        self.seal();
        Patch::one(0..self.shape.node_bytes).together()
    }

    fn next_version(&mut self) {
        self.header.version = self.header.version.wrapping_add(1);
    }

    /// Clears the pending mark: the node is linked. One unit, whatever the format.
    pub fn link(&mut self) -> Patch {
        self.header.flags.pending = false;
        self.header.owner = ClientId::NOBODY;
        self.seal();
        Patch::one(0..LINE)
    }

    /// Marks the node free: it belongs to no tree any more. One unit, whatever the format, and the version stays: who
    /// uses the place next goes on from it (I23).
    pub fn free(&mut self, owner: ClientId) -> Patch {
        self.header.flags.free = true;
        self.header.flags.pending = false;
        self.header.owner = owner;
        self.seal();
        Patch::one(0..LINE)
    }

    /// Puts `value` under `key`, which is inside the fences. `old` receives the value it replaces.
    pub fn upsert(&mut self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Upsert {
        if let Some(mut body) = self.node().sorted() {
            let found = body.find(key);
            match found {
                Ok(index) => {
                    old.clear();
                    old.extend_from_slice(body.payload(index));
                    body.set_payload(index, value);
                }
                Err(_) if body.len() == self.shape.capacity => return Upsert::Full,
                Err(index) => body.insert(index, key, value),
            }
            let patch = self.set_body(&body);
            return if found.is_ok() { Upsert::Updated(patch) } else { Upsert::Inserted(patch) };
        }
        match self.node().find(key) {
            Lookup::Found(slot) => {
                self.node().value_into(slot, old);
                if planted(Mutant::MovedUpdate)
                    && let Some(other) = slots::first_empty(self.shape, &self.image)
                {
                    let moved = self.put(other, key, value);
                    slots::clear(self.shape, &mut self.image, slot);
                    return Upsert::Updated(moved.then(slots::clear_range(self.shape, slot)));
                }
                return Upsert::Updated(self.put(slot, key, value));
            }
            Lookup::Torn => return Upsert::Torn,
            Lookup::Absent => {}
        }
        // An entry outside the fences does not exist: its slot is as good as empty.
        match self.node().free_slot(key) {
            Some(slot) => Upsert::Inserted(self.put(slot, key, value)),
            None => Upsert::Full,
        }
    }

    /// Takes `key`, which is inside the fences, out of a leaf. `old` receives its value.
    pub fn remove(&mut self, key: &[u8], old: &mut Vec<u8>) -> Removed {
        let node = self.node();
        let slot = match node.find(key) {
            Lookup::Found(slot) => slot,
            Lookup::Absent => return Removed::Absent,
            Lookup::Torn => return Removed::Torn,
        };
        node.value_into(slot, old);
        if let Some(mut body) = node.sorted() {
            // A ghost is found by its index too, but is not in the body.
            if slot >= body.len() {
                return Removed::Absent;
            }
            body.remove(slot);
            return Removed::Gone(self.set_body(&body));
        }
        slots::clear(self.shape, &mut self.image, slot);
        self.restamp(slot);
        Removed::Gone(Patch::one(slots::clear_range(self.shape, slot)))
    }

    /// Stores into one slot: its lines take the version read under the lane, in the same WRITE.
    fn put(&mut self, slot: usize, key: &[u8], value: &[u8]) -> Patch {
        slots::store(self.shape, &mut self.image, slot, key, value);
        self.restamp(slot);
        Patch::one(slots::write_range(self.shape, slot))
    }

    fn restamp(&mut self, slot: usize) {
        if planted(Mutant::NoRestamp) {
            return;
        }
        for line in slots::stamped_lines(self.shape, slot) {
            set_stamp(&mut self.image, line, self.header.version);
        }
    }

    /// Replaces a sorted body; the node is written whole.
    pub fn set_body(&mut self, body: &SortedBody) -> Patch {
        self.next_version();
        self.fill(body)
    }

    /// Fills a sorted body in at the current version.
    pub(crate) fn fill(&mut self, body: &SortedBody) -> Patch {
        if let Body::Sorted(stream) = self.shape.body {
            self.header.count = body.len() as u16;
            stream.store(&mut self.image, 0, body.bytes());
        }
        self.seal_all()
    }
}
