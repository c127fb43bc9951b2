//! Blocking clients.

mod raw;

pub use raw::RawClient;

use crate::codec::{Encoded, Key, Value};
use crate::stats::Stats;
use crate::within::Within;
use sherman_core::Error;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
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
