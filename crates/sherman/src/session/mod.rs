//! Asynchronous sessions.

mod raw;

pub use raw::RawSession;

use crate::codec::{Key, Value, owned};
use crate::stats::Stats;
use crate::within::Within;
use sherman_core::Error;
use sherman_core::session::Operation;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// An asynchronous session, for one thread: many operations in flight at once. Not `Send`.
///
/// An operation is under way from the call on, and makes progress inside [`Session::run`]. Dropping its future detaches it:
/// it still runs to its end. Dropping the session waits for what is in flight, within twice the cluster's timeout.
pub struct Session<K, V> {
    raw: RawSession,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for Session<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<K: Key, V: Value> Session<K, V> {
    pub(crate) fn new(raw: RawSession) -> Self {
        Self { raw, types: PhantomData }
    }

    /// Looks `key` up, as [`Client::get`](crate::Client::get).
    pub fn get(&self, key: K) -> impl Future<Output = Result<Option<V>, Error>> + use<K, V> {
        typed(self.raw.get(owned(&key)))
    }

    /// Puts `value` under `key`; resolves to the value it replaces, as [`Client::insert`](crate::Client::insert).
    pub fn insert(&self, key: K, value: V) -> impl Future<Output = Result<Option<V>, Error>> + use<K, V> {
        typed(self.raw.insert(owned(&key), owned(&value)))
    }

    /// Runs `future` and every operation in flight until `future` is done.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.raw.run(future)
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.raw.in_flight()
    }

    /// Waits for everything in flight. Returns how many operations are left after twice the cluster's timeout.
    pub fn drain(&self) -> usize {
        self.raw.drain()
    }

    /// How long an operation that is started may wait for others: the cluster's timeout unless it was
    /// [set](Self::set_timeout).
    pub fn timeout(&self) -> Duration {
        self.raw.timeout()
    }

    /// Sets how long operations may wait that are started from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.raw.set_timeout(timeout);
    }

    /// This session with another deadline for operations started while what is returned lives.
    pub fn within(&self, timeout: Duration) -> Within<'_, Self> {
        Within::new(self, self.raw.timeout_cell(), timeout)
    }

    /// What this session's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }

    /// The session as byte strings.
    pub fn raw(&self) -> &RawSession {
        &self.raw
    }
}

async fn typed<V: Value>(operation: Operation<Option<Vec<u8>>>) -> Result<Option<V>, Error> {
    Ok(operation.await?.map(|bytes| V::decode(&bytes)))
}
