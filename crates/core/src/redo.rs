//! Redo records: they let another client finish or undo a change whose maker died (I24–I26 of
//! `docs/INVARIANTS.md`).
//!
//! A change whose commit is one unit needs no record. Every other change puts a checksummed record first in
//! the *same list*, `[record, data, record cleared, release]`: no extra round trip. By F3 a torn or missing
//! record means that no data was written. A cleared record means that all data was written.
//!
//! ```text
//!  0  u32  magic "RDO2"; cleared to 0 together with the next 4 bytes
//!  4  u16  owner
//!  6  u8   kind: 1 image, 2 split, 3 grow, 4 merge, 5 replace, 6 load, 7 drop, 8 block
//!  7  u8   number of pieces
//!  8  u64  checksum of bytes 16..len
//! 16  u32  len of the whole record
//! 20  u32  tree id
//! 24  u64  node that is changed; the block that is freed (block)
//! 32  u64  node that is made (split, grow) or freed (merge), else 0
//! 40  u16  version of the node after the change
//! 42  u16  version of the made or freed node
//! 44  u8   level of the node
//! 48  u64  root word before (grow, replace, load, drop); the parent (merge)
//! 56  u64  root word after (grow, replace, load); the parent's version after (merge)
//! 64  u16  key bytes of the tree
//! 66  u8   format of the tree
//! 68  u32  value bytes
//! 72  u32  leaf bytes
//! 76  u32  internal node bytes
//! 80  pieces: u32 offset in the node, u32 length, the bytes, padded to 8
//! ```

use crate::cause::Cause;
use crate::error::Error;
use crate::node::{Patch, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::op::Op;
use sherman_fabric::control::{TreeInfo, TreeSpec};
use sherman_fabric::{ComputeId, Endpoint, GlobalAddress, Space, WorkList};
use std::sync::{Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_64;

const MAGIC: u32 = u32::from_le_bytes(*b"RDO2");
const HEADER: usize = 80;
/// The most pieces of a record.
const MOST_PIECES: u8 = 8;
/// The bytes that clear a record: they overwrite its magic, owner, kind and number of pieces, one word.
pub(crate) const CLEARED: [u8; 8] = [0; 8];

/// The kind of change that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A replay of the pieces makes the node whole again.
    Image = 1,
    /// `made` is the node's new right sibling. With pieces: roll forward if `made` is whole. Without pieces:
    /// the split has *not* happened iff the node still has the version before [`Record::version`]. In that
    /// case its maker's lane protects the node, so no other client can have changed it. Otherwise the
    /// recoverer must link `made` if it is still pending. The node's sibling proves nothing: once the lane is
    /// free, other clients may split the node again.
    Split = 2,
    /// `made` is a new root, or the first leaf of a new tree. The change happened iff the root word shows
    /// `made`, or `made` is linked already. Otherwise `made` is free.
    Grow = 3,
    /// `node` takes over the entries of its right neighbour `made`, which is then free. Their parent removes
    /// the neighbour's separator. Recovery always rolls forward: the pieces make the node whole, the parent
    /// (if it still has the version before) loses the separator, and the neighbour gets its free mark.
    Merge = 4,
    /// The only child of the root `node` replaces it. The change happened iff the root word shows the word
    /// after, which is the child's. Both lanes are held until the record is cleared. Then the node is free.
    Replace = 5,
    /// A loaded tree replaces the root `node`, an empty leaf. All nodes of the loaded tree are pending until
    /// after that.
    ///
    /// The change happened iff the root word no longer shows the word before. It did show that word, under
    /// the leaf's lane, when the record was written. If the change happened, the leaf is free, and the
    /// recoverer must link everything that the tree leads to. Pending nodes of the dead client that no such
    /// record accounts for are free.
    Load = 6,
    /// The tree is dropped. The change happened iff the catalog no longer lists the tree. Then all its nodes
    /// are free.
    Drop = 7,
    /// The entry that refers to the block `node` is replaced or removed. The change happened iff the entry of
    /// the block's key does not refer to this version of the block. Then the block is free.
    Block = 8,
}

/// A redo record, decoded or to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The client that wrote it.
    pub owner: ComputeId,
    /// The kind of change.
    pub kind: RecordKind,
    /// The tree.
    pub tree: u32,
    /// The tree's shape, because the recoverer may no longer find the tree in the catalog.
    pub spec: TreeSpec,
    /// The node that is changed.
    pub node: GlobalAddress,
    /// The new node, or the node that a merge frees.
    pub made: GlobalAddress,
    /// The changed node's version after the change.
    pub version: u16,
    /// The version of the new or freed node.
    pub made_version: u16,
    /// The changed node's level.
    pub level: u8,
    /// The root word before and after; in a merge the parent, and its version after.
    pub root: (u64, u64),
    /// Byte ranges of the changed node: offset and new bytes.
    pub pieces: Vec<(u32, Vec<u8>)>,
}

impl Record {
    /// Creates a record about `node` without pieces.
    pub(crate) fn about(
        kind: RecordKind,
        owner: ComputeId,
        tree: &TreeInfo,
        node: GlobalAddress,
        level: u8,
        version: u16,
    ) -> Self {
        Self {
            owner,
            kind,
            tree: tree.id,
            spec: tree.spec,
            node,
            made: GlobalAddress::NULL,
            version,
            made_version: 0,
            level,
            root: (0, 0),
            pieces: Vec::new(),
        }
    }

    /// Adds the ranges of `image` that `patch` writes.
    pub(crate) fn with_pieces(mut self, image: &[u8], patch: &Patch) -> Self {
        for range in patch.steps() {
            self.pieces.push((range.start as u32, image[range.clone()].to_vec()));
        }
        self
    }

    /// Whether the split of this record has happened, given the node's current version (I26). The split's
    /// maker is dead and fenced. If the node still has the version before, the maker's lane has protected it
    /// since.
    pub fn split_happened(&self, node_version: u16) -> bool {
        node_version != self.version.wrapping_sub(1)
    }

    /// The most bytes a record about a node of `node_bytes` can take.
    pub fn max_bytes(node_bytes: usize) -> usize {
        HEADER + 3 * 16 + node_bytes
    }

    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        for (offset, data) in &self.pieces {
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
            bytes.extend_from_slice(data);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let len = bytes.len() as u32;
        put_u32(&mut bytes, 0, MAGIC);
        put_u16(&mut bytes, 4, self.owner.0);
        bytes[6] = self.kind as u8;
        bytes[7] = self.pieces.len() as u8;
        put_u32(&mut bytes, 16, len);
        put_u32(&mut bytes, 20, self.tree);
        put_u64(&mut bytes, 24, self.node.to_bits());
        put_u64(&mut bytes, 32, self.made.to_bits());
        put_u16(&mut bytes, 40, self.version);
        put_u16(&mut bytes, 42, self.made_version);
        bytes[44] = self.level;
        put_u64(&mut bytes, 48, self.root.0);
        put_u64(&mut bytes, 56, self.root.1);
        put_u16(&mut bytes, 64, self.spec.key_len);
        bytes[66] = self.spec.format;
        put_u32(&mut bytes, 68, self.spec.value_len);
        put_u32(&mut bytes, 72, self.spec.leaf_bytes);
        put_u32(&mut bytes, 76, self.spec.internal_bytes);
        let sum = checksum(&bytes);
        put_u64(&mut bytes, 8, sum);
        bytes
    }

    /// Decodes the record in a slot. Returns `None` if there is none, or if it was not written completely.
    pub fn decode(slot: &[u8]) -> Option<Self> {
        if slot.len() < HEADER || get_u32(slot, 0) != MAGIC {
            return None;
        }
        let len = get_u32(slot, 16) as usize;
        if !(HEADER..=slot.len()).contains(&len) {
            return None;
        }
        let slot = &slot[..len];
        if get_u64(slot, 8) != checksum(slot) {
            return None;
        }
        let kind = match slot[6] {
            1 => RecordKind::Image,
            2 => RecordKind::Split,
            3 => RecordKind::Grow,
            4 => RecordKind::Merge,
            5 => RecordKind::Replace,
            6 => RecordKind::Load,
            7 => RecordKind::Drop,
            8 => RecordKind::Block,
            _ => return None,
        };
        let mut pieces = Vec::new();
        let mut at = HEADER;
        for _ in 0..slot[7] {
            let data = slot.get(at + 8..)?.get(..get_u32(slot, at + 4) as usize)?;
            pieces.push((get_u32(slot, at), data.to_vec()));
            at = (at + 8 + data.len()).next_multiple_of(8);
        }
        Some(Self {
            owner: ComputeId(get_u16(slot, 4)),
            kind,
            tree: get_u32(slot, 20),
            node: GlobalAddress::from_bits(get_u64(slot, 24)),
            made: GlobalAddress::from_bits(get_u64(slot, 32)),
            version: get_u16(slot, 40),
            made_version: get_u16(slot, 42),
            level: slot[44],
            root: (get_u64(slot, 48), get_u64(slot, 56)),
            spec: TreeSpec {
                format: slot[66],
                key_len: get_u16(slot, 64),
                value_len: get_u32(slot, 68),
                leaf_bytes: get_u32(slot, 72),
                internal_bytes: get_u32(slot, 76),
            },
            pieces,
        })
    }

    /// The record of `owner` that a slot held before it was cleared, if the slot held one. Clearing
    /// overwrites only the first word: the checksum tells which kind and number of pieces were there.
    pub(crate) fn revive(slot: &[u8], owner: ComputeId) -> Option<Self> {
        if slot.len() < HEADER || get_u64(slot, 0) != 0 {
            return None;
        }
        let len = get_u32(slot, 16) as usize;
        if !(HEADER..=slot.len()).contains(&len) {
            return None;
        }
        let mut record = slot[..len].to_vec();
        put_u32(&mut record, 0, MAGIC);
        put_u16(&mut record, 4, owner.0);
        (1..=8).flat_map(|kind| (0..=MOST_PIECES).map(move |pieces| (kind, pieces))).find_map(
            |(kind, pieces)| {
                (record[6], record[7]) = (kind, pieces);
                Self::decode(&record)
            },
        )
    }

    /// The length of the record of `owner` that may begin with this line, if there may be one.
    pub(crate) fn length(line: &[u8], owner: ComputeId, slot_bytes: u32) -> Option<u32> {
        let len = get_u32(line, 16);
        let there = get_u32(line, 0) == MAGIC && get_u16(line, 4) == owner.0;
        (there && (HEADER as u32..=slot_bytes).contains(&len)).then_some(len)
    }
}

/// Covers the whole record except magic and checksum. Owner, kind and count are the seed.
fn checksum(record: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(get_u32(record, 4)), &record[16..])
}

/// The redo slots of a compute server: an area of slots on each memory server, and one slot per change in
/// flight.
#[derive(Debug)]
pub struct RedoSlots {
    slot_bytes: u64,
    servers: Vec<Mutex<Area>>,
}

#[derive(Debug, Default)]
struct Area {
    slots: Vec<u64>,
    free: Vec<u64>,
    /// Slots taken by [`RedoSlots::take_long`].
    long: usize,
}

impl Area {
    /// The most slots for changes that wait for lanes: a quarter, and at least one. A change that holds a
    /// lane may wait for a slot. So the other slots must always become free without a wait for a lane.
    fn most_long(&self) -> usize {
        (self.slots.len() / 4).max(1)
    }
}

/// A slot in use. [`RedoSlots::put_back`] returns it once its record is cleared.
#[derive(Debug)]
#[must_use = "a slot must be put back"]
pub(crate) struct RedoSlot {
    server: u16,
    offset: u64,
    long: bool,
}

impl RedoSlots {
    /// Creates an empty set, without a slot on any of `servers` servers.
    pub(crate) fn new(servers: u16, slot_bytes: u64) -> Self {
        Self { slot_bytes, servers: (0..servers).map(|_| Mutex::default()).collect() }
    }

    /// Creates the slots of the area that a server gave. If several threads asked for it, they got the same
    /// area, and the slots are created once.
    pub(crate) fn open(&self, server: u16, offset: u64, bytes: u64) {
        let mut area = self.area(server);
        if area.slots.is_empty() {
            let slots = 0..bytes / self.slot_bytes.max(1);
            area.slots = slots.rev().map(|at| offset + at * self.slot_bytes).collect();
            area.free = area.slots.clone();
        }
    }

    fn area(&self, server: u16) -> MutexGuard<'_, Area> {
        self.servers[usize::from(server)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_take(&self, server: u16) -> Option<RedoSlot> {
        let offset = self.area(server).free.pop()?;
        Some(RedoSlot { server, offset, long: false })
    }

    pub(crate) fn try_take_long(&self, server: u16) -> Option<RedoSlot> {
        let mut area = self.area(server);
        if area.long >= area.most_long() {
            return None;
        }
        let offset = area.free.pop()?;
        area.long += 1;
        Some(RedoSlot { server, offset, long: true })
    }

    /// Takes a free slot for a change that waits for lanes while it holds the slot. The caller holds no lane.
    pub(crate) async fn take_long<E: Endpoint>(
        &self,
        op: &Op<'_, E>,
        server: u16,
    ) -> Result<RedoSlot, Error> {
        op.worker.activate().await?;
        loop {
            if let Some(slot) = self.try_take_long(server) {
                return Ok(slot);
            }
            op.retry(Cause::RedoSlots).await?;
        }
    }

    /// Takes a free slot on each requested server. While it waits it holds all of them or none, so no two
    /// operations wait for each other's slots.
    pub(crate) async fn take<E: Endpoint>(
        &self,
        op: &Op<'_, E>,
        servers: [Option<u16>; 2],
    ) -> Result<[Option<RedoSlot>; 2], Error> {
        op.worker.activate().await?;
        loop {
            let taken = servers.map(|server| server.and_then(|server| self.try_take(server)));
            if servers.iter().flatten().count() == taken.iter().flatten().count() {
                return Ok(taken);
            }
            taken.into_iter().flatten().for_each(|slot| self.put_back(slot));
            op.retry(Cause::RedoSlots).await?;
        }
    }

    pub(crate) fn put_back(&self, slot: RedoSlot) {
        let mut area = self.area(slot.server);
        area.free.push(slot.offset);
        area.long -= usize::from(slot.long);
    }

    /// The size of the largest record that fits.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Whether no slot is in use. Must hold when nothing is in flight.
    pub fn all_free(&self) -> bool {
        (0..self.servers.len() as u16)
            .map(|server| self.area(server))
            .all(|area| area.free.len() == area.slots.len())
    }

    /// The server and offset of each slot.
    pub fn places(&self) -> Vec<(u16, u64)> {
        let servers = 0..self.servers.len() as u16;
        servers
            .flat_map(|server| self.area(server).slots.clone().into_iter().map(move |at| (server, at)))
            .collect()
    }
}

impl RedoSlot {
    /// The memory server it is on.
    pub(crate) fn server(&self) -> u16 {
        self.server
    }

    /// Adds the WRITE of the record to a list. Must come before the data.
    pub(crate) fn log(&self, list: &mut WorkList, record: &Record) {
        debug_assert_eq!(list.server(), self.server);
        list.write(Space::Host, self.offset, &record.encode());
    }

    /// Adds the WRITE that clears the record to a list. Must come after the data.
    pub(crate) fn clear(&self, list: &mut WorkList) {
        debug_assert_eq!(list.server(), self.server);
        seam!(tree::clear());
        list.write(Space::Host, self.offset, &CLEARED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let spec = TreeSpec { format: 1, key_len: 8, value_len: 9, leaf_bytes: 1024, internal_bytes: 2048 };
        let tree =
            TreeInfo { id: 77, name: "t".to_owned(), spec, types: None, root_word: GlobalAddress::NULL };
        Record {
            made: GlobalAddress::new(1, 4096),
            made_version: 7,
            root: (3, 4),
            pieces: vec![(64, vec![1, 2, 3]), (0, vec![9; 64])],
            ..Record::about(RecordKind::Split, ComputeId(5), &tree, GlobalAddress::new(2, 8192), 3, 12)
        }
    }

    #[test]
    fn a_record_survives_its_bytes() {
        let mut slot = record().encode();
        assert_eq!(Record::decode(&slot), Some(record()));
        slot.resize(4096, 0xee);
        assert_eq!(Record::decode(&slot), Some(record()));
    }

    #[test]
    fn a_record_cut_at_any_unit_or_cleared_is_no_record() {
        let whole = record().encode();
        let stale = vec![0x55; whole.len()];
        for cut in (0..whole.len()).step_by(64) {
            let mut slot = stale.clone();
            slot[..cut].copy_from_slice(&whole[..cut]);
            assert_eq!(Record::decode(&slot), None, "cut at {cut}");
        }
        let mut cleared = whole.clone();
        cleared[..8].copy_from_slice(&CLEARED);
        assert_eq!(Record::decode(&cleared), None);
        for at in 4..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert_eq!(Record::decode(&flipped), None, "flipped byte {at}");
        }
    }

    /// A difference here is a new format version: records in memory written by an older version could not be
    /// recovered.
    #[test]
    fn a_records_bytes_are_the_golden_ones() {
        let golden: Vec<u8> = include_str!("golden/redo-split.hex")
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits"))
            .collect();
        assert_eq!(record().encode(), golden);
    }
}
