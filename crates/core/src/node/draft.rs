//! A node that the holder of its lane is changing.
//!
//! Every change brings the local image into the intended state of the remote one, and returns the [`Patch`]
//! to WRITE. What each format writes (`docs/LAYOUT.md`):
//!
//! | change | `LineStamped` | `TwoLevel` | `Sorted`, `SortedStamped` |
//! |---|---|---|---|
//! | put into a leaf | the entry to the end of its line, stamp = version | the entry with both versions | the node |
//! | remove from a leaf | the line's bitmap and stamp; of a long entry, its lines | the entry, version 0 | the node |
//! | split, left half of a leaf | the header line; then the new entry's line if it stays left | the node | the node |
//! | internal node | the node, floor = version; the header line alone if a split adds nothing to the left half | the node | the node |
//! | merge into the left neighbour, clear | the node, floor = version | the node | the node |
//! | link, free | the header line; the version stays | the header line | the header line |
//!
//! `LineHashed` leaves change as `LineStamped` ones do, with three differences. A put whose lines are full
//! rewrites the leaf with a new layout, if that makes room; it may become wide or dense. A split rewrites the
//! left half too. Link and free
//! write all lines of entries that must be attached or detached, then the header line.

mod merge;
mod split;

use super::header::{AT_CHECKSUM, AT_FRONT, Flags, Header};
use super::shape::Body;
use super::stream::set_stamp;
use super::view::{Node, checksum};
use super::{Format, LINE, Lookup, Patch, Shape, SortedBody, entry, hashed, put_u64, slots};
use sherman_fabric::{ComputeId, GlobalAddress};

/// If the window of legal stamps would reach this size, a split rewrites every line instead of only the
/// header. It is a quarter of the stamp's range, so serial comparison stays unambiguous for every image a
/// reader may have (`docs/LAYOUT.md`).
const MAX_WINDOW: u16 = 1 << 14;

/// A node image that is being changed.
#[derive(Clone, Debug)]
pub struct Draft<'s> {
    /// The layout of this very node. A leaf that is written whole may become wide or dense.
    pub(super) shape: &'s Shape,
    /// The layout of the tree's wide leaves, or of all its nodes that are no hashed leaves.
    pub(super) wide: &'s Shape,
    pub(super) image: Vec<u8>,
    header: Header,
    /// Whether the lines of a hashed leaf are detached: it is not part of the tree, and clients may have
    /// pointers to its place.
    detached: bool,
    /// The entries of a hashed leaf with a new one that found no room, collected to look for a new layout.
    /// The split that follows uses them.
    overfull: Option<Overfull>,
}

/// The entries of a hashed leaf and a new one, in order: key and value of each one after the other.
#[derive(Clone, Debug)]
struct Overfull {
    entries: Vec<u8>,
    /// The index of the new one.
    index: usize,
}

/// The outcome of [`Draft::upsert`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upsert {
    /// The key was there; its old value is in the caller's buffer.
    Updated(Patch),
    /// The key is new.
    Inserted(Patch),
    /// No slot is free: the caller must split.
    Full,
    /// An entry is torn although the caller holds the lane: its writer died, and no recoverer repaired it.
    Torn,
}

/// The outcome of [`Draft::remove`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// The key was there; its value is in the caller's buffer.
    Gone(Patch),
    /// The key was not there: nothing changed, and there is nothing to write.
    Absent,
    /// An entry is torn although the caller holds the lane: its writer died, and no recoverer repaired it.
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

/// The place of a new node, for example of the right half of a split.
#[derive(Clone, Copy, Debug)]
pub struct NodePlace {
    /// Its address.
    pub address: GlobalAddress,
    /// The version the node starts with: one more than the last version in this place, so that no old line
    /// passes for a new one.
    pub version: u16,
    /// The client that makes the node.
    pub owner: ComputeId,
    /// Whether the place held a node before. Then other clients may still have pointers to it.
    pub used: bool,
}

impl<'s> Draft<'s> {
    /// Creates an empty node that is not linked anywhere.
    pub fn new(
        shape: &'s Shape,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
        sibling: GlobalAddress,
        place: NodePlace,
    ) -> Self {
        let mut draft = Self::unsealed(shape, level, low, high, sibling, place);
        draft.seal_all();
        draft
    }

    /// Creates an empty node for a caller that fills and seals it.
    fn unsealed(
        shape: &'s Shape,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
        sibling: GlobalAddress,
        place: NodePlace,
    ) -> Self {
        let wide = shape;
        let shape = wide.for_keys(low, None);
        let header = Header {
            format: shape.format.number(),
            level,
            flags: Flags { free: false, pending: true, high_open: high.is_none(), dense: shape.is_dense },
            owner: place.owner,
            count: 0,
            tree: shape.tree,
            version: place.version,
            floor: place.version,
            sibling,
        };
        let image = vec![0; shape.node_bytes];
        let mut draft = Self { shape, wide, image, header, detached: place.used, overfull: None };
        shape.fences.store(&mut draft.image, 0, low);
        if let Some(high) = high {
            shape.fences.store(&mut draft.image, shape.key_len, high);
        }
        draft
    }

    /// Creates a draft from a validated image. The caller holds its lane.
    pub fn of(shape: &'s Shape, node: &Node<'_>, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.extend_from_slice(node.image);
        let detached = shape.is_hashed() && hashed::is_detached(node.image);
        let (wide, header) = (shape, node.header);
        let shape = wide.packed(header.flags.dense).unwrap_or(wide);
        Self { shape, wide, image: buffer, header, detached, overfull: None }
    }

    /// The image after the change.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// The header after the change.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the buffer.
    pub fn into_image(self) -> Vec<u8> {
        self.image
    }

    /// The node after the change.
    pub fn node(&self) -> Node<'_> {
        Node { shape: self.shape, image: &self.image, header: self.header }
    }

    /// Writes the header, and the proof that it belongs to the rest: header stamps, nibbles, checksum.
    fn seal(&mut self) {
        self.header.encode(&mut self.image);
        match self.shape.format {
            Format::LineStamped | Format::SortedStamped | Format::LineHashed => {
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

    /// Seals a node that is rewritten as a whole: every line has this version, and no older line is
    /// acceptable.
    fn seal_all(&mut self) -> Patch {
        self.raise_floor();
        if self.shape.is_hashed() {
            self.identify_lines(self.detached);
        } else if self.shape.format.is_lined() {
            for line in 0..self.shape.lines() {
                set_stamp(&mut self.image, line, self.header.version);
            }
        }
        self.seal();
        Patch::one(0..self.shape.node_bytes).together()
    }

    /// Writes what every line of a hashed leaf shows of the leaf.
    pub(super) fn identify_lines(&mut self, detached: bool) {
        seam!(node::identify_lines(self, detached));
        let (low, high) = (self.node().low(), self.node().high());
        let identity = hashed::Identity {
            tree: self.shape.tree,
            version: self.header.version,
            detached,
            low: &low,
            high: high.as_deref(),
        };
        hashed::identify(self.shape, &mut self.image, identity);
    }

    /// No line older than this version is acceptable from now on.
    fn raise_floor(&mut self) {
        seam!(node::raise_floor());
        self.header.floor = self.header.version;
    }

    fn next_version(&mut self) {
        self.header.version = self.header.version.wrapping_add(1);
    }

    /// Clears the pending mark: the node is linked. The write is one unit in every format but `LineHashed`,
    /// whose lines are attached before.
    pub fn link(&mut self) -> Patch {
        self.header.flags.pending = false;
        self.header.owner = ComputeId::NOBODY;
        self.mark_lines(false)
    }

    /// Marks the node free: it belongs to no tree any more. The write is one unit in every format but
    /// `LineHashed`, whose lines are detached before. The version stays, because the next user of the place
    /// continues from it (I23).
    pub fn free(&mut self, owner: ComputeId) -> Patch {
        self.header.flags.free = true;
        self.header.flags.pending = false;
        self.header.owner = owner;
        self.mark_lines(true)
    }

    /// Seals the header after a change of its marks.
    fn mark_lines(&mut self, detached: bool) -> Patch {
        self.seal();
        if !self.shape.is_hashed() {
            return Patch::one(0..LINE);
        }
        if self.detached == detached {
            return Patch::one(0..LINE);
        }
        self.detached = detached;
        self.identify_lines(detached);
        // The header comes last: a header without marks shows that all lines are attached, and a free mark
        // that all are detached (I49).
        Patch::one(LINE..self.shape.node_bytes).then(0..LINE)
    }

    /// Writes the lines of a pending leaf as if no pointer led to its place.
    #[cfg(test)]
    pub(super) fn attach_lines(&mut self) {
        self.identify_lines(false);
    }

    /// Stores `value` under `key`, which is inside the fences. `old` receives the value it replaces.
    pub fn upsert(&mut self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Upsert {
        self.overfull = None;
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
                return Upsert::Updated(self.overwrite(slot, key, value));
            }
            Lookup::Torn => return Upsert::Torn,
            Lookup::Absent => {}
        }
        // An entry outside the fences does not exist, so its slot counts as empty.
        match self.node().free_slot(key) {
            Some(slot) => Upsert::Inserted(self.put(slot, key, value)),
            None => self.rearrange(key, value).map_or(Upsert::Full, Upsert::Inserted),
        }
    }

    /// Removes `key`, which is inside the fences, from a leaf. `old` receives its value.
    pub fn remove(&mut self, key: &[u8], old: &mut Vec<u8>) -> Removed {
        self.overfull = None;
        let node = self.node();
        let slot = match node.find(key) {
            Lookup::Found(slot) => slot,
            Lookup::Absent => return Removed::Absent,
            Lookup::Torn => return Removed::Torn,
        };
        node.value_into(slot, old);
        if let Some(mut body) = node.sorted() {
            // A search also finds a ghost (an entry outside the fences) by its index, but a ghost is not in
            // the body.
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

    /// Replaces an entry. It stays in its slot: a reader then finds the old or the new value there.
    fn overwrite(&mut self, slot: usize, key: &[u8], value: &[u8]) -> Patch {
        seam!(node::overwrite(self, slot, key, value));
        self.put(slot, key, value)
    }

    /// Stores an entry into one slot. The same WRITE stamps its lines with the version read under the lane.
    pub(super) fn put(&mut self, slot: usize, key: &[u8], value: &[u8]) -> Patch {
        slots::store(self.shape, &mut self.image, slot, key, value);
        self.restamp(slot);
        Patch::one(slots::write_range(self.shape, slot))
    }

    fn restamp(&mut self, slot: usize) {
        for line in slots::stamped_lines(self.shape, slot) {
            entry::restamp(&mut self.image[line * LINE..][..LINE], self.header.version);
        }
    }

    /// Replaces a sorted body. The patch writes the whole node.
    pub fn set_body(&mut self, body: &SortedBody) -> Patch {
        self.next_version();
        self.fill(body)
    }

    /// Stores a sorted body at the current version.
    pub(crate) fn fill(&mut self, body: &SortedBody) -> Patch {
        if let Body::Sorted(stream) = self.shape.body {
            self.header.count = body.len() as u16;
            stream.store(&mut self.image, 0, body.bytes());
        }
        self.seal_all()
    }
}
