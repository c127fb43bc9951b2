//! Remove, and changes that depend on the present value.
//!
//! They work like an insert: lock and READ, then write-back and release. A leaf that a remove leaves too
//! empty is merged afterwards ([`super::merge`]), under lanes of the merge. The remove itself is done by
//! then.

use super::TreeState;
use super::descend::Covering;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::draft::{Removed, Upsert};
use crate::node::window::{ChangeRule, EntryChange};
use crate::node::{Draft, Header, Lookup, Node};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress};

/// The result of a compare-and-exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The key was as expected, and is now as requested.
    Done,
    /// The key had another value, which is in the caller's buffer. Nothing was changed.
    Found,
    /// The key was absent. Nothing was changed.
    Absent,
}

impl<E: Endpoint> Op<'_, E> {
    /// Removes `key`. Returns whether it was there; `old` receives its former value. Linearizable.
    pub async fn remove(&self, tree: &TreeState, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        if tree.has_blocks() {
            return Box::pin(self.remove_value(tree, key, Some(old))).await;
        }
        tree.check_key(key)?;
        let there = self.change_now(tree, key, old, ChangeRule::Remove).await?;
        self.confirm_refusal(ChangeRule::Remove, there, old).await
    }

    /// Removes `key`. Returns whether it was there. Does not read the value that it removes, where that would
    /// cost anything. Linearizable.
    pub async fn delete(&self, tree: &TreeState, key: &[u8]) -> Result<bool, Error> {
        if tree.has_blocks() {
            return Box::pin(self.remove_value(tree, key, None)).await;
        }
        let mut old = self.worker.buffer();
        let removed = self.remove(tree, key, &mut old).await;
        self.worker.keep_buffer(old);
        removed
    }

    /// Puts `value` under `key` unless the key is there. Returns whether it was; `found` receives its present
    /// value. Linearizable.
    pub async fn insert_if_absent(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        found: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if tree.has_blocks() {
            return Box::pin(self.put_value_if_absent(tree, key, value, found)).await;
        }
        tree.check_value(value)?;
        self.change(tree, key, found, ChangeRule::PutIfAbsent(value)).await
    }

    /// Sets `key` to `new` (`None`: absent) if it is as `expected`, in one step. Otherwise `found` receives
    /// its present value. Linearizable.
    pub async fn compare_exchange(
        &self,
        tree: &TreeState,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        found: &mut Vec<u8>,
    ) -> Result<Exchange, Error> {
        if tree.has_blocks() {
            return Box::pin(self.exchange_value(tree, key, expected, new, found)).await;
        }
        expected.into_iter().chain(new).try_for_each(|value| tree.check_value(value))?;
        let there = self.change(tree, key, found, ChangeRule::Exchange(expected, new)).await?;
        Ok(match there {
            _ if there.then_some(found.as_slice()) == expected => Exchange::Done,
            true => Exchange::Found,
            false => Exchange::Absent,
        })
    }

    /// Changes the entry of `key` by a rule. Returns whether the key was there; `old` receives its value.
    async fn change(
        &self,
        tree: &TreeState,
        key: &[u8],
        old: &mut Vec<u8>,
        rule: ChangeRule<'_>,
    ) -> Result<bool, Error> {
        tree.check_key(key)?;
        loop {
            match self.change_now(tree, key, old, rule).await {
                Err(Error::OutOfMemory) => Box::pin(self.await_memory()).await?,
                done => return self.confirm_refusal(rule, done?, old).await,
            }
        }
    }

    /// Checks a result that changed nothing as that of a lookup (R2). Returns whether the key was there.
    async fn confirm_refusal(&self, rule: ChangeRule<'_>, there: bool, old: &[u8]) -> Result<bool, Error> {
        if rule.decide(there.then_some(old)) == EntryChange::Nothing {
            self.confirm_read().await?;
        }
        Ok(there)
    }

    async fn change_now(
        &self,
        tree: &TreeState,
        key: &[u8],
        old: &mut Vec<u8>,
        rule: ChangeRule<'_>,
    ) -> Result<bool, Error> {
        if let Some(there) = self.change_lines(tree, key, old, rule).await? {
            return Ok(there);
        }
        let Covering { locked, header, missed } = self.lock_leaf(tree, key).await?;
        let mut leaf = self.draft(tree, &locked, header);
        let there = match leaf.node().find(key) {
            Lookup::Found(slot) => {
                leaf.node().value_into(slot, old);
                true
            }
            Lookup::Absent => false,
            Lookup::Torn => return Box::pin(self.corrupt(locked)).await,
        };
        let mut small = None;
        match rule.decide(there.then_some(old.as_slice())) {
            EntryChange::Nothing => {
                self.worker.keep_buffer(leaf.into_image());
                self.release(locked.done(self)).await?;
            }
            EntryChange::Put(value) => {
                let mut same = self.worker.buffer();
                let put = leaf.upsert(key, value, &mut same);
                self.worker.keep_buffer(same);
                self.finish_put(tree, locked, leaf, put, key, value).await?;
            }
            EntryChange::Remove => {
                let mut same = self.worker.buffer();
                small = self.erase(tree, locked, leaf, key, &mut same).await?;
                self.worker.keep_buffer(same);
            }
        }
        self.repair_missed(tree, missed).await;
        if small == Some(true) {
            Box::pin(self.tidy(tree, 0, key)).await;
        }
        Ok(there)
    }

    /// Locks the leaf that covers `key`.
    pub(crate) async fn lock_leaf(&self, tree: &TreeState, key: &[u8]) -> Result<Covering, Error> {
        let covering = self.lock_covering(tree, key, 0, None).await?;
        covering.ok_or(Error::Corrupt { address: GlobalAddress::NULL, invariant: "I2: a tree has leaves" })
    }

    /// Makes a draft of the leaf under its lane.
    pub(crate) fn draft<'t>(&self, tree: &'t TreeState, locked: &Locked, header: Header) -> Draft<'t> {
        let shape = &tree.shape.leaf;
        Draft::of(shape, &Node::reopen(shape, locked.image(), header), self.worker.buffer())
    }

    /// Erases `key` from a locked leaf and gives the lane back. Returns `None` if the key was not there.
    /// Otherwise returns whether the leaf is now so empty that a merge is worth an attempt.
    async fn erase(
        &self,
        tree: &TreeState,
        locked: Locked,
        mut leaf: Draft<'_>,
        key: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<Option<bool>, Error> {
        let erased = match leaf.remove(key, old) {
            Removed::Gone(patch) => {
                self.write(tree, locked, &leaf, &patch).await?;
                Some(super::merge::worth_a_try(leaf.node().len(), leaf.node().capacity()))
            }
            Removed::Absent => {
                self.release(locked.done(self)).await?;
                None
            }
            Removed::Torn => return Box::pin(self.corrupt(locked)).await,
        };
        self.worker.keep_buffer(leaf.into_image());
        Ok(erased)
    }

    /// Writes back the result of an upsert to a locked leaf, including a split. Returns whether the key was
    /// there.
    pub(crate) async fn finish_put(
        &self,
        tree: &TreeState,
        locked: Locked,
        mut leaf: Draft<'_>,
        put: Upsert,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Error> {
        let updated = match put {
            Upsert::Updated(patch) => {
                self.write(tree, locked, &leaf, &patch).await.inspect_err(|_| self.note_replaces())?;
                true
            }
            Upsert::Inserted(patch) => {
                self.write(tree, locked, &leaf, &patch).await?;
                false
            }
            Upsert::Full => {
                Box::pin(self.put_by_split(tree, locked, &mut leaf, key, value)).await?;
                false
            }
            Upsert::Torn => return Box::pin(self.corrupt(locked)).await,
        };
        self.worker.keep_buffer(leaf.into_image());
        Ok(updated)
    }

    /// Splits a full leaf to insert an entry, and posts the separator to the parent.
    async fn put_by_split(
        &self,
        tree: &TreeState,
        locked: Locked,
        leaf: &mut Draft<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Error> {
        let (locked, place) = self.place_beside(locked, tree.shape.leaf.class()).await?;
        let entries = leaf.node().capacity();
        let split = leaf.split_leaf(key, value, place);
        if !tree.shape.leaf.is_sorted() {
            self.endpoint().sorted(1, entries);
        }
        seam!(tree::put_by_split(self, tree, &split, place).await);
        let separator = self.write_split(tree, locked, leaf, split, place).await?;
        self.post_separator(tree, 1, separator, place.address).await;
        Ok(())
    }

    /// Posts a separator that the walk to a leaf found missing.
    pub(crate) async fn repair_missed(&self, tree: &TreeState, missed: Option<(Vec<u8>, GlobalAddress)>) {
        if let Some((separator, child)) = missed {
            Box::pin(self.repair_separator(tree, 1, separator, child)).await;
        }
    }
}
