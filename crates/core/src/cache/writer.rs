//! The changes of a cache: giving slots out, taking them back, choosing victims. All of it happens under one
//! lock, and is rare.

use super::layout::{ADDRESS, USED};
use super::slot::CacheSlot;
use super::store::Store;
use sherman_fabric::GlobalAddress;

/// How many pairs of candidates `evict` examines to find a victim of level 1.
const PAIRS: usize = 4;

/// The state that writers share.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Free slots, which held a copy before.
    free: Vec<u32>,
    /// The first slot that was never used.
    fresh: u32,
    /// Number of copies held.
    pub nodes: usize,
    /// Bytes allocated.
    pub bytes: usize,
    /// Number of copies ever put into a slot.
    pub kept: u64,
    dice: u64,
}

impl Writer {
    /// Takes a slot for another copy: a free slot, or one whose copy it evicts.
    pub(super) fn take<'s>(&mut self, store: &'s Store, slots: u32) -> Option<(u32, CacheSlot<'s>)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.fresh < slots => {
                self.bytes += store.allocate(self.fresh);
                self.fresh += 1;
                self.fresh - 1
            }
            None => self.evict(store, slots)?,
        };
        store.slot(index).map(|slot| (index, slot))
    }

    /// Evicts a copy. Of two copies picked at random it evicts the one of the lower level, or the less
    /// recently used one. Copies of upper levels are few and serve all lookups, so it tries a few more pairs
    /// before it evicts one of them.
    fn evict(&mut self, store: &Store, slots: u32) -> Option<u32> {
        let rank = |index: u32| store.slot(index).map(|slot| (slot.meta().level, slot.word(USED)));
        let mut pairs = 0;
        let victim = loop {
            let (first, second) = (self.roll(slots), self.roll(slots));
            let victim = if rank(first)? <= rank(second)? { first } else { second };
            pairs += 1;
            if pairs == PAIRS || rank(victim)?.0 == 1 {
                break victim;
            }
        };
        self.empty(store, victim, store.slot(victim)?);
        Some(victim)
    }

    /// Drops the copy in a slot and puts the slot on the free list.
    pub(super) fn drop_copy(&mut self, store: &Store, index: u32, slot: CacheSlot<'_>) {
        self.empty(store, index, slot);
        self.free.push(index);
    }

    fn empty(&mut self, store: &Store, index: u32, slot: CacheSlot<'_>) {
        if let Some(table) = store.table() {
            table.remove(GlobalAddress::from_bits(slot.word(ADDRESS)), index);
        }
        slot.vacate();
        self.nodes -= 1;
    }

    /// Drops every copy.
    pub(super) fn clear(&mut self, store: &Store) {
        if let Some(table) = store.table() {
            table.clear();
        }
        for slot in (0..self.fresh).filter_map(|index| store.slot(index)) {
            slot.vacate();
        }
        // Only slots below `fresh` have segments, which must not be allocated again. So they go to the free
        // list.
        self.free.clear();
        self.free.extend((0..self.fresh).rev());
        self.nodes = 0;
    }

    fn roll(&mut self, below: u32) -> u32 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.dice >> 33) % u64::from(below)) as u32
    }
}
