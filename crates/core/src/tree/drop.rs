//! Dropping a tree.
//!
//! A drop has three parts. It replaces the root word by null: from then on the tree is gone and its name is free. It asks server 0 to
//! clear the catalog entry. Then it frees the nodes. A record tells of the drop until the last node is free, so that a
//! recoverer finishes it if the dropper dies.
//!
//! **The order of freeing.** A node is freed only when every node that is reached through it is free (I44): leaves first, then the level above, the root last; and
//! of the nodes between two separators, which are reached through the first of them, the rightmost first. So whatever is not free yet can be reached from the root, and
//! a drop that was cut short at any verb begins again there. What is free already is passed over, also if its place is another node by now: tree,
//! level and fences tell.
//!
//! Operations that began before the drop may still split and merge nodes of the tree. A node is freed under its lane and only if it still has the
//! version that it had when what it leads to was looked at; else it is looked at again.
//!
//! What must hold: the root word is replaced only under the lane of the root that it names, and only if that root is a node of this tree
//! (I31). The catalog uses the entry of a dropped tree again, so its root word may be another tree's by now. While the lane is held nobody
//! can free the root, so a root word that still names it is still this tree's.
//!
//! What may go wrong: a node's lane may stay taken for longer than an operation may wait. The tree is gone all the same; the recoverer of
//! this compute server ([`Worker::recover_others`]) frees the rest later.

use super::{CATALOG_SERVER, TreeState};
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::mutant::{Mutant, planted};
use crate::node::{Header, LINE};
use crate::op::Op;
use crate::redo::{Kind, Record, Slot};
use crate::root::RootWord;
use crate::worker::Worker;
use sherman_fabric::{Endpoint, GlobalAddress, Request, Space};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a drop came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The id of the tree that is gone.
    pub id: u32,
    /// Nodes that were freed. This compute server frees the rest, if there is any, later.
    pub nodes: u64,
}

/// A tree that is gone and whose nodes are not all free yet.
#[derive(Debug)]
struct Remains {
    tree: Arc<TreeState>,
    root: RootWord,
    /// Whether the catalog entry is cleared.
    cleared: bool,
    freed: u64,
    slot: Option<Slot>,
}

/// A node, as it was seen without its lane.
struct Seen {
    address: GlobalAddress,
    version: u16,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    sibling: GlobalAddress,
    /// The separators of an internal node, each with its child.
    children: Vec<(Vec<u8>, GlobalAddress)>,
}

impl Seen {
    /// Whether nothing of what lies below `end` is right of this node.
    fn reaches(&self, end: Option<&[u8]>) -> bool {
        match (&self.high, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(high), Some(end)) => high.as_slice() >= end,
        }
    }
}

/// What became of a node that was to be freed.
enum Freeing {
    /// It is free.
    Done,
    /// It was free already, or is another node by now.
    Gone,
    /// It has changed since it was seen.
    Changed,
}

/// The drops of a compute server that are not finished.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedDrops(Mutex<Vec<Remains>>);

impl UnfinishedDrops {
    fn push(&self, remains: Remains) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(remains);
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn take(&self) -> Vec<Remains> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Replaces the root word of a tree by null, under the root's lane, having said so in `slot`: `[record, CAS]`. The root it had.
    async fn end_tree(&self, tree: &TreeState, slot: &Option<Slot>) -> Result<RootWord, Error> {
        loop {
            tree.forget_root();
            let root = self.root(tree).await?;
            let locked = if planted(Mutant::DropWithoutLane) {
                None
            } else {
                let locked = self.lock(root.address, LINE, None).await?;
                if let Err(wait) = self.expect_root(tree, root, &locked) {
                    self.release(locked.done(self)).await?;
                    self.ask_for_tree(tree).await?;
                    self.retry(wait).await?;
                    continue;
                }
                Some(locked)
            };
            let mut list = self.endpoint().list(CATALOG_SERVER);
            if let Some(slot) = slot {
                let about =
                    Record::about(Kind::Drop, self.endpoint().client(), tree.info(), root.address, root.level, 0);
                slot.log(&mut list, &Record { root: (root.to_bits(), 0), ..about });
            }
            let cas = list.cas(Space::Host, tree.info.root_word, root.to_bits(), 0);
            let list = match self.execute(list).await {
                Ok(list) => list,
                Err(error) => {
                    // Whether the root word changed is not known: the record tells the recoverer, who frees the lane too.
                    locked.into_iter().for_each(|locked| self.abandon(locked.done(self)));
                    return Err(Error::after_post(error));
                }
            };
            let swapped = list.swapped(cas);
            self.endpoint().recycle(list);
            let mut released = Ok(());
            if let Some(locked) = locked {
                released = self.release(locked.done(self)).await;
            }
            if swapped {
                return Ok(root);
            }
            released?;
            self.retry(Cause::RootMoved).await?;
        }
    }

    /// Whether the node under its lane is the root of `tree` that it was taken for; else what to wait for.
    fn expect_root(&self, tree: &TreeState, root: RootWord, locked: &Locked) -> Result<(), Cause> {
        let header = Header::decode(locked.image()).ok_or(Cause::RootMoved)?;
        if header.tree != tree.info.id || header.level != root.level || header.flags.free {
            return Err(Cause::RootMoved);
        }
        if header.flags.pending {
            self.suspect(header.owner);
            return Err(Cause::NodePending);
        }
        Ok(())
    }

    /// Clears the record of a drop that is complete, or did not happen, and gives the slot back.
    async fn forget_end(&self, slot: Option<Slot>) -> Result<(), Error> {
        if let Some(slot) = &slot {
            let mut list = self.endpoint().list(CATALOG_SERVER);
            slot.clear(&mut list);
            self.endpoint().recycle(self.execute(list).await?);
        }
        self.settle([slot]);
        Ok(())
    }
}

impl<E: Endpoint> Worker<E> {
    /// Drops a tree: its name is free at once, its nodes one after the other, two round trips each. From then on operations on it fail
    /// with [`Error::NoSuchTree`].
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]: the tree may be gone.
    pub async fn drop_tree(&self, name: &str) -> Result<Dropped, Error> {
        let tree = self.open_tree(name).await?;
        let op = self.op();
        let redo = self.compute.techniques().redo;
        let slot = if redo { Some(self.compute.redo.take_long(&op, CATALOG_SERVER).await?) } else { None };
        let root = match op.end_tree(&tree, &slot).await {
            Ok(root) => root,
            Err(error @ Error::OutcomeUnknown { .. }) => return Err(error),
            Err(error) => {
                op.forget_end(slot).await?;
                return Err(error);
            }
        };
        let mut remains = Remains { tree, root, cleared: false, freed: 0, slot };
        let id = remains.tree.info.id;
        let outcome = self.free_remains(&mut remains).await;
        let nodes = remains.freed;
        if outcome.is_ok() {
            // If that fails, this compute server is doomed, and a recoverer clears the record.
            let _ = op.forget_end(remains.slot).await;
        } else {
            self.compute.drops.push(remains);
            self.compute.membership.wake_recoverer();
        }
        Ok(Dropped { id, nodes })
    }

    /// Goes on with drops that could not be finished.
    pub(crate) async fn finish_drops(&self) {
        for mut remains in self.compute.drops.take() {
            if self.free_remains(&mut remains).await.is_ok() {
                let _ = self.op().forget_end(remains.slot).await;
            } else {
                self.compute.drops.push(remains);
            }
        }
    }

    /// Clears the catalog entry and frees the nodes of a tree that is gone.
    async fn free_remains(&self, remains: &mut Remains) -> Result<(), Error> {
        let tree = Arc::clone(&remains.tree);
        if !remains.cleared {
            let request = Request::DropTree { name: tree.info.name.clone(), id: tree.info.id };
            // A client that creates a tree of that name meanwhile clears the entry first.
            match self.op().call(CATALOG_SERVER, request).await.map_err(Error::from) {
                Ok(_) | Err(Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
            remains.cleared = true;
        }
        let root = (remains.root.address, remains.root.level);
        self.free_subtree(&tree, root, self.compute.timeout(), &mut remains.freed).await
    }

    /// Frees the node `root` of a tree that is gone, its right neighbours, and all that they lead to. Counts them in `freed`. Can be done again
    /// from the beginning, by another, at any moment.
    ///
    /// # Errors
    /// [`Error::Timeout`] if a node stays locked, pending or torn for longer than `patience`.
    pub(crate) async fn free_subtree(
        &self,
        tree: &TreeState,
        root: (GlobalAddress, u8),
        patience: Duration,
        freed: &mut u64,
    ) -> Result<(), Error> {
        for level in 0..root.1 {
            self.free_below(tree, root, level, patience, freed).await?;
        }
        self.op_within(patience).free_run(tree, root.0, root.1, (&tree.lowest(), None), freed).await
    }

    /// Frees the nodes of one level that those of the level above lead to.
    async fn free_below(
        &self,
        tree: &TreeState,
        root: (GlobalAddress, u8),
        level: u8,
        patience: Duration,
        freed: &mut u64,
    ) -> Result<(), Error> {
        let mut begin = tree.lowest();
        let whole = self.op_within(patience);
        'level: loop {
            // Down to the level above, along the left edge: nobody frees that, or its whole tree is free.
            let mut at = root.0;
            for above in (level + 2..=root.1).rev() {
                let Some(seen) = self.op_within(patience).look_at(tree, at, above).await? else { return Ok(()) };
                let Some((_, first)) = seen.children.first() else { return Ok(()) };
                at = *first;
            }
            let mut before: Option<Vec<u8>> = None;
            while !at.is_null() {
                let seen = self.op_within(patience).look_at(tree, at, level + 1).await?;
                // Siblings ascend (I4). Else the place has been used again, or the memory lies, perhaps in a circle.
                let ascends = |seen: &Seen| before.as_ref().is_none_or(|before| *before < seen.low);
                let Some(parent) = seen.filter(ascends) else {
                    if before.is_none() {
                        // The left edge of the level is free, so all of it is.
                        return Ok(());
                    }
                    // It was merged away.
                    whole.retry(Cause::StalePointer).await?;
                    continue 'level;
                };
                before = Some(parent.low.clone());
                if !parent.reaches(Some(&begin)) {
                    at = parent.sibling;
                    continue;
                }
                let ends = parent.children.iter().skip(1).map(|(key, _)| Some(key.as_slice()));
                let ends = ends.chain([parent.high.as_deref()]);
                for ((low, child), end) in parent.children.iter().zip(ends) {
                    self.op_within(patience).free_run(tree, *child, level, (low, end), freed).await?;
                }
                // Other separators may have come while its children were freed.
                match self.op_within(patience).look_at(tree, at, level + 1).await? {
                    Some(again) if again.version == parent.version => {
                        begin = parent.high.clone().unwrap_or(begin);
                        at = parent.sibling;
                    }
                    _ => {
                        whole.retry(Cause::StalePointer).await?;
                        continue 'level;
                    }
                }
            }
            return Ok(());
        }
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Looks at a node of a tree that is gone. `None` if it is free, or another node by now.
    async fn look_at(&self, tree: &TreeState, address: GlobalAddress, level: u8) -> Result<Option<Seen>, Error> {
        self.visit(tree, address, level, |node| {
            let body = if level > 0 { node.sorted() } else { None };
            let children = body.map_or_else(Vec::new, |body| {
                (0..body.len()).map(|at| (body.key(at).to_vec(), crate::cache::child_address(&body, at))).collect()
            });
            let Header { version, sibling, .. } = node.header;
            Ok(Seen { address, version, low: node.low(), high: node.high(), sibling, children })
        })
        .await
    }

    /// Frees the node at `first`, which begins at the key `low`, and its right neighbours up to `end`, from right to left.
    async fn free_run(
        &self,
        tree: &TreeState,
        first: GlobalAddress,
        level: u8,
        (low, end): (&[u8], Option<&[u8]>),
        freed: &mut u64,
    ) -> Result<(), Error> {
        'run: loop {
            let Some(seen) = self.look_at(tree, first, level).await? else {
                return self.hint_again(tree, first, level).await;
            };
            if seen.low != low {
                return Ok(());
            }
            let mut run = vec![seen];
            while let Some(last) = run.last()
                && !last.reaches(end)
            {
                let next = self.look_at(tree, last.sibling, level).await?;
                let follows = |next: &Seen| Some(&next.low) == last.high.as_ref() && next.low > last.low;
                if let Some(next) = next.filter(follows) {
                    run.push(next);
                    continue;
                }
                // A merge changes the left node before it frees the right one. If this one is as it was, somebody who dropped the tree
                // freed its neighbour, and before that all that are right of it.
                let again = self.look_at(tree, last.address, level).await?;
                if again.is_none_or(|again| again.version != last.version) {
                    self.retry(Cause::StalePointer).await?;
                    continue 'run;
                }
                self.hint_again(tree, last.sibling, level).await?;
                break;
            }
            if planted(Mutant::DropLeftFirst) {
                run.reverse();
            }
            for seen in run.iter().rev() {
                match self.free_seen(tree, seen, level).await? {
                    Freeing::Done => *freed += 1,
                    Freeing::Gone => self.hint_again(tree, seen.address, level).await?,
                    Freeing::Changed => {
                        self.retry(Cause::StalePointer).await?;
                        continue 'run;
                    }
                }
            }
            return Ok(());
        }
    }

    /// Sets the hint of the span of a node that is free already: whoever marked it may have died before it came to that.
    async fn hint_again(&self, tree: &TreeState, address: GlobalAddress, level: u8) -> Result<(), Error> {
        let mut list = self.endpoint().list(address.server());
        self.push_hint(&mut list, address, tree.shape.at(level).class());
        if !list.is_empty() {
            self.endpoint().recycle(self.execute(list).await?);
        }
        Ok(())
    }

    /// Frees a node under its lane, if it is as it was seen.
    async fn free_seen(&self, tree: &TreeState, seen: &Seen, level: u8) -> Result<Freeing, Error> {
        let class = tree.shape.at(level).class();
        let locked = self.lock(seen.address, LINE, None).await?;
        let header = Header::decode(locked.image())
            .filter(|header| header.tree == tree.info.id && header.level == level && !header.flags.free);
        match header {
            Some(header) if header.version == seen.version && !header.flags.pending => {
                self.free_image(locked, header, class).await?;
                Ok(Freeing::Done)
            }
            header => {
                self.release(locked.done(self)).await?;
                Ok(if header.is_some() { Freeing::Changed } else { Freeing::Gone })
            }
        }
    }
}
