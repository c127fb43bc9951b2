//! Node formats: pure codecs over bytes (paper §4.4, `docs/LAYOUT.md`).
//!
//! A node is an image of [`Shape::node_bytes`] bytes. A reader fetches it with one READ and may get any
//! mixture of the states that its 64-byte units went through meanwhile (F1, F2). [`Node::open`] decides
//! whether the reader can use the result. A writer holds the node's lane, turns the image into a [`Draft`]
//! and changes it. The returned [`Patch`] tells which byte ranges to WRITE, in which order, and whether a
//! redo record must come first.
//!
//! | module | what |
//! |---|---|
//! | [`shape`] | sizes and offsets of a tree's nodes; what is too small to be one |
//! | [`header`] | the first line: marks, level, version, sibling |
//! | [`stream`] | byte strings laid across stamped lines, or flat |
//! | [`view`] | [`Node`]: a validated image; fences; lookups |
//! | [`slots`] | unsorted leaves: `LineStamped` slots and `TwoLevel` nibbled entries |
//! | [`hashed`] | `LineHashed` leaves: the lines of a key, what each line shows, where entries go |
//! | `dense` | the lines of leaves whose keys are near to their low fence |
//! | [`window`] | [`Window`]: the lines of one key, validated without the rest of the leaf |
//! | [`order`] | the entries of an unsorted leaf in the order of their keys |
//! | [`collect`] | reading all of a node, or a range of it |
//! | [`sorted`] | sorted bodies: internal nodes, and the leaves of `Sorted` |
//! | [`draft`] | [`Draft`]: an image being changed under its lane; splits, merges |
//! | [`entry`] | one entry written without a draft: what most puts are |
//! | [`patch`] | [`Patch`]: what to WRITE |
//! | [`block`] | long values, and the slots that refer to them |
//! | `mark` | changing the marks of a node of unknown shape |

pub mod block;
pub mod collect;
mod counting_sort;
mod dense;
pub mod draft;
pub mod entry;
pub mod hashed;
pub mod header;
pub(crate) mod mark;
pub mod order;
pub mod patch;
#[cfg(feature = "mutants")]
pub(crate) mod seam;
pub mod shape;
pub mod slots;
pub mod sorted;
pub mod stream;
pub mod view;
pub mod window;

#[cfg(test)]
mod tests;

pub use draft::{Draft, Removed, SplitOff};
pub use header::{Flags, Header};
pub use order::Scratch;
pub use patch::Patch;
pub use shape::{NodeKind, Shape, ShapeError, TreeShape};
pub use sorted::SortedBody;
pub use view::{Lookup, Node, Position, Reject};
pub use window::Window;

sherman_fabric::named! {
    /// How a tree's nodes are laid out, and how a reader recognises a torn image. Chosen per tree, fixed in
    /// the catalog.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Format {
        /// The default: every 64-byte line carries a 16-bit stamp; an entry write is one WRITE inside one
        /// line.
        LineStamped = 1 => "line-stamped",
        /// The paper's format: 4-bit front and rear versions around the node and around each entry. Safe only
        /// where a whole verb is atomic (`caps.verb_atomic`): under F1 and F2 a reader can accept front old,
        /// middle new, rear old.
        TwoLevel = 2 => "two-level",
        /// FG's format: sorted leaves, the whole node written back, a checksum over it.
        Sorted = 3 => "sorted",
        /// FG's leaf with a stamp in every line instead of the checksum.
        SortedStamped = 4 => "sorted-stamped",
        /// `LineStamped` with leaves that a reader can use by the line: a key lies in a few neighbouring
        /// lines that follow from its hash, and each line shows to which leaf it belongs. Trees whose entries
        /// are too long for that have `LineStamped` leaves; all have `LineStamped` internal nodes.
        LineHashed = 5 => "line-hashed",
    }
}

impl Format {
    /// The number stored in nodes and in the catalog.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The format with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.number() == number)
    }

    /// Whether lines carry stamps.
    pub(crate) const fn is_lined(self) -> bool {
        matches!(self, Self::LineStamped | Self::SortedStamped | Self::LineHashed)
    }

    /// Whether a reader is safe under F1 and F2 alone.
    pub const fn safe_when_reads_tear(self) -> bool {
        !matches!(self, Self::TwoLevel)
    }
}

/// Bytes of a line: F1's unit of atomicity, and the granularity of stamps.
pub const LINE: usize = 64;

#[inline]
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[inline]
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[inline]
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
