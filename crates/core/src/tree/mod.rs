//! The tree: a B+Tree with B-link siblings (paper §4.2.1).
//!
//! | module | what |
//! |---|---|
//! | [`descend`] | from cache or root to the node responsible for a key, unlocked or locked |
//! | [`get`] | lock-free lookup |
//! | [`insert`] | insert or update |
//! | [`remove`] | remove; changes that depend on what is there; leaf splits |
//! | [`separator`] | telling the parent of a split; growing the root |
//! | `values` | entries that refer to blocks: values of any length |
//! | [`range`] | scans in either direction |
//! | [`bulk`] | bulk load |
//! | [`image`] | what a bulk load leaves, node by node, without doing it |
//! | [`merge`] | merging what became too empty; shrinking the root |
//! | [`mod@write`] | turning patches and splits into work lists, redo records included |
//! | [`Creation`] | a creation of a tree that may outlive the identity that began it |
//! | [`clear`] | clearing a tree |
//! | [`mod@drop`] | dropping a tree |
//! | [`check`] | visiting every node, to verify a tree while others write |
//! | `probe` | telling damage from concurrency, for [`check`] |
//! | [`walk`] | the same for a tree at rest, with its contents |

pub mod bulk;
pub mod check;
pub mod clear;
mod combine;
mod creation;
pub mod descend;
pub mod drop;
pub mod get;
pub mod image;
pub mod insert;
mod lines;
pub mod merge;
pub mod now;
pub(crate) mod probe;
pub mod range;
pub mod remove;
#[cfg(feature = "mutants")]
pub(crate) mod seam;
pub mod separator;
mod shared;
pub(crate) mod values;
pub mod walk;
pub mod write;

pub use creation::Creation;

use crate::cache::IndexCache;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::block::MIN_SLOT;
use crate::node::draft::{Draft, NodePlace};
use crate::node::{Format, TreeShape};
use crate::op::Op;
use crate::redo::{Record, RecordKind};
use crate::root::{RootState, RootWord};
use crate::worker::Worker;
use sherman_fabric::control::{ChunkClass, TreeInfo, TreeSpec};
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Peer, Refusal, Space, TreeTypes, calls};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Marks an unknown root word: no tree's root is at the superblock.
const UNKNOWN_ROOT: u64 = 0;

/// A tree as one compute server knows it, shared by its threads.
#[derive(Debug)]
pub struct TreeState {
    info: TreeInfo,
    shape: TreeShape,
    root: AtomicU64,
    cache: IndexCache,
    separators_skipped: AtomicU64,
    /// The end of the merge backoff: until then this compute server leaves separators to other clients.
    merge_backoff_until: AtomicU64,
    /// How many entries the leaf that a scan read last can hold. Most leaves of a tree can hold equally many.
    scanned_capacity: AtomicUsize,
    /// How often this compute server has merged nodes of this tree.
    merges: MergeCounters,
    /// Whether the call that opened this tree created it.
    created: bool,
}

#[derive(Debug, Default)]
struct MergeCounters {
    leaves: AtomicU64,
    internal: AtomicU64,
    shrinks: AtomicU64,
}

/// How often a compute server made a tree smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merges {
    /// Two leaves became one.
    pub leaves: u64,
    /// Two internal nodes became one.
    pub internal: u64,
    /// The root was replaced by its only child.
    pub shrinks: u64,
}

impl TreeState {
    pub(crate) fn new(info: TreeInfo, cache_bytes: usize, created: bool) -> Result<Arc<Self>, Error> {
        let shape = TreeShape::new(&info.spec, info.id)?;
        let cache = IndexCache::new(cache_bytes, &shape.internal);
        Ok(Arc::new(Self {
            info,
            scanned_capacity: AtomicUsize::new(shape.leaf.capacity()),
            shape,
            root: AtomicU64::new(UNKNOWN_ROOT),
            cache,
            separators_skipped: AtomicU64::new(0),
            merge_backoff_until: AtomicU64::new(0),
            merges: MergeCounters::default(),
            created,
        }))
    }

    /// Whether the call that opened this tree created it.
    pub fn was_created(&self) -> bool {
        self.created
    }

    /// How often this compute server has made the tree smaller.
    pub fn merges(&self) -> Merges {
        let MergeCounters { leaves, internal, shrinks } = &self.merges;
        let [leaves, internal, shrinks] =
            [leaves, internal, shrinks].map(|count| count.load(Ordering::Relaxed));
        Merges { leaves, internal, shrinks }
    }

    /// The catalog entry of this tree.
    pub fn info(&self) -> &TreeInfo {
        &self.info
    }

    /// The layout of the nodes of this tree.
    pub fn shape(&self) -> &TreeShape {
        &self.shape
    }

    /// The lowest possible key.
    pub(crate) fn lowest(&self) -> Vec<u8> {
        vec![0; self.shape.leaf.key_len()]
    }

    /// The index cache of this tree on this compute server.
    pub fn cache(&self) -> &IndexCache {
        &self.cache
    }

    /// How many separators this compute server could not post, for lack of memory or time. That is legal: the
    /// next writer that moves right posts them.
    pub fn separators_skipped(&self) -> u64 {
        self.separators_skipped.load(Ordering::Relaxed)
    }

    /// Forgets the root and all cached nodes, so that every copy of index data is as old as possible.
    pub fn forget_everything(&self) {
        self.cache.clear();
        self.forget_root();
    }

    fn forget_root(&self) {
        self.root.store(UNKNOWN_ROOT, Ordering::Relaxed);
    }

    #[inline]
    fn known_root(&self) -> Option<RootWord> {
        match self.root.load(Ordering::Relaxed) {
            UNKNOWN_ROOT => None,
            bits => Some(RootWord::from_bits(bits)),
        }
    }

    #[inline]
    fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        let expected = self.shape.leaf.key_len();
        if key.len() == expected { Ok(()) } else { Err(Error::KeySize { expected, found: key.len() }) }
    }

    #[inline]
    fn check_value(&self, value: &[u8]) -> Result<(), Error> {
        let expected = self.shape.leaf.payload_len();
        if value.len() == expected { Ok(()) } else { Err(Error::ValueSize { expected, found: value.len() }) }
    }

    /// Refuses a spec other than the tree's own.
    fn check_spec(&self, asked: &TreeSpec) -> Result<(), Error> {
        let found = &self.info.spec;
        for (what, asked, found) in [
            ("node format", u64::from(asked.format), u64::from(found.format)),
            ("key size", u64::from(asked.key_len), u64::from(found.key_len)),
            ("value size", u64::from(asked.value_len), u64::from(found.value_len)),
            ("leaf size", u64::from(asked.leaf_bytes), u64::from(found.leaf_bytes)),
            ("internal node size", u64::from(asked.internal_bytes), u64::from(found.internal_bytes)),
        ] {
            if asked != found {
                return Err(Error::TreeMismatch { name: self.info.name.clone(), what, asked, found });
            }
        }
        Ok(())
    }

    /// Refuses types other than the tree's own. Without types, on either side, there is nothing to compare:
    /// the caller uses byte strings, or the tree's creator gave no types.
    pub fn check_types(&self, asked: Option<&TreeTypes>) -> Result<(), Error> {
        match (asked, &self.info.types) {
            (Some(asked), Some(found)) if asked != found => Err(Error::TypeMismatch {
                name: self.info.name.clone(),
                asked: Box::new(*asked),
                found: Box::new(*found),
            }),
            _ => Ok(()),
        }
    }
}

impl<E: Endpoint> Worker<E> {
    /// Opens an existing tree, whatever its shape.
    pub async fn open_tree(&self, name: &str) -> Result<Arc<TreeState>, Error> {
        let info = self.op().call(Peer::Control, calls::OpenTree { name: name.to_owned() }).await?.info;
        self.check_spec(&info.spec)?;
        self.compute.check_root_word(info.root_word)?;
        let tree = TreeState::new(info, self.compute.options().cache_bytes, false)?;
        if self.has_root(&tree, None).await? {
            Ok(tree)
        } else {
            Err(Error::NoSuchTree { name: name.to_owned() })
        }
    }

    /// Opens the tree `name`, or creates it as one empty leaf, without types. Refuses a tree of another
    /// shape.
    pub async fn tree(&self, name: &str, spec: &TreeSpec) -> Result<Arc<TreeState>, Error> {
        self.typed_tree(name, spec, None).await
    }

    /// Opens the tree `name`, or creates it as one empty leaf. Refuses a tree of another shape or of other
    /// types.
    pub async fn typed_tree(
        &self,
        name: &str,
        spec: &TreeSpec,
        types: Option<&TreeTypes>,
    ) -> Result<Arc<TreeState>, Error> {
        self.typed_tree_again(name, spec, types, &Creation::default()).await
    }

    /// As [`typed_tree`](Self::typed_tree), for a caller that repeats it under its next identity with the
    /// same `creation`: if the former identity created the tree and did not learn it, this call has created
    /// it.
    pub async fn typed_tree_again(
        &self,
        name: &str,
        spec: &TreeSpec,
        types: Option<&TreeTypes>,
        creation: &Creation,
    ) -> Result<Arc<TreeState>, Error> {
        self.check_spec(spec)?;
        let found = match creation.unanswered() {
            Some(_) => Err(Error::NoSuchTree { name: name.to_owned() }),
            None => self.open_tree(name).await,
        };
        let tree = match found {
            Err(Error::NoSuchTree { .. }) => self.create_tree(name, spec, types, creation).await?,
            other => other?,
        };
        tree.check_spec(spec)?;
        tree.check_types(types)?;
        Ok(tree)
    }

    /// Lists every tree of the cluster. Costs two requests, and a READ of each root word: it says whether the
    /// tree has ended. A tree whose root word is lost with its volume is listed.
    pub async fn trees(&self) -> Result<Vec<TreeInfo>, Error> {
        let mut listed = Vec::new();
        for (info, ended) in self.trees_and_ends().await? {
            if !ended {
                listed.push(info);
            }
        }
        // The place of a word may have passed to another tree before it was read. A tree that is still listed
        // had its place then.
        let still = self.op().call(Peer::Control, calls::ListTrees).await?;
        listed.retain(|info| still.iter().any(|other| other.id == info.id));
        Ok(listed)
    }

    /// Lists every tree of the catalog, and whether it has ended.
    async fn trees_and_ends(&self) -> Result<Vec<(TreeInfo, bool)>, Error> {
        let op = self.op();
        let mut trees = Vec::new();
        for info in op.call(Peer::Control, calls::ListTrees).await? {
            self.compute.check_root_word(info.root_word)?;
            let ended = match op.read_root_word(&info).await {
                Ok(word) => RootWord::of(word, info.id) == RootState::Ended,
                Err(Error::ServerLost { .. } | Error::VolumeLost { .. }) => false,
                Err(error) => return Err(error),
            };
            trees.push((info, ended));
        }
        Ok(trees)
    }

    /// Whether this compute server can serve a tree of this shape.
    fn check_spec(&self, spec: &TreeSpec) -> Result<(), Error> {
        let shape = TreeShape::new(spec, 0)?;
        if spec.has_blocks() && shape.leaf.payload_len() < MIN_SLOT {
            return Err(Error::Unsupported { what: "slots of fewer than 16 bytes for values of any length" });
        }
        let format: Format = shape.leaf.format();
        let options = self.compute.options();
        if !format.safe_when_reads_tear() && !self.compute.caps().verb_atomic && !options.allow_torn_reads {
            return Err(Error::Unsupported {
                what: "the two-level format where READs can tear: its readers would accept torn nodes",
            });
        }
        let largest = shape.leaf.node_bytes().max(shape.internal.node_bytes());
        if options.techniques.redo && Record::max_bytes(largest) as u64 > self.compute.redo.slot_bytes() {
            return Err(Error::Unsupported { what: "nodes larger than the cluster's redo slots" });
        }
        if Record::max_bytes(largest) as u64 > u64::from(self.compute.caps().max_transfer) {
            return Err(Error::Unsupported { what: "nodes larger than the fabric moves in one verb" });
        }
        if largest as u64 > self.compute.geometry().chunk_bytes {
            return Err(Error::Unsupported { what: "nodes larger than the cluster's chunks" });
        }
        Ok(())
    }

    /// Registers the tree, and gives it its first leaf. A client that loses the race opens the winner's tree.
    /// If a tree of that name has ended and its entry is left, clears the entry first: the client that
    /// dropped it may be dead. Takes the place of the leaf first, so that a full memory leaves no entry
    /// behind.
    async fn create_tree(
        &self,
        name: &str,
        spec: &TreeSpec,
        types: Option<&TreeTypes>,
        creation: &Creation,
    ) -> Result<Arc<TreeState>, Error> {
        if name.is_empty() || name.len() > 128 {
            return Err(Error::Refused(Refusal::BadName));
        }
        let (op, class) = (self.op(), TreeShape::new(spec, 0)?.leaf.class());
        loop {
            let place = op.place_of_leaf(class).await?;
            let tree = match self.enter_tree(name, spec, types, creation).await {
                Ok(tree) if tree.shape.leaf.class() == class => tree,
                entered => {
                    self.compute.alloc.give_back(class, place.address, place.version);
                    match entered {
                        // The caller refuses a tree of another shape.
                        Ok(tree) if self.has_root(&tree, None).await? => return Ok(tree),
                        Ok(tree) => self.clear_entry(&tree.info).await?,
                        Err(Error::Refused(Refusal::TooManyTrees)) if self.clear_ended().await? => {}
                        // A repeated request creates nothing if it created nothing at first.
                        Err(Error::NoSuchTree { .. }) => {}
                        Err(error) => return Err(error),
                    }
                    op.retry(Cause::StalePointer).await?;
                    continue;
                }
            };
            // If another client has dropped the new tree meanwhile, this call has created it all the same.
            if self.has_root(&tree, Some(place)).await? || tree.created {
                return Ok(tree);
            }
            self.clear_entry(&tree.info).await?;
            op.retry(Cause::StalePointer).await?;
        }
    }

    /// Enters a tree into the catalog, or finds the tree that has the name.
    async fn enter_tree(
        &self,
        name: &str,
        spec: &TreeSpec,
        types: Option<&TreeTypes>,
        creation: &Creation,
    ) -> Result<Arc<TreeState>, Error> {
        let asked = creation.unanswered().unwrap_or_else(|| self.compute.name_request());
        creation.begin(asked);
        let request = calls::CreateTree { name: name.to_owned(), spec: *spec, types: types.copied(), asked };
        let reply = self.op().call(Peer::Control, request).await;
        match &reply {
            // This identity may end before the tree has a root. Then the next one asks again.
            Ok(reply) if reply.created => {}
            // An identity that has ended does not learn what became of its request.
            Err(FabricError::Refused(Refusal::Fenced { .. } | Refusal::NotAMember { .. })) => {}
            Ok(_) | Err(FabricError::Refused(_)) => creation.end(),
            Err(_) => {}
        }
        let reply = reply?;
        self.check_spec(&reply.info.spec)?;
        self.compute.check_root_word(reply.info.root_word)?;
        TreeState::new(reply.info, self.compute.options().cache_bytes, reply.created)
    }

    /// Clears the catalog entries of all trees that have ended. Returns whether there were any.
    async fn clear_ended(&self) -> Result<bool, Error> {
        let mut any = false;
        for (info, ended) in self.trees_and_ends().await? {
            if ended {
                self.clear_entry(&info).await?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Clears the catalog entry of a tree that has ended.
    pub(crate) async fn clear_entry(&self, info: &TreeInfo) -> Result<(), Error> {
        let request = calls::DropTree { name: info.name.clone(), id: info.id };
        match self.op().call(Peer::Control, request).await.map_err(Error::from) {
            // Another client may have cleared it.
            Ok(()) | Err(Error::NoSuchTree { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the catalog lists this very tree under its name.
    async fn is_listed(&self, info: &TreeInfo) -> Result<bool, Error> {
        match self.op().call(Peer::Control, calls::OpenTree { name: info.name.clone() }).await {
            Ok(found) => Ok(found.info.id == info.id),
            Err(FabricError::Refused(Refusal::NoSuchTree { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that the tree has a root: gives it its first leaf, at `place` if that is given, unless a
    /// client has done so (I53). Returns false if the tree has ended.
    async fn has_root(&self, tree: &TreeState, mut place: Option<NodePlace>) -> Result<bool, Error> {
        let (op, class, id) = (self.op(), tree.shape.leaf.class(), tree.info.id);
        loop {
            let state = op.read_root_word(&tree.info).await.map(|word| (word, RootWord::of(word, id)));
            let Ok((word, RootState::Rootless)) = state else {
                if let Some(NodePlace { address, version, .. }) = place {
                    self.compute.alloc.give_back(class, address, version);
                }
                return match state?.1 {
                    // The catalog decides: the place may belong to another tree by now. A tree that is still
                    // listed had the place when the word was read.
                    RootState::Root(_) => self.is_listed(&tree.info).await,
                    state => Ok(state != RootState::Ended),
                };
            };
            let place = match place.take() {
                Some(place) => place,
                None => op.place_of_leaf(class).await?,
            };
            if self.plant(tree, word, place).await? {
                return Ok(true);
            }
            op.retry(Cause::RootMoved).await?;
        }
    }

    /// Writes the first leaf of a tree at `place`, pending and with a record, then swaps the root word, which
    /// holds `word`. Returns false if another client was first.
    async fn plant(&self, tree: &TreeState, word: u64, place: NodePlace) -> Result<bool, Error> {
        let (op, shape) = (self.op(), &tree.shape);
        let mut leaf =
            Draft::new(&shape.leaf, 0, &vec![0; shape.leaf.key_len()], None, GlobalAddress::NULL, place);
        let root = RootWord { address: place.address, level: 0 }.to_bits();
        let record = Record {
            made: place.address,
            made_version: place.version,
            root: (word, root),
            ..Record::about(RecordKind::Grow, self.compute.client(), &tree.info, GlobalAddress::NULL, 0, 0)
        };
        let slot = op.write_made(shape.leaf.class(), place, leaf.image(), &record).await?;
        let planted = op.plant_root(tree, word, root).await.map_err(Error::after_post)?;
        if planted {
            op.link(&mut leaf, place.address, &slot).await?;
            self.compute.alloc.linked(shape.leaf.class(), place.address);
        } else {
            op.unmake(&mut leaf, place.address, &slot).await?;
            self.compute.alloc.give_back(shape.leaf.class(), place.address, place.version);
        }
        op.settle([slot]);
        Ok(planted)
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// A place for the first leaf of a tree.
    async fn place_of_leaf(&self, class: ChunkClass) -> Result<NodePlace, Error> {
        loop {
            match self.worker.compute.alloc.allocate(self, class).await {
                Err(Error::OutOfMemory) => self.await_memory().await?,
                taken => return taken,
            }
        }
    }

    /// Replaces `word`, which is no root, by the first root of a tree. Returns whether the word was still
    /// there.
    async fn plant_root(&self, tree: &TreeState, word: u64, root: u64) -> Result<bool, FabricError> {
        seam!(tree::plant_root(self, tree, root).await);
        let at = tree.info.root_word;
        let mut list = self.endpoint().list(at.server());
        let cas = list.cas(Space::Host, at.offset(), word, root);
        let list = self.execute(list).await?;
        let planted = list.swapped(cas);
        self.endpoint().recycle(list);
        Ok(planted)
    }
}
