//! Clearing a tree, and freeing nodes of trees that are no more.

use super::TreeState;
use super::descend::Covering;
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::mark::mark_free;
use crate::node::{Header, LINE};
use crate::op::Op;
use crate::worker::Worker;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, GlobalAddress, Space};

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
    pub(super) async fn free_node(
        &self,
        tree: &TreeState,
        address: GlobalAddress,
        level: u8,
    ) -> Result<GlobalAddress, Error> {
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
}
