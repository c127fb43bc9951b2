//! Range scans in either direction, leaves read in parallel.
//!
//! A scan has a **cursor**: the next key it has not looked at. The index names a few leaves from the cursor on; they are
//! read at once and stitched by their fences: a leaf counts only if it covers the cursor, everything of it beyond the cursor
//! is taken, and the cursor moves past its fence. So each key of the range is looked for in exactly one image that was
//! responsible for it, whatever splits and merges meanwhile: no key that is there throughout is missed, none comes twice,
//! and each pair was true at some moment between the scan's beginning and its delivery. It is not a snapshot: two pairs
//! may be of different moments.
//!
//! An image that is free, of another range or torn ends the batch; the scan goes on from the cursor by a new descent.

use super::TreeState;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::{Node, Position, Reject, Scratch};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress};
use std::ops::Bound;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The most leaves a scan reads at once.
pub const MAX_PREFETCH: usize = 32;

/// A scan of a range of keys: where it is, and what it has read but not yet delivered.
#[derive(Debug)]
pub struct Scan {
    direction: Direction,
    /// The next key to look at, inclusive; `None` when the scan is over.
    cursor: Option<Vec<u8>>,
    /// The last key to look at, inclusive; `None` without bound.
    end: Option<Vec<u8>>,
    prefetch: usize,
    key_len: usize,
    entry_len: usize,
    /// Entries read, in the scan's order, and where the next to deliver begins.
    entries: Vec<u8>,
    next: usize,
    scratch: Scratch,
    leaves: Vec<GlobalAddress>,
}

/// What a leaf was to a scan.
enum Took {
    /// It covers the cursor, which has moved past it.
    All,
    /// The cursor lies right of it: its sibling.
    Right(GlobalAddress),
    /// The cursor lies left of it.
    Left,
}

impl Scan {
    /// A scan of the keys from `from` to `to`, both in ascending terms whatever the direction, reading up to `prefetch`
    /// leaves at once (at least 1, at most [`MAX_PREFETCH`]).
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
        for bound in [from, to] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                tree.check_key(key)?;
            }
        }
        if let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) = (from, to)
        {
            let both_excluded = matches!((from, to), (Bound::Excluded(_), Bound::Excluded(_)));
            if low > high || (low == high && both_excluded) {
                return Err(Error::BadRange);
            }
        }
        let key_len = tree.shape.leaf.key_len();
        let low = match from {
            Bound::Unbounded => Some(vec![0; key_len]),
            Bound::Included(key) => Some(key.to_vec()),
            Bound::Excluded(key) => after(key),
        };
        let high = match to {
            Bound::Unbounded => Some(vec![0xff; key_len]),
            Bound::Included(key) => Some(key.to_vec()),
            Bound::Excluded(key) => before(key),
        };
        let (cursor, end) = match (low, high) {
            (Some(low), Some(high)) if low <= high => match direction {
                Direction::Forward => (Some(low), Some(high)),
                Direction::Backward => (Some(high), Some(low)),
            },
            _ => (None, None),
        };
        Ok(Self {
            direction,
            cursor,
            end,
            prefetch: prefetch.clamp(1, MAX_PREFETCH),
            key_len,
            entry_len: key_len + tree.shape.leaf.payload_len(),
            entries: Vec::new(),
            next: 0,
            scratch: Scratch::default(),
            leaves: Vec::new(),
        })
    }

    /// How many leaves it reads at once from now on.
    pub fn set_prefetch(&mut self, leaves: usize) {
        self.prefetch = leaves.clamp(1, MAX_PREFETCH);
    }

    /// Whether every entry that is read already has been given.
    pub fn is_drained(&self) -> bool {
        self.next >= self.entries.len()
    }

    /// The next entry of those that are read already. Not an `Iterator`: what it gives borrows the buffer.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend what it owns")]
    pub fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.next..self.next + self.entry_len)?;
        self.next += self.entry_len;
        Some(entry.split_at(self.key_len))
    }

    /// Takes what a leaf has to give.
    fn take(&mut self, leaf: &Node<'_>) -> Result<Took, Cause> {
        let Some(cursor) = &self.cursor else { return Ok(Took::Left) };
        match leaf.position(cursor) {
            Position::Left => return Ok(Took::Left),
            Position::Right => return Ok(Took::Right(leaf.header.sibling)),
            Position::Inside => {}
        }
        let from = self.entries.len();
        let whole = match (self.direction, &self.end) {
            (Direction::Forward, end) => leaf.collect(cursor, end.as_deref(), &mut self.scratch, &mut self.entries),
            (Direction::Backward, end) => {
                let lowest = end.as_deref().unwrap_or(&[]);
                leaf.collect(lowest, Some(cursor), &mut self.scratch, &mut self.entries)
            }
        };
        if !whole {
            return Err(Cause::TornEntry);
        }
        self.cursor = match self.direction {
            Direction::Forward => leaf.high().filter(|high| self.end.as_ref().is_none_or(|end| high <= end)),
            Direction::Backward => {
                self.reverse(from);
                before(&leaf.low()).filter(|next| self.end.as_ref().is_none_or(|end| next >= end))
            }
        };
        Ok(Took::All)
    }

    /// Turns the order of the entries from `from` on round.
    fn reverse(&mut self, from: usize) {
        let entries = &mut self.entries[from..];
        let len = self.entry_len;
        let count = entries.len() / len;
        for at in 0..count / 2 {
            let (front, back) = entries.split_at_mut((count - 1 - at) * len);
            front[at * len..(at + 1) * len].swap_with_slice(&mut back[..len]);
        }
    }
}

/// The key right after `key`; `None` after the last.
fn after(key: &[u8]) -> Option<Vec<u8>> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

/// The key right before `key`; `None` before the first.
pub(super) fn before(key: &[u8]) -> Option<Vec<u8>> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != 0xff {
            return Some(next);
        }
    }
    None
}

impl<E: Endpoint> Op<'_, E> {
    /// Reads on until there is something to deliver. False if the scan is over.
    ///
    /// With the level-1 node in the cache one round trip for up to `prefetch` leaves; else also those of the descent.
    pub async fn refill(&self, tree: &TreeState, scan: &mut Scan) -> Result<bool, Error> {
        scan.entries.clear();
        scan.next = 0;
        while scan.entries.is_empty() {
            let Some(cursor) = scan.cursor.clone() else { return Ok(false) };
            self.name_leaves(tree, scan, &cursor).await?;
            if !self.read_leaves(tree, scan).await? {
                self.lost(tree, &cursor, 0).await?;
            }
        }
        Ok(true)
    }

    /// The addresses of the leaves to read next.
    async fn name_leaves(&self, tree: &TreeState, scan: &mut Scan, cursor: &[u8]) -> Result<(), Error> {
        let Scan { direction, prefetch, leaves, .. } = scan;
        let backward = *direction == Direction::Backward;
        leaves.clear();
        let found = self.visit_covering(tree, cursor, 1, |address, node, body| {
            self.keep(tree, address, node, body);
            let at = body.responsible(cursor)?;
            leaves.clear();
            let child = |index: usize| crate::cache::child_address(body, index);
            if backward {
                leaves.extend((0..=at).rev().take(*prefetch).map(child));
            } else {
                leaves.extend((at..body.len()).take(*prefetch).map(child));
            }
            Some(())
        });
        if found.await?.is_none() {
            // A tree of one leaf.
            leaves.clear();
            leaves.extend(self.locate(tree, cursor, 0).await?);
        }
        Ok(())
    }

    /// Reads the leaves named and takes what they have, in order. False if not even the first was of use.
    async fn read_leaves(&self, tree: &TreeState, scan: &mut Scan) -> Result<bool, Error> {
        let shape = &tree.shape.leaf;
        let leaves = std::mem::take(&mut scan.leaves);
        for &leaf in &leaves {
            self.worker.compute.check_pointer(leaf, shape.node_bytes())?;
        }
        let (lists, places) = self.read_all(leaves.iter().map(|&leaf| (leaf, shape.node_bytes()))).await?;
        let mut used = false;
        for (&address, &(list, read)) in leaves.iter().zip(&places) {
            if scan.cursor.is_none() {
                break;
            }
            let image = lists[list].bytes(read);
            let took = match Node::open(shape, image, 0) {
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
                    // The index does not know of some leaf between: go there along the siblings.
                    used |= self.take_right_of(tree, scan, sibling).await?;
                    if scan.direction == Direction::Backward {
                        break;
                    }
                }
                Some(Took::Right(_) | Took::Left) | None => break,
            }
        }
        lists.into_iter().for_each(|list| self.endpoint().recycle(list));
        scan.leaves = leaves;
        Ok(used)
    }

    /// Follows siblings until one covers the cursor. False if the way is lost.
    async fn take_right_of(&self, tree: &TreeState, scan: &mut Scan, sibling: GlobalAddress) -> Result<bool, Error> {
        let mut at = sibling;
        loop {
            self.note(Cause::MovedRight)?;
            match self.visit(tree, at, 0, |leaf| scan.take(leaf)).await? {
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
        assert_eq!(after(&[0, 0xff]), Some(vec![1, 0]));
        assert_eq!(before(&[1, 0]), Some(vec![0, 0xff]));
        assert_eq!((after(&[0xff, 0xff]), before(&[0, 0])), (None, None));
        for key in 0..=u16::MAX - 1 {
            let next = after(&key.to_be_bytes()).expect("not the last");
            assert_eq!(next, (key + 1).to_be_bytes());
            assert_eq!(before(&next).expect("not the first"), key.to_be_bytes());
        }
    }
}
