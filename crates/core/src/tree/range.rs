//! Range scans in either direction. They read leaves in parallel.
//!
//! A scan has a **cursor**: the next key that it has not looked at. The index names a few leaves from the
//! cursor on. The scan reads them at once and joins them by their fences. A leaf counts only if it covers the
//! cursor. The scan takes all its entries beyond the cursor, and moves the cursor past its fence.
//!
//! So the scan looks for each key of the range in exactly one image that was responsible for it, whatever
//! splits and merges happen meanwhile. It misses no key that is there throughout, and delivers no key twice.
//! Each pair was true at some moment between the scan's beginning and its delivery. A scan is not a snapshot:
//! two pairs may be of different moments.
//!
//! An image that is free, torn or of another range ends the batch. The scan continues from the cursor with a
//! new descent.

use super::TreeState;
use super::descend::Sibling;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::block::{self, Slot};
use crate::node::{Node, Position, Reject, Scratch};
use crate::op::Op;
use crate::worker::Worker;
use sherman_fabric::{Endpoint, GlobalAddress};
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Bytes of long values that a scan reads at once. It reads at least one value.
const VALUES_AT_ONCE: usize = 4 << 20;
/// The most leaves a scan reads at once.
pub const MAX_PREFETCH: usize = 32;

/// A scan of a range of keys: its position, and the entries that it has read but not yet delivered.
#[derive(Debug)]
pub struct Scan {
    pub(super) direction: Direction,
    /// The next key to look at, inclusive. It has no meaning when the scan is over.
    pub(super) cursor: Vec<u8>,
    pub(super) over: bool,
    /// The last key to look at, inclusive.
    end: Vec<u8>,
    prefetch: usize,
    /// How many more entries to read, if there is a limit. Buffered entries are already counted.
    limit: Option<usize>,
    key_len: usize,
    entry_len: usize,
    /// Offset of the next entry to deliver, in the entries read.
    next: usize,
    /// Leaves whose entries were taken since the scan last read.
    taken: usize,
    /// How many entries the last of these leaves can hold.
    capacity: usize,
    /// Entries read, in the scan's order.
    entries: Vec<u8>,
    /// In a tree whose values have any length: the value of each entry read. Delivered in place of slots.
    values: Option<Vec<Vec<u8>>>,
    scratch: Scratch,
    leaves: Vec<GlobalAddress>,
    /// Where the scan was before it last read.
    mark: Mark,
}

/// A position of a scan, from which it can read again.
#[derive(Debug, Default)]
struct Mark {
    cursor: Vec<u8>,
    over: bool,
    limit: Option<usize>,
}

/// The position of a leaf relative to the cursor.
pub(super) enum Took {
    /// The leaf covers the cursor, which has moved past it.
    All,
    /// The cursor lies right of the leaf; this is the leaf's sibling.
    Right(Sibling),
    /// The cursor lies left of the leaf.
    Left,
}

impl Scan {
    /// Begins a scan of the keys from `from` to `to`, both in ascending terms whatever the direction. The
    /// scan reads up to `prefetch` leaves at once (at least 1, at most [`MAX_PREFETCH`]).
    ///
    /// # Errors
    /// [`Error::KeySize`]; [`Error::BadRange`] if `from` lies behind `to`, or both are excluded and equal.
    pub fn new(
        tree: &TreeState,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        prefetch: usize,
    ) -> Result<Self, Error> {
        let mut scan = Self {
            direction,
            cursor: Vec::new(),
            over: false,
            end: Vec::new(),
            prefetch,
            limit: None,
            key_len: 0,
            entry_len: 0,
            next: 0,
            taken: 0,
            capacity: 0,
            entries: Vec::new(),
            values: None,
            scratch: Scratch::default(),
            leaves: Vec::new(),
            mark: Mark::default(),
        };
        scan.begin(tree, from, to, direction, prefetch)?;
        Ok(scan)
    }

    /// Begins another scan with the buffers of this one. Arguments and errors are those of [`Scan::new`].
    pub(crate) fn begin(
        &mut self,
        tree: &TreeState,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        prefetch: usize,
    ) -> Result<(), Error> {
        check_bounds(tree, from, to)?;
        let (low, high) = match direction {
            Direction::Forward => (&mut self.cursor, &mut self.end),
            Direction::Backward => (&mut self.end, &mut self.cursor),
        };
        let key_len = tree.shape.leaf.key_len();
        let mut over = false;
        set_bound(low, from, key_len, 0, |key| over |= !step_up(key));
        set_bound(high, to, key_len, 0xff, |key| over |= !step_down(key));
        self.over = over || low > high;
        self.direction = direction;
        self.set_prefetch(prefetch);
        self.limit = None;
        self.key_len = key_len;
        self.entry_len = key_len + tree.shape.leaf.payload_len();
        self.next = 0;
        self.taken = 0;
        self.entries.clear();
        self.values = tree.has_blocks().then(Vec::new);
        Ok(())
    }

    /// Sets how many leaves the scan reads at once from now on.
    pub fn set_prefetch(&mut self, leaves: usize) {
        self.prefetch = leaves.clamp(1, MAX_PREFETCH);
    }

    /// Limits the scan to `entries` more entries, unless an earlier limit is lower. The scan reads only as
    /// many leaves as these need.
    pub fn set_limit(&mut self, entries: usize) {
        let buffered = self.buffered();
        if entries < buffered {
            self.entries.truncate(self.next + entries * self.entry_len);
        }
        let unread = entries.saturating_sub(buffered);
        self.limit = Some(self.limit.map_or(unread, |limit| limit.min(unread)));
    }

    /// How many more entries the scan may deliver, if there is a limit.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(|unread| unread.saturating_add(self.buffered()))
    }

    /// The next key that the scan has not looked at; `None` if it is over.
    pub fn position(&self) -> Option<&[u8]> {
        (!self.over).then_some(&self.cursor)
    }

    /// How many entries are read but not delivered.
    fn buffered(&self) -> usize {
        (self.entries.len() - self.next) / self.entry_len
    }

    /// Whether every entry that was read has been delivered.
    pub fn is_drained(&self) -> bool {
        self.next >= self.entries.len()
    }

    /// Returns the next entry that was read already. Not an `Iterator`: the entry borrows the buffer.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend what it owns")]
    #[inline]
    pub fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.next..self.next + self.entry_len)?;
        let number = self.next / self.entry_len;
        self.next += self.entry_len;
        let (key, slot) = entry.split_at(self.key_len);
        match &self.values {
            None => Some((key, slot)),
            Some(values) => Some((key, values.get(number)?)),
        }
    }

    /// Returns the key of the entry that `next` will return, if it was read already.
    pub fn next_key(&self) -> Option<&[u8]> {
        self.entries.get(self.next..self.next + self.key_len)
    }

    /// Returns the key of the last entry that `next` returned, if it is still buffered.
    pub fn last_key(&self) -> Option<&[u8]> {
        let at = self.next.checked_sub(self.entry_len)?;
        self.entries.get(at..at + self.key_len)
    }

    /// Notes the position before a read. The scan has no entries that were not delivered.
    fn mark(&mut self) {
        self.mark.cursor.clone_from(&self.cursor);
        (self.mark.over, self.mark.limit) = (self.over, self.limit);
    }

    /// Goes back to the noted position, and forgets what was read since.
    fn go_back(&mut self) {
        self.cursor.clone_from(&self.mark.cursor);
        (self.over, self.limit) = (self.mark.over, self.mark.limit);
        (self.next, self.taken) = (0, 0);
        self.entries.clear();
    }

    /// How many leaves to read at once now.
    fn leaves_wanted(&self, capacity: usize) -> usize {
        let capacity = capacity.max(1);
        // Assumes that leaves are three quarters full, and that the scan enters the first in its middle.
        let for_limit =
            self.limit.map(|left| left.saturating_mul(8).saturating_add(3 * capacity) / (6 * capacity) + 1);
        for_limit.unwrap_or(MAX_PREFETCH).min(self.prefetch)
    }

    /// Returns where the cursor lies, if the leaf does not cover it.
    fn is_elsewhere(&self, leaf: &Node<'_>) -> Option<Took> {
        seam!(tree::is_elsewhere(self, leaf));
        match leaf.position(&self.cursor) {
            _ if self.over => Some(Took::Left),
            Position::Left => Some(Took::Left),
            Position::Right => Some(Took::Right(Sibling::of(leaf))),
            Position::Inside => None,
        }
    }

    /// Takes the entries of a leaf that lie in the range, if the leaf covers the cursor.
    fn take(&mut self, leaf: &Node<'_>) -> Result<Took, Cause> {
        seam!(tree::take(self, leaf));
        if let Some(elsewhere) = self.is_elsewhere(leaf) {
            return Ok(elsewhere);
        }
        let from = self.entries.len();
        let (first, last) = match self.direction {
            Direction::Forward => (&self.cursor, &self.end),
            Direction::Backward => (&self.end, &self.cursor),
        };
        if !leaf.collect(first, Some(last), &mut self.scratch, &mut self.entries) {
            return Err(Cause::TornEntry);
        }
        self.taken += 1;
        self.capacity = leaf.capacity();
        match self.direction {
            Direction::Forward => self.over = !leaf.high_into(&mut self.cursor) || self.cursor > self.end,
            Direction::Backward => {
                reverse(&mut self.entries[from..], self.entry_len);
                leaf.low_into(&mut self.cursor);
                self.over = !step_down(&mut self.cursor) || self.cursor < self.end;
            }
        }
        self.keep_to_limit(from);
        Ok(Took::All)
    }

    /// Keeps the first `count` entries. The others do not count as read.
    fn cut(&mut self, count: usize) {
        let dropped = (self.entries.len() / self.entry_len).saturating_sub(count);
        self.entries.truncate(count * self.entry_len);
        if let Some(unread) = &mut self.limit {
            *unread += dropped;
        }
    }

    /// Counts the entries from offset `from` on, which were read just now, and drops those beyond the limit.
    fn keep_to_limit(&mut self, from: usize) {
        if let Some(unread) = &mut self.limit {
            let read = (self.entries.len() - from) / self.entry_len;
            let kept = read.min(*unread);
            self.entries.truncate(from + kept * self.entry_len);
            *unread -= kept;
        }
    }
}

fn check_bounds(tree: &TreeState, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<(), Error> {
    for bound in [from, to] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            tree.check_key(key)?;
        }
    }
    if let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) =
        (from, to)
    {
        let both_excluded = matches!((from, to), (Bound::Excluded(_), Bound::Excluded(_)));
        if low > high || (low == high && both_excluded) {
            return Err(Error::BadRange);
        }
    }
    Ok(())
}

/// Turns a bound into an inclusive key. An unbounded key has `edge` in all bytes; an excluded key is passed
/// to `exclude`.
fn set_bound(
    key: &mut Vec<u8>,
    bound: Bound<&[u8]>,
    key_len: usize,
    edge: u8,
    exclude: impl FnOnce(&mut [u8]),
) {
    key.clear();
    match bound {
        Bound::Unbounded => key.resize(key_len, edge),
        Bound::Included(bound) => key.extend_from_slice(bound),
        Bound::Excluded(bound) => {
            key.extend_from_slice(bound);
            exclude(key);
        }
    }
}

/// Reverses the order of entries of `len` bytes.
fn reverse(entries: &mut [u8], len: usize) {
    seam!(tree::reverse());
    let count = entries.len() / len;
    for at in 0..count / 2 {
        let (front, back) = entries.split_at_mut((count - 1 - at) * len);
        front[at * len..(at + 1) * len].swap_with_slice(&mut back[..len]);
    }
}

/// Changes `key` to the next key. Returns false after the last key.
fn step_up(key: &mut [u8]) -> bool {
    key.iter_mut().rev().any(|byte| {
        *byte = byte.wrapping_add(1);
        *byte != 0
    })
}

/// Changes `key` to the previous key. Returns false before the first key.
pub(super) fn step_down(key: &mut [u8]) -> bool {
    key.iter_mut().rev().any(|byte| {
        *byte = byte.wrapping_sub(1);
        *byte != 0xff
    })
}

impl<E: Endpoint> Worker<E> {
    /// Does the work of [`Scan::new`] with the buffers of an earlier scan. The scan is in a box, because
    /// ranges pass it on.
    pub fn scan(
        &self,
        tree: &TreeState,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        prefetch: usize,
    ) -> Result<Box<Scan>, Error> {
        match self.kept_scan() {
            Some(mut scan) => scan.begin(tree, from, to, direction, prefetch).map(|()| scan),
            None => Scan::new(tree, from, to, direction, prefetch).map(Box::new),
        }
    }

    /// Keeps a finished scan's buffers for the next.
    pub fn end_scan(&self, scan: Box<Scan>) {
        self.keep_scan(scan);
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Reads on until there is an entry to deliver. Returns false if the scan is over.
    ///
    /// Costs one round trip for up to `prefetch` leaves if the level-1 node is in the cache; otherwise those
    /// of the descent too.
    ///
    /// After an error a scan without replication may have entries: those that it read before. With
    /// replication it has none, because nobody has confirmed them (R2). Then it is where it was.
    pub async fn refill(&self, tree: &TreeState, scan: &mut Scan) -> Result<bool, Error> {
        self.await_open().await?;
        if self.worker.compute.replicas.is_none() {
            return self.refill_unconfirmed(tree, scan).await;
        }
        scan.mark();
        let read = self.refill_unconfirmed(tree, scan).await;
        let confirmed = match read {
            Ok(more) => self.confirm_read().await.map(|()| more),
            failed => failed,
        };
        confirmed.inspect_err(|_| scan.go_back())
    }

    async fn refill_unconfirmed(&self, tree: &TreeState, scan: &mut Scan) -> Result<bool, Error> {
        scan.entries.clear();
        scan.next = 0;
        while scan.entries.is_empty() {
            if scan.over || scan.limit == Some(0) {
                return Ok(false);
            }
            self.name_leaves(tree, scan).await?;
            let leaves = std::mem::take(&mut scan.leaves);
            let used = self.read_leaves(tree, scan, &leaves).await?;
            scan.leaves = leaves;
            let taken = std::mem::take(&mut scan.taken);
            if taken > 0 {
                tree.scanned_capacity.store(scan.capacity, Ordering::Relaxed);
            }
            if !tree.shape.leaf.is_sorted() {
                self.endpoint().sorted(taken, scan.entries.len() / scan.entry_len);
            }
            if !used {
                let cursor = scan.cursor.clone();
                self.lost(tree, &cursor, 0).await?;
            }
            if tree.has_blocks() && !scan.entries.is_empty() {
                let first = scan.entries[..scan.key_len].to_vec();
                if let Err(error) = Box::pin(self.read_values(tree, scan)).await {
                    // Slots are no values: the scan is where it was before it read them.
                    (scan.cursor, scan.over) = (first, false);
                    scan.cut(0);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Reads the values of the entries that were read just now. Those that do not fit into memory together
    /// come later: the scan goes back to the first of them. An entry that was removed meanwhile is dropped.
    async fn read_values(&self, tree: &TreeState, scan: &mut Scan) -> Result<(), Error> {
        let (key_len, entry_len) = (scan.key_len, scan.entry_len);
        let (mut blocks, mut bytes, mut count) = (Vec::new(), 0, 0);
        let mut values: Vec<Option<Vec<u8>>> = Vec::new();
        for entry in scan.entries.chunks_exact(entry_len) {
            let (key, slot) = entry.split_at(key_len);
            let invariant = super::values::I56;
            let corrupt = Error::Corrupt { address: GlobalAddress::NULL, invariant };
            match block::read_slot(slot).ok_or(corrupt)? {
                Slot::Short(short) => values.push(Some(short.to_vec())),
                Slot::Long(block) => {
                    bytes += block.len as usize;
                    if bytes > VALUES_AT_ONCE && !blocks.is_empty() {
                        break;
                    }
                    blocks.push((count, (key, block)));
                    values.push(None);
                }
            }
            count += 1;
        }
        let named: Vec<_> = blocks.iter().map(|(_, block)| *block).collect();
        let read = self.read_blocks(tree, &named).await?;
        let mut gone = Vec::new();
        for ((number, (key, _)), value) in blocks.iter().zip(read) {
            let mut again = Vec::new();
            match value {
                Some(value) => values[*number] = Some(value),
                // The entry was changed meanwhile.
                None if self.get_value(tree, key, &mut again).await? => values[*number] = Some(again),
                None => gone.push(*number),
            }
        }
        if let Some(key) = scan.entries.get(count * entry_len..count * entry_len + key_len) {
            scan.cursor = key.to_vec();
            scan.over = false;
        }
        scan.cut(count);
        for &number in gone.iter().rev() {
            scan.entries.drain(number * entry_len..(number + 1) * entry_len);
        }
        if let Some(unread) = &mut scan.limit {
            *unread += gone.len();
        }
        scan.values = Some(values.into_iter().flatten().collect());
        Ok(())
    }

    /// Finds the addresses of the leaves to read next.
    async fn name_leaves(&self, tree: &TreeState, scan: &mut Scan) -> Result<(), Error> {
        let most = scan.leaves_wanted(tree.scanned_capacity.load(Ordering::Relaxed));
        let backward = scan.direction == Direction::Backward;
        let Scan { cursor, leaves, .. } = scan;
        leaves.clear();
        let root = self.root(tree).await?;
        if self.worker.compute.techniques().cache && tree.cache.children(root, cursor, backward, most, leaves)
        {
            self.count_lookup(true);
            return Ok(());
        }
        let found = self.visit_covering(tree, cursor, 1, |address, node, body| {
            self.keep(tree, address, node, body);
            let at = body.responsible(cursor)?;
            leaves.clear();
            let child = |index: usize| crate::cache::child_address(body, index);
            if backward {
                leaves.extend((0..=at).rev().take(most).map(child));
            } else {
                leaves.extend((at..body.len()).take(most).map(child));
            }
            Some(())
        });
        if found.await?.is_none() {
            // The tree has one leaf.
            leaves.clear();
            leaves.extend(self.locate(tree, cursor, 0).await?);
        }
        Ok(())
    }

    /// Reads the named leaves and takes their entries, in order. Returns false if not even the first leaf was
    /// useful.
    async fn read_leaves(
        &self,
        tree: &TreeState,
        scan: &mut Scan,
        leaves: &[GlobalAddress],
    ) -> Result<bool, Error> {
        let shape = &tree.shape.leaf;
        for &leaf in leaves {
            self.worker.compute.check_pointer(leaf, shape.node_bytes())?;
        }
        let read = self.read_all(leaves.iter().map(|&leaf| (leaf, shape.node_bytes()))).await?;
        let mut used = false;
        for (at, &address) in leaves.iter().enumerate() {
            if scan.over || scan.limit == Some(0) {
                break;
            }
            let took = match Node::open(shape, read.image(at), 0) {
                Ok(leaf) => scan.take(&leaf).ok(),
                Err(Reject::Torn | Reject::Pending) => None,
                Err(Reject::Free | Reject::NotThis) => break,
            };
            let took = match took {
                Some(took) => Some(took),
                None => self.visit(tree, address, 0, |leaf| scan.take(leaf)).await?,
            };
            match took {
                Some(Took::All) => used = true,
                Some(Took::Right(sibling)) if !used || scan.direction == Direction::Forward => {
                    // The index lacks some leaf in between, so the scan reaches it along the siblings.
                    used |= self.take_right_of(tree, scan, sibling).await?;
                    if scan.direction == Direction::Backward {
                        break;
                    }
                }
                Some(Took::Right(_) | Took::Left) | None => break,
            }
        }
        read.recycle(self);
        Ok(used)
    }

    /// Follows siblings until one covers the cursor. Returns false if the walk is lost.
    async fn take_right_of(
        &self,
        tree: &TreeState,
        scan: &mut Scan,
        sibling: Sibling,
    ) -> Result<bool, Error> {
        let mut at = sibling;
        loop {
            self.moved_right(tree, &at, 0)?;
            if self.is_astray(tree, &scan.cursor, 0) {
                return Ok(false);
            }
            match self.visit(tree, at.address, 0, |leaf| scan.take(leaf)).await? {
                Some(Took::All) => return Ok(true),
                Some(Took::Right(next)) => at = next,
                Some(Took::Left) | None => return Ok(false),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_around_a_key_are_its_neighbours() {
        for key in 0..u16::MAX {
            let mut bytes = key.to_be_bytes();
            assert!(step_up(&mut bytes));
            assert_eq!(bytes, (key + 1).to_be_bytes());
            assert!(step_down(&mut bytes));
            assert_eq!(bytes, key.to_be_bytes());
        }
        assert!(!step_up(&mut [0xff, 0xff]) && !step_down(&mut [0, 0]));
    }

    #[test]
    fn reversing_keeps_entries_whole() {
        for count in 0..5_u8 {
            let mut entries: Vec<u8> = (0..count).flat_map(|at| [at, at + 100, at + 50]).collect();
            reverse(&mut entries, 3);
            assert_eq!(entries, (0..count).rev().flat_map(|at| [at, at + 100, at + 50]).collect::<Vec<_>>());
        }
    }
}
