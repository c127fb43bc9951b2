//! Sizes and offsets of a tree's nodes.

use super::hashed;
use super::header::{AT_CHECKSUM, AT_STAMP, FIXED};
use super::stream::Stream;
use super::{Format, LINE, dense, get_u16};
use sherman_fabric::control::{ChunkClass, TreeSpec};

/// The longest key.
pub const MAX_KEY: usize = 1024;
/// The smallest node.
pub const MIN_NODE: usize = 256;
/// The largest node.
pub const MAX_NODE: usize = 64 * 1024;
/// A node holds at least this many entries, so that a split leaves two useful halves.
pub const MIN_ENTRIES: usize = 4;
/// Bytes of a child pointer.
pub const CHILD: usize = 8;

/// The payload of a line of slots ends here, where the bitmap begins.
pub(super) const AT_BITMAP: usize = 60;
/// The payload of a line of a long entry ends here, where the entry version begins.
pub(super) const AT_ENTRY_VERSION: usize = 58;
/// The most slots per line: the width of the bitmap.
const MAX_PER_LINE: usize = 16;

const _: () = assert!(AT_BITMAP + 2 == AT_STAMP && AT_ENTRY_VERSION + 2 == AT_BITMAP);

/// Leaf or internal node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Level 0: keys and values.
    Leaf,
    /// Levels above: separators and children.
    Internal,
}

/// Where the entries of a node are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Sorted, one after the other in a stream.
    Sorted(Stream),
    /// Unsorted, several per line, with a bitmap in each line.
    Slots { first_line: usize, per_line: usize },
    /// Unsorted, each over several whole lines with an entry version in each.
    LongSlots { first_line: usize, lines_each: usize },
    /// Unsorted, flat, with a 4-bit version at both ends of each.
    Nibbled { start: usize },
}

/// The layout of one kind of node of one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(super) format: Format,
    pub(super) kind: NodeKind,
    pub(super) node_bytes: usize,
    pub(super) key_len: usize,
    pub(super) payload_len: usize,
    pub(super) tree: u32,
    pub(super) fences: Stream,
    /// Lines of the header and of wide fences. 1 in the flat formats.
    pub(super) header_lines: usize,
    pub(super) body: Body,
    /// The most entries of a node with this very layout.
    pub(super) capacity: usize,
    /// Whether this is the layout of dense leaves.
    pub(super) is_dense: bool,
    /// The layout of the tree's dense leaves, if this is that of its wide ones.
    pub(super) dense: Option<Box<Shape>>,
}

sherman_fabric::errors! {
    /// Why no node can have this shape.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ShapeError {
        /// Keys have 1 to 1024 bytes.
        KeyLength {
            /// The requested length.
            asked: usize,
        } => "keys have 1 to {MAX_KEY} bytes, not {asked}",
        /// Node sizes are multiples of 64 from 256 to 65536.
        NodeSize {
            /// The requested size.
            asked: usize,
        } => "node sizes are multiples of {LINE} from {MIN_NODE} to {MAX_NODE} bytes, not {asked}",
        /// The node would hold fewer than four entries.
        TooSmall {
            /// Leaf or internal.
            kind: NodeKind,
            /// Its size.
            node_bytes: usize,
            /// How many entries it would hold.
            entries: usize,
        } => (
            "{} of {node_bytes} bytes would hold {entries} entries, but must hold at least {MIN_ENTRIES}: \
                choose larger nodes, or shorter keys and values",
            if *kind == NodeKind::Leaf { "a leaf" } else { "an internal node" },
        ),
        /// No format has this number.
        UnknownFormat {
            /// The number found.
            number: u8,
        } => "this version does not know node format {number}",
    }
}

impl Shape {
    pub(super) fn new(
        kind: NodeKind,
        format: Format,
        tree: u32,
        node_bytes: usize,
        key_len: usize,
        payload_len: usize,
    ) -> Result<Self, ShapeError> {
        if !(1..=MAX_KEY).contains(&key_len) {
            return Err(ShapeError::KeyLength { asked: key_len });
        }
        if !(MIN_NODE..=MAX_NODE).contains(&node_bytes) || !node_bytes.is_multiple_of(LINE) {
            return Err(ShapeError::NodeSize { asked: node_bytes });
        }
        // Internal nodes and leaves of `LineHashed` trees never share a chunk: a line of an internal node
        // could look like a line of a leaf.
        let format = match format {
            Format::LineHashed if kind == NodeKind::Internal || !hashed::fits(key_len, payload_len) => {
                Format::LineStamped
            }
            format => format,
        };
        let fence_bytes = 2 * key_len;
        let narrow = FIXED + fence_bytes <= AT_STAMP;
        let (fences, header_lines) = match format {
            _ if format.is_lined() && narrow => (Stream::flat(FIXED), 1),
            _ if format.is_lined() => (Stream::lined(1), 1 + fence_bytes.div_ceil(AT_STAMP)),
            Format::Sorted => (Stream::flat(AT_CHECKSUM + 8), 1),
            _ => (Stream::flat(FIXED), 1),
        };
        let entry = key_len + payload_len;
        let (body, capacity) = match format {
            _ if format.is_lined() => {
                let lines = (node_bytes / LINE).saturating_sub(header_lines);
                if kind == NodeKind::Leaf && format == Format::LineHashed {
                    let per_line = hashed::per_line(key_len, payload_len);
                    (Body::Slots { first_line: header_lines, per_line }, lines * per_line)
                } else if kind == NodeKind::Leaf && format == Format::LineStamped {
                    Self::stamped_slots(entry, header_lines, lines)
                } else {
                    (Body::Sorted(Stream::lined(header_lines)), lines * AT_STAMP / entry)
                }
            }
            Format::TwoLevel => {
                let start = FIXED + fence_bytes;
                let room = (node_bytes - 1).saturating_sub(start);
                if kind == NodeKind::Leaf {
                    (Body::Nibbled { start }, room / (entry + 1))
                } else {
                    (Body::Sorted(Stream::flat(start)), room / entry)
                }
            }
            _ => {
                let start = AT_CHECKSUM + 8 + fence_bytes;
                (Body::Sorted(Stream::flat(start)), node_bytes.saturating_sub(start) / entry)
            }
        };
        let capacity = capacity.min(usize::from(u16::MAX));
        if capacity < MIN_ENTRIES {
            return Err(ShapeError::TooSmall { kind, node_bytes, entries: capacity });
        }
        let mut shape = Self {
            format,
            kind,
            node_bytes,
            key_len,
            payload_len,
            tree,
            fences,
            header_lines,
            body,
            capacity,
            is_dense: false,
            dense: None,
        };
        shape.dense = dense::shape_of(&shape).map(Box::new);
        Ok(shape)
    }

    fn stamped_slots(entry: usize, first_line: usize, lines: usize) -> (Body, usize) {
        if entry <= AT_BITMAP {
            let per_line = (AT_BITMAP / entry).min(MAX_PER_LINE);
            (Body::Slots { first_line, per_line }, lines * per_line)
        } else {
            let lines_each = entry.div_ceil(AT_ENTRY_VERSION);
            (Body::LongSlots { first_line, lines_each }, lines / lines_each)
        }
    }

    /// Bytes of a node.
    #[inline]
    pub fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Bytes of a key.
    #[inline]
    pub fn key_len(&self) -> usize {
        self.key_len
    }

    /// Bytes of a value or child.
    pub fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The most entries a node can hold. A wide leaf of a tree that has dense leaves holds fewer:
    /// [`Node::capacity`](super::Node::capacity).
    pub fn capacity(&self) -> usize {
        self.dense.as_ref().map_or(self.capacity, |dense| dense.capacity)
    }

    /// The most entries a leaf can hold if its low fence is `low` and `last` is its highest key, or if it has
    /// no key.
    pub fn capacity_for(&self, low: &[u8], last: Option<&[u8]>) -> usize {
        self.for_keys(low, last).capacity
    }

    /// The layout that a node gets when it is written whole: dense if all its keys are near enough to its low
    /// fence. `last` is its highest key.
    #[inline]
    pub(super) fn for_keys(&self, low: &[u8], last: Option<&[u8]>) -> &Self {
        let low = low.try_into().map_or(0, u64::from_be_bytes);
        let is_near = last.is_none_or(|last| dense::distance(low, last).is_some());
        self.dense.as_deref().filter(|_| is_near).unwrap_or(self)
    }

    /// The layout of a node whose header says whether it is dense. `None` if it cannot be.
    #[inline]
    pub(super) fn packed(&self, is_dense: bool) -> Option<&Self> {
        if is_dense { self.dense.as_deref() } else { Some(self) }
    }

    /// Whether a node keeps its entries in order. Otherwise a scan or a split sorts them.
    pub fn is_sorted(&self) -> bool {
        matches!(self.body, Body::Sorted(_))
    }

    /// The class of the chunks such nodes are cut from.
    pub fn class(&self) -> ChunkClass {
        ChunkClass { node_bytes: self.node_bytes as u32, format: self.format.number() }
    }

    /// Whether this is a leaf that readers and writers can use by the line.
    #[inline]
    pub fn is_hashed(&self) -> bool {
        self.format == Format::LineHashed
    }

    /// The most slots in which a key of a hashed leaf can be.
    pub fn window_slots(&self) -> usize {
        hashed::window_slots(self)
    }

    #[inline]
    pub(super) fn lines(&self) -> usize {
        self.node_bytes / LINE
    }

    /// Bytes of an entry outside the node: key and payload.
    #[inline]
    pub(super) fn entry_len(&self) -> usize {
        self.key_len + self.payload_len
    }

    /// Bytes of an entry in a slot of a line.
    #[inline]
    pub(super) fn slot_len(&self) -> usize {
        if self.is_dense { dense::DISTANCE + self.payload_len } else { self.entry_len() }
    }

    /// The bits of the live entries of a line of slots, from bit 0 on. Higher bits have other meanings.
    #[inline]
    pub(super) fn live(&self, line: &[u8]) -> u16 {
        get_u16(line, AT_BITMAP) >> self.live_shift()
    }

    /// The bit that says whether slot `index` of a line is live.
    #[inline]
    pub(super) fn live_bit(&self, index: usize) -> u16 {
        1 << (index as u32 + self.live_shift())
    }

    #[inline]
    fn live_shift(&self) -> u32 {
        if self.is_dense { dense::LIVE_SHIFT } else { 0 }
    }
}

/// Both kinds of nodes of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeShape {
    /// Leaves.
    pub leaf: Shape,
    /// Internal nodes.
    pub internal: Shape,
}

impl TreeShape {
    /// Creates the shapes of a tree with this spec and id, or returns why they cannot exist.
    pub fn new(spec: &TreeSpec, tree: u32) -> Result<Self, ShapeError> {
        let format =
            Format::from_number(spec.format).ok_or(ShapeError::UnknownFormat { number: spec.format })?;
        let (key_len, value_len) = (usize::from(spec.key_len), spec.slot_len() as usize);
        let leaf = Shape::new(NodeKind::Leaf, format, tree, spec.leaf_bytes as usize, key_len, value_len)?;
        let internal =
            Shape::new(NodeKind::Internal, format, tree, spec.internal_bytes as usize, key_len, CHILD)?;
        Ok(Self { leaf, internal })
    }

    /// The shape of nodes at `level`.
    pub fn at(&self, level: u8) -> &Shape {
        if level == 0 { &self.leaf } else { &self.internal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(format: Format, key: u16, value: u32, bytes: u32) -> TreeSpec {
        TreeSpec {
            format: format.number(),
            key_len: key,
            value_len: value,
            leaf_bytes: bytes,
            internal_bytes: bytes,
        }
    }

    #[test]
    fn a_kibibyte_holds_what_the_layout_says() {
        for (format, leaf, internal) in [
            (Format::LineStamped, 45, 58),
            (Format::TwoLevel, 57, 61),
            (Format::Sorted, 61, 61),
            (Format::SortedStamped, 58, 58),
            (Format::LineHashed, 60, 58),
        ] {
            let shape = TreeShape::new(&spec(format, 8, 8, 1024), 1).expect("a legal shape");
            assert_eq!((shape.leaf.capacity(), shape.internal.capacity()), (leaf, internal), "{format:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_node_is_refused_with_its_reason() {
        let shape = |key, value, bytes| TreeShape::new(&spec(Format::LineStamped, key, value, bytes), 1);
        assert_eq!(shape(0, 8, 1024), Err(ShapeError::KeyLength { asked: 0 }));
        assert_eq!(shape(1025, 8, 65536), Err(ShapeError::KeyLength { asked: 1025 }));
        assert_eq!(shape(8, 8, 192), Err(ShapeError::NodeSize { asked: 192 }));
        assert_eq!(shape(8, 8, 1000), Err(ShapeError::NodeSize { asked: 1000 }));
        assert_eq!(shape(8, 8, 65536 + 64), Err(ShapeError::NodeSize { asked: 65600 }));
        assert_eq!(
            shape(8, 300, 1024),
            Err(ShapeError::TooSmall { kind: NodeKind::Leaf, node_bytes: 1024, entries: 2 })
        );
        assert!(shape(1024, 8, 65536).is_ok());
        let unknown = TreeSpec { format: 9, ..spec(Format::Sorted, 8, 8, 1024) };
        assert_eq!(TreeShape::new(&unknown, 1), Err(ShapeError::UnknownFormat { number: 9 }));
    }

    #[test]
    fn a_256_byte_node_of_8_byte_pairs_holds_at_least_four_entries_in_every_format() {
        for format in Format::ALL {
            let shape = TreeShape::new(&spec(format, 8, 8, 256), 1).expect("a legal shape");
            assert!(shape.leaf.capacity() >= 4 && shape.leaf.capacity() <= 14, "{format:?}");
        }
    }

    #[test]
    fn leaves_are_dense_where_that_makes_room_and_their_keys_are_near() {
        let leaf = |key, value, bytes| {
            TreeShape::new(&spec(Format::LineHashed, key, value, bytes), 1).expect("a legal shape").leaf
        };
        for (key, value, bytes, wide, most) in [
            (8, 8, 1024, 45, 60),
            (8, 5, 1024, 45, 60),
            (8, 4, 1024, 60, 60),
            (8, 9, 1024, 30, 30),
            (7, 8, 1024, 45, 45),
            (8, 8, 320, 12, 16),
            (8, 8, 256, 9, 9),
        ] {
            let shape = leaf(key, value, bytes);
            assert_eq!((shape.capacity, shape.capacity()), (wide, most), "{key} {value} {bytes}");
        }
        let shape = leaf(8, 8, 1024);
        let low = 1000_u64;
        let of = |last: u64| shape.capacity_for(&low.to_be_bytes(), Some(&last.to_be_bytes()));
        let farthest = low + (1 << 48) - 2;
        assert_eq!([of(low), of(farthest), of(farthest + 1), of(u64::MAX)], [60, 60, 45, 45]);
        assert_eq!(shape.capacity_for(&low.to_be_bytes(), None), 60);
    }
}
