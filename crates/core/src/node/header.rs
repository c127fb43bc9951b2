//! The header: the first 64 bytes of every node, with the same layout in all formats.
//!
//! ```text
//!  0  u8   high nibble 0xA: this is a node; low nibble: front node version (TwoLevel), else 0
//!  1  u8   format number
//!  2  u8   level, leaves are 0
//!  3  u8   flags: 1 free, 2 pending, 4 high fence open, 8 dense
//!  4  u16  owner: the client that set the free or pending mark
//!  6  u16  count of a sorted body's entries; 0 in unsorted leaves
//!  8  u32  tree id
//! 12  u16  version
//! 14  u16  floor (lined formats)
//! 16  u64  sibling, a global address, 0 for none
//! 24  u64  checksum (Sorted), else the fences begin here if they fit
//! 62  u16  stamp (lined formats): equals version
//! ```
//! The header line is one unit (F1), so a reader sees all of it from one moment.

use super::{LINE, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use sherman_fabric::{ComputeId, GlobalAddress};

pub(super) const MARK: u8 = 0xA0;
pub(super) const AT_FRONT: usize = 0;
pub(super) const AT_FORMAT: usize = 1;
pub(super) const AT_LEVEL: usize = 2;
pub(super) const AT_FLAGS: usize = 3;
pub(super) const AT_OWNER: usize = 4;
pub(super) const AT_COUNT: usize = 6;
pub(super) const AT_TREE: usize = 8;
pub(super) const AT_VERSION: usize = 12;
pub(super) const AT_FLOOR: usize = 14;
pub(super) const AT_SIBLING: usize = 16;
/// End of the part that all formats share.
pub(super) const FIXED: usize = 24;
pub(super) const AT_CHECKSUM: usize = FIXED;
/// Offset of the stamp in a line.
pub(super) const AT_STAMP: usize = 62;

const _: () = assert!(AT_SIBLING + 8 == FIXED && AT_STAMP + 2 == LINE);

/// The marks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The node belongs to no tree any more.
    pub free: bool,
    /// The node is written but not yet linked: only the client that set the mark, or its recoverer, uses it.
    pub pending: bool,
    /// No upper bound: the rightmost node of its level.
    pub high_open: bool,
    /// A leaf of `LineHashed` with dense lines.
    pub dense: bool,
}

impl Flags {
    fn to_byte(self) -> u8 {
        u8::from(self.free)
            | u8::from(self.pending) << 1
            | u8::from(self.high_open) << 2
            | u8::from(self.dense) << 3
    }

    fn from_byte(byte: u8) -> Self {
        Self { free: byte & 1 != 0, pending: byte & 2 != 0, high_open: byte & 4 != 0, dense: byte & 8 != 0 }
    }
}

/// The decoded fixed part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format's number.
    pub format: u8,
    /// Height above the leaves.
    pub level: u8,
    /// Marks.
    pub flags: Flags,
    /// The client that set the free or pending mark.
    pub owner: ComputeId,
    /// Entries of a sorted body.
    pub count: u16,
    /// The tree it belongs to.
    pub tree: u32,
    /// Grows with every node-level change.
    pub version: u16,
    /// No line of this node is older than this (lined formats).
    pub floor: u16,
    /// The right neighbour.
    pub sibling: GlobalAddress,
}

impl Header {
    /// Reads the fixed part; `None` if this is not a node at all.
    pub fn decode(image: &[u8]) -> Option<Self> {
        if image.len() < LINE || image[AT_FRONT] & 0xf0 != MARK {
            return None;
        }
        Some(Self {
            format: image[AT_FORMAT],
            level: image[AT_LEVEL],
            flags: Flags::from_byte(image[AT_FLAGS]),
            owner: ComputeId(get_u16(image, AT_OWNER)),
            count: get_u16(image, AT_COUNT),
            tree: get_u32(image, AT_TREE),
            version: get_u16(image, AT_VERSION),
            floor: get_u16(image, AT_FLOOR),
            sibling: GlobalAddress::from_bits(get_u64(image, AT_SIBLING)),
        })
    }

    /// Writes the fixed part. `Draft::seal` writes the front nibble, stamps and checksum.
    pub(super) fn encode(&self, image: &mut [u8]) {
        image[AT_FRONT] = MARK | (image[AT_FRONT] & 0x0f);
        image[AT_FORMAT] = self.format;
        image[AT_LEVEL] = self.level;
        image[AT_FLAGS] = self.flags.to_byte();
        put_u16(image, AT_OWNER, self.owner.0);
        put_u16(image, AT_COUNT, self.count);
        put_u32(image, AT_TREE, self.tree);
        put_u16(image, AT_VERSION, self.version);
        put_u16(image, AT_FLOOR, self.floor);
        put_u64(image, AT_SIBLING, self.sibling.to_bits());
    }
}
