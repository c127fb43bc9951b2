//! Insert or update (paper §4.2, figure "insertion procedure").
//!
//! Warm, without a split: lock and READ (one list or two), then write-back and release (one list). A full leaf splits under
//! its lane; the parent learns of it afterwards, under its own.

use super::TreeState;
use super::descend::Covering;
use crate::error::Error;
use crate::op::Op;
use sherman_fabric::Endpoint;

impl<E: Endpoint> Op<'_, E> {
    /// Puts `value` under `key`. Whether the key was there; `old` receives the value it had. Linearizable.
    pub async fn insert(&self, tree: &TreeState, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        tree.check_key(key)?;
        tree.check_value(value)?;
        let Covering { locked, header, missed } = self.lock_leaf(tree, key).await?;
        let mut leaf = self.draft(tree, &locked, header);
        let put = leaf.upsert(key, value, old);
        let updated = self.finish_put(tree, locked, leaf, put, key, value).await?;
        self.mend_missed(tree, missed).await;
        Ok(updated)
    }
}
