//! Typed trees.

use crate::bulk::BulkOptions;
use crate::client::Client;
use crate::codec::{Encoded, Key, Value};
use crate::handle::{Handle, HandleOptions};
use crate::raw::RawTree;
use crate::session::Session;
use sherman_core::{Check, Error};
use std::fmt;
use std::marker::PhantomData;

/// An ordered map from `K` to `V` on the cluster. Cheap to clone; send clones to other threads and make a
/// [`Client`] or [`Session`] in each, or share a [`Handle`].
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

    /// Loads entries, in strictly ascending order of their keys, into the tree, which must be empty; how many there were. Much
    /// faster than inserting: about one round trip for sixteen leaves, and no locks. All or nothing, in one step: nobody sees
    /// a part of it.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::Unsorted`], [`Error::OutOfMemory`] and others: nothing was changed. [`Error::LoadInterrupted`]: the
    /// compute server's identity ended, and nothing was changed; start it again. [`Error::OutcomeUnknown`]: all of it may be there.
    ///
    /// ```
    /// use sherman::BulkOptions;
    ///
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let squares = cluster.tree::<u64, u64>("squares")?;
    /// let entries = (0..10_000).map(|number| (number, number * number));
    /// assert_eq!(squares.bulk_load(entries, &BulkOptions::new().fill(1.0).threads(2))?, 10_000);
    /// assert_eq!(squares.client()?.get(99)?, Some(9801));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bulk_load(&self, entries: impl IntoIterator<Item = (K, V)>, options: &BulkOptions) -> Result<u64, Error> {
        let entries = entries.into_iter().map(|(key, value)| (Encoded::of(&key), Encoded::of(&value)));
        self.raw.bulk_load(entries, options)
    }

    /// Visits every node and checks the tree's invariants, while others may write. One round trip per node.
    ///
    /// # Errors
    /// Those of reading: what is wrong with the tree is in the answer.
    pub fn check(&self) -> Result<Check, Error> {
        self.raw.check()
    }

    /// A blocking client for one thread.
    pub fn client(&self) -> Result<Client<K, V>, Error> {
        Ok(Client::new(self.raw.client()?))
    }

    /// An asynchronous session for the calling thread.
    pub fn session(&self) -> Result<Session<K, V>, Error> {
        Ok(Session::new(self.raw.session()?))
    }

    /// A handle for any number of threads and any asynchronous runtime, with one worker thread behind it.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system starts no thread.
    pub fn handle(&self) -> Result<Handle<K, V>, Error> {
        self.handle_with(&HandleOptions::new())
    }

    /// A handle with other options.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system starts no thread.
    pub fn handle_with(&self, options: &HandleOptions) -> Result<Handle<K, V>, Error> {
        Ok(Handle::new(self.raw.handle(options)?))
    }
}
