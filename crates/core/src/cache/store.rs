//! Where copies are: slots in segments that are allocated when first needed, and the table that finds them.

use super::layout::{ADDRESS, LINE_WORDS, Layout, SearchKey};
use super::slot::{Line, Says, Slot};
use super::table::{Table, Tables};
use sherman_fabric::GlobalAddress;
use sherman_fabric::zeroed::Zeroed;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// A segment of a small cache is about this large: what is allocated at a time.
const SEGMENT_BYTES: usize = 64 << 10;
/// From here on a cache is one segment, in huge pages where there are any: its slots are met at random. What is not used
/// of it costs nothing.
const LARGE_BYTES: usize = 4 << 20;
/// What a slot costs besides its lines, at most: its places in the tables and in the lists of segments and free slots.
const OVERHEAD: usize = 128;
/// Slots there can be: the largest table is to be half empty.
const MAX_SLOTS: usize = 1 << 29;

/// The slots and their table. They only ever grow.
#[derive(Debug)]
pub(super) struct Store {
    layout: Layout,
    slots: u32,
    /// Slots of a segment, as a power of two.
    segment_shift: u32,
    segments: Box<[OnceLock<Option<Zeroed<AtomicU64>>>]>,
    tables: Tables,
}

/// What a slot costs, at most.
pub(super) fn slot_bytes(layout: &Layout) -> usize {
    layout.lines * size_of::<Line>() + OVERHEAD
}

/// How many slots fit into `limit` bytes.
pub(super) fn slots_in(limit: usize, layout: &Layout) -> u32 {
    (limit / slot_bytes(layout)).min(MAX_SLOTS) as u32
}

impl Store {
    /// A store of `slots` slots, at least one.
    pub fn new(layout: Layout, slots: u32) -> Self {
        let slot_bytes = layout.lines * size_of::<Line>();
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

    /// The table to look into; `None` before the first copy.
    #[inline(always)]
    pub fn table(&self) -> Option<&Table> {
        self.tables.current()
    }

    /// Makes the slot that holds the copy of the node at `address` known, beside `count` others; how many bytes that took.
    pub fn publish(&self, address: GlobalAddress, slot: u32, count: usize) -> usize {
        self.tables.insert(address, slot, count)
    }

    /// Bytes it takes before the first slot is used.
    pub fn base_bytes(&self) -> usize {
        size_of_val(&*self.segments)
    }

    /// Slot `index`, if its segment was allocated.
    #[inline(always)]
    pub fn slot(&self, index: u32) -> Option<Slot<'_>> {
        let words = self.segments.get((index >> self.segment_shift) as usize)?.get()?.as_ref()?;
        let lines = words.as_chunks().0;
        let within = index & ((1 << self.segment_shift) - 1);
        let start = within as usize * self.layout.lines;
        Some(Slot { lines: lines.get(start..start + self.layout.lines)?, layout: &self.layout })
    }

    /// Allocates the segment of slot `index` if that is still to be done; how many bytes the slot takes. Without memory
    /// there is no such slot.
    pub fn allocate(&self, index: u32) -> usize {
        if let Some(segment) = self.segments.get((index >> self.segment_shift) as usize) {
            let first = index >> self.segment_shift << self.segment_shift;
            let slots = (self.slots - first).min(1 << self.segment_shift) as usize;
            segment.get_or_init(|| Zeroed::new(slots * self.layout.lines * LINE_WORDS));
        }
        self.layout.lines * size_of::<Line>()
    }

    /// The child responsible for `key` according to the copy of the node at `address` and `level`, if there is one that
    /// covers it; it counts as used in `epoch`.
    #[inline(always)]
    pub fn child<K: SearchKey>(&self, address: GlobalAddress, level: u8, key: K, epoch: u64) -> Option<GlobalAddress> {
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
    pub fn version(&self, address: GlobalAddress) -> Option<u16> {
        self.table()?.find(address, |index| {
            let slot = self.slot(index)?;
            slot.read(|| (slot.word(ADDRESS) == address.to_bits()).then(|| slot.meta().version)).flatten()
        })
    }

    /// The slot that holds the copy of the node at `address`. Only under the cache's lock.
    pub fn holder(&self, address: GlobalAddress) -> Option<(u32, Slot<'_>)> {
        self.table()?.find(address, |index| {
            let slot = self.slot(index)?;
            (slot.word(ADDRESS) == address.to_bits()).then_some((index, slot))
        })
    }
}
