//! Dropping a tree.
//!
//! A drop has three parts. It replaces the root word by null: from then on the tree is gone and its name is free. It asks server 0 to
//! clear the catalog entry. Then it frees the nodes, level by level. A record tells of the drop until the last node is free, so that a
//! recoverer finishes it if the dropper dies.
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
    /// Where to go on at each level, leaves first; `None` before the levels are known.
    levels: Option<Vec<GlobalAddress>>,
    freed: u64,
    slot: Option<Slot>,
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
                    Record::about(Kind::Drop, self.endpoint().client(), tree.info.id, root.address, root.level, 0);
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
        let mut remains = Remains { tree, root, levels: None, freed: 0, slot };
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

    /// Clears the catalog entry and frees the nodes of a tree that is gone, from where this was left.
    async fn free_remains(&self, remains: &mut Remains) -> Result<(), Error> {
        let tree = Arc::clone(&remains.tree);
        if remains.levels.is_none() {
            let levels = self.leftmost(&tree, remains.root).await?;
            let request = Request::DropTree { name: tree.info.name.clone(), id: tree.info.id };
            // A client that creates a tree of that name meanwhile clears the entry first.
            match self.op().call(CATALOG_SERVER, request).await.map_err(Error::from) {
                Ok(_) | Err(Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
            remains.levels = Some(levels);
        }
        for (level, at) in remains.levels.iter_mut().flatten().enumerate() {
            while !at.is_null() {
                *at = self.op().free_node(&tree, *at, level as u8).await?;
                remains.freed += 1;
            }
        }
        Ok(())
    }

    /// The leftmost node of each level, leaves first. Nobody frees or replaces them once the root word is null.
    async fn leftmost(&self, tree: &TreeState, root: RootWord) -> Result<Vec<GlobalAddress>, Error> {
        let op = self.op();
        let mut nodes = vec![root.address];
        let mut at = root.address;
        for level in (1..=root.level).rev() {
            let first = op.visit(tree, at, level, |node| {
                Ok(node.sorted().filter(|body| !body.is_empty()).map(|body| crate::cache::child_address(&body, 0)))
            });
            let corrupt =
                Error::Corrupt { address: at, invariant: "I8: an internal node's first separator is its low fence" };
            // Gone: a recoverer of another client that dropped the tree frees its nodes too.
            let Some(first) = first.await? else { break };
            at = first.ok_or(corrupt)?;
            nodes.insert(0, at);
        }
        Ok(nodes)
    }
}
