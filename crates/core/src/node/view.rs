//! A validated node image, and lookups in it.

use super::header::{AT_CHECKSUM, AT_FRONT, Header};
use super::shape::Body;
use super::stream::stamp_of;
use super::{Format, Kind, LINE, Shape, SortedBody, get_u64, slots};
use crate::mutant::{Mutant, planted};
use std::cmp::Ordering;
use twox_hash::XxHash3_64;

/// Why an image cannot be used. Whoever meets one reads again or finds another way; none is an error by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Units of different moments: read it again.
    Torn,
    /// Not a node, or one of another format, tree or level: the pointer was stale.
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
    /// An entry that might be it was torn: read again.
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
    /// Validates an image read without the lane. Consistency, identity and marks are checked before any other field is
    /// used: a stale pointer may lead to anything.
    pub fn open(shape: &'a Shape, image: &'a [u8], level: u8) -> Result<Self, Reject> {
        let header = Self::identify(shape, image, level)?;
        match header.flags {
            // Whatever else is in a node that nobody may use: a maker that died may have left it torn.
            flags if flags.free && !planted(Mutant::FreeIgnored) => Err(Reject::Free),
            flags if flags.pending && !planted(Mutant::PendingIgnored) => Err(Reject::Pending),
            _ => Self::whole(shape, image, header),
        }
    }

    /// Takes up an image that [`Node::open`] has accepted under the same lane, with the header it found.
    pub(crate) fn reopen(shape: &'a Shape, image: &'a [u8], header: Header) -> Self {
        debug_assert!(Self::open(shape, image, header.level).is_ok_and(|node| node.header == header));
        Self { shape, image, header }
    }

    /// Like [`Node::open`], but accepts free and pending nodes: for recovery and verification.
    pub fn open_marked(shape: &'a Shape, image: &'a [u8], level: u8) -> Result<Self, Reject> {
        let header = Self::identify(shape, image, level)?;
        Self::whole(shape, image, header)
    }

    /// The header, if it is of the node asked for.
    #[inline]
    fn identify(shape: &Shape, image: &[u8], level: u8) -> Result<Header, Reject> {
        if image.len() != shape.node_bytes {
            return Err(Reject::NotThis);
        }
        let header = Header::decode(image).ok_or(Reject::NotThis)?;
        // The header line is one unit (F1): what it says of the node's identity is true of one moment, whatever the
        // other lines are. A node of another tree may be laid out otherwise and would look torn for ever.
        if header.format != shape.format.number() || header.tree != shape.tree || header.level != level {
            return Err(Reject::NotThis);
        }
        Ok(header)
    }

    #[inline]
    fn whole(shape: &'a Shape, image: &'a [u8], header: Header) -> Result<Self, Reject> {
        if !is_consistent(shape, image, &header) {
            return Err(Reject::Torn);
        }
        if usize::from(header.count) > shape.capacity {
            return Err(Reject::NotThis);
        }
        Ok(Self { shape, image, header })
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

    /// The low fence, inclusive. All zero bytes is the lowest key of all.
    pub fn low(&self) -> Vec<u8> {
        let mut key = vec![0; self.shape.key_len];
        self.shape.fences.load(self.image, 0, &mut key);
        key
    }

    /// The same into a buffer of the caller's.
    pub fn low_into(&self, key: &mut Vec<u8>) {
        key.resize(self.shape.key_len, 0);
        self.shape.fences.load(self.image, 0, key);
    }

    /// The high fence into a buffer of the caller's, which stays as it is if the fence is open: whether it is not.
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
        debug_assert!(self.shape.kind == Kind::Leaf, "only leaves hold values");
        match self.shape.body {
            Body::Sorted(stream) => {
                match SortedBody::search(stream, self.image, usize::from(self.header.count), self.shape, key) {
                    Ok(index) => Lookup::Found(index),
                    Err(_) => Lookup::Absent,
                }
            }
            _ => slots::find(self.shape, self.image, key),
        }
    }

    /// Appends the value in `slot` to `out`, after clearing it.
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

    /// Every live entry inside the fences, sorted by key. Of a key that appears twice (legal in an unlocked image of an
    /// unsorted leaf) both are given.
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

    /// Whether every entry is whole: lookups by key check only what they meet, a reader of all entries asks this.
    pub fn entries_whole(&self) -> bool {
        match self.shape.body {
            Body::Sorted(_) | Body::Slots { .. } => true,
            _ => (0..self.shape.capacity).all(|slot| slots::is_whole(self.shape, self.image, slot)),
        }
    }
}

/// Whether all units of the image can be of one moment, as far as the format can tell.
fn is_consistent(shape: &Shape, image: &[u8], header: &Header) -> bool {
    match shape.format {
        Format::LineStamped | Format::SortedStamped => {
            let (head, rest) = image.as_chunks().0.split_at(shape.header_lines);
            let age = |line: &[u8; LINE]| header.version.wrapping_sub(stamp_of(line));
            let window = header.version.wrapping_sub(header.floor);
            if planted(Mutant::FrontRearOnly) {
                return age(&head[0]) == 0 && rest.last().is_none_or(|line| age(line) <= window);
            }
            if planted(Mutant::NarrowStamp) {
                let narrow = |line| age(line) & 0x0f;
                return head.iter().all(|line| narrow(line) == 0)
                    && rest.iter().all(|line| narrow(line) <= window & 0x0f);
            }
            head.iter().all(|line| age(line) == 0) && rest.iter().all(|line| age(line) <= window)
        }
        Format::TwoLevel => image[AT_FRONT] & 0x0f == image[shape.node_bytes - 1] & 0x0f,
        Format::Sorted => get_u64(image, AT_CHECKSUM) == checksum(image),
    }
}

/// The checksum of a `Sorted` node: all of it but the checksum itself.
pub(super) fn checksum(image: &[u8]) -> u64 {
    let head = XxHash3_64::oneshot(&image[..AT_CHECKSUM]);
    XxHash3_64::oneshot_with_seed(head, &image[AT_CHECKSUM + 8..])
}
