//! Merging what has become too empty, level by level, and shrinking the root (`docs/INVARIANTS.md`, I28–I31).
//!
//! A merge takes two neighbouring children L and R of one parent P under all their lanes: L takes over R's entries, high
//! fence and sibling, P forgets R's separator, R is marked free. Nobody can change any of the three meanwhile, so a reader
//! that still sees R unmarked reads what L has too; and no lane is given back before R's mark is visible, so nobody changes
//! L's new half while R still looks alive.
//!
//! ```text
//!  lanes of P, L, R in order · READ P, L, R
//!  L's server   [record with L's image, L]
//!  P's server   [record with P's image, P without R, record cleared]
//!  R's server   [R's free mark]
//!  L's server   [record cleared, releases]
//! ```
//! Neighbouring steps on one server share a list: on a single server all of it is one. The record says that the merge has
//! begun; whoever recovers its maker always finishes it.
//!
//! Like a separator, a merge never fails the operation after which it happens: what cannot be done in time is left.

use super::separator::PATIENCE;
use super::{CATALOG_SERVER, TreeState};
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::{Lanes, LockedSeveral};
use crate::mutant::{Mutant, planted};
use crate::node::{Draft, Node, Patch, SortedBody};
use crate::op::Op;
use crate::redo::{Kind, Record, Slot};
use crate::root::RootWord;
use crate::tree::write::push_patch;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};
use std::sync::atomic::Ordering;

/// Whether a leaf with `len` of `capacity` entries is worth an attempt to merge: not at every remove from a small leaf, or
/// one beside a full neighbour would pay for it each time.
pub(crate) fn worth_a_try(len: usize, capacity: usize) -> bool {
    len == 0 || (is_small(len, capacity) && len.is_power_of_two())
}

/// Whether a node is too empty.
fn is_small(len: usize, capacity: usize) -> bool {
    3 * len <= capacity
}

/// Whether two nodes should become one: with room to spare, or because one of them is of no use.
fn should_merge(left: usize, right: usize, capacity: usize, level: u8) -> bool {
    let useless = usize::from(level > 0);
    let all = left + right;
    all <= capacity && (4 * all <= 3 * capacity || left.min(right) <= useless)
}

/// What an attempt came to.
enum Tidied {
    /// Nothing to do, or nothing that can be done.
    Nothing,
    /// Two nodes became one; whether that, or their parent, is still too empty.
    Merged { small: bool, parent_small: bool },
    /// The root became its only child, at this level.
    Shrunk { level: u8 },
    /// The parent has no other child: it is the parent that has to merge first.
    OnlyChild,
    /// The tree changed meanwhile: look again.
    Again,
}

/// A parent as seen without its lane, and the children around the one that is too empty.
struct Family {
    parent: GlobalAddress,
    /// The parent's low fence.
    low: Vec<u8>,
    before: Option<GlobalAddress>,
    child: GlobalAddress,
    after: Option<GlobalAddress>,
}

impl<E: Endpoint> Op<'_, E> {
    /// Merges the node at `level` that covers `key` with a neighbour, and what becomes too empty by that above it. Best
    /// effort, within a bounded time.
    pub(crate) async fn tidy(&self, tree: &TreeState, level: u8, key: &[u8]) {
        self.be_brief(PATIENCE);
        if self.truce(tree) {
            return;
        }
        let mut wanting = vec![level];
        // Whether anything was merged since a level began to wait for the one above.
        let mut progress = false;
        while let Some(level) = wanting.pop() {
            match self.tidy_level(tree, level, key).await {
                Ok(Tidied::Merged { small, parent_small }) => {
                    progress = true;
                    // The parent comes last: what goes on below may leave it emptier still.
                    let known = wanting.contains(&(level + 1));
                    wanting.extend((parent_small && !known).then_some(level + 1));
                    wanting.extend(small.then_some(level));
                }
                Ok(Tidied::OnlyChild) => {
                    progress = false;
                    wanting.extend([level, level + 1]);
                }
                // The new root may be such a one itself.
                Ok(Tidied::Shrunk { level }) => {
                    progress = true;
                    wanting.push(level);
                }
                Ok(Tidied::Again) => {
                    // During a truce nobody posts the separator that this may be waiting for.
                    if self.truce(tree) || self.retry(Cause::Merge).await.is_err() {
                        return;
                    }
                    wanting.push(level);
                }
                // What is below may have been waiting for this in vain; what is above was not.
                Ok(Tidied::Nothing) => {
                    if !std::mem::take(&mut progress) {
                        wanting.retain(|&other| other > level);
                    }
                }
                Err(_) => return self.start_truce(tree),
            }
        }
    }

    async fn tidy_level(&self, tree: &TreeState, level: u8, key: &[u8]) -> Result<Tidied, Error> {
        let Some(family) = self.family(tree, level, key).await? else { return self.tidy_root(tree, level).await };
        let Family { parent, low, before, child, after } = family;
        if before.is_none() && after.is_none() {
            // Not every node that is alone on its level is the root: one above it may be waiting to be shrunk.
            tree.forget_root();
            let root = self.root(tree).await?;
            return match root.level.cmp(&(level + 1)) {
                std::cmp::Ordering::Greater => Ok(Tidied::OnlyChild),
                std::cmp::Ordering::Equal if root.address == parent => {
                    self.shrink(tree, parent, child, level + 1).await
                }
                // The root was split, and whoever did it may have died before it put a new one above the two.
                std::cmp::Ordering::Equal => {
                    self.post_upwards(tree, level + 2, low, parent).await;
                    Ok(Tidied::Again)
                }
                std::cmp::Ordering::Less => Ok(Tidied::Again),
            };
        }
        for (left, right) in
            [after.map(|after| (child, after)), before.map(|before| (before, child))].into_iter().flatten()
        {
            match self.merge(tree, level, [parent, left, right]).await? {
                Tidied::Nothing => {}
                done => return Ok(done),
            }
        }
        Ok(Tidied::Nothing)
    }

    /// The node at `level` is the root, or there is none any more: shrinks a root that has one child.
    async fn tidy_root(&self, tree: &TreeState, level: u8) -> Result<Tidied, Error> {
        let root = self.root(tree).await?;
        if level == 0 || root.level != level {
            return Ok(Tidied::Nothing);
        }
        let only = self.visit(tree, root.address, level, |node| {
            Ok(node.sorted().filter(|body| body.len() == 1).map(|body| crate::cache::child_address(&body, 0)))
        });
        match only.await?.flatten() {
            Some(child) => self.shrink(tree, root.address, child, level).await,
            None => Ok(Tidied::Nothing),
        }
    }

    /// The parent of the node at `level` that covers `key`, and its neighbours there. `None` if that node is the root.
    async fn family(&self, tree: &TreeState, level: u8, key: &[u8]) -> Result<Option<Family>, Error> {
        self.visit_covering(tree, key, level + 1, |parent, node, body| {
            let at = body.responsible(key)?;
            let child = |index: usize| crate::cache::child_address(body, index);
            Some(Family {
                parent,
                low: node.low().to_vec(),
                before: at.checked_sub(1).map(child),
                child: child(at),
                after: (at + 1 < body.len()).then(|| child(at + 1)),
            })
        })
        .await
    }

    /// Merges two neighbouring children of a parent, if they are that and should become one.
    async fn merge(&self, tree: &TreeState, level: u8, nodes: [GlobalAddress; 3]) -> Result<Tidied, Error> {
        let [parent, left, right] = nodes;
        let shape = tree.shape.at(level);
        let internal = &tree.shape.internal;
        let Some(lens) = self.lens(tree, level, [left, right]).await? else { return Ok(Tidied::Again) };
        if !should_merge(lens[0], lens[1], shape.capacity(), level) {
            return Ok(Tidied::Nothing);
        }
        let sizes = [internal.node_bytes(), shape.node_bytes(), shape.node_bytes()];
        let locked = self.lock_several(&[(parent, sizes[0]), (left, sizes[1]), (right, sizes[2])]).await?;
        let merged = match Merged::plan(tree, level, nodes, &locked, self.endpoint().client()) {
            Plan::Merge(merged) => merged,
            plan => {
                self.release_several(locked.done(self)).await?;
                return Ok(match plan {
                    Plan::Unfit => Tidied::Nothing,
                    Plan::Unposted { key, child } => {
                        self.post_upwards(tree, level + 1, key, child).await;
                        Tidied::Again
                    }
                    Plan::Merge(_) | Plan::Changed => Tidied::Again,
                });
            }
        };
        let Merged { parent: p, left: l, right: r, body, .. } = &*merged;
        let alloc = &self.worker.compute.alloc;
        let claim = alloc.claim(shape.class(), right);
        let freed = || alloc.freed(shape.class(), right, r.header().version, claim);
        if planted(Mutant::ReuseBeforeUnlink) {
            freed();
            self.write_merge(tree, locked.done(self), nodes, &merged).await?;
        } else {
            self.write_merge(tree, locked.done(self), nodes, &merged).await?;
            freed();
        }
        let counter = if level == 0 { &tree.merges.leaves } else { &tree.merges.internal };
        counter.fetch_add(1, Ordering::Relaxed);
        self.keep(tree, parent, &p.node(), body);
        if level > 0 {
            self.forget(tree, right);
            if let Some(body) = l.node().sorted() {
                self.keep(tree, left, &l.node(), &body);
            }
        }
        Ok(Tidied::Merged {
            small: is_small(l.node().len(), shape.capacity()),
            parent_small: is_small(body.len(), internal.capacity()),
        })
    }

    /// How many entries two nodes have, seen without their lanes. `None` if one of them is gone.
    async fn lens(&self, tree: &TreeState, level: u8, nodes: [GlobalAddress; 2]) -> Result<Option<[usize; 2]>, Error> {
        let mut lens = [0; 2];
        for (len, node) in lens.iter_mut().zip(nodes) {
            match self.visit(tree, node, level, |node| Ok(node.len())).await? {
                Some(found) => *len = found,
                None => return Ok(None),
            }
        }
        Ok(Some(lens))
    }

    /// Writes a merge and gives the lanes back.
    async fn write_merge(
        &self,
        tree: &TreeState,
        lanes: Lanes,
        [parent, left, right]: [GlobalAddress; 3],
        merged: &Merged<'_>,
    ) -> Result<(), Error> {
        let Merged { parent: p, left: l, right: r, .. } = merged;
        let servers = [Some(left.server()), Some(parent.server())];
        let (lanes, [slot, image_slot]) = self.slots_under(lanes, servers).await?;
        let mut lists = Lists { op: self, lists: Vec::new() };
        let record = Record {
            made: right,
            made_version: r.header().version,
            root: (parent.to_bits(), u64::from(p.header().version)),
            ..self.about(Kind::Merge, tree, left, l)
        };
        let class = tree.shape.at(r.header().level).class();
        if planted(Mutant::HintBeforeMark) {
            lists.hint(right, class);
        }
        lists.log(&slot, || record.with_pieces(l.image(), &merged.left_patch));
        lists.patch(left, l.image(), &merged.left_patch);
        let image = self.about(Kind::Image, tree, parent, p);
        lists.log(&image_slot, || image.with_pieces(p.image(), &merged.parent_patch));
        lists.patch(parent, p.image(), &merged.parent_patch);
        lists.clear(&image_slot);
        let late = planted(Mutant::LanesBeforeFreeMark);
        if !late && !planted(Mutant::NoFreeMark) {
            lists.patch(right, r.image(), &merged.right_patch);
            if !planted(Mutant::HintBeforeMark) {
                lists.hint(right, class);
            }
        }
        lists.clear(&slot);
        self.write_back_several(lanes, lists.lists).await?;
        if late {
            let mut list = self.endpoint().list(right.server());
            push_patch(&mut list, right, r.image(), &merged.right_patch);
            self.push_hint(&mut list, right, class);
            self.endpoint().recycle(self.execute(list).await?);
        }
        self.settle([slot, image_slot]);
        Ok(())
    }

    /// Redo slots on these servers, if techniques ask for any. On failure the lanes are given back.
    async fn slots_under(&self, lanes: Lanes, servers: [Option<u16>; 2]) -> Result<(Lanes, [Option<Slot>; 2]), Error> {
        let servers = if self.worker.compute.techniques().redo { servers } else { [None; 2] };
        match self.worker.compute.redo.take(self, servers).await {
            Ok(slots) => Ok((lanes, slots)),
            Err(error) => {
                self.release_several(lanes).await?;
                Err(error)
            }
        }
    }

    /// Replaces a root that has one child by that child: both lanes, CAS of the root word, then the old root is free.
    async fn shrink(
        &self,
        tree: &TreeState,
        root: GlobalAddress,
        child: GlobalAddress,
        level: u8,
    ) -> Result<Tidied, Error> {
        let word = RootWord { address: root, level };
        let (above, below) = (tree.shape.at(level), tree.shape.at(level - 1));
        let locked = self.lock_several(&[(root, above.node_bytes()), (child, below.node_bytes())]).await?;
        let only = Node::open(above, locked.image(0), level).ok().filter(|node| {
            let body = node.sorted();
            body.is_some_and(|body| body.len() == 1 && crate::cache::child_address(&body, 0) == child)
        });
        if let Some((high, sibling)) = only.and_then(|node| Some((node.high()?, node.header.sibling))) {
            // The root has a right neighbour itself: who split it did not come to grow the tree.
            self.release_several(locked.done(self)).await?;
            self.post_upwards(tree, level + 1, high, sibling).await;
            return Ok(Tidied::Again);
        }
        let alone = Node::open(below, locked.image(1), level - 1).ok();
        let (Some(old), Some(heir)) = (only, alone) else {
            self.release_several(locked.done(self)).await?;
            return Ok(Tidied::Again);
        };
        if let Some(high) = heir.high() {
            // The child has a right neighbour that the root does not know of yet.
            let sibling = heir.header.sibling;
            self.release_several(locked.done(self)).await?;
            self.post_upwards(tree, level, high, sibling).await;
            return Ok(Tidied::Again);
        }
        let mut old = Draft::of(above, &old, Vec::new());
        let free = old.free(self.endpoint().client());
        let words = [word, RootWord { address: child, level: level - 1 }];
        let record =
            Record { root: (words[0].to_bits(), words[1].to_bits()), ..self.about(Kind::Replace, tree, root, &old) };
        let (lanes, [slot, _]) = self.slots_under(locked.done(self), [Some(root.server()), None]).await?;
        let claim = self.worker.compute.alloc.claim(above.class(), root);
        let (swapped, slot) = self.replace_root(tree, lanes, slot, &old, &free, &record).await?;
        self.settle([slot]);
        if !swapped {
            tree.forget_root();
            return Ok(Tidied::Again);
        }
        self.worker.compute.alloc.freed(above.class(), root, old.header().version, claim);
        tree.merges.shrinks.fetch_add(1, Ordering::Relaxed);
        Ok(Tidied::Shrunk { level: level - 1 })
    }

    /// Swaps the root word as `record` says, under the old root's lane, and marks the old root free if that succeeded: whether
    /// it did. `slot`, on the old root's server, takes the record and comes back; the record of a load that succeeded is still in it,
    /// any other is cleared. The old root's place may be used again once it is.
    pub(super) async fn replace_root(
        &self,
        tree: &TreeState,
        lanes: Lanes,
        slot: Option<Slot>,
        draft: &Draft<'_>,
        free: &Patch,
        record: &Record,
    ) -> Result<(bool, Option<Slot>), Error> {
        let [old, new] = [record.root.0, record.root.1].map(RootWord::from_bits);
        let mut lists = Lists { op: self, lists: Vec::new() };
        lists.log(&slot, || record.clone());
        let swapped = match self.swap_root(tree, lists.lists, [old, new]).await {
            Ok(swapped) => swapped,
            Err(error) => {
                // Whether the root word changed is not known: the old root stays under its lane, and the record tells of it.
                self.abandon_several(lanes);
                return Err(Error::after_post(error));
            }
        };
        let mut lists = Lists { op: self, lists: Vec::new() };
        if swapped {
            lists.patch(old.address, draft.image(), free);
            lists.hint(old.address, tree.shape.at(old.level).class());
        }
        if !(swapped && record.kind == Kind::Load) {
            lists.clear(&slot);
        }
        let written = self.write_back_several(lanes, lists.lists).await;
        written.map_err(|error| if swapped { Error::after_post(error) } else { error.into() })?;
        if swapped {
            tree.root.store(new.to_bits(), Ordering::Relaxed);
            self.forget(tree, old.address);
        }
        Ok((swapped, slot))
    }

    /// The record is complete before the swap: by F3 in the same list, if it lies on the same server, else by a completion.
    async fn swap_root(
        &self,
        tree: &TreeState,
        mut record: Vec<WorkList>,
        [old, new]: [RootWord; 2],
    ) -> Result<bool, FabricError> {
        let combine = self.worker.compute.techniques().combine;
        let last = record.pop_if(|list| combine && list.server() == CATALOG_SERVER);
        for list in record {
            self.endpoint().recycle(self.execute(list).await?);
        }
        let mut list = last.unwrap_or_else(|| self.endpoint().list(CATALOG_SERVER));
        let cas = list.cas(Space::Host, tree.info.root_word, old.to_bits(), new.to_bits());
        let list = self.execute(list).await?;
        let swapped = list.swapped(cas);
        self.endpoint().recycle(list);
        Ok(swapped)
    }
}

/// Lists to be executed one after the other: neighbours for one server are one.
struct Lists<'o, 'w, E: Endpoint> {
    op: &'o Op<'w, E>,
    lists: Vec<WorkList>,
}

impl<E: Endpoint> Lists<'_, '_, E> {
    fn hint(&mut self, address: GlobalAddress, class: ChunkClass) {
        let op = self.op;
        op.push_hint(self.to(address.server()), address, class);
    }

    fn to(&mut self, server: u16) -> &mut WorkList {
        if self.lists.last().is_none_or(|list| list.server() != server) {
            self.lists.push(self.op.endpoint().list(server));
        }
        let last = self.lists.len() - 1;
        &mut self.lists[last]
    }

    fn patch(&mut self, address: GlobalAddress, image: &[u8], patch: &Patch) {
        push_patch(self.to(address.server()), address, image, patch);
    }

    fn log(&mut self, slot: &Option<Slot>, record: impl FnOnce() -> Record) {
        if let Some(slot) = slot {
            slot.log(self.to(slot.server()), &record());
        }
    }

    fn clear(&mut self, slot: &Option<Slot>) {
        if let Some(slot) = slot {
            slot.clear(self.to(slot.server()));
        }
    }
}

/// What is to be done with three nodes under their lanes.
enum Plan<'s> {
    Merge(Box<Merged<'s>>),
    /// They are a family, but too large to become one.
    Unfit,
    /// They are no such family any more.
    Changed,
    /// The left one has a right neighbour that the parent does not know of.
    Unposted {
        key: Vec<u8>,
        child: GlobalAddress,
    },
}

/// Three nodes as a merge leaves them, and what to write of each.
struct Merged<'s> {
    parent: Draft<'s>,
    parent_patch: Patch,
    left: Draft<'s>,
    left_patch: Patch,
    right: Draft<'s>,
    right_patch: Patch,
    body: SortedBody,
}

impl<'s> Merged<'s> {
    /// Checks under the lanes that the nodes are what they seemed without, and merges them.
    fn plan(
        tree: &'s TreeState,
        level: u8,
        [_, left, right]: [GlobalAddress; 3],
        locked: &LockedSeveral,
        owner: sherman_fabric::ClientId,
    ) -> Plan<'s> {
        let (shape, internal) = (tree.shape.at(level), &tree.shape.internal);
        let parent = Node::open(internal, locked.image(0), level + 1);
        let nodes = [1, 2].map(|index| Node::open(shape, locked.image(index), level));
        let (Ok(p), [Ok(l), Ok(r)]) = (parent, nodes) else { return Plan::Changed };
        let Some(mut body) = p.sorted() else { return Plan::Changed };
        let separator = r.low();
        let named = body.find(&separator).ok().filter(|&at| {
            let child = |index| crate::cache::child_address(&body, index);
            at > 0 && child(at) == right && child(at - 1) == left && body.key(at - 1) == l.low()
        });
        let Some(at) = named else { return Plan::Changed };
        if l.header.sibling != right || l.high().as_ref() != Some(&separator) {
            return match l.high() {
                Some(key) if key < separator => Plan::Unposted { key, child: l.header.sibling },
                _ => Plan::Changed,
            };
        }
        if !should_merge(l.len(), r.len(), shape.capacity(), level) || !l.entries_whole() || !r.entries_whole() {
            return Plan::Unfit;
        }
        let mut left = Draft::of(shape, &l, Vec::new());
        let Some(left_patch) = left.absorb(&r) else { return Plan::Unfit };
        let mut right = Draft::of(shape, &r, Vec::new());
        let right_patch = right.free(owner);
        let mut parent = Draft::of(internal, &p, Vec::new());
        body.remove(at);
        let parent_patch = parent.set_body(&body);
        Plan::Merge(Box::new(Self { parent, parent_patch, left, left_patch, right, right_patch, body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_merge_with_room_to_spare_or_if_one_is_of_no_use() {
        // (left, right, capacity, level) and whether.
        for (left, right, capacity, level, merge) in [
            (15, 15, 40, 0, true),
            (15, 16, 40, 0, false),
            (0, 40, 40, 0, true),
            (0, 41, 40, 0, false),
            (1, 39, 40, 0, false),
            (1, 39, 40, 1, true),
            (2, 38, 40, 1, false),
            (3, 0, 4, 0, true),
            (1, 2, 4, 0, true),
            (2, 2, 4, 0, false),
            (3, 3, 10, 2, true),
        ] {
            assert_eq!(
                should_merge(left, right, capacity, level),
                merge,
                "{left} and {right} of {capacity} at {level}"
            );
        }
    }

    #[test]
    fn a_node_is_tried_when_it_becomes_small_and_then_ever_more_rarely() {
        let tried: Vec<usize> = (0..=40).filter(|&len| worth_a_try(len, 40)).collect();
        assert_eq!(tried, [0, 1, 2, 4, 8]);
        assert!(is_small(13, 40) && !is_small(14, 40));
    }
}
