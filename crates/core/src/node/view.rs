//! A validated node image, and lookups in it.

use super::header::{AT_CHECKSUM, AT_FRONT, Flags, Header};
use super::shape::Body;
use super::stream::stamp_of;
use super::{Format, LINE, NodeKind, Shape, SortedBody, get_u64, slots};
use std::cmp::Ordering;
use twox_hash::XxHash3_64;

/// Why an image cannot be used. The reader retries or takes another path; none of these is an error by
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Units of different moments: read it again.
    Torn,
    /// Not a node, or a node of another format, tree or level: the pointer was stale.
    NotThis,
    /// Freed: the pointer was stale.
    Free,
    /// Written but not yet linked: wait for its maker.
    Pending,
}

/// Where a key lies relative to a node's fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Below the low fence: the pointer was stale.
    Left,
    /// The node is responsible for it.
    Inside,
    /// At or above the high fence: follow the sibling.
    Right,
}

/// The outcome of a search in an unlocked leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// In this slot.
    Found(usize),
    /// Nowhere.
    Absent,
    /// A torn entry may hold the key: read again.
    Torn,
}

/// An image that passed validation.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(super) shape: &'a Shape,
    pub(super) image: &'a [u8],
    /// Its decoded header.
    pub header: Header,
}

impl<'a> Node<'a> {
    /// Validates an image read without the lane. Checks identity, marks and consistency before it uses any
    /// other field, because a stale pointer may lead to anything.
    pub fn open(shape: &'a Shape, image: &'a [u8], level: u8) -> Result<Self, Reject> {
        let header = Self::identify(shape, image, level)?;
        check_marks(header.flags)?;
        Self::whole(shape, image, header)
    }

    /// Opens an image that [`Node::open`] has already accepted under the same lane, with the header it found.
    pub(crate) fn reopen(shape: &'a Shape, image: &'a [u8], header: Header) -> Self {
        debug_assert!(Self::open(shape, image, header.level).is_ok_and(|node| node.header == header));
        Self { shape: shape.packed(header.flags.dense).unwrap_or(shape), image, header }
    }

    /// Like [`Node::open`], but accepts free and pending nodes: for recovery and verification.
    pub fn open_marked(shape: &'a Shape, image: &'a [u8], level: u8) -> Result<Self, Reject> {
        let header = Self::identify(shape, image, level)?;
        Self::whole(shape, image, header)
    }

    /// Returns the header, if it belongs to the requested node.
    #[inline]
    fn identify(shape: &Shape, image: &[u8], level: u8) -> Result<Header, Reject> {
        if image.len() != shape.node_bytes {
            return Err(Reject::NotThis);
        }
        let header = Header::decode(image).ok_or(Reject::NotThis)?;
        // The header line is one unit (F1), so the node's identity in it is from one moment, whatever the
        // other lines hold. A node of another tree may have another layout and would look torn permanently.
        if header.format != shape.format.number() || header.tree != shape.tree || header.level != level {
            return Err(Reject::NotThis);
        }
        Ok(header)
    }

    #[inline]
    fn whole(shape: &'a Shape, image: &'a [u8], header: Header) -> Result<Self, Reject> {
        let shape = shape.packed(header.flags.dense).ok_or(Reject::NotThis)?;
        if !is_consistent(shape, image, &header) {
            return Err(Reject::Torn);
        }
        if usize::from(header.count) > shape.capacity {
            return Err(Reject::NotThis);
        }
        Ok(Self { shape, image, header })
    }

    /// The most entries this very node can hold.
    pub fn capacity(&self) -> usize {
        self.shape.capacity
    }

    /// Bytes of an entry: key and payload.
    pub fn entry_len(&self) -> usize {
        self.shape.entry_len()
    }

    /// Where `key` lies relative to the fences.
    pub fn position(&self, key: &[u8]) -> Position {
        let fences = self.shape.fences;
        if fences.compare(self.image, 0, key) == Ordering::Greater {
            Position::Left
        } else if !self.header.flags.high_open
            && fences.compare(self.image, self.shape.key_len, key) != Ordering::Greater
        {
            Position::Right
        } else {
            Position::Inside
        }
    }

    /// The low fence, inclusive. A fence of all zero bytes is the lowest possible key.
    pub fn low(&self) -> Vec<u8> {
        let mut key = vec![0; self.shape.key_len];
        self.shape.fences.load(self.image, 0, &mut key);
        key
    }

    /// Like `low`, into the caller's buffer.
    pub fn low_into(&self, key: &mut Vec<u8>) {
        key.resize(self.shape.key_len, 0);
        self.shape.fences.load(self.image, 0, key);
    }

    /// Copies the high fence into the caller's buffer and returns true. If the fence is open, leaves the
    /// buffer unchanged and returns false.
    pub fn high_into(&self, key: &mut Vec<u8>) -> bool {
        if !self.header.flags.high_open {
            key.resize(self.shape.key_len, 0);
            self.shape.fences.load(self.image, self.shape.key_len, key);
        }
        !self.header.flags.high_open
    }

    /// The high fence, exclusive; `None` if open.
    pub fn high(&self) -> Option<Vec<u8>> {
        if self.header.flags.high_open {
            return None;
        }
        let mut key = vec![0; self.shape.key_len];
        self.shape.fences.load(self.image, self.shape.key_len, &mut key);
        Some(key)
    }

    /// Searches a leaf for `key`, which is inside the fences.
    pub fn find(&self, key: &[u8]) -> Lookup {
        debug_assert!(self.shape.kind == NodeKind::Leaf, "only leaves hold values");
        match self.shape.body {
            Body::Sorted(stream) => {
                match SortedBody::search(stream, self.image, usize::from(self.header.count), self.shape, key)
                {
                    Ok(index) => Lookup::Found(index),
                    Err(_) => Lookup::Absent,
                }
            }
            _ => slots::find(self.shape, self.image, key),
        }
    }

    /// Clears `out` and copies the value in `slot` into it.
    pub fn value_into(&self, slot: usize, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.shape.payload_len, 0);
        match self.shape.body {
            Body::Sorted(stream) => {
                stream.load(self.image, slot * self.shape.entry_len() + self.shape.key_len, out);
            }
            _ => slots::load(self.shape, self.image, slot, self.shape.key_len, out),
        }
    }

    /// The sorted body of an internal node (or of a `Sorted` leaf).
    pub fn sorted(&self) -> Option<SortedBody> {
        match self.shape.body {
            Body::Sorted(stream) => Some(SortedBody::decode(stream, self.image, &self.header, self.shape)),
            _ => None,
        }
    }

    /// Every live entry inside the fences, sorted by key. If a key appears twice (legal in an unlocked image
    /// of an unsorted leaf), both entries are returned.
    pub fn entries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        if let Some(body) = self.sorted() {
            return (0..body.len()).map(|i| (body.key(i).to_vec(), body.payload(i).to_vec())).collect();
        }
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = (0..self.shape.capacity)
            .filter(|&slot| slots::is_live(self.shape, self.image, slot))
            .map(|slot| {
                let mut key = vec![0; self.shape.key_len];
                slots::load(self.shape, self.image, slot, 0, &mut key);
                let mut value = vec![0; self.shape.payload_len];
                slots::load(self.shape, self.image, slot, self.shape.key_len, &mut value);
                (key, value)
            })
            .filter(|(key, _)| self.position(key) == Position::Inside)
            .collect();
        entries.sort();
        entries
    }

    /// Whether every entry is whole. A lookup by key checks only the entries it compares; a reader of all
    /// entries must call this.
    pub fn entries_whole(&self) -> bool {
        match self.shape.body {
            Body::Sorted(_) | Body::Slots { .. } => true,
            _ => (0..self.shape.capacity).all(|slot| slots::is_whole(self.shape, self.image, slot)),
        }
    }
}

/// Rejects free and pending nodes. The rest of such a node does not matter: a dead maker may have left it
/// torn.
#[inline]
fn check_marks(flags: Flags) -> Result<(), Reject> {
    seam!(node::check_marks(flags));
    match flags {
        Flags { free: true, .. } => Err(Reject::Free),
        Flags { pending: true, .. } => Err(Reject::Pending),
        _ => Ok(()),
    }
}

/// Whether all units of the image can be from one moment, as far as the format shows.
fn is_consistent(shape: &Shape, image: &[u8], header: &Header) -> bool {
    match shape.format {
        Format::LineStamped | Format::SortedStamped | Format::LineHashed => {
            stamps_agree(shape, image, header)
        }
        Format::TwoLevel => image[AT_FRONT] & 0x0f == image[shape.node_bytes - 1] & 0x0f,
        Format::Sorted => get_u64(image, AT_CHECKSUM) == checksum(image),
    }
}

/// Whether every line of the header has the node's version, and no other line is older than the floor.
#[inline]
fn stamps_agree(shape: &Shape, image: &[u8], header: &Header) -> bool {
    seam!(node::stamps_agree(shape, image, header));
    let (head, rest) = image.as_chunks().0.split_at(shape.header_lines);
    let age = |line: &[u8; LINE]| header.version.wrapping_sub(stamp_of(line));
    let window = header.version.wrapping_sub(header.floor);
    // No branch for each line: most nodes are whole.
    let oldest = rest.iter().fold(0, |oldest, line| age(line).max(oldest));
    head.iter().all(|line| age(line) == 0) && oldest <= window
}

/// The checksum of a `Sorted` node. Covers everything except the checksum itself.
pub(super) fn checksum(image: &[u8]) -> u64 {
    let head = XxHash3_64::oneshot(&image[..AT_CHECKSUM]);
    XxHash3_64::oneshot_with_seed(head, &image[AT_CHECKSUM + 8..])
}
