//! Insert or update (paper §4.2, figure "insertion procedure").
//!
//! With a warm cache and no split, an insert is lock and READ (one list or two), then write-back and release
//! (one list). A full leaf splits under its lane. The parent learns of the split afterwards, under its own
//! lane.

use super::TreeState;
use super::descend::{Covering, Sibling};
use crate::error::Error;
use crate::node::window::ChangeRule;
use crate::node::{LINE, Node, Position};
use crate::op::Op;
use sherman_fabric::{Endpoint, Space};

impl<E: Endpoint> Op<'_, E> {
    /// Puts `value` under `key`. Returns whether the key was there; `old` receives its former value.
    /// Linearizable.
    pub async fn insert(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if tree.has_blocks() {
            return Box::pin(self.put_value(tree, key, value, Some(old))).await;
        }
        match self.insert_now(tree, key, value, old).await {
            Err(Error::OutOfMemory) => Box::pin(self.insert_when_room(tree, key, value, old)).await,
            done => done,
        }
    }

    /// Puts `value` under `key`. Returns whether the key was there. Does not read the value that it replaces,
    /// where that would cost anything. Linearizable.
    pub async fn put(&self, tree: &TreeState, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        if tree.has_blocks() {
            return Box::pin(self.put_value(tree, key, value, None)).await;
        }
        let mut old = self.worker.buffer();
        let put = self.insert(tree, key, value, &mut old).await;
        self.worker.keep_buffer(old);
        put
    }

    /// Waits for memory and tries again.
    async fn insert_when_room(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        loop {
            self.await_memory().await?;
            match self.insert_slowly(tree, key, value, old).await {
                Err(Error::OutOfMemory) => {}
                done => return done,
            }
        }
    }

    /// Ends an insert after its change of the lines of the key, which may have been impossible.
    pub(super) async fn insert_otherwise(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
        changed: Result<Option<bool>, Error>,
    ) -> Result<bool, Error> {
        let inserted = match changed {
            Ok(Some(updated)) => return Ok(updated),
            Ok(None) => self.insert_slowly(tree, key, value, old).await,
            Err(error) => Err(error),
        };
        match inserted {
            Err(Error::OutOfMemory) => self.insert_when_room(tree, key, value, old).await,
            done => done,
        }
    }

    async fn insert_now(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        tree.check_key(key)?;
        tree.check_value(value)?;
        let shape = &tree.shape.leaf;
        if shape.is_hashed() {
            return match self.change_lines(tree, key, old, ChangeRule::Put(value)).await? {
                Some(updated) => Ok(updated),
                None => Box::pin(self.insert_slowly(tree, key, value, old)).await,
            };
        }
        if let Some(at) = self.locate_known(tree, key, 0) {
            let locked = self.lock(at, shape.node_bytes(), None).await?;
            let leaf = Node::open(shape, locked.image(), 0).ok().map(|leaf| (leaf.position(key), leaf));
            let right = match &leaf {
                Some((Position::Right, leaf)) => Some(Sibling::of(leaf)),
                _ => None,
            };
            if let Some((Position::Inside, leaf)) = leaf {
                // Most inserts write one entry inside one line. Such a write needs a record only where lines
                // can tear.
                let whole_lines = self.worker.compute.caps().crash_unit as usize >= LINE;
                if let Some(entry) = whole_lines.then(|| leaf.entry_write(key, value, old)).flatten() {
                    let mut list = self.endpoint().list(at.server());
                    list.write(Space::Host, at.offset() + entry.range().start as u64, entry.bytes());
                    let written = self.write_back(locked.done(self), list).await;
                    written.map_err(|error| {
                        if entry.updated {
                            self.note_replaces();
                        }
                        self.in_doubt(error, at, entry.range().start, entry.bytes())
                    })?;
                    return Ok(entry.updated);
                }
                let covering = Covering { header: leaf.header, locked, missed: None };
                return Box::pin(self.insert_into(tree, covering, key, value, old)).await;
            }
            // The cache was wrong, so the insert starts from the beginning.
            Box::pin(self.release(locked.done(self))).await?;
            return Box::pin(self.insert_right(tree, right, key, value, old)).await;
        }
        Box::pin(self.insert_slowly(tree, key, value, old)).await
    }

    /// Inserts a key that lies right of the leaf that the cache named. The parent may not know of that
    /// neighbour, or the key may be elsewhere.
    async fn insert_right(
        &self,
        tree: &TreeState,
        right: Option<Sibling>,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if let Some(sibling) = &right {
            self.moved_right(tree, sibling, 0)?;
        }
        let updated = self.insert_slowly(tree, key, value, old).await?;
        self.repair_missed(tree, right.map(|sibling| (sibling.low, sibling.address))).await;
        Ok(updated)
    }

    async fn insert_slowly(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let covering = self.lock_leaf(tree, key).await?;
        self.insert_into(tree, covering, key, value, old).await
    }

    /// Puts an entry into a locked leaf, splits it if necessary, and gives the lane back.
    pub(super) async fn insert_into(
        &self,
        tree: &TreeState,
        covering: Covering,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let Covering { locked, header, missed } = covering;
        let mut leaf = self.draft(tree, &locked, header);
        let put = leaf.upsert(key, value, old);
        let updated = self.finish_put(tree, locked, leaf, put, key, value).await?;
        self.repair_missed(tree, missed).await;
        Ok(updated)
    }
}
