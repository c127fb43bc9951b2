//! Clearing a tree, and freeing nodes of trees that are no more.

use super::TreeState;
use super::descend::Covering;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::mark::mark_free;
use crate::node::{Header, LINE};
use crate::op::Op;
use crate::worker::Worker;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, Space};

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

    /// Marks a node of a tree that is no more free under its lane and keeps its place; it may be torn.
    pub(crate) async fn free_image(&self, locked: Locked, header: Header, class: ChunkClass) -> Result<(), Error> {
        let address = locked.address;
        let mut line = [0; LINE];
        line.copy_from_slice(&locked.image()[..LINE]);
        mark_free(&mut line, self.endpoint().client());
        let mut list = self.endpoint().list(address.server());
        list.write(Space::Host, address.offset(), &line);
        self.push_hint(&mut list, address, class);
        let claim = self.worker.compute.alloc.claim(class, address);
        self.write_back(locked.done(self), list).await.map_err(|error| self.after_post(error))?;
        self.worker.compute.alloc.freed(class, address, header.version, claim);
        Ok(())
    }
}

/// How far the clearing of a tree has come. Another worker can go on with it, under another identity too.
#[derive(Debug)]
pub struct Clearing {
    /// Where the next leaf begins; `None` at the end.
    next: Option<Vec<u8>>,
    gone: u64,
}

impl Clearing {
    /// The clearing of `tree` from its first leaf on.
    pub fn new(tree: &TreeState) -> Self {
        Self { next: Some(vec![0; tree.shape.leaf.key_len()]), gone: 0 }
    }

    /// How many entries went so far.
    pub fn gone(&self) -> u64 {
        self.gone
    }
}

impl<E: Endpoint> Worker<E> {
    /// Removes every entry, leaf by leaf. Each leaf at one moment, the tree not: what others insert meanwhile may stay. How
    /// many entries went. A few round trips per leaf.
    pub async fn clear(&self, tree: &TreeState) -> Result<u64, Error> {
        let mut clearing = Clearing::new(tree);
        self.clear_on(tree, &mut clearing).await?;
        Ok(clearing.gone)
    }

    /// Goes on with a clearing to its end. After an error it goes on with the leaf that failed.
    pub async fn clear_on(&self, tree: &TreeState, clearing: &mut Clearing) -> Result<(), Error> {
        while let Some(key) = &clearing.next {
            let (entries, high) = self.op().clear_leaf(tree, key).await?;
            clearing.gone += entries;
            clearing.next = high;
        }
        Ok(())
    }
}
