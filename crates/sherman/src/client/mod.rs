//! Blocking clients.

mod raw;

pub use raw::RawClient;

use crate::codec::{Encoded, Key, Rows, Value, encode_change, owned};
use crate::exchange::Exchange;
use crate::many::Each;
use crate::range::{Plan, Range};
use crate::stats::Stats;
use crate::within::Within;
use sherman_core::{Check, Error};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::time::Duration;

/// A blocking client, for one thread at a time: `Send`, not `Sync`. Every call returns when it is done or its deadline passed.
pub struct Client<K, V> {
    raw: RawClient,
    scratch: Scratch,
    types: PhantomData<fn(K) -> V>,
}

/// Buffers kept from call to call. Taken out while in use: a closure of the caller's may call the client again.
#[derive(Default)]
struct Scratch {
    key: Cell<Vec<u8>>,
    value: Cell<Vec<u8>>,
    found: Cell<Vec<u8>>,
}

impl<K, V> fmt::Debug for Client<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<K: Key, V: Value> Client<K, V> {
    pub(crate) fn new(raw: RawClient) -> Self {
        Self { raw, scratch: Scratch::default(), types: PhantomData }
    }

    /// Runs an operation on `key`, which finds a value or does not.
    #[inline]
    fn find(
        &self,
        key: &K,
        operation: impl FnOnce(&RawClient, &[u8], &mut Vec<u8>) -> Result<bool, Error>,
    ) -> Result<Option<V>, Error> {
        let key = Encoded::of_in(key, self.scratch.key.take());
        let mut found = self.scratch.found.take();
        let outcome = operation(&self.raw, &key, &mut found).map(|there| there.then(|| V::decode(&found)));
        self.scratch.key.set(key.into_buffer());
        self.scratch.found.set(found);
        outcome
    }

    /// The same with a value to be written.
    #[inline]
    fn put(
        &self,
        key: &K,
        value: &V,
        operation: impl FnOnce(&RawClient, &[u8], &[u8], &mut Vec<u8>) -> Result<bool, Error>,
    ) -> Result<Option<V>, Error> {
        let value = Encoded::of_in(value, self.scratch.value.take());
        let outcome = self.find(key, |raw, key, found| operation(raw, key, &value, found));
        self.scratch.value.set(value.into_buffer());
        outcome
    }

    /// The value under `key`. One round trip when the cache knows the leaf, and no allocation. Linearizable.
    ///
    /// # Errors
    /// [`Error::Timeout`] if a dead client left the leaf torn; [`Error::ServerLost`] and other failures of the fabric.
    pub fn get(&self, key: K) -> Result<Option<V>, Error> {
        self.find(&key, RawClient::get)
    }

    /// Puts `value` under `key` and returns the value it replaces. Two round trips when the cache knows the leaf and
    /// nobody else holds its lane. Linearizable.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]: it may have been.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, Error> {
        self.put(&key, &value, RawClient::insert)
    }

    /// Removes `key` and returns the value it had. Two round trips when the cache knows the leaf and nobody else holds its
    /// lane; a leaf that becomes too empty is then merged with a neighbour, a few more. Linearizable.
    ///
    /// # Errors
    /// [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]: it may have been.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let client = cluster.tree::<u64, u64>("orders")?.client()?;
    /// client.insert(7, 700)?;
    /// assert_eq!(client.remove(7)?, Some(700));
    /// assert_eq!(client.remove(7)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, key: K) -> Result<Option<V>, Error> {
        self.find(&key, RawClient::remove)
    }

    /// Whether `key` is there. One round trip when the cache knows the leaf. Linearizable.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains_key(&self, key: K) -> Result<bool, Error> {
        Ok(self.get(key)?.is_some())
    }

    /// Puts `value` under `key` unless the key is there; the value in the way, if there is one. Two round trips. Linearizable.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let client = cluster.tree::<u64, u64>("leaders")?.client()?;
    /// assert_eq!(client.insert_if_absent(1, 100)?, None, "we lead");
    /// assert_eq!(client.insert_if_absent(1, 200)?, Some(100), "100 leads");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_if_absent(&self, key: K, value: V) -> Result<Option<V>, Error> {
        self.put(&key, &value, RawClient::insert_if_absent)
    }

    /// Makes `key` be as `new` says (`None`: absent) if it is as `expected` says, in one step. Two round trips. Linearizable.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// use sherman::Exchange;
    ///
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let client = cluster.tree::<u64, u64>("orders")?.client()?;
    /// assert_eq!(client.compare_exchange(7, None, Some(700))?, Exchange::Done);
    /// assert_eq!(client.compare_exchange(7, Some(1), Some(2))?, Exchange::Found(700));
    /// assert_eq!(client.compare_exchange(7, Some(700), None)?, Exchange::Done);
    /// assert_eq!(client.compare_exchange(7, Some(700), Some(1))?, Exchange::Absent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_exchange(&self, key: K, expected: Option<V>, new: Option<V>) -> Result<Exchange<V>, Error> {
        let (expected, new) = (expected.as_ref().map(Encoded::of), new.as_ref().map(Encoded::of));
        let mut exchange = Exchange::Done;
        let found = self.find(&key, |raw, key, found| {
            exchange = raw.compare_exchange(key, expected.as_deref(), new.as_deref(), found)?;
            Ok(matches!(exchange, Exchange::Found(())))
        })?;
        Ok(match found {
            Some(found) => Exchange::Found(found),
            None if exchange.is_done() => Exchange::Done,
            None => Exchange::Absent,
        })
    }

    /// Has `change` say what is to become of the value under `key` (`None`: absent), and makes it so; the value it had.
    ///
    /// `change` is shown the value and says the new one; if somebody else changes it meanwhile, `change` is asked again with
    /// what it is now, until the deadline. It runs outside any lock and may use this client. Three round trips if nobody
    /// interferes, one if nothing changes. Linearizable.
    ///
    /// # Errors
    /// As [`insert`](Self::insert); [`Error::Timeout`] too if others keep changing the value.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let client = cluster.tree::<u64, u64>("visits")?.client()?;
    /// let count = |visits: Option<u64>| Some(visits.unwrap_or(0) + 1);
    /// assert_eq!(client.update(7, count)?, None);
    /// assert_eq!(client.update(7, count)?, Some(1));
    /// assert_eq!(client.update(7, |_| None)?, Some(2));
    /// assert!(client.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update(&self, key: K, mut change: impl FnMut(Option<V>) -> Option<V>) -> Result<Option<V>, Error> {
        self.find(&key, |raw, key, old| raw.update(key, old, |old, new| encode_change(&mut change, old, new)))
    }

    /// Looks many keys up, up to 64 at once: what each found, in their order. One round trip each; not one moment for all.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let client = cluster.tree::<u64, u64>("orders")?.client()?;
    /// for replaced in client.insert_many(&[(1, 10), (2, 20), (1, 11)]) {
    ///     replaced?;
    /// }
    /// let found: Result<Vec<_>, _> = client.get_many(&[1, 2, 3]).into_iter().collect();
    /// assert_eq!(found?, [Some(11), Some(20), None]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, keys: &[K]) -> Vec<Result<Option<V>, Error>> {
        let bytes = Rows::of(keys.iter());
        self.raw.run_batch(keys.len(), Err, async |ops| {
            ops.many(keys.len(), |at| bytes.row(at), Each::Get, |_, value| V::decode(value)).await
        })
    }

    /// Inserts many entries, up to 64 at once: the value each replaced, in their order. Two round trips each. Not atomic; if a
    /// key comes twice, the later entry comes later.
    pub fn insert_many(&self, entries: &[(K, V)]) -> Vec<Result<Option<V>, Error>> {
        let keys = Rows::of(entries.iter().map(|(key, _)| key));
        let values = Rows::of(entries.iter().map(|(_, value)| value));
        let value = |at: usize| values.row(at);
        self.raw.run_batch(entries.len(), Err, async |ops| {
            ops.many(entries.len(), |at| keys.row(at), Each::Insert(&value), |_, value| V::decode(value)).await
        })
    }

    /// Removes many keys, up to 64 at once: the value each had, in their order. Two round trips each. Not atomic.
    pub fn remove_many(&self, keys: &[K]) -> Vec<Result<Option<V>, Error>> {
        let bytes = Rows::of(keys.iter());
        self.raw.run_batch(keys.len(), Err, async |ops| {
            ops.many(keys.len(), |at| bytes.row(at), Each::Remove, |_, value| V::decode(value)).await
        })
    }

    /// The entries whose keys lie in `range`, ascending or [descending](Range::descending). Reads as it is iterated, a few leaves
    /// a round trip. Not a snapshot: see [`Range`].
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let client = cluster.tree::<u64, u64>("orders")?.client()?;
    /// client.insert_many(&[(1, 10), (2, 20), (3, 30)]);
    /// for entry in client.range(2..) {
    ///     let (key, value) = entry?;
    ///     assert_eq!(value, key * 10);
    /// }
    /// assert_eq!(client.range(..3).count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&self, range: impl RangeBounds<K>) -> Range<'_, K, V> {
        Range::new(&self.raw, Plan::of_keys(&range))
    }

    fn edge(&self, plan: Plan) -> Result<Option<(K, V)>, Error> {
        self.raw.edge(plan, |key, value| (K::decode(key), V::decode(value)))
    }

    /// The entry with the lowest key. One round trip when the cache knows the leaf and it is not empty. As a range of one: the entry was
    /// there at some moment of the call, and no key that was there throughout lies below it.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.edge(Plan::all().limit(1))
    }

    /// The entry with the highest key, as [`first`](Self::first).
    pub fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.edge(Plan::all().limit(1).descending())
    }

    /// The entry with the lowest key above `key`, as [`first`](Self::first).
    pub fn next_after(&self, key: K) -> Result<Option<(K, V)>, Error> {
        self.edge(Plan::after(owned(&key)))
    }

    /// The entry with the highest key below `key`, as [`first`](Self::first).
    pub fn next_before(&self, key: K) -> Result<Option<(K, V)>, Error> {
        self.edge(Plan::before(owned(&key)))
    }

    /// How many entries there are. Reads every leaf, 32 a round trip; as a range, it is no snapshot.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn len(&self) -> Result<u64, Error> {
        self.raw.len()
    }

    /// Whether there is no entry. As [`first`](Self::first).
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.raw.is_empty()
    }

    /// Removes every entry; how many went. Leaf by leaf, a few round trips each: each leaf at one moment, the tree not, so that what
    /// others insert meanwhile may stay. Its deadline is the cluster's timeout for each leaf. If the identity ends meanwhile the clearing
    /// goes on under the next, and the number may leave out the entries of one leaf.
    ///
    /// # Errors
    /// After an error some leaves may be cleared and others not.
    pub fn clear(&self) -> Result<u64, Error> {
        self.raw.clear()
    }

    /// Visits every node and checks the tree's invariants, while others may write. One round trip per node.
    ///
    /// # Errors
    /// Those of reading: what is wrong with the tree is in the answer.
    pub fn check(&self) -> Result<Check, Error> {
        self.raw.check()
    }

    /// How long its operations may wait for others before they fail with [`Error::Timeout`]: the cluster's timeout unless it
    /// was [set](Self::set_timeout). Time counts from the first obstacle; an operation that meets none reads no clock.
    pub fn timeout(&self) -> Duration {
        self.raw.timeout()
    }

    /// Sets how long operations may wait from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.raw.set_timeout(timeout);
    }

    /// This client with another deadline, for as long as what is returned lives.
    pub fn within(&self, timeout: Duration) -> Within<'_, Self> {
        Within::new(self, self.raw.timeout_cell(), timeout)
    }

    /// What this client's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }

    /// The client as byte strings.
    pub fn raw(&self) -> &RawClient {
        &self.raw
    }
}
