//! The index cache (paper §4.2.3): copies of internal nodes, shared by the threads of a compute server.
//!
//! It only ever says where to look: whatever it leads to is validated by fences, level and tree id, so a stale or evicted
//! entry costs a round trip and never an answer. Bounded in bytes; the victim is the less recently used of two picked at
//! random (the power of two choices).

use crate::node::{SortedBody, get_u64};
use sherman_fabric::GlobalAddress;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A cached internal node.
#[derive(Debug)]
struct Entry {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    body: SortedBody,
    used: AtomicU64,
    bytes: usize,
}

/// The cached nodes of one level: a dense vector to pick victims from, and an index into it by low fence.
#[derive(Debug, Default)]
struct Level {
    by_low: BTreeMap<Vec<u8>, usize>,
    entries: Vec<Entry>,
}

impl Level {
    fn covering(&self, key: &[u8]) -> Option<&Entry> {
        let (_, &index) = self.by_low.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        Some(&self.entries[index]).filter(|entry| entry.high.as_deref().is_none_or(|high| key < high))
    }

    /// Adds or replaces; returns the bytes of what was replaced.
    fn put(&mut self, entry: Entry) -> usize {
        if let Some(&index) = self.by_low.get(&entry.low) {
            return std::mem::replace(&mut self.entries[index], entry).bytes;
        }
        self.by_low.insert(entry.low.clone(), self.entries.len());
        self.entries.push(entry);
        0
    }

    /// Removes entry `index`; returns its bytes.
    fn remove(&mut self, index: usize) -> usize {
        let gone = self.entries.swap_remove(index);
        self.by_low.remove(&gone.low);
        if let Some(moved) = self.entries.get(index)
            && let Some(slot) = self.by_low.get_mut(&moved.low)
        {
            *slot = index;
        }
        gone.bytes
    }
}

#[derive(Debug, Default)]
struct State {
    /// Level 1 first.
    levels: Vec<Level>,
    bytes: usize,
    dice: u64,
}

/// Copies of a tree's internal nodes.
#[derive(Debug)]
pub struct IndexCache {
    state: RwLock<State>,
    limit: usize,
    clock: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl IndexCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: RwLock::default(),
            limit,
            clock: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The child to look at for `key`, from the lowest cached node above `level` that covers it: its address and level.
    pub(crate) fn child(&self, key: &[u8], level: u8) -> Option<(GlobalAddress, u8)> {
        let state = self.read();
        for above in usize::from(level)..state.levels.len() {
            let Some(entry) = state.levels[above].covering(key) else { continue };
            let Some(index) = entry.body.responsible(key) else { continue };
            entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            let counter = if above == usize::from(level) { &self.hits } else { &self.misses };
            counter.fetch_add(1, Ordering::Relaxed);
            return Some((child_address(&entry.body, index), above as u8));
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Keeps a copy of the node at `level` with these fences.
    pub(crate) fn keep(&self, level: u8, low: Vec<u8>, high: Option<Vec<u8>>, body: SortedBody) {
        let bytes = body.memory() + 3 * low.len() + size_of::<Entry>() + 2 * size_of::<usize>();
        let Some(index) = usize::from(level).checked_sub(1).filter(|_| bytes <= self.limit) else { return };
        let mut state = self.write();
        if state.levels.len() <= index {
            state.levels.resize_with(index + 1, Level::default);
        }
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let replaced = state.levels[index].put(Entry { low, high, body, used, bytes });
        state.bytes = state.bytes + bytes - replaced;
        while state.bytes > self.limit && state.evict() {}
    }

    /// Drops the cached parent of `level`'s node for `key`: it led to the wrong place.
    pub(crate) fn forget(&self, key: &[u8], level: u8) {
        self.write().forget(key, usize::from(level));
    }

    /// Drops every cached node above `level` on the way to `key`.
    pub(crate) fn forget_path(&self, key: &[u8], level: u8) {
        let mut state = self.write();
        for above in usize::from(level)..state.levels.len() {
            state.forget(key, above);
        }
    }

    /// Drops everything: the next operation starts at the root.
    pub fn clear(&self) {
        let mut state = self.write();
        state.levels.clear();
        state.bytes = 0;
    }

    /// Lookups answered by the copy right above the level asked for, and those that were not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    /// Bytes the copies take.
    pub fn bytes(&self) -> usize {
        self.read().bytes
    }
}

/// The child pointer of entry `index`.
pub(crate) fn child_address(body: &SortedBody, index: usize) -> GlobalAddress {
    GlobalAddress::from_bits(get_u64(body.payload(index), 0))
}

impl State {
    /// Drops the node at `index` of the levels that covers `key`, if there is one.
    fn forget(&mut self, key: &[u8], index: usize) {
        let Some(nodes) = self.levels.get_mut(index) else { return };
        let covering = nodes.covering(key).and_then(|entry| nodes.by_low.get(&entry.low)).copied();
        if let Some(at) = covering {
            self.bytes -= nodes.remove(at);
        }
    }

    /// Evicts one node of the lowest level that has any: the upper levels are few and serve everyone. False if none is left.
    fn evict(&mut self) -> bool {
        let Some(level) = self.levels.iter().position(|nodes| !nodes.entries.is_empty()) else { return false };
        let (first, second) = (self.roll(), self.roll());
        let nodes = &mut self.levels[level];
        let used = |roll: usize| nodes.entries[roll % nodes.entries.len()].used.load(Ordering::Relaxed);
        let victim = if used(first) <= used(second) { first } else { second } % nodes.entries.len();
        self.bytes -= nodes.remove(victim);
        true
    }

    fn roll(&mut self) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Format, TreeShape};
    use sherman_fabric::control::TreeSpec;

    fn body(low: u64, children: u64) -> SortedBody {
        let spec = TreeSpec {
            format: Format::LineStamped.number(),
            key_len: 8,
            value_len: 8,
            leaf_bytes: 1024,
            internal_bytes: 1024,
        };
        let shape = TreeShape::new(&spec, 1).expect("a legal shape");
        let mut body = SortedBody::empty(&shape.internal);
        for i in 0..children {
            let child = GlobalAddress::new(0, ((low + i) % 1_000_000) * 64).to_bits().to_le_bytes();
            body.insert(i as usize, &(low + i).to_be_bytes(), &child);
        }
        body
    }

    fn keep(cache: &IndexCache, low: u64, high: u64) {
        cache.keep(1, low.to_be_bytes().to_vec(), Some(high.to_be_bytes().to_vec()), body(low, high - low));
    }

    #[test]
    fn a_cached_node_answers_for_its_fences_only() {
        let cache = IndexCache::new(1 << 20);
        keep(&cache, 10, 20);
        let child = |key: u64| cache.child(&key.to_be_bytes(), 0);
        assert_eq!(child(13), Some((GlobalAddress::new(0, 13 * 64), 0)));
        assert_eq!((child(9), child(20)), (None, None));
        assert_eq!(cache.hits_and_misses(), (1, 2));
        cache.forget(&15_u64.to_be_bytes(), 0);
        assert_eq!((child(13), cache.bytes()), (None, 0));
    }

    #[test]
    fn the_bound_holds_whatever_the_keys() {
        let cache = IndexCache::new(4096);
        for low in (0..1000).map(|i| u64::MAX / 2 + i * 10) {
            keep(&cache, low, low + 4);
            assert!(cache.bytes() <= 4096 && cache.bytes() > 0);
            let found = cache.child(&low.to_be_bytes(), 0);
            assert!(found.is_none_or(|(address, _)| address == GlobalAddress::new(0, (low % 1_000_000) * 64)));
        }
        let state = cache.read();
        let level = &state.levels[0];
        assert_eq!(level.entries.len(), level.by_low.len());
        for (low, &index) in &level.by_low {
            assert_eq!(&level.entries[index].low, low);
        }
        assert_eq!(state.bytes, level.entries.iter().map(|entry| entry.bytes).sum::<usize>());
    }

    #[test]
    fn what_is_larger_than_the_bound_is_not_kept() {
        let cache = IndexCache::new(10);
        keep(&cache, 0, 4);
        assert_eq!((cache.bytes(), cache.child(&1_u64.to_be_bytes(), 0)), (0, None));
    }
}
