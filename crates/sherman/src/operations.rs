//! The operations of [`Client`](crate::Client), [`Session`](crate::Session) and [`Handle`](crate::Handle),
//! written once.
//!
//! A face has a method `start`, which runs an operation on bytes and decodes its answer. The faces differ in
//! where `start` runs the operation, and in the answer's way back:
//!
//! | face | an operation runs | its answer is |
//! |---|---|---|
//! | client | in the call | a `Result` |
//! | session | as a task of the session | an [`Operation`] |
//! | handle | on a worker thread | a [`HandleOperation`] |
//!
//! Sessions and handles decode where the caller awaits. So a value crosses threads as bytes, and its type
//! need not be `Send`.

use crate::codec::{Packed, Stored};
use crate::exchange::Exchange;
use sherman_core::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A value on its way back to the caller.
pub(crate) trait FromBytes {
    /// Takes the value out of a buffer.
    fn from_bytes(bytes: &[u8]) -> Self;
}

/// Only whether there is a value matters.
impl FromBytes for () {
    fn from_bytes(_: &[u8]) -> Self {}
}

/// A `T` on its way back to the caller.
pub(crate) trait Wire<T>: FromBytes {
    /// The value itself.
    fn decode(self) -> T;
}

/// A value that is decoded at once.
pub(crate) struct Plain<T>(T);

impl<T: Stored> FromBytes for Plain<T> {
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Self {
        Self(T::read(bytes))
    }
}

impl<T: Stored> Wire<T> for Plain<T> {
    #[inline]
    fn decode(self) -> T {
        self.0
    }
}

impl FromBytes for Packed {
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Self {
        Self::copy(bytes)
    }
}

impl<T: Stored> Wire<T> for Packed {
    #[inline]
    fn decode(self) -> T {
        T::read(&self)
    }
}

/// The decoding of an answer that needs none.
pub(crate) fn plain<T>(answer: Result<T, Error>, _: usize) -> Result<T, Error> {
    answer
}

/// Decodes the value that was found.
#[inline]
pub(crate) fn found<W: Wire<V>, V>(answer: Result<Option<W>, Error>, _: usize) -> Result<Option<V>, Error> {
    Ok(answer?.map(W::decode))
}

/// Decodes the entry that was found.
pub(crate) fn found_entry<A: Wire<K>, B: Wire<V>, K, V>(
    answer: Result<Option<(A, B)>, Error>,
    _: usize,
) -> Result<Option<(K, V)>, Error> {
    Ok(answer?.map(|(key, value)| (key.decode(), value.decode())))
}

/// Decodes the value that was found instead of the expected one.
pub(crate) fn exchanged<W: Wire<V>, V>(
    answer: Result<Exchange<W>, Error>,
    _: usize,
) -> Result<Exchange<V>, Error> {
    Ok(answer?.map(W::decode))
}

/// An operation that has started: a future of its outcome, on any executor. Dropping it detaches the
/// operation, which still runs until it ends.
///
/// `O` is the operation itself, which answers with a `W`. The outcome is a `T` or an `E`.
#[must_use = "await it to learn the operation's outcome"]
pub struct Started<O, T, W, E> {
    pub(crate) operation: O,
    pub(crate) decode: fn(Result<W, Error>, usize) -> Result<T, E>,
    /// Number of keys of a batch.
    pub(crate) count: usize,
}

impl<O, T, W, E> fmt::Debug for Started<O, T, W, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
}

impl<O: Future<Output = Result<W, Error>> + Unpin, T, W, E> Future for Started<O, T, W, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.operation).poll(cx).map(|answer| (self.decode)(answer, self.count))
    }
}

/// The type of an operation's outcome: a `$t`, which the operation answers as a `$w`.
macro_rules! outcome {
    (blocking, $t:ty, $w:ty, $e:ty) => { Result<$t, $e> };
    (session, $t:ty, $w:ty, $e:ty) => { $crate::session::Operation<$t, $w, $e> };
    (handle, $t:ty, $w:ty, $e:ty) => { $crate::handle::HandleOperation<$t, $w, $e> };
    ($mode:ident, $t:ty, $w:ty) => { outcome!($mode, $t, $w, Error) };
    ($mode:ident, $t:ty) => { outcome!($mode, $t, $t, Error) };
}

/// The form of a found value before it is decoded.
macro_rules! wire {
    (blocking, $v:ty) => { $crate::operations::Plain<$v> };
    ($mode:ident, $v:ty) => { $crate::codec::Packed };
}

/// The bytes of an argument that stands for a `$t`.
macro_rules! packed {
    (blocking, $t:ty, $argument:expr) => {
        $crate::codec::OnStack::of::<$t, _>($argument)
    };
    ($mode:ident, $t:ty, $argument:expr) => {
        $crate::codec::Packed::of::<$t, _>($argument)
    };
}

/// A writer's future. A task boxes it a second time: two allocations below a kilobyte each are cheaper than
/// one above it, which common allocators serve on a slow path.
macro_rules! writer {
    (blocking, $operation:expr) => {
        $operation
    };
    ($mode:ident, $operation:expr) => {
        Box::pin($operation)
    };
}

/// The operations of a `$face`. `$batch` is its method that starts a batch.
macro_rules! operations {
    ($face:ident, $mode:ident, $batch:ident, $Range:ident $(<$life:lifetime>)?) => {
        impl<K: Stored, V: Stored> $face<K, V> {
            /// The value under `key`. One round trip when the cache knows the leaf. Linearizable.
            ///
            /// # Errors
            /// [`Error::Timeout`] if a dead client left the leaf torn; [`Error::ServerLost`] and other
            /// failures of the fabric. In trees of byte strings also [`Error::KeySize`].
            pub fn get(&self, key: impl Arg<K>) -> outcome!($mode, Option<V>, Option<wire!($mode, V)>) {
                let key = packed!($mode, K, &key);
                let get = async move |ops: Ops<'_, _>| {
                    ops.find::<wire!($mode, V)>(async |value| ops.get(&key, value).await).await
                };
                self.start(0, get, found)
            }

            /// Whether the tree contains `key`. One round trip when the cache knows the leaf. Linearizable.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn contains_key(&self, key: impl Arg<K>) -> outcome!($mode, bool) {
                let key = packed!($mode, K, &key);
                self.start(0, async move |ops: Ops<'_, _>| ops.contains_key(&key).await, plain)
            }

            /// Puts `value` under `key` and returns the value it replaces. Two round trips when the cache
            /// knows the leaf and no other client holds its lane. Linearizable.
            ///
            /// # Errors
            /// [`Error::OutOfMemory`], [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]:
            /// the tree may have been changed. In trees of byte strings also [`Error::KeySize`] and
            /// [`Error::ValueSize`].
            pub fn insert(
                &self,
                key: impl Arg<K>,
                value: impl Arg<V>,
            ) -> outcome!($mode, Option<V>, Option<wire!($mode, V)>) {
                let (key, value) = (packed!($mode, K, &key), packed!($mode, V, &value));
                let insert = async move |ops: Ops<'_, _>| {
                    let insert = async |old: &mut _| writer!($mode, ops.insert(&key, &value, old)).await;
                    ops.find::<wire!($mode, V)>(insert).await
                };
                self.start(0, insert, found)
            }

            /// Puts `value` under `key` if the key is absent, and otherwise returns the present value. Two
            /// round trips. Linearizable.
            ///
            /// # Errors
            /// As [`insert`](Self::insert).
            pub fn insert_if_absent(
                &self,
                key: impl Arg<K>,
                value: impl Arg<V>,
            ) -> outcome!($mode, Option<V>, Option<wire!($mode, V)>) {
                let (key, value) = (packed!($mode, K, &key), packed!($mode, V, &value));
                let insert = async move |ops: Ops<'_, _>| {
                    let insert =
                        async |old: &mut _| writer!($mode, ops.insert_if_absent(&key, &value, old)).await;
                    ops.find::<wire!($mode, V)>(insert).await
                };
                self.start(0, insert, found)
            }

            /// Removes `key` and returns its value. Two round trips when the cache knows the leaf and no
            /// other client holds its lane. If the leaf becomes too empty, the client merges it with a
            /// neighbour, which takes a few more. Linearizable.
            ///
            /// # Errors
            /// [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]: the tree may have been
            /// changed.
            pub fn remove(&self, key: impl Arg<K>) -> outcome!($mode, Option<V>, Option<wire!($mode, V)>) {
                let key = packed!($mode, K, &key);
                let remove = async move |ops: Ops<'_, _>| {
                    let remove = async |old: &mut _| writer!($mode, ops.remove(&key, old)).await;
                    ops.find::<wire!($mode, V)>(remove).await
                };
                self.start(0, remove, found)
            }

            /// Changes the value of `key` from `expected` to `new`, in one step. `None` means absent. Nothing
            /// changes if the value is not `expected`. Two round trips. Linearizable.
            ///
            /// # Errors
            /// As [`insert`](Self::insert).
            pub fn compare_exchange(
                &self,
                key: impl Arg<K>,
                expected: Option<V>,
                new: Option<V>,
            ) -> outcome!($mode, Exchange<V>, Exchange<wire!($mode, V)>) {
                let key = packed!($mode, K, &key);
                let packed = |value: Option<V>| value.map(|value| packed!($mode, V, &value));
                let (expected, new) = (packed(expected), packed(new));
                let exchange = async move |ops: Ops<'_, _>| {
                    writer!(
                        $mode,
                        ops.exchange::<wire!($mode, V)>(&key, expected.as_deref(), new.as_deref())
                    )
                    .await
                };
                self.start(0, exchange, exchanged)
            }

            /// Looks up many keys, up to 64 at once, and returns the values in the order of the keys. One
            /// round trip each. The values do not come from one moment.
            ///
            /// # Errors
            /// [`BatchError`] has the result of every key.
            pub fn get_many<Q: Arg<K>>(
                &self,
                keys: &[Q],
            ) -> outcome!($mode, Vec<Option<V>>, Answers, BatchError<V>) {
                let keys = Rows::of(keys.iter());
                self.$batch(
                    keys.len(),
                    async move |ops: Ops<'_, _>| Ok(ops.many(&keys, Each::Get).await),
                    decode_all,
                )
            }

            /// Inserts many entries, up to 64 at once, and returns the replaced values in the order of the
            /// entries. Two round trips each. Not atomic. If a key occurs twice, the later entry is inserted
            /// later.
            ///
            /// # Errors
            /// [`BatchError`] has the result of every entry.
            pub fn insert_many<Q: Arg<K>, R: Arg<V>>(
                &self,
                entries: &[(Q, R)],
            ) -> outcome!($mode, Vec<Option<V>>, Answers, BatchError<V>) {
                let keys = Rows::of(entries.iter().map(|(key, _)| key));
                let values = Rows::of(entries.iter().map(|(_, value)| value));
                self.$batch(
                    keys.len(),
                    async move |ops: Ops<'_, _>| Ok(ops.many(&keys, Each::Insert(&values)).await),
                    decode_all,
                )
            }

            /// Removes many keys, up to 64 at once, and returns their values in the order of the keys. Two
            /// round trips each. Not atomic.
            ///
            /// # Errors
            /// [`BatchError`] has the result of every key.
            pub fn remove_many<Q: Arg<K>>(
                &self,
                keys: &[Q],
            ) -> outcome!($mode, Vec<Option<V>>, Answers, BatchError<V>) {
                let keys = Rows::of(keys.iter());
                self.$batch(
                    keys.len(),
                    async move |ops: Ops<'_, _>| Ok(ops.many(&keys, Each::Remove).await),
                    decode_all,
                )
            }

            /// The entries whose keys lie in `range`, in order. `range` is any
            /// [`RangeBounds`](std::ops::RangeBounds), as in `2..9`, `..=9` or `..`. Reads during the
            /// iteration, a few leaves per round trip. Not a snapshot: see [`Entries`].
            pub fn range(&self, range: impl KeyRange<K>) -> $Range<$($life,)? K, V> {
                Entries::new(self.source(), range.plan())
            }

            fn edge(
                &self,
                plan: RangePlan,
            ) -> outcome!($mode, Option<(K, V)>, Option<(wire!($mode, K), wire!($mode, V))>) {
                let edge = async move |ops: Ops<'_, _>| {
                    ops.edge::<wire!($mode, K), wire!($mode, V)>(plan).await
                };
                self.start(0, edge, found_entry)
            }

            /// The entry with the lowest key. One round trip when the cache knows the leaf and it is not
            /// empty. Like a range of one, it is no snapshot: the entry was present at some moment of the
            /// operation. No key that was present throughout lies below it.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn first(
                &self,
            ) -> outcome!($mode, Option<(K, V)>, Option<(wire!($mode, K), wire!($mode, V))>) {
                self.edge(RangePlan::all().limit(1))
            }

            /// The entry with the highest key, as [`first`](Self::first).
            pub fn last(
                &self,
            ) -> outcome!($mode, Option<(K, V)>, Option<(wire!($mode, K), wire!($mode, V))>) {
                self.edge(RangePlan::all().limit(1).descending())
            }

            /// The entry with the lowest key above `key`, as [`first`](Self::first).
            pub fn next_after(
                &self,
                key: impl Arg<K>,
            ) -> outcome!($mode, Option<(K, V)>, Option<(wire!($mode, K), wire!($mode, V))>) {
                self.edge(RangePlan::after(Packed::of(&key)))
            }

            /// The entry with the highest key below `key`, as [`first`](Self::first).
            pub fn next_before(
                &self,
                key: impl Arg<K>,
            ) -> outcome!($mode, Option<(K, V)>, Option<(wire!($mode, K), wire!($mode, V))>) {
                self.edge(RangePlan::before(Packed::of(&key)))
            }

            /// The number of entries. Reads every leaf, 32 per round trip. Like a range, it is no snapshot.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn len(&self) -> outcome!($mode, u64) {
                self.start(0, async move |ops: Ops<'_, _>| ops.len().await, plain)
            }

            /// Whether the tree is empty. As [`first`](Self::first).
            pub fn is_empty(&self) -> outcome!($mode, bool) {
                self.start(0, async move |ops: Ops<'_, _>| ops.is_empty().await, plain)
            }

            /// Removes every entry and returns how many it removed. It clears leaf by leaf, with a few round
            /// trips each. Each leaf is cleared in one step, but the tree is not, so entries that other
            /// clients insert meanwhile may stay. The deadline is the cluster's timeout for each leaf. If the
            /// identity ends meanwhile, the clearing continues under the next one, and the number may omit
            /// the entries of one leaf.
            ///
            /// # Errors
            /// After an error some leaves may be cleared and others not.
            pub fn clear(&self) -> outcome!($mode, u64) {
                self.start(0, async move |ops: Ops<'_, _>| ops.clear().await, plain)
            }

            /// Visits every node and checks the tree's invariants. Other clients may write meanwhile. One
            /// round trip per node.
            ///
            /// # Errors
            /// Only errors of reading. The returned [`Check`] lists the tree's own defects.
            pub fn check(&self) -> outcome!($mode, Check) {
                self.start(0, async move |ops: Ops<'_, _>| ops.check().await, plain)
            }
        }

        impl<K: PrefixKey, V: Stored> $face<K, V> {
            /// The entries whose keys begin with `prefix`, in order. As [`range`](Self::range).
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> $Range<$($life,)? K, V> {
                Entries::new(self.source(), RangePlan::of_prefix::<K>(prefix.as_ref(), self.key_bytes()))
            }
        }

        impl<K, V> fmt::Debug for $face<K, V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = &self.tree().info().name;
                f.debug_struct(stringify!($face)).field("tree", name).finish_non_exhaustive()
            }
        }

        impl<K, V> $face<K, V> {
            fn key_bytes(&self) -> usize {
                self.tree().shape().leaf.key_len()
            }
        }
    };
}

pub(crate) use {operations, outcome, packed, wire, writer};

/// What a file that calls [`operations!`](operations) needs.
pub(crate) mod face {
    pub(crate) use super::{Started, exchanged, found, found_entry, operations, outcome, packed, plain};
    pub(crate) use super::{wire, writer};
    pub(crate) use crate::batch::{Answers, BatchError, decode_all};
    pub(crate) use crate::codec::{Arg, Packed, PrefixKey, Rows, Stored, encode_change};
    pub(crate) use crate::exchange::Exchange;
    pub(crate) use crate::many::Each;
    pub(crate) use crate::ops::Ops;
    pub(crate) use crate::range::{AsyncSource, Entries, KeyRange, RangePlan, Reading, Source};
    pub(crate) use crate::seat::SharedSeat;
    pub(crate) use crate::stats::{Ledger, Stats};
    pub(crate) use sherman_core::{Check, Error, Scan, TreeState};
    pub(crate) use std::fmt;
    pub(crate) use std::marker::PhantomData;
    pub(crate) use std::sync::Arc;
    pub(crate) use std::time::Duration;
}
