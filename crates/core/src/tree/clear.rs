//! Clears a tree, and frees nodes of trees that are gone.

use super::TreeState;
use super::descend::Covering;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::Header;
use crate::node::mark::mark_free;
use crate::op::Op;
use crate::worker::Worker;
use sherman_fabric::Endpoint;
use sherman_fabric::control::ChunkClass;

impl<E: Endpoint> Op<'_, E> {
    /// Removes every entry of the leaf that covers `key`. Returns how many there were, and where the next
    /// leaf begins.
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
        self.repair_missed(tree, missed).await;
        self.tidy(tree, 0, key).await;
        Ok((gone, high))
    }

    /// Marks a node of a dropped tree as free under its lane, and keeps its place for reuse. The node may be
    /// torn. `locked` has the bytes that [`bytes_to_mark`](crate::node::mark::bytes_to_mark) names.
    pub(crate) async fn free_image(
        &self,
        locked: Locked,
        header: Header,
        class: ChunkClass,
    ) -> Result<(), Error> {
        let address = locked.address;
        let mut image = self.worker.buffer();
        image.clear();
        image.extend_from_slice(locked.image());
        let marked = mark_free(&mut image, self.endpoint().client());
        let mut list = self.endpoint().list(address.server());
        marked.push(&mut list, address, &image);
        self.worker.keep_buffer(image);
        self.push_hint(&mut list, address, class);
        let claim = self.worker.compute.alloc.claim(class, address);
        self.write_back(locked.done(self), list).await.map_err(|error| self.after_post(error))?;
        self.worker.compute.alloc.freed(class, address, header.version, claim);
        Ok(())
    }
}

/// The progress of clearing a tree. Another worker can continue it, even under another identity.
#[derive(Debug)]
pub struct Clearing {
    /// Where the next leaf begins; `None` at the end.
    next: Option<Vec<u8>>,
    gone: u64,
}

impl Clearing {
    /// Begins the clearing of `tree` at its first leaf.
    pub fn new(tree: &TreeState) -> Self {
        Self { next: Some(vec![0; tree.shape.leaf.key_len()]), gone: 0 }
    }

    /// How many entries were removed so far.
    pub fn gone(&self) -> u64 {
        self.gone
    }
}

impl<E: Endpoint> Worker<E> {
    /// Removes every entry, leaf by leaf, and returns how many it removed. Each leaf is cleared atomically,
    /// but the tree is not: entries that others insert meanwhile may stay. Costs a few round trips per leaf.
    pub async fn clear(&self, tree: &TreeState) -> Result<u64, Error> {
        let mut clearing = Clearing::new(tree);
        self.clear_on(tree, &mut clearing).await?;
        Ok(clearing.gone)
    }

    /// Removes the entries of the leaf that covers `key`, one after the other, because they may refer to
    /// blocks. Returns how many there were, and where the next leaf begins.
    async fn clear_values(&self, tree: &TreeState, key: &[u8]) -> Result<(u64, Option<Vec<u8>>), Error> {
        let op = self.op();
        let Covering { locked, header, .. } = op.lock_leaf(tree, key).await?;
        let leaf = op.draft(tree, &locked, header);
        let (entries, high) = (leaf.node().entries(), leaf.node().high());
        self.keep_buffer(leaf.into_image());
        op.release(locked.done(&op)).await?;
        let mut gone = 0;
        for (key, _) in entries {
            gone += u64::from(self.op().delete(tree, &key).await?);
        }
        Ok((gone, high))
    }

    /// Continues a clearing until it is complete. After an error, a new call continues with the leaf that
    /// failed.
    pub async fn clear_on(&self, tree: &TreeState, clearing: &mut Clearing) -> Result<(), Error> {
        while let Some(key) = &clearing.next {
            let (entries, high) = match tree.has_blocks() {
                false => self.op().clear_leaf(tree, key).await?,
                true => self.clear_values(tree, key).await?,
            };
            clearing.gone += entries;
            clearing.next = high;
        }
        Ok(())
    }
}
