//! Typed trees.

use crate::client::Client;
use crate::codec::{Key, Value};
use crate::handle::{Handle, HandleOptions};
use crate::raw::RawTree;
use crate::session::Session;
use sherman_core::Error;
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
