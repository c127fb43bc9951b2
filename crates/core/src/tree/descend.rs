//! Walks from the cache or the root to the node responsible for a key.
//!
//! Everything on the way may be out of date: cached nodes, the root word, child pointers. So each step reads
//! a node and checks the node itself. If the key lies right of its fences, the walk follows the sibling. If
//! the node is not what the pointer promised, the walk starts again from the root.

use super::TreeState;
use crate::cache::child_address;
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::{Format, Header, Node, Position, Reject, Shape, SortedBody, get_u64};
use crate::op::Op;
use crate::root::{RootState, RootWord};
use sherman_fabric::control::TreeInfo;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Peer, Space, calls};
use std::sync::atomic::Ordering;

/// The paper's guard: versions of 4 bits wrap after this many writes.
pub(super) const VERSION_CYCLE: u64 = 16;

/// How many wrong pointers an operation follows before it asks the catalog whether the tree still exists.
const LOST_BEFORE_ASKING: u64 = 16;

/// How many steps right an operation takes before it doubts its starting point. A few separators may be
/// missing. But a cached copy may also name a place that was freed and reused, for a node of this tree far to
/// the left.
const MOST_RIGHT: u64 = 8;

/// A node that covers a key, under its lane.
#[must_use = "a lane must be given back"]
pub(crate) struct Covering {
    pub locked: Locked,
    /// Its header; the image is valid.
    pub header: Header,
    /// The key and child of a separator that the walk found missing on its way right.
    pub missed: Option<(Vec<u8>, GlobalAddress)>,
}

/// Where a node on the way sends the walk.
enum Step {
    Down(GlobalAddress),
    Right(Sibling),
    Stale,
}

/// The right neighbour of a node that a key has moved past.
pub(crate) struct Sibling {
    pub address: GlobalAddress,
    /// Its low fence, which is the node's high fence.
    pub low: Vec<u8>,
}

impl Sibling {
    /// Returns the right neighbour of `node`. There must be one: the key lies right of the node's high fence.
    pub(crate) fn of(node: &Node<'_>) -> Self {
        Self { address: node.header.sibling, low: node.high().unwrap_or_default() }
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Returns the root; reads the root word only if the root is not known.
    pub(crate) async fn root(&self, tree: &TreeState) -> Result<RootWord, Error> {
        if let Some(root) = tree.known_root() {
            return Ok(root);
        }
        let bits = self.read_root_word(&tree.info).await?;
        let RootState::Root(root) = RootWord::of(bits, tree.info.id) else {
            return Err(Error::NoSuchTree { name: tree.info.name.clone() });
        };
        let bytes = tree.shape.at(root.level).node_bytes();
        if let Err(corrupt) = self.worker.compute.check_pointer(root.address, bytes) {
            // The root word of a dropped tree may belong to another tree by now, whose smaller root ends
            // where memory ends. A tree that is still listed had the word when it was read.
            Box::pin(self.ask_for_tree(tree)).await?;
            return Err(corrupt);
        }
        tree.root.store(bits, Ordering::Relaxed);
        Ok(root)
    }

    /// Reads a tree's root word.
    pub(super) async fn read_root_word(&self, info: &TreeInfo) -> Result<u64, Error> {
        let mut list = self.endpoint().list(info.root_word.server());
        let read = list.read(Space::Host, info.root_word.offset(), 8);
        let list = self.execute(list).await?;
        let word = get_u64(list.bytes(read), 0);
        self.endpoint().recycle(list);
        Ok(word)
    }

    /// Whether the client must reject a READ of such a node that took too long.
    #[inline]
    pub(super) fn times_reads(&self, shape: &Shape) -> bool {
        let caps = self.worker.compute.caps();
        shape.format() == Format::TwoLevel && caps.shortest_write_nanos > 0 && !caps.verb_atomic
    }

    /// Reads the node at `address` until it is whole and linked, and passes it to `look`. `look` may ask for
    /// another READ. Returns `None` if there is no such node of this tree any more.
    pub(crate) async fn visit<T>(
        &self,
        tree: &TreeState,
        address: GlobalAddress,
        level: u8,
        mut look: impl FnMut(&Node<'_>) -> Result<T, Cause>,
    ) -> Result<Option<T>, Error> {
        let shape = tree.shape.at(level);
        self.worker.compute.check_pointer(address, shape.node_bytes())?;
        let patience = self.worker.compute.caps().shortest_write_nanos * VERSION_CYCLE;
        let timed = self.times_reads(shape);
        loop {
            let posted = if timed { self.endpoint().now() } else { 0 };
            let mut list = self.endpoint().list(address.server());
            let read = list.read(Space::Host, address.offset(), shape.node_bytes() as u32);
            let list = match self.execute(list).await {
                Err(FabricError::SlowRead { .. }) => {
                    self.retry(Cause::SlowRead).await?;
                    continue;
                }
                done => done?,
            };
            let slow = timed && self.endpoint().now() - posted > patience;
            let seen = match Node::open(shape, list.bytes(read), level) {
                _ if slow => Err(Cause::SlowRead),
                Ok(node) => look(&node).map(Some),
                Err(Reject::Torn) => Err(Cause::TornNode),
                Err(Reject::Pending) => {
                    self.suspect_maker(list.bytes(read));
                    Err(Cause::NodePending)
                }
                Err(Reject::Free | Reject::NotThis) => Ok(None),
            };
            self.endpoint().recycle(list);
            match seen {
                Ok(seen) => return Ok(seen),
                Err(cause) => {
                    if matches!(cause, Cause::TornNode | Cause::TornEntry) {
                        self.suspect_writer(address).await?;
                    }
                    self.retry(cause).await?;
                }
            }
        }
    }

    /// After some waiting, asks the recoverer to find out whether the maker of a pending node is dead.
    pub(crate) fn suspect_maker(&self, image: &[u8]) {
        if let Some(header) = Header::decode(image) {
            self.suspect(header.owner);
        }
    }

    /// Reads the nodes on the way to `key` that the cache does not have, so that the next operation on `key`
    /// need not.
    pub async fn warm(&self, tree: &TreeState, key: &[u8]) -> Result<(), Error> {
        tree.check_key(key)?;
        self.locate(tree, key, 0).await.map(drop)
    }

    /// Returns the address of a node at `level` that is believed to be responsible for `key`. Costs no round
    /// trip if the cache has its parent. Returns `None` if the tree is not that high.
    pub(crate) async fn locate(
        &self,
        tree: &TreeState,
        key: &[u8],
        level: u8,
    ) -> Result<Option<GlobalAddress>, Error> {
        match self.locate_known(tree, key, level) {
            Some(address) => Ok(Some(address)),
            // Boxed, like all rare paths: the future of a hot path is moved and must be small.
            None => Box::pin(self.descend(tree, key, level)).await,
        }
    }

    /// Does the work of `locate`, if root and cache suffice.
    #[inline]
    pub(super) fn locate_known(&self, tree: &TreeState, key: &[u8], level: u8) -> Option<GlobalAddress> {
        let root =
            tree.known_root().filter(|root| self.worker.compute.techniques().cache && root.level >= level)?;
        let found = tree.cache.locate(root, key, level);
        found.hit.then(|| {
            self.count_lookup(true);
            found.address
        })
    }

    /// Does the work of `locate`, and reads the nodes that the cache does not have.
    async fn descend(&self, tree: &TreeState, key: &[u8], level: u8) -> Result<Option<GlobalAddress>, Error> {
        let caching = self.worker.compute.techniques().cache;
        let mut counted = !caching;
        loop {
            let mut at = self.root(tree).await?;
            if at.level < level {
                tree.forget_root();
                at = self.root(tree).await?;
            }
            if at.level < level {
                return Ok(None);
            }
            // After a step right, the walk trusts no cached copy. A lost walk forgets only the copies on the
            // way down from the root. So a copy that only a neighbour leads to would mislead it permanently.
            let mut straight = true;
            loop {
                if caching && straight {
                    let found = tree.cache.locate(at, key, level);
                    if !std::mem::replace(&mut counted, true) {
                        self.count_lookup(found.hit);
                    }
                    at = RootWord { address: found.address, level: found.level };
                }
                if at.level == level {
                    return Ok(Some(at.address));
                }
                match self
                    .visit(tree, at.address, at.level, |node| Ok(self.step(tree, at.address, node, key)))
                    .await?
                {
                    Some(Step::Down(child)) => at = RootWord { address: child, level: at.level - 1 },
                    Some(Step::Right(sibling)) => {
                        self.moved_right(tree, &sibling, at.level)?;
                        if self.is_astray(tree, key, level) {
                            break;
                        }
                        at.address = sibling.address;
                        straight = false;
                    }
                    Some(Step::Stale) | None => {
                        self.lost(tree, key, level).await?;
                        break;
                    }
                }
            }
        }
    }

    /// Returns where an internal node sends the walk for `key`. Caches the node if it covers the key.
    fn step(&self, tree: &TreeState, address: GlobalAddress, node: &Node<'_>, key: &[u8]) -> Step {
        match node.position(key) {
            Position::Left => Step::Stale,
            Position::Right => Step::Right(Sibling::of(node)),
            Position::Inside => {
                let Some(body) = node.sorted() else { return Step::Stale };
                let Some(index) = body.responsible(key) else { return Step::Stale };
                let child = child_address(&body, index);
                self.keep(tree, address, node, &body);
                Step::Down(child)
            }
        }
    }

    /// Puts an internal node into the cache.
    pub(crate) fn keep(&self, tree: &TreeState, address: GlobalAddress, node: &Node<'_>, body: &SortedBody) {
        if self.worker.compute.techniques().cache {
            let header = &node.header;
            tree.cache.keep(address, header.level, &node.low(), node.high().as_deref(), header.version, body);
        }
    }

    /// Drops the cached copy of a node that is gone.
    pub(crate) fn forget(&self, tree: &TreeState, address: GlobalAddress) {
        if self.worker.compute.techniques().cache {
            tree.cache.forget(address);
        }
    }

    /// Notes that the key lies right of a node at `level`. The root or cached parent that led there is out of
    /// date, and learns of the sibling.
    pub(crate) fn moved_right(&self, tree: &TreeState, sibling: &Sibling, level: u8) -> Result<(), Error> {
        match tree.known_root() {
            Some(root) if root.level == level => tree.forget_root(),
            Some(root) if self.worker.compute.techniques().cache => {
                tree.cache.learn(root, level, &sibling.low, sibling.address);
            }
            _ => {}
        }
        self.note(Cause::MovedRight)
    }

    /// Whether the operation has gone right so far that it should begin again from the root. If so, forgets
    /// the whole path. True once per operation; after that the operation just keeps moving right.
    pub(crate) fn is_astray(&self, tree: &TreeState, key: &[u8], level: u8) -> bool {
        let astray =
            self.worker.compute.techniques().cache && self.retries().get(Cause::MovedRight) == MOST_RIGHT;
        if astray {
            self.forget_way(tree, key, level);
        }
        astray
    }

    fn forget_way(&self, tree: &TreeState, key: &[u8], level: u8) {
        if let Some(root) = tree.known_root().filter(|_| self.worker.compute.techniques().cache) {
            tree.cache.forget_path(root, key, level);
        }
        tree.forget_root();
    }

    /// Handles a pointer that led to a wrong node: forgets the whole path and pauses.
    pub(crate) async fn lost(&self, tree: &TreeState, key: &[u8], level: u8) -> Result<(), Error> {
        self.forget_way(tree, key, level);
        if self.retries().get(Cause::StalePointer) % LOST_BEFORE_ASKING == LOST_BEFORE_ASKING - 1 {
            self.ask_for_tree(tree).await?;
        }
        self.retry(Cause::StalePointer).await
    }

    /// Asks whether the tree is still there: the catalog, since the place of a dropped tree's root word may
    /// belong to another tree by now; and the root word, since the catalog does not know which trees have
    /// ended.
    pub(super) async fn ask_for_tree(&self, tree: &TreeState) -> Result<(), Error> {
        let name = tree.info.name.clone();
        let found = self.call(Peer::Control, calls::OpenTree { name: name.clone() }).await?;
        if found.info.id != tree.info.id {
            return Err(Error::NoSuchTree { name });
        }
        match RootWord::of(self.read_root_word(&tree.info).await?, tree.info.id) {
            RootState::Ended => Err(Error::NoSuchTree { name }),
            RootState::Rootless | RootState::Root(_) => Ok(()),
        }
    }

    /// Locks the node at `level` that covers `key`; `also` as in [`Op::lock`]. Returns `None` if the tree is
    /// not that high. Holds one lane at a time.
    pub(crate) async fn lock_covering(
        &self,
        tree: &TreeState,
        key: &[u8],
        level: u8,
        also: Option<(GlobalAddress, usize)>,
    ) -> Result<Option<Covering>, Error> {
        let shape = tree.shape.at(level);
        let mut missed = None;
        'from_the_top: loop {
            let mut at = match self.locate_known(tree, key, level) {
                Some(at) => at,
                None => match Box::pin(self.descend(tree, key, level)).await? {
                    Some(at) => at,
                    None => return Ok(None),
                },
            };
            loop {
                let locked = self.lock(at, shape.node_bytes(), also).await?;
                let wait = match Node::open(shape, locked.image(), level) {
                    Ok(node) => match node.position(key) {
                        Position::Inside => {
                            let header = node.header;
                            return Ok(Some(Covering { locked, header, missed }));
                        }
                        Position::Left => None,
                        Position::Right => {
                            let sibling = Sibling::of(&node);
                            Box::pin(self.release(locked.done(self))).await?;
                            self.moved_right(tree, &sibling, level)?;
                            if self.is_astray(tree, key, level) {
                                missed = None;
                                continue 'from_the_top;
                            }
                            at = sibling.address;
                            missed = Some((sibling.low, at));
                            continue;
                        }
                    },
                    Err(Reject::Torn) => Some(Cause::TornNode),
                    Err(Reject::Pending) => {
                        self.suspect_maker(locked.image());
                        Some(Cause::NodePending)
                    }
                    Err(Reject::Free | Reject::NotThis) => None,
                };
                Box::pin(self.release(locked.done(self))).await?;
                match wait {
                    Some(cause) => self.retry(cause).await?,
                    None => {
                        Box::pin(self.lost(tree, key, level)).await?;
                        continue 'from_the_top;
                    }
                }
            }
        }
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Reads the internal node at `level` that covers `key`, and passes it to `look` with its address and
    /// entries. Returns `None` if the tree is not that high. If `look` returns `None`, the node counts as
    /// stale.
    pub(crate) async fn visit_covering<T>(
        &self,
        tree: &TreeState,
        key: &[u8],
        level: u8,
        mut look: impl FnMut(GlobalAddress, &Node<'_>, &SortedBody) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        loop {
            let Some(mut at) = self.locate(tree, key, level).await? else { return Ok(None) };
            loop {
                let seen = self.visit(tree, at, level, |node| {
                    Ok(match node.position(key) {
                        Position::Left => Err(None),
                        Position::Right => Err(Some(Sibling::of(node))),
                        Position::Inside => node.sorted().and_then(|body| look(at, node, &body)).ok_or(None),
                    })
                });
                match seen.await? {
                    Some(Ok(seen)) => return Ok(Some(seen)),
                    Some(Err(Some(sibling))) => {
                        self.moved_right(tree, &sibling, level)?;
                        if self.is_astray(tree, key, level) {
                            break;
                        }
                        at = sibling.address;
                    }
                    Some(Err(None)) | None => {
                        self.lost(tree, key, level).await?;
                        break;
                    }
                }
            }
        }
    }
}
