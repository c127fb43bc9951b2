//! Asynchronous sessions.

mod raw;

pub use raw::RawSession;

use crate::codec::{Key, Packed, Rows, Value, encode_change, owned};
use crate::exchange::Exchange;
use crate::many::Each;
use crate::operations::{decode, decoded, decoded_entry, decoded_exchange, decoded_many, typed_operations};
use crate::range::{Plan, RawSessionRange, SessionRange};
use crate::stats::Stats;
use crate::within::Within;
use sherman_core::{Check, Error};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
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

typed_operations!(Session, start);

impl<K: Key, V: Value> Session<K, V> {
    pub(crate) fn new(raw: RawSession) -> Self {
        Self { raw, types: PhantomData }
    }

    /// Has `change` say what is to become of the value under `key` (`None`: absent), and makes it so, as
    /// [`Client::update`](crate::Client::update). Resolves to the value it had.
    pub fn update<F: FnMut(Option<V>) -> Option<V> + 'static>(
        &self,
        key: K,
        mut change: F,
    ) -> impl Future<Output = Result<Option<V>, Error>> + use<K, V, F> {
        let update = self.raw.update(owned(&key), move |old, new| encode_change(&mut change, old, new));
        async move { decode(update.await) }
    }

    /// The entries whose keys lie in `range`, ascending or [descending](SessionRange::descending). Not a snapshot: see
    /// [`Range`](crate::Range).
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// # let tree = cluster.tree::<u64, u64>("orders")?;
    /// let session = tree.session()?;
    /// session.run(async {
    ///     session.insert_many(&[(1, 10), (2, 20), (3, 30)]).await;
    ///     let mut orders = session.range(2..);
    ///     let mut sum = 0;
    ///     while let Some(order) = orders.next().await {
    ///         sum += order?.1;
    ///     }
    ///     assert_eq!(sum, 50);
    ///     Ok::<(), sherman::Error>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&self, range: impl RangeBounds<K>) -> SessionRange<'_, K, V> {
        SessionRange::new(RawSessionRange::new(&self.raw, Plan::of_keys(&range)))
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
