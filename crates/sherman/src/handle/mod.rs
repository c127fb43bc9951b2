//! Handles: a tree for any number of threads and tasks, on any executor.
//!
//! Worker threads own a session each. A call is sent to them through a bounded [`queue`] and answered through a [`reply`]; the
//! future in between is an ordinary one. With nothing to do the workers sleep.

mod queue;
mod raw;
mod reply;
#[cfg(test)]
mod tests;
mod worker;

pub use raw::{HandleOperation, RawHandle};

use crate::codec::{Key, Packed, Rows, Value, encode_change, owned};
use crate::exchange::Exchange;
use crate::many::Each;
use crate::operations::{decode, decoded, decoded_entry, decoded_exchange, decoded_many, typed_operations};
use crate::range::{HandleRange, Plan, RawHandleRange};
use crate::stats::Stats;
use sherman_core::{Check, Error};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::time::Duration;

/// What serves a [`Handle`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleOptions {
    threads: usize,
    queue: usize,
    in_flight: usize,
}

impl Default for HandleOptions {
    fn default() -> Self {
        Self { threads: 1, queue: 1024, in_flight: 256 }
    }
}

impl HandleOptions {
    /// The defaults: one thread, 1024 operations queued, 256 in flight.
    pub fn new() -> Self {
        Self::default()
    }

    /// Worker threads; at least one.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Operations accepted and not yet begun; at least one. With so many, an operation that is awaited waits for a place.
    pub fn queue(mut self, operations: usize) -> Self {
        self.queue = operations;
        self
    }

    /// Operations a thread has in flight at once; at least one.
    pub fn in_flight(mut self, operations: usize) -> Self {
        self.in_flight = operations;
        self
    }
}

/// A handle to a tree for any number of threads and tasks: `Send`, `Sync` and cheap to clone.
///
/// Its operations are ordinary futures, for tokio or any other executor; worker threads of the handle do the work. Compared with a
/// [`Client`](crate::Client) or [`Session`](crate::Session) an operation takes two switches of thread more.
///
/// - **Nothing happens** before a future is first polled.
/// - **Back-pressure**: so many operations are [queued](HandleOptions::queue); the next waits, in order of arrival.
/// - **Dropping a future** detaches: an operation that was accepted runs to its end, one that still waits for a place is withdrawn.
/// - **Dropping the last clone** finishes what was queued and ends the threads. It blocks that long: at most the timeout for
///   every [batch in flight](HandleOptions::in_flight).
/// - If the workers are gone, operations fail with [`Error::HandleClosed`].
///
/// ```
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let orders = cluster.tree::<u64, u64>("orders")?.handle()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
/// runtime.block_on(async {
///     let task = tokio::spawn(orders.insert(7, 700));
///     assert_eq!(task.await??, None);
///     assert_eq!(orders.get(7).await?, Some(700));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Handle<K, V> {
    raw: RawHandle,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for Handle<K, V> {
    fn clone(&self) -> Self {
        Self { raw: self.raw.clone(), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for Handle<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

typed_operations!(Handle, call);

impl<K: Key, V: Value> Handle<K, V> {
    pub(crate) fn new(raw: RawHandle) -> Self {
        Self { raw, types: PhantomData }
    }

    /// Has `change` say what is to become of the value under `key` (`None`: absent), and makes it so, as
    /// [`Client::update`](crate::Client::update). Resolves to the value it had.
    ///
    /// `change` runs on a worker thread, outside any lock, and keeps the handle's other operations waiting meanwhile: it should be
    /// short. If it panics nothing is changed, and the panic goes on where the future is awaited.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// # let visits = cluster.tree::<u64, u64>("visits")?.handle()?;
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    /// # runtime.block_on(async {
    /// let visitors: Vec<_> =
    ///     (0..100).map(|_| tokio::spawn(visits.update(7, |count| Some(count.unwrap_or(0) + 1)))).collect();
    /// for visitor in visitors {
    ///     visitor.await??;
    /// }
    /// assert_eq!(visits.get(7).await?, Some(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update<F: FnMut(Option<V>) -> Option<V> + Send + 'static>(
        &self,
        key: K,
        mut change: F,
    ) -> impl Future<Output = Result<Option<V>, Error>> + use<K, V, F> {
        let update = self.raw.update(owned(&key), move |old, new| encode_change(&mut change, old, new));
        async move { decode(update.await) }
    }

    /// The entries whose keys lie in `range`, ascending or [descending](HandleRange::descending). Not a snapshot: see
    /// [`Range`](crate::Range). Until it is dropped it counts as a clone of the handle.
    pub fn range(&self, range: impl RangeBounds<K>) -> HandleRange<K, V> {
        HandleRange::new(RawHandleRange::new(self.raw.clone(), Plan::of_keys(&range)))
    }

    /// How long an operation may wait for others before it fails with [`Error::Timeout`]; the time it spends in the queue is
    /// not counted.
    pub fn timeout(&self) -> Duration {
        self.raw.timeout()
    }

    /// The same handle with another deadline for its operations.
    pub fn within(&self, timeout: Duration) -> Self {
        Self::new(self.raw.within(timeout))
    }

    /// What the operations of this handle and its clones cost so far.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }

    /// The handle as byte strings.
    pub fn raw(&self) -> &RawHandle {
        &self.raw
    }
}
