//! Clearing a tree, and dropping it.

use super::descend::Covering;
use super::{CATALOG_SERVER, TreeState};
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::mark::mark_free;
use crate::node::{Header, LINE};
use crate::op::Op;
use crate::redo::{Kind, Record, Slot};
use crate::root::RootWord;
use crate::worker::Worker;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, GlobalAddress, Request, Space};

impl<E: Endpoint> Op<'_, E> {
    /// Removes every entry of the leaf that covers `key`. How many there were, and where the next leaf begins.
    async fn clear_leaf(&self, tree: &TreeState, key: &[u8]) -> Result<(u64, Option<Vec<u8>>), Error> {
        let Covering { locked, header, missed } = self.lock_leaf(tree, key).await?;
        let mut leaf = self.draft(tree, &locked, header);
        let (gone, high) = (leaf.node().len() as u64, leaf.node().high());
        if gone > 0 {
            let patch = leaf.clear();
            self.write(tree, locked, &leaf, &patch).await?;
        } else {
            self.release(locked.done(self)).await?;
        }
        self.worker.keep_buffer(leaf.into_image());
        self.mend_missed(tree, missed).await;
        self.tidy(tree, 0, key).await;
        Ok((gone, high))
    }

    /// Marks the node at `address` of a dropped tree free under its lane, whatever else it is. Its right neighbour.
    async fn free_node(&self, tree: &TreeState, address: GlobalAddress, level: u8) -> Result<GlobalAddress, Error> {
        let class = tree.shape.at(level).class();
        let bytes = class.node_bytes as usize;
        loop {
            let locked = self.lock(address, bytes, None).await?;
            let header = Header::decode(locked.image()).filter(|header| header.tree == tree.info.id);
            let Some(header) = header.filter(|header| header.level == level && !header.flags.free) else {
                self.release(locked.done(self)).await?;
                return Ok(GlobalAddress::NULL);
            };
            if !header.flags.pending {
                self.free_image(locked, header, class).await?;
                return Ok(header.sibling);
            }
            self.suspect(header.owner);
            self.release(locked.done(self)).await?;
            self.retry(Cause::NodePending).await?;
        }
    }

    /// Marks a node of a tree that is no more free under its lane and keeps its place; it may be torn.
    pub(crate) async fn free_image(&self, locked: Locked, header: Header, class: ChunkClass) -> Result<(), Error> {
        let address = locked.address;
        let mut line = [0; LINE];
        line.copy_from_slice(&locked.image()[..LINE]);
        mark_free(&mut line, self.endpoint().client());
        let mut list = self.endpoint().list(address.server());
        list.write(Space::Host, address.offset(), &line);
        self.write_back(locked.done(self), list).await.map_err(Error::after_post)?;
        self.worker.compute.alloc.give_back(class, address, header.version);
        Ok(())
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Replaces the root word of a tree by null, having said so in `slot`: `[record, CAS]`. The root it had.
    async fn end_tree(&self, tree: &TreeState, slot: &Option<Slot>) -> Result<RootWord, Error> {
        loop {
            tree.forget_root();
            let root = self.root(tree).await?;
            let mut list = self.endpoint().list(CATALOG_SERVER);
            if let Some(slot) = slot {
                let about =
                    Record::about(Kind::Drop, self.endpoint().client(), tree.info.id, root.address, root.level, 0);
                slot.log(&mut list, &Record { root: (root.to_bits(), 0), ..about });
            }
            let cas = list.cas(Space::Host, tree.info.root_word, root.to_bits(), 0);
            let list = self.execute(list).await.map_err(Error::after_post)?;
            let swapped = list.swapped(cas);
            self.endpoint().recycle(list);
            if swapped {
                return Ok(root);
            }
            self.retry(Cause::RootMoved).await?;
        }
    }

    /// Clears the record of an end that is complete, or did not come to pass.
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
    /// Removes every entry, leaf by leaf. Each leaf at one moment, the tree not: what others insert meanwhile may stay. How
    /// many entries went. A few round trips per leaf.
    pub async fn clear(&self, tree: &TreeState) -> Result<u64, Error> {
        let mut gone = 0;
        let mut next = Some(vec![0; tree.shape.leaf.key_len()]);
        while let Some(key) = next.take() {
            let (entries, high) = self.op().clear_leaf(tree, &key).await?;
            gone += entries;
            next = high;
        }
        Ok(gone)
    }

    /// Drops a tree: its name is free at once, its nodes one after the other, two round trips each. Whoever still works on it
    /// gets [`Error::NoSuchTree`] from then on. How many nodes were freed.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]: nothing was changed. After any other error the tree may be gone and some of its nodes lost.
    pub async fn drop_tree(&self, name: &str) -> Result<u64, Error> {
        let tree = self.open_tree(name).await?;
        let op = self.op();
        let redo = self.compute.techniques().redo.then_some(CATALOG_SERVER);
        let [slot, _] = self.compute.redo.take(&op, [redo, None]).await?;
        let root = match op.end_tree(&tree, &slot).await {
            Ok(root) => root,
            Err(error @ Error::OutcomeUnknown { .. }) => return Err(error),
            Err(error) => {
                op.forget_end(slot).await?;
                return Err(error);
            }
        };
        let leftmost = self.leftmost(&tree, root).await?;
        let request = Request::DropTree { name: name.to_owned(), id: tree.info.id };
        // Whoever creates a tree of that name meanwhile finishes this in our stead.
        match op.call(CATALOG_SERVER, request).await.map_err(Error::from) {
            Ok(_) | Err(Error::NoSuchTree { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut freed = 0;
        for (level, first) in leftmost.into_iter().enumerate() {
            let mut at = first;
            while !at.is_null() {
                at = self.op().free_node(&tree, at, level as u8).await?;
                freed += 1;
            }
        }
        op.forget_end(slot).await?;
        Ok(freed)
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
            // Gone: whoever recovers another that was about to end the tree frees its nodes too.
            let Some(first) = first.await? else { break };
            at = first.ok_or(corrupt)?;
            nodes.insert(0, at);
        }
        Ok(nodes)
    }
}
