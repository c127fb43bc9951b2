//! The index cache (paper §4.2.3): copies of internal nodes, shared by the threads of a compute server.
//!
//! The cache only tells an operation where to look. The operation validates the node it reaches by mark,
//! format, tree, level and fences (I10). So a stale, torn or evicted copy costs a round trip and never a
//! wrong answer. The cache must only return whole pointers that some node once had.
//!
//! A lookup starts at the root word and follows addresses from copy to copy. It takes no lock, allocates
//! nothing and writes nothing shared, except a use mark that is stored only when it changes. Copies lie in
//! fixed slots of atomic words (`slot`: a sequence lock), found through a table (`table`). All changes go
//! through one lock (`writer`). The cache is bounded in bytes: when all slots are taken, a new copy replaces
//! an old one.
//!
//! | module | what |
//! |---|---|
//! | `layout` | the words of a copy; keys as words |
//! | `slot` | reading and changing one copy |
//! | `table` | from addresses to slots |
//! | `store` | slots in segments, and their table |
//! | `writer` | giving slots out and taking them back |

mod layout;
mod slot;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use crate::node::{Shape, SortedBody, get_u64};
use crate::root::RootWord;
use layout::{ADDRESS, Layout, Long, Meta, SearchKey, Short, key_word};
use sherman_fabric::GlobalAddress;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use store::Store;
use writer::Writer;

/// Where a descent through the copies ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The node at the requested level, or the first node on the path without a usable copy.
    pub address: GlobalAddress,
    /// Its level.
    pub level: u8,
    /// Whether that is the requested level.
    pub hit: bool,
}

/// Copies of a tree's internal nodes.
#[derive(Debug)]
pub struct IndexCache {
    /// Created when the first copy is kept, so an unused cache costs nothing.
    store: OnceLock<Store>,
    /// Coarse time, for use marks.
    epoch: AtomicU64,
    layout: Layout,
    slots: u32,
    limit: usize,
    writer: Apart<Mutex<Writer>>,
}

/// Keeps words that writers write off the cache lines that readers read.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl IndexCache {
    /// Creates a cache of at most `limit` bytes for internal nodes of this shape.
    pub fn new(limit: usize, shape: &Shape) -> Self {
        let layout = Layout::new(shape);
        let slots = store::slots_in(limit, &layout);
        Self {
            store: OnceLock::new(),
            epoch: AtomicU64::new(1),
            layout,
            slots,
            limit,
            writer: Apart::default(),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Descends from `root` towards the node at `level` responsible for `key`, as far as there are copies.
    /// `root` may be any node believed to be on that path.
    pub fn locate(&self, root: RootWord, key: &[u8], level: u8) -> Found {
        match self.store.get() {
            Some(store) if self.layout.key_words == 1 => {
                self.descend(store, root, Short(key_word(key, 0)), level)
            }
            Some(store) => self.descend(store, root, Long(key), level),
            None => Found { address: root.address, level: root.level, hit: root.level == level },
        }
    }

    fn descend<K: SearchKey>(&self, store: &Store, root: RootWord, key: K, level: u8) -> Found {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let (mut at, mut on) = (root.address, root.level);
        while on > level {
            let Some(child) = store.child(at, on, key, epoch) else { break };
            at = child;
            on -= 1;
        }
        Found { address: at, level: on, hit: on == level }
    }

    /// Finds the leaf responsible for `key` and up to `most` − 1 leaves that follow it (`backward`: precede
    /// it), as far as one copy knows them. Returns false if no copy covers `key`; `into` is then empty.
    pub fn children(
        &self,
        root: RootWord,
        key: &[u8],
        backward: bool,
        most: usize,
        into: &mut Vec<GlobalAddress>,
    ) -> bool {
        into.clear();
        let Some(store) = self.store.get() else { return false };
        let parent = self.locate(root, key, 1);
        if !parent.hit {
            return false;
        }
        let Some(table) = store.table() else { return false };
        let answered = table.find(parent.address, |index| {
            let slot = store.slot(index)?;
            slot.read(|| {
                into.clear();
                let meta = slot.meta();
                if slot.word(ADDRESS) != parent.address.to_bits()
                    || meta.level != 1
                    || !slot.covers(meta, Long(key))
                {
                    return None;
                }
                let (first, _) = slot.responsible(meta, Long(key))?;
                let child = |index| GlobalAddress::from_bits(slot.child_at(index));
                if backward {
                    into.extend((0..=first).rev().take(most).map(child));
                } else {
                    into.extend((first..meta.count.min(self.layout.room)).take(most).map(child));
                }
                Some(())
            })
            .flatten()
        });
        if answered.is_none() {
            into.clear();
        }
        answered.is_some()
    }

    /// Keeps a copy of the node at `address`, unless the cache has one of the same or a newer version.
    pub fn keep(
        &self,
        address: GlobalAddress,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
        version: u16,
        body: &SortedBody,
    ) {
        if self.slots == 0
            || level == 0
            || address.is_null()
            || body.is_empty()
            || body.len() > self.layout.room
        {
            return;
        }
        let store = self.store.get();
        if store.and_then(|store| store.version(address)).is_some_and(|kept| !is_newer(version, kept)) {
            return;
        }
        let mut writer = self.writer();
        let store = self.store.get_or_init(|| {
            let store = Store::new(self.layout.clone(), self.slots);
            writer.bytes = store.base_bytes();
            store
        });
        let meta = Meta { count: body.len(), version, level, high_open: high.is_none() };
        if let Some((_, slot)) = store.holder(address) {
            if is_newer(version, slot.meta().version) {
                slot.fill(address.to_bits(), meta, low, high, body);
            }
            return;
        }
        let Some((index, slot)) = writer.take(store, self.slots) else { return };
        slot.fill(address.to_bits(), meta, low, high, body);
        slot.touch(self.tick(&mut writer));
        writer.bytes += store.publish(address, index, writer.nodes);
        writer.nodes += 1;
    }

    /// Advances the epoch once for every sixteenth of the cache that is replaced.
    fn tick(&self, writer: &mut Writer) -> u64 {
        writer.kept += 1;
        let epoch = 1 + writer.kept / u64::from(self.slots / 16 + 1);
        self.epoch.store(epoch, Ordering::Relaxed);
        epoch
    }

    /// Inserts a separator into the cached copy of a parent. The caller walked right at `level` and found
    /// that `key` is the low fence of `child`. Drops a copy without room, because it missed one or more
    /// splits.
    pub fn learn(&self, root: RootWord, level: u8, key: &[u8], child: GlobalAddress) {
        let Some(store) = self.store.get() else { return };
        if level >= root.level || child.is_null() {
            return;
        }
        let parent = self.locate(root, key, level + 1);
        if !parent.hit {
            return;
        }
        let key_words = Long(key);
        let mut writer = self.writer();
        let Some((at, slot)) = store.holder(parent.address) else { return };
        let meta = slot.meta();
        if meta.level != level + 1 || !slot.covers(meta, key_words) {
            return;
        }
        match slot.responsible(meta, key_words) {
            Some((index, _)) if slot.has_key(index, key_words) => {}
            Some(_) if meta.count >= self.layout.room => writer.drop_copy(store, at, slot),
            Some((index, _)) => slot.insert(meta, index + 1, key, child.to_bits()),
            None => {}
        }
    }

    /// Drops the copy of the node at `address`.
    pub fn forget(&self, address: GlobalAddress) {
        let Some(store) = self.store.get() else { return };
        let mut writer = self.writer();
        if let Some((index, slot)) = store.holder(address) {
            writer.drop_copy(store, index, slot);
        }
    }

    /// Drops every copy above `level` on the path to `key`.
    pub fn forget_path(&self, root: RootWord, key: &[u8], level: u8) {
        let mut at = root;
        while at.level > level {
            let next = self.locate(at, key, at.level - 1);
            self.forget(at.address);
            if !next.hit {
                return;
            }
            at = RootWord { address: next.address, level: next.level };
        }
    }

    /// Drops every copy. The next operation starts at the root.
    pub fn clear(&self) {
        if let Some(store) = self.store.get() {
            self.writer().clear(store);
        }
    }

    /// Bytes of memory the cache has allocated. It keeps them for later copies.
    pub fn bytes(&self) -> usize {
        self.writer().bytes
    }

    /// Number of copies it holds.
    pub fn nodes(&self) -> usize {
        self.writer().nodes
    }

    /// Number of copies it may hold.
    pub fn room(&self) -> usize {
        self.slots as usize
    }

    /// Bytes of memory it needs to hold `nodes` copies.
    pub fn bytes_for(&self, nodes: usize) -> usize {
        nodes.saturating_mul(store::slot_bytes(&self.layout))
    }

    /// Bytes of memory it may allocate.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// Whether version `a` is newer than `b`, in serial arithmetic.
fn is_newer(a: u16, b: u16) -> bool {
    a.wrapping_sub(b) as i16 > 0
}

/// The child pointer of entry `index`.
pub(crate) fn child_address(body: &SortedBody, index: usize) -> GlobalAddress {
    GlobalAddress::from_bits(get_u64(body.payload(index), 0))
}
