//! Insert or update (paper §4.2, figure "insertion procedure").
//!
//! Warm, without a split: lock and READ (one list or two), then write-back and release (one list). A full leaf splits under
//! its lane; the parent learns of it afterwards, under its own.

use super::TreeState;
use super::descend::Covering;
use crate::error::Error;
use crate::node::draft::Upsert;
use crate::node::{Draft, Node};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress};

impl<E: Endpoint> Op<'_, E> {
    /// Puts `value` under `key`. Whether the key was there; `old` receives the value it had. Linearizable.
    pub async fn insert(&self, tree: &TreeState, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        tree.check_key(key)?;
        tree.check_value(value)?;
        let Some(Covering { locked, missed }) = self.lock_covering(tree, key, 0).await? else {
            return Err(Error::Corrupt { address: GlobalAddress::NULL, invariant: "I2: a tree has leaves" });
        };
        let shape = &tree.shape.leaf;
        let opened = Node::open(shape, locked.image(), 0).ok();
        let Some(mut leaf) = opened.map(|node| Draft::of(shape, &node, self.worker.buffer())) else {
            return self.corrupt(locked).await;
        };
        let updated = match leaf.upsert(key, value, old) {
            Upsert::Updated(patch) => {
                self.write(tree, locked, &leaf, &patch).await?;
                true
            }
            Upsert::Inserted(patch) => {
                self.write(tree, locked, &leaf, &patch).await?;
                false
            }
            Upsert::Full => {
                let (locked, place) = self.place_beside(locked, shape.class()).await?;
                let split = leaf.split_leaf(key, value, place);
                let separator = self.write_split(tree, locked, &leaf, split, place).await?;
                self.post_separator(tree, 1, separator, place.address).await;
                false
            }
            Upsert::Torn => return self.corrupt(locked).await,
        };
        self.worker.keep_buffer(leaf.into_image());
        if let Some((separator, child)) = missed {
            self.mend_separator(tree, 1, separator, child).await;
        }
        Ok(updated)
    }
}
