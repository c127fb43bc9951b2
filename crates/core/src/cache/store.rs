//! The memory of the copies: heads, runs, and the table that finds heads by address.
//!
//! Each of them is one array whose unused part costs nothing. The arrays are large enough for any mixture of
//! copies, so they exceed the cache's limit together. The writer uses no more of them than the limit allows.

use super::layout::{ADDRESS, LINE_WORDS, Layout, SearchKey, WINDOW};
use super::slot::{CacheSlot, Says};
use super::table::{Table, Tables};
use sherman_fabric::GlobalAddress;
use sherman_pages::zeroed::Zeroed;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a line of a run, with its tile.
pub(super) const LINE_BYTES: usize = LINE_WORDS * 8 + size_of::<AtomicU32>();
/// The most heads or lines of runs that a store can have, so that the largest table stays at least half
/// empty.
const MOST: usize = 1 << 29;

/// A piece of the memory of runs, as the first of its lines tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    /// The run of the copy in this slot.
    Taken(u32),
    /// So many free lines.
    Free(u32),
}

const FREE: u32 = 1 << 31;

/// The slots and their table.
#[derive(Debug)]
pub(super) struct Store {
    layout: Layout,
    heads: Zeroed<AtomicU64>,
    runs: Zeroed<AtomicU64>,
    /// A [`Tile`] at the first line of each.
    tiles: Zeroed<AtomicU32>,
    tables: Tables,
}

/// Bytes of a head.
pub(super) fn head_bytes(layout: &Layout) -> usize {
    layout.head_lines * LINE_WORDS * 8
}

impl Store {
    /// Creates a store for copies of at most `limit` bytes together. `None` if the system does not have that
    /// much memory.
    pub(super) fn new(layout: Layout, limit: usize) -> Option<Self> {
        let head = head_bytes(&layout);
        // A node is rarely less than half full.
        let smallest = head + layout.run_lines(layout.room / 2, 1) * LINE_BYTES;
        let heads = (limit / smallest + 1).min(MOST);
        let lines = (limit / LINE_BYTES).min(MOST);
        Some(Self {
            heads: Zeroed::new(heads * head / 8)?,
            runs: Zeroed::new(lines * LINE_WORDS + WINDOW)?,
            tiles: Zeroed::new(lines)?,
            tables: Tables::default(),
            layout,
        })
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

    /// Bytes that the table takes for one more than `count` copies.
    pub(super) fn table_growth(&self, count: usize) -> usize {
        self.tables.growth(count)
    }

    /// Number of heads.
    pub(super) fn heads(&self) -> u32 {
        (self.heads.len() / LINE_WORDS / self.layout.head_lines) as u32
    }

    /// Number of lines of runs.
    pub(super) fn lines(&self) -> u32 {
        self.tiles.len() as u32
    }

    /// The tile that begins at `line`.
    pub(super) fn tile(&self, line: u32) -> Tile {
        match self.tiles.get(line as usize).map_or(0, |tile| tile.load(Ordering::Relaxed)) {
            free if free & FREE != 0 => Tile::Free(free & !FREE),
            taken => Tile::Taken(taken),
        }
    }

    /// Sets the tile that begins at `line`.
    pub(super) fn set_tile(&self, line: u32, tile: Tile) {
        let bits = match tile {
            Tile::Taken(slot) => slot,
            Tile::Free(lines) => FREE | lines,
        };
        if let Some(tile) = self.tiles.get(line as usize) {
            tile.store(bits, Ordering::Relaxed);
        }
    }

    /// Slot `index`.
    #[inline(always)]
    pub(super) fn slot(&self, index: u32) -> Option<CacheSlot<'_>> {
        let start = index as usize * self.layout.head_lines;
        let head = self.heads.as_chunks().0.get(start..start + self.layout.head_lines)?;
        Some(CacheSlot { head, runs: &self.runs, layout: &self.layout })
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
