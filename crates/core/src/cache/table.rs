//! Maps addresses to slots: an open-addressed table of words, at most half full.
//!
//! A word is a 32-bit hash of the address and the slot's index plus one. 0 is an empty entry. Readers probe
//! without a lock. Removal moves later words back instead of leaving tombstones, so a concurrent reader may
//! miss a word that is there. That costs it a READ: the table only tells which slot to ask.
//!
//! A half-full table is replaced by one of twice the size. Readers may still probe the old table; the slot
//! tells whether its entry is valid.

use sherman_fabric::GlobalAddress;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Entries of the first table.
const FIRST_PLACES: usize = 4;
/// The most tables, each twice as large as the one before.
const GENERATIONS: usize = 30;

/// Bytes of all tables of a cache whose copies were added one by one, up to `count`.
pub(super) fn bytes_for(count: usize) -> usize {
    let most = FIRST_PLACES << (GENERATIONS - 1);
    let places = count.saturating_mul(2).clamp(FIRST_PLACES, most).next_power_of_two();
    (2 * places - FIRST_PLACES) * 8
}

/// All tables so far. Together they take less than twice the memory of the last one.
#[derive(Debug, Default)]
pub(super) struct Tables {
    generations: [OnceLock<Table>; GENERATIONS],
    current: AtomicUsize,
}

impl Tables {
    /// The current table, once something was inserted.
    #[inline(always)]
    pub(super) fn current(&self) -> Option<&Table> {
        self.generations.get(self.current.load(Ordering::Acquire))?.get()
    }

    /// The table for one more than `count` slots. The table never shrinks.
    fn generation_for(&self, count: usize) -> usize {
        let mut generation = self.current.load(Ordering::Relaxed);
        while (FIRST_PLACES << generation) / 2 <= count && generation + 1 < GENERATIONS {
            generation += 1;
        }
        generation
    }

    /// Bytes that one more than `count` slots will take.
    pub(super) fn growth(&self, count: usize) -> usize {
        let generation = self.generation_for(count);
        match self.generations[generation].get() {
            Some(_) => 0,
            None => (FIRST_PLACES << generation) * 8,
        }
    }

    /// Adds a slot to the `count` slots already in the table. Returns how many bytes that took. Only under
    /// the cache's lock, like every change of a table.
    pub(super) fn insert(&self, address: GlobalAddress, slot: u32, count: usize) -> usize {
        let generation = self.generation_for(count);
        let mut taken = 0;
        let table = self.generations[generation].get_or_init(|| {
            taken = (FIRST_PLACES << generation) * 8;
            Table::new(FIRST_PLACES << generation)
        });
        if taken > 0
            && let Some(before) = self.current()
        {
            before.copy_to(table);
        }
        table.insert(address, slot);
        self.current.store(generation, Ordering::Release);
        taken
    }
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    words: Box<[AtomicU64]>,
    /// The upper bits of a hash are its home index; this is the shift that extracts them.
    shift: u32,
}

/// A hash that is the same on every machine and in every run.
fn hash(address: GlobalAddress) -> u32 {
    let bits = address.to_bits();
    ((bits ^ bits >> 37).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

impl Table {
    fn new(places: usize) -> Self {
        Self { words: (0..places).map(|_| AtomicU64::new(0)).collect(), shift: 32 - places.ilog2() }
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    /// Calls `ask` for each slot that may hold the copy of `address`, and returns its first answer.
    #[inline(always)]
    pub(super) fn find<T>(&self, address: GlobalAddress, mut ask: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let hash = hash(address);
        let mask = self.words.len() - 1;
        let home = self.home(hash);
        for at in home..home + self.words.len() {
            let word = self.words[at & mask].load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if (word >> 32) as u32 == hash
                && let Some(answer) = ask((word as u32).wrapping_sub(1))
            {
                return Some(answer);
            }
        }
        None
    }

    fn insert(&self, address: GlobalAddress, slot: u32) {
        self.put(u64::from(hash(address)) << 32 | u64::from(slot + 1));
    }

    /// Stores a word in the first empty entry from its home on. There is one, because the table is at most
    /// half full.
    fn put(&self, word: u64) {
        let mask = self.words.len() - 1;
        let mut at = self.home((word >> 32) as u32);
        while self.words[at & mask].load(Ordering::Relaxed) != 0 {
            at += 1;
        }
        self.words[at & mask].store(word, Ordering::Release);
    }

    /// Copies all words into another table.
    fn copy_to(&self, other: &Self) {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.filter(|&word| word != 0).for_each(|word| other.put(word));
    }

    /// Removes a slot.
    pub(super) fn remove(&self, address: GlobalAddress, slot: u32) {
        let hash = hash(address);
        let wanted = u64::from(hash) << 32 | u64::from(slot + 1);
        let mask = self.words.len() - 1;
        let mut hole = self.home(hash);
        loop {
            match self.words[hole].load(Ordering::Relaxed) {
                0 => return,
                word if word == wanted => break,
                _ => hole = (hole + 1) & mask,
            }
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let word = self.words[at].load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            // A word may fill the hole if the probe from its home passes the hole.
            let home = self.home((word >> 32) as u32);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.words[hole].store(word, Ordering::Release);
                hole = at;
            }
        }
        self.words[hole].store(0, Ordering::Release);
    }

    /// Removes all slots.
    pub(super) fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_slot_is_found_whatever_was_removed_before() {
        let tables = Tables::default();
        let mut bytes = 0;
        let mut model = BTreeMap::new();
        let mut dice = 1_u64;
        for _ in 0..20_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = (dice >> 40) as u32 % 64;
            let address = GlobalAddress::new((dice >> 33) as u16 % 3, u64::from(slot) * 1024 + 64);
            match model.remove(&slot) {
                Some(address) => tables.current().expect("in use").remove(address, slot),
                None => {
                    let growth = tables.growth(model.len());
                    assert_eq!(tables.insert(address, slot, model.len()), growth);
                    bytes += growth;
                    model.insert(slot, address);
                }
            }
            let table = tables.current().expect("in use");
            for (&slot, &address) in &model {
                assert_eq!(table.find(address, |found| (found == slot).then_some(found)), Some(slot));
            }
        }
        assert_eq!(bytes, (4 + 8 + 16 + 32 + 64 + 128) * 8, "tables of at most 64 slots");
        assert_eq!(bytes, bytes_for(64));
        let table = tables.current().expect("in use");
        table.clear();
        assert_eq!(table.find(GlobalAddress::new(0, 64), Some), None);
    }
}
