//! Telling the parent of a split, and growing the root (`docs/INVARIANTS.md`).
//!
//! A missing separator is legal: the sibling is reached through its left neighbour. So nothing here can fail the operation
//! that split: what cannot be posted for want of memory or time is counted and left to the next writer that moves right.

use super::descend::Covering;
use super::{CATALOG_SERVER, TreeState};
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::mutant::{Mutant, planted};
use crate::node::draft::Place;
use crate::node::{Draft, Node, Reject, SortedBody};
use crate::op::Op;
use crate::redo::{Kind, Record};
use crate::root::RootWord;
use sherman_fabric::{Endpoint, GlobalAddress, Space};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long an operation whose own change is done goes on for its separators' sake.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);
/// How long a tree's separators are left alone after one could not be posted: its parent's lane may be a dead client's.
const TRUCE_NANOS: u64 = 1_000_000_000;

/// A separator to be posted: the child's low fence, the child, and the level of its parent.
struct Separator {
    level: u8,
    key: Vec<u8>,
    child: GlobalAddress,
}

/// What an attempt to grow came to.
enum Grown {
    /// There is a new root, and this is the separator it has.
    Above(Vec<u8>),
    /// The root has no right neighbour: there is nothing to post.
    Needless,
    /// The root is another by now.
    Lost,
}

impl<E: Endpoint> Op<'_, E> {
    /// Posts a separator for `child` at `level`, splitting upwards as far as it takes.
    pub(crate) async fn post_separator(&self, tree: &TreeState, level: u8, key: Vec<u8>, child: GlobalAddress) {
        self.be_brief(PATIENCE);
        self.post_upwards(tree, level, key, child).await;
    }

    /// The same for who is brief already.
    pub(super) async fn post_upwards(&self, tree: &TreeState, level: u8, key: Vec<u8>, child: GlobalAddress) {
        let mut wanting = vec![Separator { level, key, child }];
        while let Some(separator) = wanting.pop() {
            let truce = self.truce(tree);
            if truce || self.post_one(tree, separator, &mut wanting).await.is_err() {
                self.skip(tree, truce);
                return;
            }
        }
    }

    /// Posts a separator that a walk to the right found missing in what led it there, if the parent really lacks it: most
    /// of the time only the cache did, and this renews it.
    pub(crate) async fn mend_separator(&self, tree: &TreeState, level: u8, key: Vec<u8>, child: GlobalAddress) {
        self.be_brief(PATIENCE);
        let truce = self.truce(tree);
        match self.has_separator(tree, level, &key).await {
            Ok(true) => {}
            Ok(false) if !truce => self.post_upwards(tree, level, key, child).await,
            Ok(false) | Err(_) => self.skip(tree, truce),
        }
    }

    /// Leaves a separator to others.
    fn skip(&self, tree: &TreeState, truce: bool) {
        tree.separators_skipped.fetch_add(1, Ordering::Relaxed);
        if !truce {
            self.start_truce(tree);
        }
    }

    /// Whether what keeps the tree in shape is left alone for a while.
    pub(super) fn truce(&self, tree: &TreeState) -> bool {
        self.endpoint().now() < tree.truce_until.load(Ordering::Relaxed)
    }

    /// Ends the truce: for a change that must not wait for it.
    pub(super) fn end_truce(&self, tree: &TreeState) {
        tree.truce_until.store(0, Ordering::Relaxed);
    }

    /// Leaves what keeps the tree in shape alone for a while: a lane that it needs may be a dead client's.
    pub(super) fn start_truce(&self, tree: &TreeState) {
        tree.truce_until.store(self.endpoint().now().saturating_add(TRUCE_NANOS), Ordering::Relaxed);
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

    /// Posts one separator. What then wants posting above goes to `wanting`: the separator of a parent that split, and one
    /// that was found missing on the way.
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
                Err(index) => self.is_linked(tree, &locked, &separator).await.map(|linked| linked.then_some(index)),
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

    /// Whether the child of a separator is a linked node with that low fence, seen under the parent's lane: without it
    /// nobody can free the child. Since the separator was found wanting it may have been posted by another, and its child
    /// merged away and used for something else.
    async fn is_linked(&self, tree: &TreeState, locked: &Locked, separator: &Separator) -> Result<bool, Error> {
        if planted(Mutant::SeparatorUnverified) || planted(Mutant::ParentBeforeSibling) {
            return Ok(true);
        }
        let (level, shape) = (separator.level - 1, tree.shape.at(separator.level - 1));
        match locked.also().map(|image| Node::open(shape, image, level)) {
            Some(Ok(child)) => Ok(child.low() == separator.key),
            Some(Err(Reject::Free | Reject::NotThis)) => Ok(false),
            Some(Err(Reject::Torn | Reject::Pending)) | None => {
                let seen = self.visit(tree, separator.child, level, |child| Ok(child.low() == separator.key)).await?;
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

    /// Puts a new root at `level` above the present one and its right neighbour, under the present root's lane: while it is
    /// held nobody merges that neighbour away or makes another node the root.
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
            // Without a right neighbour the root is alone on its level: whatever was to be posted has been merged away.
            return Ok(if neighbour.is_some() { Grown::Needless } else { Grown::Lost });
        };
        let (locked, place) = self.place_beside(locked, tree.shape.internal.class()).await?;
        let separator = Separator { level, key: key.clone(), child };
        let outcome = if planted(Mutant::GrowthWithoutLane) {
            self.release(locked.done(self)).await?;
            self.write_root(tree, root, separator, place).await
        } else {
            let outcome = self.write_root(tree, root, separator, place).await;
            self.release(locked.done(self)).await?;
            outcome
        };
        Ok(if outcome? { Grown::Above(key) } else { Grown::Lost })
    }

    /// Writes a new root over `root` and the separator's child and swaps the root word. False if that was changed.
    async fn write_root(
        &self,
        tree: &TreeState,
        root: RootWord,
        separator: Separator,
        place: Place,
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
            ..Record::about(Kind::Grow, self.endpoint().client(), tree.info(), root.address, root.level, 0)
        };
        let slot = self.write_made(shape.class(), place, draft.image(), &record).await?;

        let mut list = self.endpoint().list(CATALOG_SERVER);
        if planted(Mutant::TornRoot) {
            list.write(Space::Host, tree.info.root_word, &grown.to_bits().to_le_bytes());
        }
        let cas = list.cas(Space::Host, tree.info.root_word, root.to_bits(), grown.to_bits());
        let list = self.execute(list).await?;
        let swapped = list.swapped(cas) || planted(Mutant::TornRoot);
        self.endpoint().recycle(list);
        if swapped {
            self.link(&mut draft, place.address, &slot).await?;
            self.worker.compute.alloc.linked(shape.class(), place.address);
            tree.root.store(grown.to_bits(), Ordering::Relaxed);
            self.keep(tree, place.address, &draft.node(), &body);
        } else {
            self.unmake(&mut draft, place.address, &slot).await?;
            if !planted(Mutant::LostGrowthLeaks) {
                self.worker.compute.alloc.give_back(shape.class(), place.address, place.version);
            }
        }
        self.settle([slot]);
        Ok(swapped)
    }
}
