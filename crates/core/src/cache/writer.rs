//! The changes of a cache: giving heads and runs out, taking them back, choosing victims. All of it happens
//! under one lock, and is rare.
//!
//! The used part of the memory of runs consists of tiles: runs, and free pieces between them. A **hand** goes
//! round over the tiles. A new run takes the tiles at the hand that are free, and evicts the copies of those
//! that are not. So runs of any length fit, and free pieces never stay apart for longer than a turn. The hand
//! passes copies of upper levels and copies that were used a moment ago, up to a bound.

use super::layout::{ADDRESS, Layout, RUN, Run, USED};
use super::slot::CacheSlot;
use super::store::{LINE_BYTES, Store, Tile, head_bytes};
use sherman_fabric::GlobalAddress;

/// How many copies the hand passes over before it evicts whatever comes next.
const PASSES: usize = 8;
/// Epochs for which a used copy counts as used a moment ago.
const RECENT: u64 = 2;

/// The state that writers share.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Bytes the cache may take.
    limit: usize,
    /// Bytes of a head.
    head_bytes: usize,
    /// Lines of the longest run.
    most_lines: u32,
    /// One more than the first free head that held a copy before. Free heads form a list.
    free_head: u32,
    /// The first head that was never used.
    fresh_head: u32,
    /// The first line of runs that was never used.
    fresh_line: u32,
    /// Free lines below that one.
    free_lines: u32,
    /// The line of a tile, or `fresh_line`.
    hand: u32,
    /// Number of copies held.
    pub nodes: usize,
    /// Bytes allocated.
    pub bytes: usize,
    /// Number of copies put into a slot in this epoch.
    kept: usize,
    epoch: u64,
}

impl Writer {
    pub(super) fn new(limit: usize, layout: &Layout) -> Self {
        let (head_bytes, most_lines) = (head_bytes(layout), layout.most_lines as u32);
        Self { limit, head_bytes, most_lines, epoch: 1, ..Self::default() }
    }

    /// Whether the cache may take so many bytes more, `lines` of runs among them. The longest run must fit
    /// all the same.
    fn affords(&self, bytes: usize, lines: u32) -> bool {
        let reserved = self.most_lines.saturating_sub(self.fresh_line + lines) as usize * LINE_BYTES;
        self.bytes + bytes + reserved <= self.limit
    }

    /// Takes a head and a run of `lines` lines for another copy. Evicts copies if there is no room.
    pub(super) fn take(&mut self, store: &Store, lines: u32) -> Option<(u32, Run)> {
        while store.table_growth(self.nodes) > 0 && !self.affords(store.table_growth(self.nodes), 0) {
            self.evict(store)?;
        }
        // The caller publishes the copy, which may enlarge the table.
        let growth = store.table_growth(self.nodes);
        let head = self.take_head(store, growth)?;
        let Some(first) = self.take_lines(store, lines, growth) else {
            self.free(store, head);
            return None;
        };
        store.set_tile(first, Tile::Taken(head));
        Some((head, Run { first, lines }))
    }

    fn take_head(&mut self, store: &Store, growth: usize) -> Option<u32> {
        if self.free_head == 0 && self.fresh_head < store.heads() && self.affords(self.head_bytes + growth, 0)
        {
            self.bytes += self.head_bytes;
            self.fresh_head += 1;
            return Some(self.fresh_head - 1);
        }
        if self.free_head == 0 {
            self.evict(store)?;
        }
        let head = self.free_head.checked_sub(1)?;
        self.free_head = store.slot(head)?.word(RUN) as u32;
        Some(head)
    }

    /// Takes free lines if there are many, then lines that were never used, then lines of other copies.
    fn take_lines(&mut self, store: &Store, lines: u32, growth: usize) -> Option<u32> {
        if self.free_lines >= lines.max(self.fresh_line / 2)
            && let Some(first) = self.gather(store, lines, growth, false)
        {
            return Some(first);
        }
        if self.extend(store, lines, growth) {
            self.free_lines -= lines;
            return Some(self.fresh_line - lines);
        }
        self.gather(store, lines, growth, true)
    }

    /// Adds a free tile of lines that were never used, if the cache may take them.
    fn extend(&mut self, store: &Store, lines: u32, growth: usize) -> bool {
        let bytes = lines as usize * LINE_BYTES;
        if store.lines() - self.fresh_line < lines || !self.affords(bytes + growth, lines) {
            return false;
        }
        store.set_tile(self.fresh_line, Tile::Free(lines));
        self.bytes += bytes;
        self.fresh_line += lines;
        self.free_lines += lines;
        true
    }

    /// Takes lines from the hand on: only free ones, or those of evicted copies too.
    fn gather(&mut self, store: &Store, lines: u32, growth: usize, evicts: bool) -> Option<u32> {
        let (mut first, mut at) = (self.hand, self.hand);
        let (mut passed, mut turns) = (0, 0);
        while at - first < lines {
            if at >= self.fresh_line {
                if evicts && self.extend(store, lines - (at - first), growth) {
                    continue;
                }
                turns += 1;
                (first, at) = (0, 0);
                if turns > PASSES + 1 || self.fresh_line == 0 {
                    return None;
                }
            }
            let (length, passes) = match store.tile(at) {
                Tile::Free(length) => (length, false),
                Tile::Taken(slot) => {
                    let slot = store.slot(slot)?;
                    (slot.run().lines, !evicts || passed < PASSES && self.is_warm(slot))
                }
            };
            at += length;
            if passes {
                passed += 1;
                first = at;
            }
            if passed > PASSES {
                self.hand = at;
                return None;
            }
        }
        self.merge(store, first, at);
        self.free_lines -= lines;
        self.hand = first + lines;
        if at > self.hand {
            store.set_tile(self.hand, Tile::Free(at - self.hand));
        }
        Some(first)
    }

    /// Makes the tiles of these lines free, and evicts their copies.
    fn merge(&mut self, store: &Store, first: u32, end: u32) {
        let mut at = first;
        while at < end {
            if let Tile::Taken(slot) = store.tile(at) {
                self.drop_copy(store, slot);
            }
            match store.tile(at) {
                Tile::Free(length) => at += length,
                Tile::Taken(_) => return,
            }
        }
    }

    /// Evicts one copy, from the hand on.
    fn evict(&mut self, store: &Store) -> Option<()> {
        let mut passed = 0;
        while self.nodes > 0 {
            if self.hand >= self.fresh_line {
                self.hand = 0;
            }
            match store.tile(self.hand) {
                Tile::Free(length) => self.hand += length,
                Tile::Taken(slot) if passed < PASSES && self.is_warm(store.slot(slot)?) => {
                    passed += 1;
                    self.hand += store.slot(slot)?.run().lines;
                }
                Tile::Taken(slot) => {
                    self.drop_copy(store, slot);
                    return Some(());
                }
            }
        }
        None
    }

    /// Whether a copy is of an upper level, of which there are few that serve all lookups, or was used a
    /// moment ago.
    fn is_warm(&self, slot: CacheSlot<'_>) -> bool {
        slot.meta().level > 1 || slot.word(USED) + RECENT > self.epoch
    }

    /// Counts a new copy. Returns the epoch, which advances once for every sixteenth of the cache that is
    /// replaced.
    pub(super) fn tick(&mut self) -> u64 {
        self.kept += 1;
        if self.kept > self.nodes / 16 {
            self.kept = 0;
            self.epoch += 1;
        }
        self.epoch
    }

    /// Cuts a run to `lines` lines.
    pub(super) fn cut(&mut self, store: &Store, run: Run, lines: u32) -> Run {
        let rest = run.lines.saturating_sub(lines);
        if rest > 0 {
            store.set_tile(run.first + lines, Tile::Free(rest));
            self.free_lines += rest;
        }
        Run { lines: run.lines - rest, ..run }
    }

    /// Drops the copy in a slot. Its head and its run become free.
    pub(super) fn drop_copy(&mut self, store: &Store, index: u32) {
        let Some(slot) = store.slot(index) else { return };
        if let Some(table) = store.table() {
            table.remove(GlobalAddress::from_bits(slot.word(ADDRESS)), index);
        }
        let run = slot.run();
        self.free(store, index);
        store.set_tile(run.first, Tile::Free(run.lines));
        self.free_lines += run.lines;
        self.nodes -= 1;
    }

    /// Puts a head on the free list.
    fn free(&mut self, store: &Store, index: u32) {
        if let Some(slot) = store.slot(index) {
            slot.vacate(u64::from(self.free_head));
            self.free_head = index + 1;
        }
    }

    /// Drops every copy.
    pub(super) fn clear(&mut self, store: &Store) {
        if let Some(table) = store.table() {
            table.clear();
        }
        self.free_head = 0;
        for index in (0..self.fresh_head).rev() {
            self.free(store, index);
        }
        store.set_tile(0, Tile::Free(self.fresh_line));
        (self.free_lines, self.hand, self.nodes) = (self.fresh_line, 0, 0);
    }
}

/// What a writer uses, for tests.
#[cfg(test)]
pub(super) struct Counts {
    pub heads: u32,
    pub lines: u32,
    pub free: u32,
    pub hand: u32,
}

#[cfg(test)]
impl Writer {
    pub(super) fn counts(&self) -> Counts {
        Counts { heads: self.fresh_head, lines: self.fresh_line, free: self.free_lines, hand: self.hand }
    }
}
