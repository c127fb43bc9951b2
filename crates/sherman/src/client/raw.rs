//! Blocking clients of trees of byte strings.

use crate::cluster::Cluster;
use crate::exchange::Exchange;
use crate::many::Each;
use crate::ops::Ops;
use crate::range::{Plan, RawEntry, RawRange};
use crate::seat::{ClientSeat, SharedSeat};
use crate::stats::{Ledger, Stats};
use crate::within::Within;
use sherman_core::{Check, Error, TreeState};
use sherman_executor::block_on;
use std::cell::Cell;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

/// A blocking client of a tree of byte strings, for one thread at a time. Every call returns when it is done or its deadline
/// passed.
pub struct RawClient {
    tree: Arc<TreeState>,
    ledger: Ledger,
    timeout: Cell<Duration>,
    /// Keeps the compute server in its cluster; goes last.
    seat: ClientSeat,
}

impl fmt::Debug for RawClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawClient").field("tree", &self.tree.info().name).finish_non_exhaustive()
    }
}

impl RawClient {
    pub(crate) fn new(cluster: &Cluster, tree: Arc<TreeState>) -> Result<Self, Error> {
        let (timeout, seat) = (Cell::new(cluster.timeout()), ClientSeat::new(cluster)?);
        Ok(Self { tree, ledger: Ledger::own(cluster.total()), timeout, seat })
    }

    #[inline]
    pub(crate) fn ops(&self) -> Ops<'_, ClientSeat> {
        Ops { seat: &self.seat, tree: &self.tree, ledger: &self.ledger, timeout: self.timeout.get() }
    }

    /// Runs one operation to its end.
    #[inline]
    pub(crate) fn run<T>(&self, operation: impl AsyncFnOnce(Ops<'_, ClientSeat>) -> T) -> T {
        block_on(&self.seat, operation(self.ops()))
    }

    /// Runs a batch of `count` operations to its end. If there is no worker for it, each fails as `refuse` says.
    pub(crate) fn run_batch<T>(
        &self,
        count: usize,
        refuse: impl Fn(Error) -> T,
        batch: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Vec<T>,
    ) -> Vec<T> {
        let refused = |error: Error| (0..count).map(|_| refuse(error.clone())).collect();
        let lent = match self.seat.share() {
            Ok(lent) => lent,
            Err(error) => return refused(error),
        };
        let Some(seat) = lent.seat() else { return refused(Error::SessionDropped) };
        let ops = Ops { seat, tree: &self.tree, ledger: &self.ledger, timeout: self.timeout.get() };
        block_on(seat, batch(ops))
    }

    /// Looks `key` up; `value` receives what is found. One round trip when the cache knows the leaf. Linearizable.
    ///
    /// # Errors
    /// [`Error::KeySize`]; [`Error::Timeout`] if a dead client left the leaf torn.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(async |ops| ops.get(key, value).await)
    }

    /// Puts `value` under `key`; whether the key was there, and its old value in `old`. Two round trips when the cache
    /// knows the leaf and nobody else holds its lane. Linearizable.
    ///
    /// # Errors
    /// [`Error::KeySize`], [`Error::ValueSize`], [`Error::OutOfMemory`], [`Error::Timeout`]: nothing was changed.
    /// [`Error::OutcomeUnknown`]: it may have been.
    pub fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(async |ops| ops.insert(key, value, old).await)
    }

    /// Removes `key`; whether it was there, and its value in `old`. Two round trips when the cache knows the leaf and nobody
    /// else holds its lane; a leaf that becomes too empty is then merged with a neighbour, a few more. Linearizable.
    ///
    /// # Errors
    /// [`Error::KeySize`], [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]: it may have been.
    pub fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(async |ops| ops.remove(key, old).await)
    }

    /// Whether `key` is there. One round trip when the cache knows the leaf. Linearizable.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains_key(&self, key: &[u8]) -> Result<bool, Error> {
        self.get(key, &mut Vec::new())
    }

    /// Puts `value` under `key` unless the key is there; whether it is, and its value in `found`. Two round trips.
    /// Linearizable.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_if_absent(&self, key: &[u8], value: &[u8], found: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(async |ops| ops.insert_if_absent(key, value, found).await)
    }

    /// Makes `key` be as `new` says (`None`: absent) if it is as `expected` says; else `found` receives the value it has.
    /// Two round trips. Linearizable.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn compare_exchange(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        found: &mut Vec<u8>,
    ) -> Result<Exchange<()>, Error> {
        self.run(async |ops| ops.compare_exchange(key, expected, new, found).await).map(Exchange::from)
    }

    /// Has `change` say what is to become of the value under `key`, and makes it so; again, if it changed meanwhile, until the
    /// deadline. `change` is shown the value, if there is one, and writes the new one into the buffer, which is empty; if it returns
    /// false the key is removed. It runs outside any lock. Whether the key was there, and its value in `old`. Three round trips
    /// if nobody interferes, one if nothing changes. Linearizable.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn update(
        &self,
        key: &[u8],
        old: &mut Vec<u8>,
        change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<bool, Error> {
        self.run(async |ops| ops.update(key, old, change).await)
    }

    /// Looks many keys up, up to 64 at once: what each found, in their order. One round trip each; not one moment for all.
    pub fn get_many<B: AsRef<[u8]>>(&self, keys: &[B]) -> Vec<Result<Option<Vec<u8>>, Error>> {
        self.run_batch(keys.len(), Err, async |ops| {
            ops.many(keys.len(), |at| keys[at].as_ref(), Each::Get, |_, value| value.to_vec()).await
        })
    }

    /// Inserts many entries, up to 64 at once: the value each replaced, in their order. Two round trips each. Not atomic; if a
    /// key comes twice, the later entry comes later.
    pub fn insert_many<B: AsRef<[u8]>, C: AsRef<[u8]>>(
        &self,
        entries: &[(B, C)],
    ) -> Vec<Result<Option<Vec<u8>>, Error>> {
        let value = |at: usize| entries[at].1.as_ref();
        self.run_batch(entries.len(), Err, async |ops| {
            ops.many(entries.len(), |at| entries[at].0.as_ref(), Each::Insert(&value), |_, value| value.to_vec()).await
        })
    }

    /// As [`insert_many`](Self::insert_many), until the first failure: then no insert begins any more, and those in flight wait no
    /// longer than `patience`. `None` for entries whose insert never began.
    pub fn insert_until_failure<B: AsRef<[u8]>, C: AsRef<[u8]>>(
        &self,
        entries: &[(B, C)],
        patience: Duration,
    ) -> Vec<Option<Result<Option<Vec<u8>>, Error>>> {
        let value = |at: usize| entries[at].1.as_ref();
        let key = |at: usize| entries[at].0.as_ref();
        self.run_batch(
            entries.len(),
            |error| Some(Err(error)),
            async |ops| {
                let old = |_, value: &[u8]| value.to_vec();
                ops.many_until_failure(entries.len(), key, Each::Insert(&value), old, patience).await
            },
        )
    }

    /// Removes many keys, up to 64 at once: the value each had, in their order. Two round trips each. Not atomic.
    pub fn remove_many<B: AsRef<[u8]>>(&self, keys: &[B]) -> Vec<Result<Option<Vec<u8>>, Error>> {
        self.run_batch(keys.len(), Err, async |ops| {
            ops.many(keys.len(), |at| keys[at].as_ref(), Each::Remove, |_, value| value.to_vec()).await
        })
    }

    /// The entries whose keys lie in `range`, ascending or [descending](RawRange::descending). Not a snapshot: see
    /// [`Range`](crate::Range).
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// # let tree = cluster.raw_tree("words", &sherman::TreeOptions::new().sizes(3, 1))?;
    /// # let client = tree.client()?;
    /// client.insert(b"two", &[2], &mut Vec::new())?;
    /// let mut range = client.range(&b"t\0\0"[..]..);
    /// assert_eq!(range.advance()?, Some((&b"two"[..], &[2][..])));
    /// assert_eq!(range.advance()?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> RawRange<'_> {
        RawRange::new(self, Plan::of_bytes(&range))
    }

    /// The first entry of a plan, given to `entry`.
    pub(crate) fn edge<R>(&self, plan: Plan, entry: impl FnOnce(&[u8], &[u8]) -> R) -> Result<Option<R>, Error> {
        let mut range = RawRange::new(self, plan);
        Ok(range.advance()?.map(|(key, value)| entry(key, value)))
    }

    /// The entry with the lowest key. One round trip when the cache knows the leaf and it is not empty. As a range of one: the
    /// entry was there at some moment of the call, and no key that was there throughout lies below it.
    pub fn first(&self) -> Result<Option<RawEntry>, Error> {
        self.edge(Plan::all().limit(1), entry)
    }

    /// The entry with the highest key, as [`first`](Self::first).
    pub fn last(&self) -> Result<Option<RawEntry>, Error> {
        self.edge(Plan::all().limit(1).descending(), entry)
    }

    /// The entry with the lowest key above `key`, as [`first`](Self::first).
    pub fn next_after(&self, key: &[u8]) -> Result<Option<RawEntry>, Error> {
        self.edge(Plan::after(key.to_vec()), entry)
    }

    /// The entry with the highest key below `key`, as [`first`](Self::first).
    pub fn next_before(&self, key: &[u8]) -> Result<Option<RawEntry>, Error> {
        self.edge(Plan::before(key.to_vec()), entry)
    }

    /// How many entries there are. Reads every leaf, 32 a round trip; as a range, it is no snapshot.
    pub fn len(&self) -> Result<u64, Error> {
        self.run(async |ops| ops.len().await)
    }

    /// Whether there is no entry. As [`first`](Self::first).
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.edge(Plan::all().limit(1), |_, _| ())?.is_none())
    }

    /// Removes every entry; how many went. Leaf by leaf, a few round trips each: each leaf at one moment, the tree not, so that what
    /// others insert meanwhile may stay. Its deadline is the cluster's timeout for each leaf. If the identity ends meanwhile the clearing
    /// goes on under the next, and the number may leave out the entries of one leaf.
    ///
    /// # Errors
    /// After an error some leaves may be cleared and others not.
    pub fn clear(&self) -> Result<u64, Error> {
        self.run(async |ops| ops.clear().await)
    }

    /// Visits every node and checks the tree's invariants, while others may write. One round trip per node.
    ///
    /// # Errors
    /// Those of reading: what is wrong with the tree is in the answer.
    pub fn check(&self) -> Result<Check, Error> {
        self.run(async |ops| ops.check().await)
    }

    /// How long its operations may wait for others before they fail with [`Error::Timeout`]: the cluster's timeout unless it
    /// was [set](Self::set_timeout). Time counts from the first obstacle; an operation that meets none reads no clock.
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// Sets how long operations may wait from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// This client with another deadline, for as long as what is returned lives.
    pub fn within(&self, timeout: Duration) -> Within<'_, Self> {
        Within::new(self, &self.timeout, timeout)
    }

    pub(crate) fn timeout_cell(&self) -> &Cell<Duration> {
        &self.timeout
    }

    /// What this client's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.ledger.read()
    }
}

/// An entry of one's own.
fn entry(key: &[u8], value: &[u8]) -> RawEntry {
    (key.to_vec(), value.to_vec())
}
