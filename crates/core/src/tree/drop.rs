//! Drops a tree.
//!
//! A drop has three parts. It replaces the root by the tree's end in the root word: from then on the tree is
//! gone and its name is free. It asks control to clear the catalog entry. Then it frees the nodes. A record
//! tells of the drop until the last node is free, so that a recoverer finishes the drop if the client dies.
//!
//! **The order of freeing.** A node is freed only when every node that is reached through it is free (I44).
//! Leaves come first, then the level above, the root last. The nodes between two separators are reached
//! through the first of them, so the rightmost is freed first. So every node that is not free yet can be
//! reached from the root. A drop that was interrupted at any verb begins again there. It skips nodes that are
//! free already, even if their place holds another node by now: tree, level and fences show that.
//!
//! Operations that began before the drop may still split and merge nodes of the tree. So a node is freed
//! under its lane, and only if it still has the version that it had when its children were read. Otherwise
//! the node is read again.
//!
//! What must hold (I31): the root word is replaced only under the lane of the root that it names. That root
//! must be a node of this tree. The catalog reuses the entry of a dropped tree, so its root word may belong
//! to another tree by now. While the lane is held no client can free the root. So a root word that still
//! names it still belongs to this tree.
//!
//! What may go wrong: a node's lane may stay taken for longer than an operation may wait. The tree is gone
//! all the same. The recoverer of this compute server ([`Worker::recover_others`]) frees the rest later.

use super::TreeState;
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::mark::bytes_to_mark;
use crate::node::{Header, LINE, Node};
use crate::op::Op;
use crate::redo::{Record, RecordKind, RedoSlot};
use crate::root::RootWord;
use crate::worker::Worker;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Peer, Space, calls};
use std::sync::{Arc, Mutex, PoisonError};

/// The result of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The id of the tree that is gone.
    pub id: u32,
    /// Nodes that were freed. This compute server frees any remaining nodes later.
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
    slot: Option<RedoSlot>,
}

/// A node, as it was read without its lane.
pub(super) struct Seen {
    address: GlobalAddress,
    version: u16,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    sibling: GlobalAddress,
    /// The separators of an internal node, each with its child.
    children: Vec<(Vec<u8>, GlobalAddress)>,
}

impl Seen {
    /// Whether this node reaches `end`, so that no key below `end` lies right of it.
    fn reaches(&self, end: Option<&[u8]>) -> bool {
        match (&self.high, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(high), Some(end)) => high.as_slice() >= end,
        }
    }
}

/// The right neighbour of a node, as it was read without its lane.
pub(super) enum Neighbour {
    Node(Seen),
    /// A drop of the tree freed it, and before that all nodes that it led to.
    Freed,
    /// It may have been merged into the node, which has changed.
    MergedAway,
}

/// The result of an attempt to free a node.
enum Freeing {
    /// The node is free.
    Done,
    /// The node was free already, or its place holds another node by now.
    Gone,
    /// The node has changed since it was read.
    Changed,
}

/// Puts the nodes of a run into the order in which they are freed. A node is freed after its right
/// neighbour: the left node leads to it, also for the next client if this one dies.
fn right_to_left(run: &mut [Seen]) {
    seam!(tree::right_to_left());
    run.reverse();
}

/// Tells who freed the right neighbour of a node. A merge changes the left node before it frees the right
/// one. A drop frees the right one and leaves the left one `unchanged`.
fn gone_neighbour(unchanged: bool) -> Neighbour {
    seam!(tree::gone_neighbour());
    if unchanged { Neighbour::Freed } else { Neighbour::MergedAway }
}

/// The unfinished drops of a compute server.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedDrops(Mutex<Vec<Remains>>);

impl UnfinishedDrops {
    fn push(&self, remains: Remains) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(remains);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn take(&self) -> Vec<Remains> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Ends a tree: replaces the root in its root word under the root's lane, after it has logged this in
    /// `slot`: `[record, CAS]`. Returns the former root.
    async fn end_tree(&self, tree: &TreeState, slot: &Option<RedoSlot>) -> Result<RootWord, Error> {
        seam!(tree::end_tree(self, tree, slot).await);
        loop {
            tree.forget_root();
            let root = self.root(tree).await?;
            let locked = self.lock(root.address, LINE, None).await?;
            if let Err(wait) = self.expect_root(tree, root, &locked) {
                self.release(locked.done(self)).await?;
                self.ask_for_tree(tree).await?;
                self.retry(wait).await?;
                continue;
            }
            let swapped = match self.swap_out(tree, root, slot).await {
                Ok(swapped) => swapped,
                Err(error) => {
                    // It is unknown whether the root word changed. The record tells the recoverer, which also
                    // frees the lane.
                    self.abandon(locked.done(self));
                    return Err(Error::after_post(error));
                }
            };
            let released = self.release(locked.done(self)).await;
            if swapped {
                return Ok(root);
            }
            released?;
            self.retry(Cause::RootMoved).await?;
        }
    }

    /// Ends the tree, if its root word is still `root`: `[record, CAS]`. Returns whether it was.
    pub(super) async fn swap_out(
        &self,
        tree: &TreeState,
        root: RootWord,
        slot: &Option<RedoSlot>,
    ) -> Result<bool, FabricError> {
        let (word, ended) = (tree.info.root_word, RootWord::ended(tree.info.id));
        let mut list = self.endpoint().list(word.server());
        if let Some(slot) = slot {
            let about = Record::about(
                RecordKind::Drop,
                self.endpoint().client(),
                tree.info(),
                root.address,
                root.level,
                0,
            );
            slot.log(&mut list, &Record { root: (root.to_bits(), ended), ..about });
        }
        let cas = list.cas(Space::Host, word.offset(), root.to_bits(), ended);
        let list = self.execute(list).await?;
        let swapped = list.swapped(cas);
        self.endpoint().recycle(list);
        Ok(swapped)
    }

    /// Checks that the locked node is the expected root of `tree`. Otherwise returns what to wait for.
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

    /// Clears the record of a drop that is complete or did not happen, and gives the slot back.
    async fn forget_end(&self, slot: Option<RedoSlot>) -> Result<(), Error> {
        if let Some(slot) = &slot {
            let mut list = self.endpoint().list(slot.server());
            slot.clear(&mut list);
            self.endpoint().recycle(self.execute(list).await?);
        }
        self.settle([slot]);
        Ok(())
    }
}

impl<E: Endpoint> Worker<E> {
    /// Drops a tree. Its name is free at once. Its nodes are freed one after the other, at two round trips
    /// each. From then on operations on the tree fail with [`Error::NoSuchTree`].
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]: the tree
    /// may be gone.
    pub async fn drop_tree(&self, name: &str) -> Result<Dropped, Error> {
        let tree = match self.open_tree(name).await {
            // The root word is lost with its volume, so no client reaches the tree any more.
            Err(Error::ServerLost { .. } | Error::VolumeLost { .. }) => return self.drop_entry(name).await,
            tree => tree?,
        };
        let op = self.op();
        let (redo, volume) = (self.compute.techniques().redo, tree.info.root_word.server());
        let slot = if redo { Some(self.compute.redo.take_long(&op, volume).await?) } else { None };
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
            // If that fails, this compute server is terminated, and a recoverer clears the record.
            let _ = op.forget_end(remains.slot).await;
        } else {
            self.compute.drops.push(remains);
            self.compute.membership.wake_recoverer();
        }
        Ok(Dropped { id, nodes })
    }

    /// Drops the catalog entry of a tree whose root word is lost. Its nodes cannot be found.
    async fn drop_entry(&self, name: &str) -> Result<Dropped, Error> {
        let op = self.op();
        let id = op.call(Peer::Control, calls::OpenTree { name: name.to_owned() }).await?.info.id;
        op.call(Peer::Control, calls::DropTree { name: name.to_owned(), id }).await?;
        Ok(Dropped { id, nodes: 0 })
    }

    /// Continues the unfinished drops.
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
            let request = calls::DropTree { name: tree.info.name.clone(), id: tree.info.id };
            // A client that creates a tree of that name meanwhile clears the entry first.
            match self.op().call(Peer::Control, request).await.map_err(Error::from) {
                Ok(()) | Err(Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
            remains.cleared = true;
        }
        let root = (remains.root.address, remains.root.level);
        let op = || self.op();
        self.free_subtree(&tree, root, &op, &mut remains.freed).await
    }

    /// Frees the node `root` of a dropped tree, its right neighbours, and all nodes that they lead to. Counts
    /// them in `freed`. Another client can repeat this from the beginning at any moment.
    ///
    /// # Errors
    /// [`Error::Timeout`] if a node stays locked, pending or torn for longer than an operation of `op` waits.
    pub(crate) async fn free_subtree<'w>(
        &'w self,
        tree: &TreeState,
        root: (GlobalAddress, u8),
        op: &impl Fn() -> Op<'w, E>,
        freed: &mut u64,
    ) -> Result<(), Error> {
        for level in 0..root.1 {
            self.free_below(tree, root, level, op, freed).await?;
        }
        op().free_run(tree, root.0, root.1, (&tree.lowest(), None), freed).await
    }

    /// Frees the nodes of one level that the level above leads to.
    async fn free_below<'w>(
        &'w self,
        tree: &TreeState,
        root: (GlobalAddress, u8),
        level: u8,
        op: &impl Fn() -> Op<'w, E>,
        freed: &mut u64,
    ) -> Result<(), Error> {
        let mut begin = tree.lowest();
        let whole = op();
        'level: loop {
            // Walks down to the level above along the left edge. No client frees a node of that edge unless
            // its whole tree is free.
            let mut at = root.0;
            for above in (level + 2..=root.1).rev() {
                let Some(seen) = op().look_at(tree, at, above).await? else {
                    return Ok(());
                };
                let Some((_, first)) = seen.children.first() else { return Ok(()) };
                at = *first;
            }
            // If the left edge of the level is free, all of it is.
            let Some(mut parent) = op().look_at(tree, at, level + 1).await? else { return Ok(()) };
            loop {
                if parent.reaches(Some(&begin)) {
                    let ends = parent.children.iter().skip(1).map(|(key, _)| Some(key.as_slice()));
                    let ends = ends.chain([parent.high.as_deref()]);
                    for ((low, child), end) in parent.children.iter().zip(ends) {
                        op().free_run(tree, *child, level, (low, end), freed).await?;
                    }
                    // The parent may have received other separators while its children were freed.
                    if !op().is_unchanged(tree, &parent, level + 1).await? {
                        whole.retry(Cause::StalePointer).await?;
                        continue 'level;
                    }
                    begin = parent.high.clone().unwrap_or(begin);
                }
                if parent.sibling.is_null() {
                    return Ok(());
                }
                match op().look_right(tree, &parent, level + 1).await? {
                    Neighbour::Node(next) => parent = next,
                    // So a drop began to free the level above, and this level is free (I44).
                    Neighbour::Freed => return Ok(()),
                    Neighbour::MergedAway => {
                        whole.retry(Cause::StalePointer).await?;
                        continue 'level;
                    }
                }
            }
        }
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Reads a node of a dropped tree. Returns `None` if it is free, or if the place holds another node by
    /// now.
    async fn look_at(
        &self,
        tree: &TreeState,
        address: GlobalAddress,
        level: u8,
    ) -> Result<Option<Seen>, Error> {
        self.visit(tree, address, level, |node| {
            let body = if level > 0 { node.sorted() } else { None };
            let children = body.map_or_else(Vec::new, |body| {
                (0..body.len())
                    .map(|at| (body.key(at).to_vec(), crate::cache::child_address(&body, at)))
                    .collect()
            });
            let Header { version, sibling, .. } = node.header;
            Ok(Seen { address, version, low: node.low(), high: node.high(), sibling, children })
        })
        .await
    }

    /// Whether a node of a dropped tree is as it was read.
    async fn is_unchanged(&self, tree: &TreeState, seen: &Seen, level: u8) -> Result<bool, Error> {
        let again = self.look_at(tree, seen.address, level).await?;
        Ok(again.is_some_and(|again| again.version == seen.version))
    }

    /// Reads the right neighbour of a node of a dropped tree.
    async fn look_right(&self, tree: &TreeState, left: &Seen, level: u8) -> Result<Neighbour, Error> {
        let next = self.look_at(tree, left.sibling, level).await?;
        // Otherwise the place was used again, or the memory is damaged and the siblings may form a cycle.
        let follows = |next: &Seen| Some(&next.low) == left.high.as_ref() && next.low > left.low;
        if let Some(next) = next.filter(follows) {
            return Ok(Neighbour::Node(next));
        }
        Ok(gone_neighbour(self.is_unchanged(tree, left, level).await?))
    }

    /// Frees the node at `first`, which begins at the key `low`, and its right neighbours up to `end`, from
    /// right to left.
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
                match self.look_right(tree, last, level).await? {
                    Neighbour::Node(next) => run.push(next),
                    Neighbour::Freed => {
                        self.hint_again(tree, last.sibling, level).await?;
                        break;
                    }
                    Neighbour::MergedAway => {
                        self.retry(Cause::StalePointer).await?;
                        continue 'run;
                    }
                }
            }
            right_to_left(&mut run);
            for seen in &run {
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

    /// Sets the hint of the span of a node that is free already. The client that marked the node may have
    /// died before it set the hint.
    async fn hint_again(&self, tree: &TreeState, address: GlobalAddress, level: u8) -> Result<(), Error> {
        let mut list = self.endpoint().list(address.server());
        self.push_hint(&mut list, address, tree.shape.at(level).class());
        if !list.is_empty() {
            self.endpoint().recycle(self.execute(list).await?);
        }
        Ok(())
    }

    /// Frees a node under its lane, if it is unchanged since it was read.
    async fn free_seen(&self, tree: &TreeState, seen: &Seen, level: u8) -> Result<Freeing, Error> {
        let class = tree.shape.at(level).class();
        let has_blocks = level == 0 && tree.has_blocks();
        let bytes = if has_blocks { class.node_bytes as usize } else { bytes_to_mark(class) };
        let locked = self.lock(seen.address, bytes, None).await?;
        let header = Header::decode(locked.image())
            .filter(|header| header.tree == tree.info.id && header.level == level && !header.flags.free);
        match header {
            Some(header) if header.version == seen.version && !header.flags.pending => {
                if has_blocks {
                    let slots = Node::open(&tree.shape.leaf, locked.image(), 0).map(|leaf| leaf.entries());
                    if let Err(error) = self.free_blocks(tree, &slots.unwrap_or_default()).await {
                        self.release(locked.done(self)).await?;
                        return Err(error);
                    }
                }
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
