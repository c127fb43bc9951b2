//! From addresses to slots: an open-addressed table of words, at most half full.
//!
//! A word is a 32-bit hash of the address and the slot's index plus one; 0 is an empty place. Readers probe without a lock;
//! removal moves later words back instead of leaving marks, so a reader that probes meanwhile may miss one that is there.
//! That costs it a READ: the table only ever says which slot to ask.

use sherman_fabric::GlobalAddress;
use std::sync::atomic::{AtomicU64, Ordering};

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    words: Box<[AtomicU64]>,
    /// The home of a hash is its upper bits.
    shift: u32,
}

/// The same on every machine and in every run.
fn hash(address: GlobalAddress) -> u32 {
    let bits = address.to_bits();
    ((bits ^ bits >> 37).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Places of a table for `slots` slots.
fn places(slots: u32) -> usize {
    (slots as usize * 2).next_power_of_two().max(4)
}

impl Table {
    pub fn new(slots: u32) -> Self {
        let places = places(slots);
        Self { words: (0..places).map(|_| AtomicU64::new(0)).collect(), shift: 32 - places.ilog2() }
    }

    /// Bytes of a table for `slots` slots.
    pub fn bytes(slots: u32) -> usize {
        places(slots) * 8
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    /// The first answer that `ask` gives about a slot that may hold the copy of `address`.
    #[inline(always)]
    pub fn find<T>(&self, address: GlobalAddress, mut ask: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let hash = hash(address);
        let mask = self.words.len() - 1;
        let mut at = self.home(hash);
        for _ in 0..self.words.len() {
            let word = self.words[at & mask].load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if (word >> 32) as u32 == hash
                && let Some(answer) = ask((word as u32).wrapping_sub(1))
            {
                return Some(answer);
            }
            at += 1;
        }
        None
    }

    /// Adds a slot. Only under the cache's lock, as all that follows.
    pub fn insert(&self, address: GlobalAddress, slot: u32) {
        let hash = hash(address);
        let mask = self.words.len() - 1;
        let mut at = self.home(hash);
        while self.words[at & mask].load(Ordering::Relaxed) != 0 {
            at += 1;
        }
        self.words[at & mask].store(u64::from(hash) << 32 | u64::from(slot + 1), Ordering::Release);
    }

    /// Removes a slot.
    pub fn remove(&self, address: GlobalAddress, slot: u32) {
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
            // A word may fill the hole if its probe passes there on the way from its home.
            let home = self.home((word >> 32) as u32);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.words[hole].store(word, Ordering::Release);
                hole = at;
            }
        }
        self.words[hole].store(0, Ordering::Release);
    }

    /// Removes all.
    pub fn clear(&self) {
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
        let table = Table::new(64);
        let mut model = BTreeMap::new();
        let mut dice = 1_u64;
        for _ in 0..20_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = (dice >> 40) as u32 % 64;
            let address = GlobalAddress::new((dice >> 33) as u16 % 3, u64::from(slot) * 1024 + 64);
            match model.remove(&slot) {
                Some(address) => table.remove(address, slot),
                None => {
                    table.insert(address, slot);
                    model.insert(slot, address);
                }
            }
            for (&slot, &address) in &model {
                assert_eq!(table.find(address, |found| (found == slot).then_some(found)), Some(slot));
            }
        }
        table.clear();
        assert_eq!(table.find(GlobalAddress::new(0, 64), Some), None);
    }
}
