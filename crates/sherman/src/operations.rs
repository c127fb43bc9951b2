//! The asynchronous operations, once for [`Session`](crate::Session) and [`Handle`](crate::Handle).
//!
//! Both start an operation and give a future of its outcome; they differ in where it runs, which `$start` knows. What an
//! operation does and costs is said at [`Client`](crate::Client).
//!
//! Writers are boxed a second time: two allocations below a kilobyte each are cheaper than one above it, which a common
//! allocator serves by its slow path.

/// Operations on byte strings, for `$owner` whose `$start` makes an `$operation`.
macro_rules! raw_operations {
    ($owner:ident, $start:ident, $operation:ident) => {
        impl $owner {
            /// Looks `key` up.
            pub fn get(&self, key: Vec<u8>) -> $operation<Option<Vec<u8>>> {
                self.$start(async move |ops| {
                    let mut value = Vec::new();
                    Ok(ops.get(&key, &mut value).await?.then_some(value))
                })
            }

            /// Whether `key` is there.
            pub fn contains_key(&self, key: Vec<u8>) -> $operation<bool> {
                self.$start(async move |ops| ops.get(&key, &mut Vec::new()).await)
            }

            /// Puts `value` under `key`; resolves to the value it replaces.
            pub fn insert(&self, key: Vec<u8>, value: Vec<u8>) -> $operation<Option<Vec<u8>>> {
                self.$start(async move |ops| {
                    let mut old = Vec::new();
                    Ok(Box::pin(ops.insert(&key, &value, &mut old)).await?.then_some(old))
                })
            }

            /// Puts `value` under `key` unless the key is there; resolves to the value in the way.
            pub fn insert_if_absent(&self, key: Vec<u8>, value: Vec<u8>) -> $operation<Option<Vec<u8>>> {
                self.$start(async move |ops| {
                    let mut found = Vec::new();
                    Ok(Box::pin(ops.insert_if_absent(&key, &value, &mut found)).await?.then_some(found))
                })
            }

            /// Removes `key`; resolves to the value it had.
            pub fn remove(&self, key: Vec<u8>) -> $operation<Option<Vec<u8>>> {
                self.$start(async move |ops| {
                    let mut old = Vec::new();
                    Ok(Box::pin(ops.remove(&key, &mut old)).await?.then_some(old))
                })
            }

            /// Makes `key` be as `new` says (`None`: absent) if it is as `expected` says.
            pub fn compare_exchange(
                &self,
                key: Vec<u8>,
                expected: Option<Vec<u8>>,
                new: Option<Vec<u8>>,
            ) -> $operation<$crate::Exchange<Vec<u8>>> {
                self.$start(async move |ops| {
                    let mut found = Vec::new();
                    let exchange =
                        Box::pin(ops.compare_exchange(&key, expected.as_deref(), new.as_deref(), &mut found)).await?;
                    Ok($crate::Exchange::from(exchange).map(|()| found))
                })
            }

            /// Looks many keys up, up to 64 at once: what each found, in their order.
            pub fn get_many(&self, keys: Vec<Vec<u8>>) -> $operation<Vec<Result<Option<Vec<u8>>, Error>>> {
                self.$start(async move |ops| {
                    Ok(ops.many(keys.len(), |at| &keys[at][..], Each::Get, |_, value| value.to_vec()).await)
                })
            }

            /// Inserts many entries, up to 64 at once: the value each replaced, in their order.
            pub fn insert_many(
                &self,
                entries: Vec<(Vec<u8>, Vec<u8>)>,
            ) -> $operation<Vec<Result<Option<Vec<u8>>, Error>>> {
                self.$start(async move |ops| {
                    let value = |at: usize| &entries[at].1[..];
                    let each = Each::Insert(&value);
                    Ok(ops.many(entries.len(), |at| &entries[at].0[..], each, |_, value| value.to_vec()).await)
                })
            }

            /// Removes many keys, up to 64 at once: the value each had, in their order.
            pub fn remove_many(&self, keys: Vec<Vec<u8>>) -> $operation<Vec<Result<Option<Vec<u8>>, Error>>> {
                self.$start(async move |ops| {
                    Ok(ops.many(keys.len(), |at| &keys[at][..], Each::Remove, |_, value| value.to_vec()).await)
                })
            }

            /// The entry with the lowest key.
            pub fn first(&self) -> $operation<Option<RawEntry>> {
                self.$start(async move |ops| ops.edge(Plan::all().limit(1)).await)
            }

            /// The entry with the highest key.
            pub fn last(&self) -> $operation<Option<RawEntry>> {
                self.$start(async move |ops| ops.edge(Plan::all().limit(1).descending()).await)
            }

            /// The entry with the lowest key above `key`.
            pub fn next_after(&self, key: Vec<u8>) -> $operation<Option<RawEntry>> {
                self.$start(async move |ops| ops.edge(Plan::after(key)).await)
            }

            /// The entry with the highest key below `key`.
            pub fn next_before(&self, key: Vec<u8>) -> $operation<Option<RawEntry>> {
                self.$start(async move |ops| ops.edge(Plan::before(key)).await)
            }

            /// How many entries there are. Reads every leaf.
            pub fn len(&self) -> $operation<u64> {
                self.$start(async move |ops| ops.len().await)
            }

            /// Whether there is no entry.
            pub fn is_empty(&self) -> $operation<bool> {
                self.$start(async move |ops| Ok(ops.edge(Plan::all().limit(1)).await?.is_none()))
            }

            /// Removes every entry, leaf by leaf; resolves to how many went.
            pub fn clear(&self) -> $operation<u64> {
                self.$start(async move |ops| ops.clear().await)
            }

            /// Visits every node and checks the tree's invariants, while others may write.
            pub fn check(&self) -> $operation<Check> {
                self.$start(async move |ops| ops.check().await)
            }
        }
    };
}

/// The same on keys and values, for an `$owner` with a `raw` whose `$start` makes an operation. Short keys and values are not
/// allocated.
macro_rules! typed_operations {
    ($owner:ident, $start:ident) => {
        impl<K: Key, V: Value> $owner<K, V> {
            /// The value under `key`, as [`Client::get`](crate::Client::get).
            pub fn get(&self, key: K) -> impl Future<Output = Result<Option<V>, Error>> + Unpin + use<K, V> {
                let key = Packed::of(&key);
                decoded(self.raw.$start(async move |ops| ops.find(async |value| ops.get(&key, value).await).await))
            }

            /// Whether `key` is there, as [`Client::contains_key`](crate::Client::contains_key).
            pub fn contains_key(&self, key: K) -> impl Future<Output = Result<bool, Error>> + Unpin + use<K, V> {
                self.raw.contains_key(owned(&key))
            }

            /// Puts `value` under `key`; resolves to the value it replaces, as [`Client::insert`](crate::Client::insert).
            pub fn insert(
                &self,
                key: K,
                value: V,
            ) -> impl Future<Output = Result<Option<V>, Error>> + Unpin + use<K, V> {
                let (key, value) = (Packed::of(&key), Packed::of(&value));
                decoded(
                    self.raw.$start(async move |ops| {
                        ops.find(async |old| Box::pin(ops.insert(&key, &value, old)).await).await
                    }),
                )
            }

            /// Puts `value` under `key` unless the key is there; resolves to the value in the way, as
            /// [`Client::insert_if_absent`](crate::Client::insert_if_absent).
            pub fn insert_if_absent(
                &self,
                key: K,
                value: V,
            ) -> impl Future<Output = Result<Option<V>, Error>> + Unpin + use<K, V> {
                let (key, value) = (Packed::of(&key), Packed::of(&value));
                decoded(self.raw.$start(async move |ops| {
                    ops.find(async |found| Box::pin(ops.insert_if_absent(&key, &value, found)).await).await
                }))
            }

            /// Removes `key`; resolves to the value it had, as [`Client::remove`](crate::Client::remove).
            pub fn remove(&self, key: K) -> impl Future<Output = Result<Option<V>, Error>> + Unpin + use<K, V> {
                let key = Packed::of(&key);
                decoded(
                    self.raw.$start(async move |ops| ops.find(async |old| Box::pin(ops.remove(&key, old)).await).await),
                )
            }

            /// Makes `key` be as `new` says (`None`: absent) if it is as `expected` says, as
            /// [`Client::compare_exchange`](crate::Client::compare_exchange).
            pub fn compare_exchange(
                &self,
                key: K,
                expected: Option<V>,
                new: Option<V>,
            ) -> impl Future<Output = Result<Exchange<V>, Error>> + Unpin + use<K, V> {
                let (expected, new) = (expected.as_ref().map(owned), new.as_ref().map(owned));
                decoded_exchange(self.raw.compare_exchange(owned(&key), expected, new))
            }

            /// Looks many keys up, up to 64 at once, as [`Client::get_many`](crate::Client::get_many).
            pub fn get_many(
                &self,
                keys: &[K],
            ) -> impl Future<Output = Vec<Result<Option<V>, Error>>> + Unpin + use<K, V> {
                let (count, keys) = (keys.len(), Rows::of(keys.iter()));
                decoded_many(
                    count,
                    self.raw.$start(async move |ops| Ok(ops.many_rows(count, &keys, Each::Get, V::LEN).await)),
                )
            }

            /// Inserts many entries, up to 64 at once, as [`Client::insert_many`](crate::Client::insert_many).
            pub fn insert_many(
                &self,
                entries: &[(K, V)],
            ) -> impl Future<Output = Vec<Result<Option<V>, Error>>> + Unpin + use<K, V> {
                let (count, keys) = (entries.len(), Rows::of(entries.iter().map(|(key, _)| key)));
                let values = Rows::of(entries.iter().map(|(_, value)| value));
                decoded_many(
                    count,
                    self.raw.$start(async move |ops| {
                        let value = |at: usize| values.row(at);
                        Ok(ops.many_rows(count, &keys, Each::Insert(&value), V::LEN).await)
                    }),
                )
            }

            /// Removes many keys, up to 64 at once, as [`Client::remove_many`](crate::Client::remove_many).
            pub fn remove_many(
                &self,
                keys: &[K],
            ) -> impl Future<Output = Vec<Result<Option<V>, Error>>> + Unpin + use<K, V> {
                let (count, keys) = (keys.len(), Rows::of(keys.iter()));
                decoded_many(
                    count,
                    self.raw.$start(async move |ops| Ok(ops.many_rows(count, &keys, Each::Remove, V::LEN).await)),
                )
            }

            /// The entry with the lowest key, as [`Client::first`](crate::Client::first).
            pub fn first(&self) -> impl Future<Output = Result<Option<(K, V)>, Error>> + Unpin + use<K, V> {
                decoded_entry(self.raw.first())
            }

            /// The entry with the highest key, as [`Client::last`](crate::Client::last).
            pub fn last(&self) -> impl Future<Output = Result<Option<(K, V)>, Error>> + Unpin + use<K, V> {
                decoded_entry(self.raw.last())
            }

            /// The entry with the lowest key above `key`, as [`Client::next_after`](crate::Client::next_after).
            pub fn next_after(
                &self,
                key: K,
            ) -> impl Future<Output = Result<Option<(K, V)>, Error>> + Unpin + use<K, V> {
                decoded_entry(self.raw.next_after(owned(&key)))
            }

            /// The entry with the highest key below `key`, as [`Client::next_before`](crate::Client::next_before).
            pub fn next_before(
                &self,
                key: K,
            ) -> impl Future<Output = Result<Option<(K, V)>, Error>> + Unpin + use<K, V> {
                decoded_entry(self.raw.next_before(owned(&key)))
            }

            /// How many entries there are, as [`Client::len`](crate::Client::len). Reads every leaf.
            pub fn len(&self) -> impl Future<Output = Result<u64, Error>> + Unpin + use<K, V> {
                self.raw.len()
            }

            /// Whether there is no entry, as [`Client::is_empty`](crate::Client::is_empty).
            pub fn is_empty(&self) -> impl Future<Output = Result<bool, Error>> + Unpin + use<K, V> {
                self.raw.is_empty()
            }

            /// Removes every entry; resolves to how many went, as [`Client::clear`](crate::Client::clear).
            pub fn clear(&self) -> impl Future<Output = Result<u64, Error>> + Unpin + use<K, V> {
                self.raw.clear()
            }

            /// Visits every node and checks the tree's invariants, as [`Client::check`](crate::Client::check).
            pub fn check(&self) -> impl Future<Output = Result<Check, Error>> + Unpin + use<K, V> {
                self.raw.check()
            }
        }
    };
}

pub(crate) use {raw_operations, typed_operations};

use crate::codec::{Key, Packed, Rows, Value};
use crate::exchange::Exchange;
use crate::range::RawEntry;
use sherman_core::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future of what becomes of another's outcome. Unlike an `async` block, it may be moved after it was polled.
struct Then<O, F> {
    operation: O,
    then: F,
}

impl<O: Future + Unpin, F: FnMut(O::Output) -> T + Unpin, T> Future for Then<O, F> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        Pin::new(&mut this.operation).poll(cx).map(&mut this.then)
    }
}

/// What was found, as a value.
#[inline]
pub(crate) fn decode<V: Value>(found: Result<Option<impl AsRef<[u8]>>, Error>) -> Result<Option<V>, Error> {
    found.map(|found| found.map(|value| V::decode(value.as_ref())))
}

/// The value an operation found.
#[inline]
pub(crate) fn decoded<V: Value>(
    operation: impl Future<Output = Result<Option<Packed>, Error>> + Unpin,
) -> impl Future<Output = Result<Option<V>, Error>> + Unpin {
    Then { operation, then: decode }
}

/// The entry an operation found.
pub(crate) fn decoded_entry<K: Key, V: Value>(
    operation: impl Future<Output = Result<Option<RawEntry>, Error>> + Unpin,
) -> impl Future<Output = Result<Option<(K, V)>, Error>> + Unpin {
    let then = |found: Result<Option<RawEntry>, _>| Ok(found?.map(|(key, value)| (K::decode(&key), V::decode(&value))));
    Then { operation, then }
}

/// What an exchange found.
pub(crate) fn decoded_exchange<V: Value>(
    operation: impl Future<Output = Result<Exchange<Vec<u8>>, Error>> + Unpin,
) -> impl Future<Output = Result<Exchange<V>, Error>> + Unpin {
    Then { operation, then: |found: Result<Exchange<Vec<u8>>, _>| Ok(found?.map(|found| V::decode(&found))) }
}

/// Which keys of a batch were found, and their values; or why there is no batch.
type FoundRows = Result<(Vec<Result<Option<()>, Error>>, Rows), Error>;

/// What a batch of `count` operations found. An error of the batch as a whole is told for each.
pub(crate) fn decoded_many<V: Value>(
    count: usize,
    batch: impl Future<Output = FoundRows> + Unpin,
) -> impl Future<Output = Vec<Result<Option<V>, Error>>> + Unpin {
    let then = move |batch: FoundRows| match batch {
        Ok((found, rows)) => {
            let decode = |(at, found): (usize, Result<Option<()>, _>)| Ok(found?.map(|()| V::decode(rows.row(at))));
            found.into_iter().enumerate().map(decode).collect()
        }
        Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
    };
    Then { operation: batch, then }
}
