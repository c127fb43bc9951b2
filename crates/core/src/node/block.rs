//! Blocks: values that do not fit into the slot of their entry, each at a place of its own (`docs/LAYOUT.md`,
//! "Blocks").
//!
//! In a tree whose values have any length the value of a leaf's entry is a **slot** of fixed size. It holds a
//! short value, or a **reference** to a block:
//!
//! ```text
//!  slot        length of the value (1 byte; 2 bytes if the slot has more than 255), the value, zeros
//!  reference   all ones instead of the length, then
//!              u64 address · u24 length · u16 version · u16 the low bits of the checksum
//!
//!  block   0   the header line of every node, with format 6; the count is the length of the key
//!         24   u32 length of the value
//!         32   u64 checksum of key and value, seeded with tree and version
//!         64   the key, then the value
//! ```
//! The content of a block never changes while an entry refers to it. Only its header line does: the maker
//! clears the pending mark. A reader that finds another block, or a part of one, has read an entry that was
//! replaced meanwhile: tree, version, lengths, key and checksum tell (I59).

use super::header::{AT_COUNT, FIXED, Flags, Header};
use super::{LINE, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ComputeId, GlobalAddress};
use sherman_layout::geometry::{BLOCK_BYTES_MAX, NODE_BYTES_MIN};
use twox_hash::XxHash3_64;

/// Bytes of a reference.
const REFERENCE: usize = 15;
/// The fewest bytes of a slot.
pub const MIN_SLOT: usize = 1 + REFERENCE;
/// The longest slot whose length takes one byte.
const MOST_SHORT: usize = 255;
/// The longest value that the three bytes of a reference can tell.
const MOST_LEN: usize = (1 << 24) - 1;

const AT_LEN: usize = FIXED;
const AT_SUM: usize = 32;

/// What an entry's slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot<'a> {
    /// The value.
    Short(&'a [u8]),
    /// Where the value is.
    Long(BlockRef),
}

/// A reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockRef {
    pub address: GlobalAddress,
    /// Bytes of the value.
    pub len: u32,
    /// The version of the block.
    pub version: u16,
    /// The low bits of its checksum.
    pub check: u16,
}

/// Bytes before the value of a slot.
fn prefix(slot_len: usize) -> usize {
    if slot_len <= MOST_SHORT { 1 } else { 2 }
}

/// The longest value that a slot of `slot_len` bytes holds itself.
pub fn longest_short(slot_len: usize) -> usize {
    slot_len.saturating_sub(prefix(slot_len))
}

/// Writes a short value into a slot of `slot_len` bytes.
pub(crate) fn short_slot(slot_len: usize, value: &[u8], slot: &mut Vec<u8>) {
    slot.clear();
    slot.extend_from_slice(&(value.len() as u16).to_le_bytes()[..prefix(slot_len)]);
    slot.extend_from_slice(value);
    slot.resize(slot_len, 0);
}

/// What a slot holds; `None` if no writer leaves such bytes.
pub(crate) fn read_slot(slot: &[u8]) -> Option<Slot<'_>> {
    let (head, rest) = slot.split_at_checked(prefix(slot.len()))?;
    if head.iter().any(|&byte| byte != 0xff) {
        let len = head.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
        return rest.get(..len).map(Slot::Short);
    }
    let rest = rest.get(..REFERENCE)?;
    let len = u32::from(rest[8]) | u32::from(rest[9]) << 8 | u32::from(rest[10]) << 16;
    let address = GlobalAddress::from_bits(get_u64(rest, 0));
    Some(Slot::Long(BlockRef { address, len, version: get_u16(rest, 11), check: get_u16(rest, 13) }))
}

impl BlockRef {
    /// Writes the reference into a slot of `slot_len` bytes.
    pub(crate) fn slot(&self, slot_len: usize, slot: &mut Vec<u8>) {
        slot.clear();
        slot.resize(prefix(slot_len), 0xff);
        slot.extend_from_slice(&self.address.to_bits().to_le_bytes());
        slot.extend_from_slice(&self.len.to_le_bytes()[..3]);
        slot.extend_from_slice(&self.version.to_le_bytes());
        slot.extend_from_slice(&self.check.to_le_bytes());
        slot.resize(slot_len, 0);
    }

    /// Bytes of the block that hold something, for a key of `key_len` bytes: whole lines.
    pub(crate) fn bytes(&self, key_len: usize) -> usize {
        used_bytes(key_len, self.len as usize)
    }

    /// The class of the block's place; `None` if there is none for this length.
    pub(crate) fn class(&self, key_len: usize) -> Option<ChunkClass> {
        class_for(key_len, self.len as usize)
    }

    /// The header line that marks the block free.
    pub(crate) fn free_line(&self, tree: u32, owner: ComputeId) -> [u8; LINE] {
        let mut line = [0; LINE];
        header(tree, self.version, owner, Flags { free: true, ..Flags::default() }).encode(&mut line);
        line
    }

    /// The value in the image of the block, if this is the block of `key` that the reference names.
    pub(crate) fn value<'i>(&self, tree: u32, key: &[u8], image: &'i [u8]) -> Option<&'i [u8]> {
        seam!(node::block_value(self, key, image));
        let block = Block::open(image)?;
        let same = (block.header.tree, block.header.version) == (tree, self.version)
            && block.value.len() == self.len as usize
            && block.key == key
            && block.sum as u16 == self.check
            && block.is_whole();
        same.then_some(block.value)
    }
}

/// A decoded image of a block. Its content may be torn: [`Block::is_whole`] tells.
pub(crate) struct Block<'i> {
    pub header: Header,
    pub key: &'i [u8],
    pub value: &'i [u8],
    content: &'i [u8],
    sum: u64,
}

impl<'i> Block<'i> {
    /// Decodes the image of a block that is not free.
    pub(crate) fn open(image: &'i [u8]) -> Option<Self> {
        let header = Header::decode(image).filter(|header| header.format == ChunkClass::BLOCK)?;
        let (key_len, len) = (usize::from(header.count), get_u32(image, AT_LEN) as usize);
        let content = image.get(LINE..)?.get(..key_len + len)?;
        let (key, value) = content.split_at(key_len);
        (!header.flags.free).then_some(Self { header, key, value, content, sum: get_u64(image, AT_SUM) })
    }

    /// Whether the content is that of the header line.
    pub(crate) fn is_whole(&self) -> bool {
        self.sum == checksum(self.header.tree, self.header.version, self.content)
    }
}

/// Decodes the header line of a block, and its key, from the first bytes of its place.
pub(crate) fn name(image: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::decode(image).filter(|header| header.format == ChunkClass::BLOCK)?;
    Some((header, image.get(LINE..LINE + usize::from(header.count))?))
}

fn header(tree: u32, version: u16, owner: ComputeId, flags: Flags) -> Header {
    Header {
        format: ChunkClass::BLOCK,
        level: 0,
        flags,
        owner,
        count: 0,
        tree,
        version,
        floor: 0,
        sibling: GlobalAddress::NULL,
    }
}

/// `content` is the key, then the value.
fn checksum(tree: u32, version: u16, content: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(tree) | u64::from(version) << 32, content)
}

fn used_bytes(key_len: usize, len: usize) -> usize {
    (LINE + key_len + len).next_multiple_of(LINE)
}

/// The class of the places for values of `len` bytes: the smallest block that holds one. There are two sizes
/// for each power of two. `None` if there is no such block.
pub(crate) fn class_for(key_len: usize, len: usize) -> Option<ChunkClass> {
    let bytes = used_bytes(key_len, len);
    let mut size = NODE_BYTES_MIN as usize;
    while size <= BLOCK_BYTES_MAX as usize && len <= MOST_LEN {
        for fits in [size, size / 2 * 3] {
            if bytes <= fits && fits <= BLOCK_BYTES_MAX as usize {
                return Some(ChunkClass { node_bytes: fits as u32, format: ChunkClass::BLOCK });
            }
        }
        size *= 2;
    }
    None
}

/// The longest value for which there is a block in a chunk of `chunk_bytes`.
pub fn longest_value(key_len: usize, chunk_bytes: u64) -> usize {
    let mut most = 0;
    let mut size = u64::from(NODE_BYTES_MIN);
    while size <= u64::from(BLOCK_BYTES_MAX) {
        for fits in [size, size / 2 * 3] {
            if fits <= chunk_bytes && fits <= u64::from(BLOCK_BYTES_MAX) {
                most = fits;
            }
        }
        size *= 2;
    }
    (most as usize).saturating_sub(LINE + key_len)
}

/// Writes the image of a pending block into `image`, and returns the reference to it.
pub(crate) fn pending_block(
    (tree, owner): (u32, ComputeId),
    (address, version): (GlobalAddress, u16),
    key: &[u8],
    value: &[u8],
    image: &mut Vec<u8>,
) -> BlockRef {
    image.clear();
    image.resize(LINE, 0);
    header(tree, version, owner, Flags { pending: true, ..Flags::default() }).encode(image);
    put_u16(image, AT_COUNT, key.len() as u16);
    put_u32(image, AT_LEN, value.len() as u32);
    image.extend_from_slice(key);
    image.extend_from_slice(value);
    let sum = checksum(tree, version, &image[LINE..]);
    put_u64(image, AT_SUM, sum);
    image.resize(image.len().next_multiple_of(LINE), 0);
    BlockRef { address, len: value.len() as u32, version, check: sum as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_a_short_value_or_a_reference() {
        for slot_len in [16, 52, 255, 256, 900] {
            let mut slot = Vec::new();
            for len in [0, 1, longest_short(slot_len) - 1, longest_short(slot_len)] {
                let value: Vec<u8> = (0..len).map(|at| at as u8 | 0x80).collect();
                short_slot(slot_len, &value, &mut slot);
                assert_eq!((slot.len(), read_slot(&slot)), (slot_len, Some(Slot::Short(&value[..]))));
            }
            let address = GlobalAddress::new(0xfffe, (1 << 48) - 64);
            let reference = BlockRef { address, len: 0x00ab_cdef, version: 0xfffe, check: 0x1234 };
            reference.slot(slot_len, &mut slot);
            assert_eq!((slot.len(), read_slot(&slot)), (slot_len, Some(Slot::Long(reference))));
        }
        for nonsense in [&[][..], &[16; 16], &[0xff; 3]] {
            assert_eq!(read_slot(nonsense), None);
        }
    }

    #[test]
    fn a_block_is_the_one_of_its_reference_or_none() {
        let (tree, key, value) = (7, b"a key of a tree", vec![0x5a; 300]);
        let at = (GlobalAddress::new(2, 4096), 9);
        let mut image = Vec::new();
        let reference = pending_block((tree, ComputeId(3)), at, key, &value, &mut image);
        assert_eq!((image.len(), reference.bytes(key.len())), (384, 384));
        assert_eq!(reference.value(tree, key, &image), Some(&value[..]));
        assert_eq!(name(&image).map(|(header, key)| (header.owner, key)), Some((ComputeId(3), &key[..])));
        assert_eq!(reference.value(tree + 1, key, &image), None);
        assert_eq!(reference.value(tree, b"a key of b tree", &image), None);
        for other in [
            BlockRef { len: 299, ..reference },
            BlockRef { version: 10, ..reference },
            BlockRef { check: !reference.check, ..reference },
        ] {
            assert_eq!(other.value(tree, key, &image), None);
        }
        // Any line of another moment, and any cut, shows.
        for line in 0..image.len() / LINE {
            let mut torn = image.clone();
            torn[line * LINE..(line + 1) * LINE].fill(0x33);
            assert_eq!(reference.value(tree, key, &torn), None, "line {line}");
            assert_eq!(reference.value(tree, key, &image[..line * LINE]), None);
        }
        image[..LINE].copy_from_slice(&reference.free_line(tree, ComputeId(4)));
        assert_eq!(reference.value(tree, key, &image), None);
        assert!(Header::decode(&image).is_some_and(|it| it.flags.free && it.version == 9 && it.tree == tree));
    }

    #[test]
    fn the_sizes_of_blocks_waste_at_most_a_third_and_fit_a_chunk() {
        let bytes = |len| class_for(8, len).map(|class| class.node_bytes);
        assert_eq!(
            [bytes(0), bytes(184), bytes(185), bytes(313)],
            [Some(256), Some(256), Some(384), Some(512)]
        );
        assert_eq!([bytes((2 << 20) - 72), bytes((2 << 20) - 71)], [Some(2 << 20), None]);
        for len in (200..2_000_000).step_by(997) {
            let (used, class) = (used_bytes(8, len), bytes(len).expect("a class") as usize);
            assert!(used <= class && class <= used * 3 / 2 + LINE, "{len}");
        }
        assert_eq!(longest_value(8, 8 << 20), (2 << 20) - 72);
        assert_eq!(longest_value(8, 4096), 4096 - 72);
        assert_eq!(class_for(8, longest_value(8, 4096)).map(|class| class.node_bytes), Some(4096));
    }
}
