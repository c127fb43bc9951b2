//! Tests of what the node formats promise (`docs/LAYOUT.md`).
//!
//! | module | claims about |
//! |---|---|
//! | [`model`] | contents: upserts and splits against a `BTreeMap`, for every format and many sizes |
//! | [`whole`] | removes, merges, emptied and filled nodes, scans: against a `BTreeMap` |
//! | [`patches`] | a patch has all bytes it needs, few others, and is safe to cut anywhere |
//! | [`torn`] | what a reader may conclude from units of different moments |
//! | [`window`] | the lines of one key against whole leaves and a `BTreeMap` |
//! | [`serial`] | versions that wrap, and the window of legal stamps |
//! | [`garbage`] | bytes that are not a node |
//! | [`golden`] | the exact bytes, as they lie in memory |
//! | [`tables`] | the figures in `docs/LAYOUT.md` |

#![allow(clippy::single_range_in_vec_init, reason = "the steps of a patch are ranges")]

mod garbage;
mod golden;
mod model;
mod patches;
mod serial;
mod tables;
mod torn;
mod whole;
mod window;

use super::draft::{NodePlace, Upsert};
use super::hashed::Layout;
use super::{Draft, Format, Node, Patch, Shape, ShapeError, TreeShape};
use crate::testing::runs_in_full;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{ComputeId, GlobalAddress};

/// A key and its value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// The tree every test node belongs to.
pub(super) const TREE: u32 = 7;

/// The shapes of a test tree.
pub(super) fn tree_shape(
    format: Format,
    key: usize,
    value: usize,
    bytes: usize,
) -> Result<TreeShape, ShapeError> {
    let spec = TreeSpec {
        format: format.number(),
        key_len: key as u16,
        value_len: value as u32,
        leaf_bytes: bytes as u32,
        internal_bytes: bytes as u32,
    };
    TreeShape::new(&spec, TREE)
}

/// A leaf's shape, which must exist.
pub(super) fn leaf_shape(format: Format, key: usize, value: usize, bytes: usize) -> Shape {
    Shape::new(super::NodeKind::Leaf, format, TREE, bytes, key, value).expect("a legal leaf")
}

/// An internal node's shape, which must exist.
pub(super) fn internal_shape(format: Format, key: usize, bytes: usize) -> Shape {
    Shape::new(super::NodeKind::Internal, format, TREE, bytes, key, super::shape::CHILD)
        .expect("a legal internal node")
}

/// A place for a new node.
pub(super) fn place(version: u16) -> NodePlace {
    NodePlace { address: GlobalAddress::new(3, 0x5000), version, owner: ComputeId(9), used: true }
}

/// An empty, linked node over all keys.
pub(super) fn whole_range(shape: &Shape, level: u8, version: u16) -> Draft<'_> {
    let mut draft =
        Draft::new(shape, level, &vec![0; shape.key_len], None, GlobalAddress::NULL, place(version));
    draft.link();
    draft
}

/// Stores a pair for which there must be room, and returns the patch.
pub(super) fn put(draft: &mut Draft<'_>, key: &[u8], value: &[u8]) -> Patch {
    match draft.upsert(key, value, &mut Vec::new()) {
        Upsert::Updated(patch) | Upsert::Inserted(patch) => patch,
        Upsert::Full | Upsert::Torn => panic!("no room"),
    }
}

/// Stores a pair if there is room. Only a hashed leaf may refuse a pair before it holds its capacity.
pub(super) fn put_if_room(draft: &mut Draft<'_>, key: &[u8], value: &[u8]) -> bool {
    match draft.upsert(key, value, &mut Vec::new()) {
        Upsert::Updated(_) | Upsert::Inserted(_) => true,
        Upsert::Full => {
            assert!(draft.shape.is_hashed() || draft.node().len() == draft.shape.capacity, "full means full");
            false
        }
        Upsert::Torn => panic!("nobody tore it"),
    }
}

/// Whether one leaf from `low` on has room for `entries`. In a hashed leaf, each must have a slot in the
/// lines of its key.
pub(super) fn fits(shape: &Shape, low: &[u8], entries: &[u8]) -> bool {
    let all = entries.len() / shape.entry_len();
    all <= shape.capacity() && (!shape.is_hashed() || Layout::default().most(shape, low, entries) == all)
}

/// Brings a random key of a leaf with 7-byte values near to the lowest key, so that tests have dense leaves.
pub(super) fn near(shape: &Shape, mut key: Vec<u8>) -> Vec<u8> {
    if shape.payload_len == 7 && shape.key_len == 8 {
        key[..2].fill(0);
    }
    key
}

/// The draft's image as a reader sees it, with any marks.
pub(super) fn seen<'a>(shape: &'a Shape, draft: &'a Draft<'_>) -> Node<'a> {
    Node::open_marked(shape, draft.image(), draft.header().level).expect("a draft is always a valid node")
}

/// Numbers that are the same on every run (splitmix64).
pub(super) struct Numbers(pub u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// Returns one of a few hundred keys, so that updates happen. They include the lowest key, the highest,
    /// keys that differ only at the end (as numbers do), and keys that differ in the first bytes.
    pub(super) fn key(&mut self, len: usize) -> Vec<u8> {
        let mut key = match self.below(16) {
            0 => return vec![0; len],
            1 => return vec![0xff; len],
            2..=8 => vec![0; len],
            _ => vec![0xa5; len],
        };
        let at = if self.below(2) == 0 { 0 } else { len - 1 };
        key[at] = self.below(256) as u8;
        let at = self.below(len);
        key[at] ^= self.below(3) as u8;
        key
    }
}
