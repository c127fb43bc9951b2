//! Typed trees.

use crate::client::RawClient;
use crate::codec::{Key, Value};
use crate::raw::RawTree;
use crate::session::RawSession;
use crate::stats::Stats;
use sherman_core::Error;
use sherman_core::session::Operation;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

/// An ordered map from `K` to `V` on the cluster. Cheap to clone; send clones to other threads and make a
/// [`Client`] or [`Session`] in each.
pub struct Tree<K, V> {
    raw: RawTree,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self { raw: self.raw.clone(), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<K: Key, V: Value> Tree<K, V> {
    pub(crate) fn new(raw: RawTree) -> Self {
        Self { raw, types: PhantomData }
    }

    /// The tree as byte strings.
    pub fn raw(&self) -> &RawTree {
        &self.raw
    }

    /// A blocking client for the calling thread.
    pub fn client(&self) -> Result<Client<K, V>, Error> {
        Ok(Client { raw: self.raw.client()?, scratch: RefCell::default(), types: PhantomData })
    }

    /// An asynchronous session for the calling thread.
    pub fn session(&self) -> Result<Session<K, V>, Error> {
        Ok(Session { raw: self.raw.session()?, types: PhantomData })
    }
}

#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    value: Vec<u8>,
    old: Vec<u8>,
}

/// A blocking client, for one thread.
pub struct Client<K, V> {
    raw: RawClient,
    scratch: RefCell<Scratch>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for Client<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

fn bytes<'a, T: Value>(value: &T, into: &'a mut Vec<u8>) -> &'a [u8] {
    into.resize(T::LEN, 0);
    value.encode(into);
    into
}

impl<K: Key, V: Value> Client<K, V> {
    /// The value under `key`. One round trip when the cache knows the leaf. Linearizable.
    pub fn get(&self, key: K) -> Result<Option<V>, Error> {
        let scratch = &mut *self.scratch.borrow_mut();
        let found = self.raw.get(bytes(&key, &mut scratch.key), &mut scratch.old)?;
        Ok(found.then(|| V::decode(&scratch.old)))
    }

    /// Puts `value` under `key` and returns the value it replaces. Two round trips when the cache knows the leaf and
    /// nobody else holds its lane. Linearizable.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, Error> {
        let Scratch { key: k, value: v, old } = &mut *self.scratch.borrow_mut();
        let updated = self.raw.insert(bytes(&key, k), bytes(&value, v), old)?;
        Ok(updated.then(|| V::decode(old)))
    }

    /// What this client's operations cost so far.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }
}

/// An asynchronous session, for one thread. See [`RawSession`] for what dropping an operation means.
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
    /// Looks `key` up. One round trip when the cache knows the leaf. Progresses only inside [`Session::run`].
    pub fn get(&self, key: K) -> impl Future<Output = Result<Option<V>, Error>> + use<K, V> {
        typed(self.raw.get(owned(&key)))
    }

    /// Puts `value` under `key`; resolves to the value it replaces. Two round trips, as [`Client::insert`]. Progresses only
    /// inside [`Session::run`].
    pub fn insert(&self, key: K, value: V) -> impl Future<Output = Result<Option<V>, Error>> + use<K, V> {
        typed(self.raw.insert(owned(&key), owned(&value)))
    }

    /// Runs `future` and every operation in flight until `future` is done.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.raw.run(future)
    }

    /// The session as byte strings.
    pub fn raw(&self) -> &RawSession {
        &self.raw
    }
}

fn owned<T: Value>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::LEN];
    value.encode(&mut bytes);
    bytes
}

async fn typed<V: Value>(operation: Operation<Option<Vec<u8>>>) -> Result<Option<V>, Error> {
    Ok(operation.await?.map(|bytes| V::decode(&bytes)))
}
