//! Clearing a tree, and dropping it.

use super::descend::Covering;
use super::{CATALOG_SERVER, TreeState};
use crate::cause::Cause;
use crate::error::Error;
use crate::node::{Draft, Node, Reject};
use crate::op::Op;
use crate::root::RootWord;
use crate::worker::Worker;
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

    /// Marks the node at `address` free under its lane, whatever else it is. Its right neighbour.
    async fn free_node(&self, tree: &TreeState, address: GlobalAddress, level: u8) -> Result<GlobalAddress, Error> {
        let shape = tree.shape.at(level);
        loop {
            let locked = self.lock(address, shape.node_bytes(), None).await?;
            match Node::open(shape, locked.image(), level) {
                Ok(node) => {
                    let sibling = node.header.sibling;
                    let mut draft = Draft::of(shape, &node, self.worker.buffer());
                    let patch = draft.free(self.endpoint().client());
                    self.write(tree, locked, &draft, &patch).await?;
                    self.worker.compute.alloc.give_back(shape.class(), address, draft.header().version);
                    self.worker.keep_buffer(draft.into_image());
                    return Ok(sibling);
                }
                Err(reject) => {
                    self.release(locked.done(self)).await?;
                    match reject {
                        Reject::Pending => self.retry(Cause::NodePending).await?,
                        Reject::Torn => self.retry(Cause::TornNode).await?,
                        Reject::Free | Reject::NotThis => return Ok(GlobalAddress::NULL),
                    }
                }
            }
        }
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
        let no_such_tree = || Error::NoSuchTree { name: name.to_owned() };
        let root = loop {
            tree.forget_root();
            let root = op.root(&tree).await?;
            let mut list = op.endpoint().list(CATALOG_SERVER);
            let cas = list.cas(Space::Host, tree.info.root_word, root.to_bits(), 0);
            let list = op.execute(list).await?;
            let swapped = list.swapped(cas);
            op.endpoint().recycle(list);
            if swapped {
                break root;
            }
            op.retry(Cause::RootMoved).await?;
        };
        let leftmost = self.leftmost(&tree, root).await?;
        let request = Request::DropTree { name: name.to_owned(), id: tree.info.id };
        op.call(CATALOG_SERVER, request).await.map_err(|error| match Error::from(error) {
            Error::NoSuchTree { .. } => no_such_tree(),
            other => other,
        })?;
        let mut freed = 0;
        for (level, first) in leftmost.into_iter().enumerate() {
            let mut at = first;
            while !at.is_null() {
                at = self.op().free_node(&tree, at, level as u8).await?;
                freed += 1;
            }
        }
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
            at = first.await?.flatten().ok_or(corrupt)?;
            nodes.insert(0, at);
        }
        Ok(nodes)
    }
}
