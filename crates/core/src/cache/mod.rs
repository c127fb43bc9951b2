//! The index cache (paper §4.2.3): copies of internal nodes, shared by the threads of a compute server.
//!
//! The cache only tells an operation where to look. The operation validates the node it reaches by mark,
//! format, tree, level and fences (I10). So a stale, torn or evicted copy costs a round trip and never a
//! wrong answer. The cache must only return whole pointers that some node once had.
//!
//! A lookup starts at the root word and follows addresses from copy to copy. It takes no lock, allocates
//! nothing and writes nothing shared, except a use mark that is stored only when it changes. A copy is a head
//! of fixed size, found through a table (`table`), and a run of as many lines as its entries need (`layout`).
//! Both are atomic words under a sequence lock (`slot`). All changes go through one lock (`writer`). The
//! cache is bounded in bytes: when they are used up, a new copy replaces old ones.
//!
//! | module | what |
//! |---|---|
//! | `layout` | the words of a copy; keys and children as words |
//! | `content` | a copy's entries outside its slot, and the words that they become |
//! | `slot` | reading and changing one copy |
//! | `table` | from addresses to slots |
//! | `store` | the memory of heads and runs, and the table |
//! | `writer` | giving heads and runs out and taking them back |

mod content;
mod layout;
#[cfg(feature = "mutants")]
pub(crate) mod seam;
mod slot;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use crate::node::{Shape, SortedBody, get_u64};
use crate::root::RootWord;
use content::{Content, Encoded, Fences};
use layout::{ADDRESS, ChildCode, Layout, Long, Meta, SearchKey, Short, key_word};
use sherman_fabric::GlobalAddress;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use store::{LINE_BYTES, Store};
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
    /// Created when the first copy is kept, so an unused cache costs nothing. `None` if there is no memory.
    store: OnceLock<Option<Store>>,
    /// Coarse time, for use marks.
    epoch: AtomicU64,
    layout: Layout,
    limit: usize,
    writer: Apart<Mutex<Writer>>,
}

/// Keeps words that writers write off the cache lines that readers read.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

impl IndexCache {
    /// Creates a cache of at most `limit` bytes for internal nodes of this shape.
    pub fn new(limit: usize, shape: &Shape) -> Self {
        let layout = Layout::new(shape);
        let writer = Apart(Mutex::new(Writer::new(limit, &layout)));
        Self { store: OnceLock::new(), epoch: AtomicU64::new(1), layout, limit, writer }
    }

    #[inline(always)]
    fn store(&self) -> Option<&Store> {
        self.store.get()?.as_ref()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Descends from `root` towards the node at `level` responsible for `key`, as far as there are copies.
    /// `root` may be any node believed to be on that path.
    pub fn locate(&self, root: RootWord, key: &[u8], level: u8) -> Found {
        match self.store() {
            Some(store) if self.layout.key_words == 1 => {
                self.descend(store, root, Short(key_word(key, 0)), level)
            }
            Some(store) => self.descend(store, root, Long(key), level),
            None => Found { address: root.address, level: root.level, hit: root.level == level },
        }
    }

    /// Compiled by itself for each kind of key: together they would have too few registers.
    #[inline(never)]
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
        let Some(store) = self.store() else { return false };
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
                let child = |index| GlobalAddress::from_bits(slot.child_at(meta, index));
                if backward {
                    into.extend((0..=first).rev().take(most).map(child));
                } else {
                    into.extend((first..slot.count(meta)).take(most).map(child));
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
        if self.limit < self.bytes_for(1)
            || level == 0
            || address.is_null()
            || body.is_empty()
            || body.len() > self.layout.room
        {
            return;
        }
        let kept = self.store().and_then(|store| store.version(address));
        if kept.is_some_and(|kept| !is_newer(version, kept)) {
            return;
        }
        let fences = Fences::new(low, high, &self.layout);
        let encoded = Content::of(body, &self.layout).encode(&fences, &self.layout);
        let high_open = high.is_none();
        let meta = Meta { count: body.len(), version, level, high_open, code: encoded.code };
        let mut writer = self.writer();
        let store = self.store.get_or_init(|| Store::new(self.layout.clone(), self.limit));
        let Some(store) = store else { return };
        let held = store.holder(address);
        if held.is_none_or(|(_, slot)| is_newer(version, slot.meta().version)) {
            self.put(&mut writer, store, address, meta, &fences, &encoded);
        }
    }

    /// Stores a copy in place of the one that the cache has of that node, or as a new one.
    fn put(
        &self,
        writer: &mut Writer,
        store: &Store,
        address: GlobalAddress,
        meta: Meta,
        fences: &Fences,
        encoded: &Encoded,
    ) {
        let lines = encoded.lines() as u32;
        if let Some((index, slot)) = store.holder(address) {
            if lines <= slot.run().lines {
                let run = writer.cut(store, slot.run(), lines);
                return slot.fill(address.to_bits(), meta, fences, encoded, run);
            }
            writer.drop_copy(store, index);
        }
        let Some((index, run)) = writer.take(store, lines) else { return };
        let Some(slot) = store.slot(index) else { return };
        let epoch = writer.tick();
        self.epoch.store(epoch, Ordering::Relaxed);
        slot.fill(address.to_bits(), meta, fences, encoded, run);
        slot.touch(epoch);
        writer.bytes += store.publish(address, index, writer.nodes);
        writer.nodes += 1;
    }

    /// Inserts a separator into the cached copy of a parent. The caller walked right at `level` and found
    /// that `key` is the low fence of `child`. Drops a copy without room, because it missed one or more
    /// splits.
    pub fn learn(&self, root: RootWord, level: u8, key: &[u8], child: GlobalAddress) {
        let Some(store) = self.store() else { return };
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
            Some((index, _)) if slot.has_key(meta, index, key_words) => {}
            Some(_) if meta.count >= self.layout.room => writer.drop_copy(store, at),
            Some((index, _)) => {
                let mut content = slot.content(meta);
                content.insert(place_behind(index), key, child.to_bits(), &self.layout);
                let fences = slot.fences();
                let encoded = content.encode(&fences, &self.layout);
                let meta = Meta { count: meta.count + 1, code: encoded.code, ..meta };
                self.put(&mut writer, store, parent.address, meta, &fences, &encoded);
            }
            None => {}
        }
    }

    /// Drops the copy of the node at `address`.
    pub fn forget(&self, address: GlobalAddress) {
        let Some(store) = self.store() else { return };
        let mut writer = self.writer();
        if let Some((index, _)) = store.holder(address) {
            writer.drop_copy(store, index);
        }
    }

    /// Drops every copy above `level` on the path to `key`.
    pub fn forget_path(&self, root: RootWord, key: &[u8], level: u8) {
        seam!(cache::forget_path());
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

    /// Whether the copy of the node at `address` leads to the same children as the node, which has these
    /// entries (I10). True if there is no copy of that version. For checkers.
    pub fn agrees<'e>(
        &self,
        address: GlobalAddress,
        version: u16,
        mut entries: impl Iterator<Item = (&'e [u8], GlobalAddress)>,
    ) -> bool {
        let Some(store) = self.store() else { return true };
        let _no_writer = self.writer();
        let Some((_, slot)) = store.holder(address) else { return true };
        let meta = slot.meta();
        // The copy may have separators that the node does not have yet. These are other keys.
        let leads = |key: &[u8]| slot.covers(meta, Long(key)).then(|| slot.responsible(meta, Long(key)));
        meta.version != version
            || entries
                .all(|(key, child)| leads(key).flatten().is_some_and(|(_, found)| found == child.to_bits()))
    }

    /// Drops every copy. The next operation starts at the root.
    pub fn clear(&self) {
        if let Some(store) = self.store() {
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

    /// Bytes of memory that suffice for copies of `nodes` nodes, whatever these hold.
    pub fn bytes_for(&self, nodes: usize) -> usize {
        self.bytes_for_copies(nodes, self.layout.room, ChildCode::MOST_BYTES)
    }

    /// Bytes of memory that copies of `nodes` nodes of `children` children take, if the addresses of a node's
    /// children differ in `child_bytes` bytes.
    pub fn bytes_for_copies(&self, nodes: usize, children: usize, child_bytes: usize) -> usize {
        let run = self.layout.run_lines(children.min(self.layout.room), child_bytes) * LINE_BYTES;
        let copies = nodes.saturating_mul(store::head_bytes(&self.layout) + run);
        copies.saturating_add(table::bytes_for(nodes))
    }

    /// Bytes of memory it may allocate.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// Where a separator belongs that a copy learns, if entry `index` is responsible for it so far.
fn place_behind(index: usize) -> usize {
    seam!(cache::place_behind(index));
    index + 1
}

/// Whether version `a` is newer than `b`, in serial arithmetic.
fn is_newer(a: u16, b: u16) -> bool {
    a.wrapping_sub(b) as i16 > 0
}

/// The child pointer of entry `index`.
pub(crate) fn child_address(body: &SortedBody, index: usize) -> GlobalAddress {
    GlobalAddress::from_bits(get_u64(body.payload(index), 0))
}
