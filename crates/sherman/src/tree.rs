//! Trees.

use crate::bulk::{self, BulkOptions};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::codec::{Arg, OnStack, Stored};
use crate::handle::{Handle, HandleOptions};
use crate::session::Session;
use crate::stats::Ledger;
use crate::tree_options::CacheUsage;
use sherman_core::{Check, Error, TreeState, Walk};
use sherman_fabric::control::TreeInfo;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// An ordered map from `K` to `V` on the cluster. Cheap to clone; clones share their index cache. Send clones
/// to other threads and make a [`Client`] or [`Session`] in each, or share a [`Handle`].
pub struct Tree<K, V> {
    cluster: Cluster,
    state: Arc<TreeState>,
    types: PhantomData<fn(K) -> V>,
}

/// A tree of byte strings, whose sizes are known only at run time. Made by
/// [`Cluster::raw_tree`](crate::Cluster::raw_tree).
pub type RawTree = Tree<Vec<u8>, Vec<u8>>;

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self::new(self.cluster.clone(), Arc::clone(&self.state))
    }
}

impl<K, V> fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("name", &self.info().name).finish_non_exhaustive()
    }
}

impl<K, V> Tree<K, V> {
    pub(crate) fn new(cluster: Cluster, state: Arc<TreeState>) -> Self {
        Self { cluster, state, types: PhantomData }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn state(&self) -> &Arc<TreeState> {
        &self.state
    }

    /// The same tree with other types.
    pub(crate) fn typed<L, W>(&self) -> Tree<L, W> {
        Tree::new(self.cluster.clone(), Arc::clone(&self.state))
    }

    /// The same tree, for byte strings.
    pub fn raw(&self) -> RawTree {
        self.typed()
    }

    /// The tree's catalog entry.
    pub fn info(&self) -> &TreeInfo {
        self.state.info()
    }

    /// A blocking client, for one thread at a time.
    pub fn client(&self) -> Result<Client<K, V>, Error> {
        Client::new(&self.cluster, Arc::clone(&self.state))
    }

    /// An asynchronous session for the calling thread, with many operations in flight at once.
    pub fn session(&self) -> Result<Session<K, V>, Error> {
        let (seated, ledger) = (self.cluster.seated()?, Ledger::own(self.cluster.total()));
        Ok(Session::new(&self.cluster, seated, Arc::clone(&self.state), ledger))
    }

    /// A handle for any number of threads and any asynchronous runtime, with one worker thread.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system cannot start a thread.
    pub fn handle(&self) -> Result<Handle<K, V>, Error> {
        self.handle_with(&HandleOptions::new())
    }

    /// A handle with other options.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system cannot start a thread.
    pub fn handle_with(&self, options: &HandleOptions) -> Result<Handle<K, V>, Error> {
        Handle::new(&self.raw(), options)
    }

    /// Visits every node and checks the tree's invariants. Other clients may write meanwhile. One round trip
    /// per node.
    ///
    /// # Errors
    /// Only errors of reading. The returned [`Check`] lists the tree's own defects.
    pub fn check(&self) -> Result<Check, Error> {
        self.raw().client()?.check()
    }

    /// Visits every node of a tree and checks its invariants. No client may write to the tree meanwhile. One
    /// round trip per node.
    pub fn walk(&self) -> Result<Walk, Error> {
        self.cluster.walk(&self.state)
    }

    /// Number of separators that this compute server left for others to post, because memory or time was
    /// short. This is legal, but each makes some lookups one round trip longer.
    pub fn separators_skipped(&self) -> u64 {
        self.state.separators_skipped()
    }

    /// The contents and limits of this compute server's index cache of the tree.
    pub fn cache_usage(&self) -> CacheUsage {
        let cache = self.state.cache();
        CacheUsage { nodes: cache.nodes(), bytes: cache.bytes(), limit: cache.limit() }
    }

    /// Bytes of index cache that suffice for `nodes` internal nodes of this tree, whatever they hold. Most
    /// nodes take less.
    pub fn cache_bytes_for(&self, nodes: u64) -> usize {
        self.state.cache().bytes_for(usize::try_from(nodes).unwrap_or(usize::MAX))
    }

    /// Drops this compute server's index cache of the tree.
    pub fn clear_cache(&self) {
        self.state.forget_everything();
    }
}

impl<K: Stored, V: Stored> Tree<K, V> {
    /// Loads entries into the tree and returns how many it loaded. The keys must be in strictly ascending
    /// order, and the tree must be empty. This is much faster than inserting: about one round trip per
    /// sixteen leaves, and no locks. The load is atomic: no client sees a part of it.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::Unsorted`], [`Error::OutOfMemory`] and others: nothing was changed.
    /// [`Error::LoadInterrupted`]: the compute server's identity ended and nothing was changed; start the
    /// load again. [`Error::OutcomeUnknown`]: all entries may be in the tree, or none.
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
    pub fn bulk_load<Q: Arg<K>, R: Arg<V>>(
        &self,
        entries: impl IntoIterator<Item = (Q, R)>,
        options: &BulkOptions,
    ) -> Result<u64, Error> {
        let bytes = |(key, value): (Q, R)| (OnStack::of::<K, _>(&key), OnStack::of::<V, _>(&value));
        bulk::load(&self.cluster, &self.state, entries.into_iter().map(bytes), options)
    }
}
