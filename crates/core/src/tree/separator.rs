//! Posts the separator of a split to the parent, and grows the root (`docs/INVARIANTS.md`).
//!
//! A missing separator is legal: the sibling is reached through its left neighbour. So nothing here can fail
//! the operation that split. A separator that cannot be posted for lack of memory or time is counted, and
//! left to the next writer that moves right.

use super::TreeState;
use super::descend::Covering;
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::draft::NodePlace;
use crate::node::{Draft, Node, Reject, SortedBody};
use crate::op::Op;
use crate::redo::{Record, RecordKind};
use crate::root::RootWord;
use sherman_fabric::{Endpoint, GlobalAddress};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long an operation whose own change is done goes on to post separators.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);
/// How long this compute server posts no separators to a tree after one could not be posted. A dead client
/// may hold the parent's lane.
const MERGE_BACKOFF_NANOS: u64 = 1_000_000_000;

/// A separator to be posted: the child's low fence, the child, and the level of its parent.
pub(super) struct Separator {
    level: u8,
    key: Vec<u8>,
    child: GlobalAddress,
}

/// The result of an attempt to grow the tree.
enum Grown {
    /// There is a new root, with this separator.
    Above(Vec<u8>),
    /// The root has no right neighbour: there is nothing to post.
    Needless,
    /// Another node is the root by now.
    Lost,
}

impl<E: Endpoint> Op<'_, E> {
    /// Posts a separator for `child` at `level`, and splits nodes upwards as far as necessary.
    pub(crate) async fn post_separator(
        &self,
        tree: &TreeState,
        level: u8,
        key: Vec<u8>,
        child: GlobalAddress,
    ) {
        self.cap_remaining_wait(PATIENCE);
        self.post_upwards(tree, level, key, child).await;
    }

    /// Does the work of `post_separator`, for a caller that has already limited its remaining wait.
    pub(super) async fn post_upwards(&self, tree: &TreeState, level: u8, key: Vec<u8>, child: GlobalAddress) {
        let mut wanting = vec![Separator { level, key, child }];
        while let Some(separator) = wanting.pop() {
            let merge_backoff = self.merge_backoff(tree);
            if merge_backoff || self.post_one(tree, separator, &mut wanting).await.is_err() {
                self.skip(tree, merge_backoff);
                return;
            }
        }
    }

    /// Posts a separator that a walk to the right found missing, if the parent really lacks it. Most of the
    /// time only the cache lacked it, and this refreshes the cache.
    pub(crate) async fn repair_separator(
        &self,
        tree: &TreeState,
        level: u8,
        key: Vec<u8>,
        child: GlobalAddress,
    ) {
        self.cap_remaining_wait(PATIENCE);
        let merge_backoff = self.merge_backoff(tree);
        match self.has_separator(tree, level, &key).await {
            Ok(true) => {}
            Ok(false) if !merge_backoff => self.post_upwards(tree, level, key, child).await,
            Ok(false) | Err(_) => self.skip(tree, merge_backoff),
        }
    }

    /// Leaves a separator to other clients.
    fn skip(&self, tree: &TreeState, merge_backoff: bool) {
        tree.separators_skipped.fetch_add(1, Ordering::Relaxed);
        if !merge_backoff {
            self.start_merge_backoff(tree);
        }
    }

    /// Whether the tree is in a merge backoff: this compute server posts no separators and merges no nodes
    /// for a while.
    pub(super) fn merge_backoff(&self, tree: &TreeState) -> bool {
        self.endpoint().now() < tree.merge_backoff_until.load(Ordering::Relaxed)
    }

    /// Ends the merge backoff, for a change that must not wait for it.
    pub(super) fn end_merge_backoff(&self, tree: &TreeState) {
        tree.merge_backoff_until.store(0, Ordering::Relaxed);
    }

    /// Starts a merge backoff: for a while this compute server posts no separators and merges no nodes. A
    /// dead client may hold a lane that they need.
    pub(super) fn start_merge_backoff(&self, tree: &TreeState) {
        tree.merge_backoff_until
            .store(self.endpoint().now().saturating_add(MERGE_BACKOFF_NANOS), Ordering::Relaxed);
    }

    async fn has_separator(&self, tree: &TreeState, level: u8, key: &[u8]) -> Result<bool, Error> {
        let Some(at) = self.locate(tree, key, level).await? else { return Ok(false) };
        let found = self.visit(tree, at, level, |node| {
            let body = node.sorted();
            let found = body.as_ref().is_some_and(|body| body.find(key).is_ok());
            if let Some(body) = body {
                self.keep(tree, at, node, &body);
            }
            Ok(found)
        });
        Ok(found.await?.unwrap_or(false))
    }

    /// Posts one separator. Adds the separators that must then be posted above to `wanting`. These are the
    /// separator of a parent that split, and a separator found missing on the way.
    async fn post_one(
        &self,
        tree: &TreeState,
        separator: Separator,
        wanting: &mut Vec<Separator>,
    ) -> Result<(), Error> {
        let level = separator.level;
        let also = Some((separator.child, tree.shape.at(level - 1).node_bytes()));
        loop {
            let covering = self.lock_covering(tree, &separator.key, level, also).await?;
            let Some(Covering { locked, header, missed }) = covering else {
                match self.grow(tree, level).await? {
                    Grown::Above(key) if key == separator.key => return Ok(()),
                    Grown::Above(_) => {}
                    Grown::Needless => return Ok(()),
                    Grown::Lost => self.retry(Cause::RootMoved).await?,
                }
                continue;
            };
            wanting.extend(missed.map(|(key, child)| Separator { level: level + 1, key, child }));
            let shape = &tree.shape.internal;
            let node = Node::reopen(shape, locked.image(), header);
            let Some(body) = node.sorted() else { return self.corrupt(locked).await };
            let draft = Draft::of(shape, &node, self.worker.buffer());
            let wanted = match body.find(&separator.key) {
                Err(index) => {
                    self.is_linked(tree, &locked, &separator).await.map(|linked| linked.then_some(index))
                }
                Ok(_) => Ok(None),
            };
            let Ok(Some(index)) = wanted else {
                self.release(locked.done(self)).await?;
                return wanted.map(drop);
            };
            wanting.extend(self.insert_child(tree, locked, draft, body, index, separator).await?);
            return Ok(());
        }
    }

    /// Whether the child of a separator is a linked node with that low fence. The child is read under the
    /// parent's lane: while the lane is held, no client can free the child. Since the separator was found
    /// missing, another client may have posted it, and the child may have been merged away and its place
    /// reused.
    async fn is_linked(
        &self,
        tree: &TreeState,
        locked: &Locked,
        separator: &Separator,
    ) -> Result<bool, Error> {
        seam!(tree::is_linked());
        let (level, shape) = (separator.level - 1, tree.shape.at(separator.level - 1));
        match locked.also().map(|image| Node::open(shape, image, level)) {
            Some(Ok(child)) => Ok(child.low() == separator.key),
            Some(Err(Reject::Free | Reject::NotThis)) => Ok(false),
            Some(Err(Reject::Torn | Reject::Pending)) | None => {
                let seen = self
                    .visit(tree, separator.child, level, |child| Ok(child.low() == separator.key))
                    .await?;
                Ok(seen.unwrap_or(false))
            }
        }
    }

    async fn insert_child(
        &self,
        tree: &TreeState,
        locked: Locked,
        mut parent: Draft<'_>,
        mut body: SortedBody,
        index: usize,
        separator: Separator,
    ) -> Result<Option<Separator>, Error> {
        let shape = &tree.shape.internal;
        let address = locked.address;
        body.insert(index, &separator.key, &separator.child.to_bits().to_le_bytes());
        if body.len() <= shape.capacity() {
            let patch = parent.set_body(&body);
            self.write(tree, locked, &parent, &patch).await?;
            self.keep(tree, address, &parent.node(), &body);
            return Ok(None);
        }
        let (locked, place) = self.place_beside(locked, shape.class()).await?;
        let split = parent.split_sorted(body, index, place);
        let right = split.right.clone();
        let key = self.write_split(tree, locked, &parent, split, place).await?;
        for (address, half) in [(address, &parent), (place.address, &right)] {
            if let Some(body) = half.node().sorted() {
                self.keep(tree, address, &half.node(), &body);
            }
        }
        Ok(Some(Separator { level: separator.level + 1, key, child: place.address }))
    }

    /// Puts a new root at `level` above the present root and its right neighbour, under the present root's
    /// lane. While the lane is held, no client merges that neighbour away or makes another node the root.
    async fn grow(&self, tree: &TreeState, level: u8) -> Result<Grown, Error> {
        tree.forget_root();
        let root = self.root(tree).await?;
        if root.level + 1 != level {
            return Ok(Grown::Lost);
        }
        if level > RootWord::MAX_LEVEL {
            return Err(Error::Unsupported { what: "trees of more than 64 levels" });
        }
        let below = tree.shape.at(root.level);
        let locked = self.lock(root.address, below.node_bytes(), None).await?;
        let neighbour = match Node::open(below, locked.image(), root.level) {
            Ok(node) => Some(node.high().map(|high| (high, node.header.sibling))),
            Err(_) => None,
        };
        let Some(Some((key, child))) = neighbour else {
            self.release(locked.done(self)).await?;
            // Without a right neighbour the root is alone on its level, so the child of the separator has
            // been merged away.
            return Ok(if neighbour.is_some() { Grown::Needless } else { Grown::Lost });
        };
        let (locked, place) = self.place_beside(locked, tree.shape.internal.class()).await?;
        let separator = Separator { level, key: key.clone(), child };
        let grown = self.grow_under(tree, locked, root, separator, place).await?;
        Ok(if grown { Grown::Above(key) } else { Grown::Lost })
    }

    /// Grows the tree under the lane of `root`, then releases the lane. Returns false if the root word had
    /// changed.
    async fn grow_under(
        &self,
        tree: &TreeState,
        locked: Locked,
        root: RootWord,
        separator: Separator,
        place: NodePlace,
    ) -> Result<bool, Error> {
        seam!(let (locked, separator) = tree::grow_under(self, tree, locked, root, separator, place).await);
        let outcome = self.write_root(tree, root, separator, place).await;
        self.release(locked.done(self)).await?;
        outcome
    }

    /// Writes a new root above `root` and the separator's child, and swaps the root word. Returns false if
    /// the root word had changed.
    pub(super) async fn write_root(
        &self,
        tree: &TreeState,
        root: RootWord,
        separator: Separator,
        place: NodePlace,
    ) -> Result<bool, Error> {
        let shape = &tree.shape.internal;
        let lowest = vec![0; shape.key_len()];
        let mut body = SortedBody::empty(shape);
        body.insert(0, &lowest, &root.address.to_bits().to_le_bytes());
        body.insert(1, &separator.key, &separator.child.to_bits().to_le_bytes());
        let mut draft = Draft::new(shape, separator.level, &lowest, None, GlobalAddress::NULL, place);
        draft.fill(&body);
        let grown = RootWord { address: place.address, level: separator.level };
        let record = Record {
            made: place.address,
            made_version: place.version,
            root: (root.to_bits(), grown.to_bits()),
            ..Record::about(
                RecordKind::Grow,
                self.endpoint().client(),
                tree.info(),
                root.address,
                root.level,
                0,
            )
        };
        let slot = self.write_made(shape.class(), place, draft.image(), &record).await?;

        let swapped = self.swap_root(tree, Vec::new(), [root, grown]).await?;
        if swapped {
            self.link(&mut draft, place.address, &slot).await?;
            self.worker.compute.alloc.linked(shape.class(), place.address);
            tree.root.store(grown.to_bits(), Ordering::Relaxed);
            self.keep(tree, place.address, &draft.node(), &body);
        } else {
            self.unmake(&mut draft, place.address, &slot).await?;
            self.give_back_root(tree, place);
        }
        self.settle([slot]);
        Ok(swapped)
    }

    /// Gives back the place of a root that came too late.
    fn give_back_root(&self, tree: &TreeState, place: NodePlace) {
        seam!(tree::give_back_root());
        let class = tree.shape.internal.class();
        self.worker.compute.alloc.give_back(class, place.address, place.version);
    }
}
