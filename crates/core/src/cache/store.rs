//! The memory of the copies: slots in segments that are allocated when first needed, and the table that finds
//! them.

use super::layout::{ADDRESS, LINE_WORDS, Layout, SearchKey};
use super::slot::{CacheLine, CacheSlot, Says};
use super::table::{Table, Tables};
use sherman_fabric::GlobalAddress;
use sherman_pages::zeroed::Zeroed;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Approximate bytes of a segment of a small cache, which is the unit of allocation.
const SEGMENT_BYTES: usize = 64 << 10;
/// From this size on a cache is one segment, in huge pages where available, because readers access its slots
/// at random. Its unused part costs nothing.
const LARGE_BYTES: usize = 4 << 20;
/// The most bytes that a slot costs besides its lines: its entries in the tables and in the lists of segments
/// and free slots.
const OVERHEAD: usize = 128;
/// The most slots a store can have, so that the largest table stays at least half empty.
const MAX_SLOTS: usize = 1 << 29;

/// The slots and their table. Both only grow.
#[derive(Debug)]
pub(super) struct Store {
    layout: Layout,
    slots: u32,
    /// Slots per segment, as a power of two.
    segment_shift: u32,
    segments: Box<[OnceLock<Option<Zeroed<AtomicU64>>>]>,
    tables: Tables,
}

/// The most bytes that a slot costs.
pub(super) fn slot_bytes(layout: &Layout) -> usize {
    layout.lines * size_of::<CacheLine>() + OVERHEAD
}

/// How many slots fit into `limit` bytes.
pub(super) fn slots_in(limit: usize, layout: &Layout) -> u32 {
    (limit / slot_bytes(layout)).min(MAX_SLOTS) as u32
}

impl Store {
    /// Creates a store of `slots` slots, at least one.
    pub(super) fn new(layout: Layout, slots: u32) -> Self {
        let slot_bytes = layout.lines * size_of::<CacheLine>();
        let segment_shift = match (SEGMENT_BYTES / slot_bytes).max(1).ilog2() {
            _ if slots as usize * slot_bytes >= LARGE_BYTES => slots.next_power_of_two().ilog2(),
            shift => shift,
        };
        let segments = (slots as usize).div_ceil(1 << segment_shift);
        Self {
            layout,
            slots,
            segment_shift,
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            tables: Tables::default(),
        }
    }

    /// The current table; `None` before the first copy.
    #[inline(always)]
    pub(super) fn table(&self) -> Option<&Table> {
        self.tables.current()
    }

    /// Adds the slot with the copy of the node at `address` to the table, which holds `count` others. Returns
    /// how many bytes that took.
    pub(super) fn publish(&self, address: GlobalAddress, slot: u32, count: usize) -> usize {
        self.tables.insert(address, slot, count)
    }

    /// Bytes the store takes before its first slot is used.
    pub(super) fn base_bytes(&self) -> usize {
        size_of_val(&*self.segments)
    }

    /// Slot `index`, if its segment was allocated.
    #[inline(always)]
    pub(super) fn slot(&self, index: u32) -> Option<CacheSlot<'_>> {
        let words = self.segments.get((index >> self.segment_shift) as usize)?.get()?.as_ref()?;
        let lines = words.as_chunks().0;
        let within = index & ((1 << self.segment_shift) - 1);
        let start = within as usize * self.layout.lines;
        Some(CacheSlot { lines: lines.get(start..start + self.layout.lines)?, layout: &self.layout })
    }

    /// Allocates the segment of slot `index` if it is not allocated yet. Returns how many bytes the slot
    /// takes. If there is no memory, the slot does not exist.
    pub(super) fn allocate(&self, index: u32) -> usize {
        if let Some(segment) = self.segments.get((index >> self.segment_shift) as usize) {
            let first = index >> self.segment_shift << self.segment_shift;
            let slots = (self.slots - first).min(1 << self.segment_shift) as usize;
            segment.get_or_init(|| Zeroed::new(slots * self.layout.lines * LINE_WORDS));
        }
        self.layout.lines * size_of::<CacheLine>()
    }

    /// Returns the child responsible for `key` according to the copy of the node at `address` and `level`, if
    /// a copy covers the key. Marks the copy as used in `epoch`.
    #[inline(always)]
    pub(super) fn child<K: SearchKey>(
        &self,
        address: GlobalAddress,
        level: u8,
        key: K,
        epoch: u64,
    ) -> Option<GlobalAddress> {
        let says = self.table()?.find(address, |index| {
            let slot = self.slot(index)?;
            match slot.child(address.to_bits(), level, key) {
                Says::Other => None,
                says => {
                    slot.touch(epoch);
                    Some(says)
                }
            }
        });
        match says {
            Some(Says::Child(child)) => Some(GlobalAddress::from_bits(child)),
            _ => None,
        }
    }

    /// The version of the copy of the node at `address`.
    pub(super) fn version(&self, address: GlobalAddress) -> Option<u16> {
        self.table()?.find(address, |index| {
            let slot = self.slot(index)?;
            slot.read(|| (slot.word(ADDRESS) == address.to_bits()).then(|| slot.meta().version)).flatten()
        })
    }

    /// The slot that holds the copy of the node at `address`. Only under the cache's lock.
    pub(super) fn holder(&self, address: GlobalAddress) -> Option<(u32, CacheSlot<'_>)> {
        self.table()?.find(address, |index| {
            let slot = self.slot(index)?;
            (slot.word(ADDRESS) == address.to_bits()).then_some((index, slot))
        })
    }
}
