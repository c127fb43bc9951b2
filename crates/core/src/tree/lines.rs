//! Operations on one key of a `LineHashed` leaf: they read the lines of the key and nothing else.
//!
//! ```text
//!  get     [READ lines]                                   or none: `shared.rs`
//!  change  [CAS lane, READ lines] · [WRITE one line, release]
//! ```
//! If the lines give no answer, the operation goes the slow way and reads the whole leaf: the leaf has split,
//! the cached pointer is out of date, or the lines are torn. Such a detour is rare, and it updates the cache.

use super::TreeState;
use super::descend::Covering;
use super::merge;
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::{Held, Locked};
use crate::node::entry::EntryWrite;
use crate::node::hashed::window_bytes;
use crate::node::window::{ChangeRule, EntryChange, Unfit};
use crate::node::{LINE, Node, Position, Window};
use crate::op::Op;
use crate::share::LineRange;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space};

impl<E: Endpoint> Op<'_, E> {
    /// Looks `key` up in its lines of the leaf at `at`. Returns `None` if they give no answer.
    #[inline]
    pub(super) async fn get_lines(
        &self,
        tree: &TreeState,
        at: GlobalAddress,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, Error> {
        let shape = &tree.shape.leaf;
        let window = window_bytes(shape, key);
        let first = GlobalAddress::new(at.server(), at.offset() + window.start as u64);
        let lines = LineRange { first, bytes: window.len() };
        let mut look = |lines: &[u8]| Window::open(shape, lines, key).map(|window| window.get(key, value));
        let found = match self.worker.compute.reads.begin(lines) {
            Some(in_flight) => {
                let (list, read) = self.read_lines(lines).await?;
                drop(in_flight);
                let found = look(list.bytes(read));
                self.endpoint().recycle(list);
                found
            }
            None => Box::pin(self.read_shared(lines, look)).await?,
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Unfit::Elsewhere) => Ok(None),
            Err(Unfit::Torn) => {
                Box::pin(self.retry(Cause::TornNode)).await?;
                Ok(None)
            }
        }
    }

    /// Changes the entry of `key` by a rule. Returns whether the key was there; `old` receives its value.
    /// Returns `None`, and has changed nothing, if the caller must go the slow way: the leaf has no lines to
    /// read alone, the cache does not name it, or the lines give no answer.
    #[inline]
    pub(super) async fn change_lines(
        &self,
        tree: &TreeState,
        key: &[u8],
        old: &mut Vec<u8>,
        rule: ChangeRule<'_>,
    ) -> Result<Option<bool>, Error> {
        let shape = &tree.shape.leaf;
        // A write inside one line needs a record only where lines can tear.
        let whole_lines = self.worker.compute.caps().crash_unit as usize >= LINE;
        if !(shape.is_hashed() && whole_lines) {
            return Ok(None);
        }
        let Some(at) = self.locate_known(tree, key, 0) else { return Ok(None) };
        if self.combines() {
            return self.change_combined(tree, at, key, old, rule).await;
        }
        let locked = self.lock_lines(at, shape.node_bytes(), window_bytes(shape, key)).await?;
        let Ok(window) = Window::open(shape, locked.image(), key) else {
            Box::pin(self.release(locked.done(self))).await?;
            return Ok(None);
        };
        let found = window.get_slot(key, old);
        let there = found.is_some();
        let change = rule.decide(there.then_some(old.as_slice()));
        let (entries, all) = (window.len(), window.is_whole_leaf());
        let Some(entry) = window.change_found(found, key, change) else {
            if let EntryChange::Put(value) = change {
                return Box::pin(self.insert_whole(tree, locked, key, value, old)).await;
            }
            self.release(locked.done(self)).await?;
            return Ok(Some(there));
        };
        self.write_entry(at, locked.done(self), &entry, change).await?;
        if change == EntryChange::Remove {
            Box::pin(self.tidy_lines(tree, key, entries - 1, all)).await;
        }
        Ok(Some(there))
    }

    /// Writes the line of a changed entry of the leaf at `at`, and gives the lane back.
    #[inline]
    pub(super) async fn write_entry(
        &self,
        at: GlobalAddress,
        held: Held,
        entry: &EntryWrite,
        change: EntryChange<'_>,
    ) -> Result<(), Error> {
        let mut list = self.endpoint().list(at.server());
        list.write(Space::Host, at.offset() + entry.range().start as u64, entry.bytes());
        let written = self.write_back(held, list).await;
        written.map_err(|error| self.entry_in_doubt(error, at, entry, change))
    }

    /// The error of a change whose WRITE failed.
    #[cold]
    pub(super) fn entry_in_doubt(
        &self,
        error: FabricError,
        at: GlobalAddress,
        entry: &EntryWrite,
        change: EntryChange<'_>,
    ) -> Error {
        if entry.updated && change != EntryChange::Remove {
            self.note_replaces();
        }
        self.in_doubt(error, at, entry.range().start, entry.bytes())
    }

    /// Inserts a new key whose lines are full. Reads the whole leaf under the lane, and splits it.
    pub(super) async fn insert_whole(
        &self,
        tree: &TreeState,
        locked: Locked,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<Option<bool>, Error> {
        let shape = &tree.shape.leaf;
        let locked = self.read_rest(locked, shape.node_bytes()).await?;
        let leaf = Node::open(shape, locked.image(), 0).ok();
        match leaf.filter(|leaf| leaf.position(key) == Position::Inside).map(|leaf| leaf.header) {
            Some(header) => {
                let covering = Covering { locked, header, missed: None };
                self.insert_into(tree, covering, key, value, old).await.map(Some)
            }
            None => {
                self.release(locked.done(self)).await?;
                Ok(None)
            }
        }
    }

    /// Merges the leaf of `key` after a remove that left `entries` in the lines of the key. `all`: the leaf
    /// has no other lines. Otherwise the operation reads the leaf if those lines are almost empty, to find
    /// out whether the leaf is.
    pub(super) async fn tidy_lines(&self, tree: &TreeState, key: &[u8], entries: usize, all: bool) {
        let shape = &tree.shape.leaf;
        let small = match (all, entries) {
            (true, entries) => merge::worth_a_try(entries, shape.capacity()),
            (false, left) if seems_small(left, shape.window_slots()) => self.leaf_is_small(tree, key).await,
            (false, _) => false,
        };
        if small {
            self.tidy(tree, 0, key).await;
        }
    }

    /// Whether the leaf that the cache names for `key` is too empty. False if that cannot be found out.
    async fn leaf_is_small(&self, tree: &TreeState, key: &[u8]) -> bool {
        let shape = &tree.shape.leaf;
        let Some(at) = self.locate_known(tree, key, 0) else { return false };
        let mut list = self.endpoint().list(at.server());
        let read = list.read(Space::Host, at.offset(), shape.node_bytes() as u32);
        let Ok(list) = self.execute(list).await else { return false };
        let leaf = Node::open(shape, list.bytes(read), 0).ok();
        let small = leaf.is_some_and(|leaf| merge::is_small(leaf.len(), leaf.capacity()));
        self.endpoint().recycle(list);
        small
    }
}

/// Whether a leaf may be too empty, if the lines of one key have `left` entries in `slots` slots. As with
/// whole leaves, not every remove finds out.
fn seems_small(left: usize, slots: usize) -> bool {
    left == 0 || (4 * left <= slots && left.is_power_of_two())
}
