//! Blocking clients.

use crate::cluster::Cluster;
use crate::operations::face::*;
use crate::range::Range;
use crate::seat::ClientSeat;
use crate::within::Within;
use sherman_executor::block_on;
use std::cell::Cell;
use std::future::{Ready, ready};

/// A blocking client, for one thread at a time: `Send`, not `Sync`. Every call returns when it is complete or
/// its deadline has passed. A call allocates no memory if its key and value have at most 64 bytes.
///
/// ```
/// use sherman::Exchange;
///
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<u64, u64>("orders")?.client()?;
/// assert_eq!(client.insert(7, 700)?, None);
/// assert_eq!(client.insert_if_absent(7, 800)?, Some(700), "it stays");
/// assert_eq!(client.compare_exchange(7, Some(1), Some(2))?, Exchange::Found(700));
/// assert_eq!(client.compare_exchange(7, Some(700), Some(701))?, Exchange::Done);
/// assert_eq!(client.update(7, |value| value.map(|value| value + 1))?, Some(701));
/// assert_eq!(client.remove(&7)?, Some(702));
/// assert_eq!(client.compare_exchange(7, Some(702), Some(1))?, Exchange::Absent);
///
/// client.insert_many(&[(1, 10), (2, 20), (1, 11)])?;
/// assert_eq!(client.get_many(&[1, 2, 3])?, [Some(11), Some(20), None]);
/// for entry in client.range(2..) {
///     assert_eq!(entry?, (2, 20));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Client<K, V> {
    tree: Arc<TreeState>,
    ledger: Ledger,
    timeout: Cell<Duration>,
    types: PhantomData<fn(K) -> V>,
    /// Keeps the compute server in its cluster. Dropped last.
    seat: ClientSeat,
}

/// A [`Client`] for a tree of byte strings.
pub type RawClient = Client<Vec<u8>, Vec<u8>>;

operations!(Client, blocking, start_batch, Range<'_>);

impl<K, V> Client<K, V> {
    pub(crate) fn new(cluster: &Cluster, tree: Arc<TreeState>) -> Result<Self, Error> {
        let (timeout, seat) = (Cell::new(cluster.timeout()), ClientSeat::new(cluster)?);
        Ok(Self { tree, ledger: Ledger::own(cluster.total()), timeout, types: PhantomData, seat })
    }

    fn tree(&self) -> &TreeState {
        &self.tree
    }

    fn source(&self) -> &Self {
        self
    }

    #[inline]
    fn ops<'a, S>(&'a self, seat: &'a S) -> Ops<'a, S> {
        Ops { seat, tree: &self.tree, ledger: &self.ledger, timeout: self.timeout.get() }
    }

    /// Runs one operation until it ends.
    #[inline]
    fn run<W>(&self, operation: impl AsyncFnOnce(Ops<'_, ClientSeat>) -> W) -> W {
        block_on(&self.seat, operation(self.ops(&self.seat)))
    }

    #[inline]
    fn start<W, T, E>(
        &self,
        count: usize,
        operation: impl AsyncFnOnce(Ops<'_, ClientSeat>) -> Result<W, Error>,
        decode: impl FnOnce(Result<W, Error>, usize) -> Result<T, E>,
    ) -> Result<T, E> {
        decode(self.run(operation), count)
    }

    /// Runs a batch until it ends.
    fn run_batch<W>(
        &self,
        batch: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<W, Error>,
    ) -> Result<W, Error> {
        let lent = self.seat.share()?;
        let seat = lent.seat().ok_or(Error::SessionDropped)?;
        block_on(seat, batch(self.ops(seat)))
    }

    fn start_batch<W, T, E>(
        &self,
        count: usize,
        batch: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<W, Error>,
        decode: impl FnOnce(Result<W, Error>, usize) -> Result<T, E>,
    ) -> Result<T, E> {
        decode(self.run_batch(batch), count)
    }

    /// How long an operation may wait for other clients before it fails with [`Error::Timeout`]. This is the
    /// cluster's timeout unless the caller [set](Self::set_timeout) another. Time counts from the first
    /// obstacle. An operation that meets none reads no clock.
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// Sets how long operations may wait from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// This client with another deadline, which lasts as long as the returned value lives.
    pub fn within(&self, timeout: Duration) -> Within<'_, Self> {
        Within::new(self, &self.timeout, timeout)
    }

    /// The cost of this client's operations so far.
    pub fn stats(&self) -> Stats {
        self.ledger.read()
    }

    /// The same client, for byte strings.
    pub fn into_raw(self) -> RawClient {
        let Self { tree, ledger, timeout, seat, .. } = self;
        Client { tree, ledger, timeout, types: PhantomData, seat }
    }
}

impl<K: Stored, V: Stored> Client<K, V> {
    /// Replaces the value under `key` by the result of `change` (`None`: absent), and returns the old value.
    ///
    /// `change` receives the present value and returns the new one. If another client changes the value
    /// meanwhile, `change` runs again with the new present value, until the deadline. It runs outside any
    /// lock and may use this client. Three round trips if no other client interferes, one if nothing changes.
    /// Linearizable.
    ///
    /// # Errors
    /// As [`insert`](Self::insert); also [`Error::Timeout`] if other clients keep changing the value.
    pub fn update(
        &self,
        key: impl Arg<K>,
        mut change: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>, Error> {
        let key = packed!(blocking, K, &key);
        let update = async |ops: Ops<'_, _>| {
            let change = |old: Option<&[u8]>, new: &mut _| encode_change(&mut change, old, new);
            ops.find::<wire!(blocking, V)>(async |old| ops.update(&key, old, change).await).await
        };
        self.start(0, update, found)
    }
}

/// Calls that store values in the caller's buffers, so that they need not allocate.
impl RawClient {
    /// Looks up `key` as [`get`](Self::get). Returns whether the key is present, and stores its value in
    /// `value`.
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(async |ops| ops.get(key, value).await)
    }

    /// Puts `value` under `key` as [`insert`](Self::insert). Returns whether the key was present, and stores
    /// its old value in `old`.
    pub fn insert_into(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(async |ops| ops.insert(key, value, old).await)
    }

    /// Removes `key` as [`remove`](Self::remove). Returns whether the key was present, and stores its value
    /// in `old`.
    pub fn remove_into(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(async |ops| ops.remove(key, old).await)
    }

    /// As [`insert_many`](Self::insert_many), until the first failure. After it no further insert begins, and
    /// inserts in flight wait no longer than `patience`. Returns `None` for entries whose insert never began.
    #[must_use = "some inserts may have failed"]
    pub fn insert_until_failure<B: AsRef<[u8]>, C: AsRef<[u8]>>(
        &self,
        entries: &[(B, C)],
        patience: Duration,
    ) -> Vec<Option<Result<Option<Vec<u8>>, Error>>> {
        let keys = Rows::of(entries.iter().map(|(key, _)| key));
        let values = Rows::of(entries.iter().map(|(_, value)| value));
        let inserted =
            self.run_batch(async |ops| Ok(ops.insert_until_failure(&keys, &values, patience).await));
        match inserted {
            Ok((results, old)) => {
                let old = |(at, result): (usize, Option<Result<bool, Error>>)| {
                    result.map(|there| there.map(|there| there.then(|| old.row(at).to_vec())))
                };
                results.into_iter().enumerate().map(old).collect()
            }
            Err(error) => vec![Some(Err(error)); entries.len()],
        }
    }
}

impl<K: Stored, V: Stored> Source for &Client<K, V> {
    type Key = K;
    type Value = V;
    type Read = Ready<Result<Option<Box<Scan>>, Error>>;

    fn read(&self, reading: Reading) -> Self::Read {
        ready(self.run(async |ops| ops.read_on(reading).await))
    }

    fn end(&self, scan: Box<Scan>) {
        self.ops(&self.seat).end_scan(scan);
    }
}
