//! Remove, and changes that depend on what is there.
//!
//! Like an insert: lock and READ, then write-back and release. What a remove leaves too empty is merged afterwards
//! ([`super::merge`]), under lanes of its own: the remove itself is done by then.

use super::TreeState;
use super::descend::Covering;
use crate::error::Error;
use crate::lock::Locked;
use crate::mutant::{Mutant, planted};
use crate::node::draft::{Removed, Upsert};
use crate::node::{Draft, Header, Lookup, Node};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress};

/// How a compare-and-exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The key was as expected, and is now as asked for.
    Done,
    /// It had another value, which is in the caller's buffer. Nothing was changed.
    Found,
    /// It was absent. Nothing was changed.
    Absent,
}

/// What is to become of an entry.
enum Change<'a> {
    Nothing,
    Put(&'a [u8]),
    Remove,
}

impl<E: Endpoint> Op<'_, E> {
    /// Removes `key`. Whether it was there; `old` receives the value it had. Linearizable.
    pub async fn remove(&self, tree: &TreeState, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        tree.check_key(key)?;
        let Covering { locked, header, missed } = self.lock_leaf(tree, key).await?;
        let leaf = self.draft(tree, &locked, header);
        let removed = self.erase(tree, locked, leaf, key, old).await?;
        self.mend_missed(tree, missed).await;
        if removed == Some(true) {
            Box::pin(self.tidy(tree, 0, key)).await;
        }
        Ok(removed.is_some())
    }

    /// Puts `value` under `key` unless the key is there. Whether it was; `found` receives the value in the way. Linearizable.
    pub async fn insert_if_absent(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        found: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        tree.check_value(value)?;
        let absent = |present: Option<&[u8]>| if present.is_some() { Change::Nothing } else { Change::Put(value) };
        self.change(tree, key, found, absent).await
    }

    /// Makes `key` be as `new` says (`None`: absent) if it is as `expected` says, in one step. If it is not, `found`
    /// receives the value it has. Linearizable.
    pub async fn compare_exchange(
        &self,
        tree: &TreeState,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        found: &mut Vec<u8>,
    ) -> Result<Exchange, Error> {
        expected.into_iter().chain(new).try_for_each(|value| tree.check_value(value))?;
        let mut agreed = false;
        let decide = |present: Option<&[u8]>| {
            agreed = present == expected;
            match new {
                _ if !agreed || expected == new => Change::Nothing,
                Some(new) => Change::Put(new),
                None => Change::Remove,
            }
        };
        let there = self.change(tree, key, found, decide).await?;
        Ok(match there {
            _ if agreed => Exchange::Done,
            true => Exchange::Found,
            false => Exchange::Absent,
        })
    }

    /// Changes the entry of `key` as `decide` says, which is shown the value under the lane and must be quick and ours: a
    /// caller's closure never runs there. Whether the key was there; `old` receives its value.
    async fn change<'a>(
        &self,
        tree: &TreeState,
        key: &[u8],
        old: &mut Vec<u8>,
        mut decide: impl FnMut(Option<&[u8]>) -> Change<'a>,
    ) -> Result<bool, Error> {
        tree.check_key(key)?;
        loop {
            match self.change_now(tree, key, old, &mut decide).await {
                Err(Error::OutOfMemory) => Box::pin(self.await_memory()).await?,
                done => return done,
            }
        }
    }

    async fn change_now<'a>(
        &self,
        tree: &TreeState,
        key: &[u8],
        old: &mut Vec<u8>,
        decide: &mut impl FnMut(Option<&[u8]>) -> Change<'a>,
    ) -> Result<bool, Error> {
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
        match decide(there.then_some(old.as_slice())) {
            Change::Nothing => {
                self.worker.keep_buffer(leaf.into_image());
                self.release(locked.done(self)).await?;
            }
            Change::Put(value) => {
                let mut same = self.worker.buffer();
                let put = leaf.upsert(key, value, &mut same);
                self.worker.keep_buffer(same);
                self.finish_put(tree, locked, leaf, put, key, value).await?;
            }
            Change::Remove => {
                let mut same = self.worker.buffer();
                small = self.erase(tree, locked, leaf, key, &mut same).await?;
                self.worker.keep_buffer(same);
            }
        }
        self.mend_missed(tree, missed).await;
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

    /// A draft of the leaf under its lane.
    pub(crate) fn draft<'t>(&self, tree: &'t TreeState, locked: &Locked, header: Header) -> Draft<'t> {
        let shape = &tree.shape.leaf;
        Draft::of(shape, &Node::reopen(shape, locked.image(), header), self.worker.buffer())
    }

    /// Erases `key` from a leaf under its lane and gives the lane back. `None` if it was not there; else whether the leaf is
    /// now so empty that a merge is worth a try.
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
                Some(super::merge::worth_a_try(leaf.node().len(), tree.shape.leaf.capacity()))
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

    /// Writes back what an upsert did to a leaf under its lane, a split included. Whether the key was there.
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

    /// Splits a full leaf to put an entry, and tells the parent.
    async fn put_by_split(
        &self,
        tree: &TreeState,
        locked: Locked,
        leaf: &mut Draft<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Error> {
        let (locked, place) = self.place_beside(locked, tree.shape.leaf.class()).await?;
        let split = leaf.split_leaf(key, value, place);
        if planted(Mutant::ParentBeforeSibling) {
            self.post_separator(tree, 1, split.separator.clone(), place.address).await;
        }
        let separator = self.write_split(tree, locked, leaf, split, place).await?;
        self.post_separator(tree, 1, separator, place.address).await;
        Ok(())
    }

    /// Posts a separator that the walk to a leaf found missing.
    pub(crate) async fn mend_missed(&self, tree: &TreeState, missed: Option<(Vec<u8>, GlobalAddress)>) {
        if let Some((separator, child)) = missed {
            Box::pin(self.mend_separator(tree, 1, separator, child)).await;
        }
    }
}
