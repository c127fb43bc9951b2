//! Trees of byte strings: what [`Tree`](crate::Tree) is made of, and what tools use that learn sizes at run time.

use crate::bulk::{self, BulkOptions};
use crate::client::RawClient;
use crate::cluster::Cluster;
use crate::handle::{HandleOptions, RawHandle};
use crate::identity::Seated;
use crate::session::RawSession;
use crate::stats::{Ledger, Total};
use sherman_core::node::{Kind, ShapeError, TreeShape};
use sherman_core::{Check, Error, Format, TreeState, Walk};
use sherman_fabric::control::{TreeInfo, TreeSpec};
use std::sync::Arc;
use std::time::Duration;

/// What is decided when a tree is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    format: Format,
    key_bytes: usize,
    value_bytes: usize,
    leaf_bytes: usize,
    internal_bytes: usize,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { format: Format::LineStamped, key_bytes: 8, value_bytes: 8, leaf_bytes: 1024, internal_bytes: 1024 }
    }
}

impl TreeOptions {
    /// The defaults: `LineStamped` nodes of 1 KiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// The node format.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Bytes of leaves and internal nodes: a multiple of 64 from 256 to 65536.
    pub fn node_bytes(mut self, bytes: usize) -> Self {
        self.leaf_bytes = bytes;
        self.internal_bytes = bytes;
        self
    }

    /// Bytes of a leaf alone.
    pub fn leaf_bytes(mut self, bytes: usize) -> Self {
        self.leaf_bytes = bytes;
        self
    }

    /// Bytes of an internal node alone.
    pub fn internal_bytes(mut self, bytes: usize) -> Self {
        self.internal_bytes = bytes;
        self
    }

    /// Bytes of keys (1 to 1024) and values. For typed trees the types decide.
    pub fn sizes(mut self, key_bytes: usize, value_bytes: usize) -> Self {
        self.key_bytes = key_bytes;
        self.value_bytes = value_bytes;
        self
    }

    /// How many entries a leaf and an internal node can hold, or why there can be no such nodes.
    pub fn entries_per_node(&self) -> Result<(usize, usize), Error> {
        let shape = TreeShape::new(&self.spec()?, 0)?;
        Ok((shape.leaf.capacity(), shape.internal.capacity()))
    }

    pub(crate) fn spec(&self) -> Result<TreeSpec, Error> {
        let too_large = |asked| Error::Shape(ShapeError::NodeSize { asked });
        Ok(TreeSpec {
            format: self.format.number(),
            key_len: u16::try_from(self.key_bytes)
                .map_err(|_| Error::Shape(ShapeError::KeyLength { asked: self.key_bytes }))?,
            value_len: u32::try_from(self.value_bytes).map_err(|_| {
                Error::Shape(ShapeError::TooSmall { kind: Kind::Leaf, node_bytes: self.leaf_bytes, entries: 0 })
            })?,
            leaf_bytes: u32::try_from(self.leaf_bytes).map_err(|_| too_large(self.leaf_bytes))?,
            internal_bytes: u32::try_from(self.internal_bytes).map_err(|_| too_large(self.internal_bytes))?,
        })
    }
}

/// What an index cache holds, and may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheUsage {
    /// Internal nodes it has copies of.
    pub nodes: usize,
    /// Internal nodes it may have copies of.
    pub room: usize,
    /// Bytes of memory it has taken.
    pub bytes: usize,
    /// Bytes of memory it may take.
    pub limit: usize,
}

/// A tree of byte strings. Cheap to clone; clones share their index cache.
#[derive(Clone, Debug)]
pub struct RawTree {
    cluster: Cluster,
    state: Arc<TreeState>,
}

impl RawTree {
    pub(crate) fn new(cluster: Cluster, state: Arc<TreeState>) -> Self {
        Self { cluster, state }
    }

    /// Its catalog entry.
    pub fn info(&self) -> &TreeInfo {
        self.state.info()
    }

    /// A blocking client for the calling thread.
    pub fn client(&self) -> Result<RawClient, Error> {
        RawClient::new(&self.cluster, Arc::clone(&self.state))
    }

    /// An asynchronous session for the calling thread: many operations in flight at once.
    pub fn session(&self) -> Result<RawSession, Error> {
        Ok(self.session_on(self.seated()?, Ledger::own(self.total())))
    }

    /// A worker for a session of the calling thread, or of one that it is sent to.
    pub(crate) fn seated(&self) -> Result<Seated, Error> {
        self.cluster.seated()
    }

    /// Where the compute server's costs are summed up.
    pub(crate) fn total(&self) -> Total {
        self.cluster.total()
    }

    pub(crate) fn session_on(&self, seated: Seated, ledger: Ledger) -> RawSession {
        RawSession::new(&self.cluster, seated, Arc::clone(&self.state), ledger)
    }

    /// A handle for any number of threads and any asynchronous runtime.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system starts no thread.
    pub fn handle(&self, options: &HandleOptions) -> Result<RawHandle, Error> {
        RawHandle::start(self, options)
    }

    /// Loads entries, in strictly ascending order of their keys, into the tree, which must be empty; how many there were. Much
    /// faster than inserting: about one round trip for sixteen leaves, and no locks. All or nothing, in one step: nobody sees
    /// a part of it.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::Unsorted`], [`Error::KeySize`], [`Error::ValueSize`], [`Error::OutOfMemory`] and others:
    /// nothing was changed. [`Error::LoadInterrupted`]: the compute server's identity ended, and nothing was changed; start it again.
    /// [`Error::OutcomeUnknown`]: all of it may be there.
    pub fn bulk_load<B: AsRef<[u8]>, C: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (B, C)>,
        options: &BulkOptions,
    ) -> Result<u64, Error> {
        bulk::load(&self.cluster, &self.state, entries, options)
    }

    /// Visits every node and checks the tree's invariants, while others may write. One round trip per node.
    ///
    /// # Errors
    /// Those of reading: what is wrong with the tree is in the answer.
    pub fn check(&self) -> Result<Check, Error> {
        self.client()?.check()
    }

    /// How long operations may wait, unless they say otherwise.
    pub(crate) fn timeout(&self) -> Duration {
        self.cluster.timeout()
    }

    /// Separators this compute server left for others to post, for want of memory or time. Legal, but each makes some
    /// lookups a round trip longer.
    pub fn separators_skipped(&self) -> u64 {
        self.state.separators_skipped()
    }

    /// What this compute server's index cache of the tree holds, and may hold.
    pub fn cache_usage(&self) -> CacheUsage {
        let cache = self.state.cache();
        CacheUsage { nodes: cache.nodes(), room: cache.room(), bytes: cache.bytes(), limit: cache.limit() }
    }

    /// Bytes of index cache that hold `nodes` internal nodes of this tree.
    pub fn cache_bytes_for(&self, nodes: u64) -> usize {
        self.state.cache().bytes_for(usize::try_from(nodes).unwrap_or(usize::MAX))
    }

    /// Drops this compute server's index cache of the tree.
    pub fn clear_cache(&self) {
        self.state.forget_everything();
    }

    /// Visits every node of a tree that nobody writes to and checks its invariants. One round trip per node.
    pub fn walk(&self) -> Result<Walk, Error> {
        self.cluster.run(async |worker| worker.op().walk(&self.state).await)
    }
}
