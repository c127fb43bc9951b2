//! Merges nodes that have become too empty, level by level, and shrinks the root (`docs/INVARIANTS.md`,
//! I28–I31).
//!
//! A merge takes two neighbouring children L and R of one parent P, and holds the lanes of all three. L takes
//! over R's entries, high fence and sibling. P forgets R's separator. R is marked free. No other client can
//! change any of the three meanwhile, so a reader that still sees R unmarked reads what L has too. No lane is
//! given back before R's mark is visible. So no client changes L's new half while R still looks alive.
//!
//! ```text
//!  lanes of P, L, R in order · READ P, L, R
//!  L's server   [record with L's image, L]
//!  P's server   [record with P's image, P without R, record cleared]
//!  R's server   [R's free mark]
//!  L's server   [record cleared, releases]
//! ```
//! Neighbouring steps on one server share a list: on a single server the whole merge is one list. The record
//! says that the merge has begun. The recoverer of its maker always finishes it.
//!
//! Like a separator, a merge never fails the operation that it follows. A merge that cannot be done in time
//! is left undone.

use super::TreeState;
use super::separator::PATIENCE;
use crate::alloc::Claim;
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::{Lanes, LockedSeveral};
use crate::node::{Draft, Node, Patch, SortedBody};
use crate::op::Op;
use crate::redo::{Record, RecordKind, RedoSlot};
use crate::root::RootWord;
use crate::tree::write::push_patch;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};
use std::sync::atomic::Ordering;

/// Whether a leaf with `len` of `capacity` entries is worth an attempt to merge. Not every remove from a
/// small leaf tries: a small leaf beside a full neighbour would pay for each attempt.
pub(crate) fn worth_a_try(len: usize, capacity: usize) -> bool {
    len == 0 || (is_small(len, capacity) && len.is_power_of_two())
}

/// Whether a node is too empty.
pub(super) fn is_small(len: usize, capacity: usize) -> bool {
    3 * len <= capacity
}

/// Whether two nodes should become one: either with room to spare, or because one of them is useless.
fn should_merge(left: usize, right: usize, capacity: usize, level: u8) -> bool {
    let useless = usize::from(level > 0);
    let all = left + right;
    all <= capacity && (4 * all <= 3 * capacity || left.min(right) <= useless)
}

/// A part of the lists of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergePart {
    /// The record of the merge, with the image of the left node.
    Record,
    /// The left node with the entries of both.
    Left,
    /// The record with the image of the parent.
    ParentRecord,
    /// The parent without the right node.
    Parent,
    /// The end of the parent's record.
    ParentCleared,
    /// The free mark of the right node.
    FreeMark,
    /// The hint that the span of the right node has a free place.
    Hint,
    /// The end of the record of the merge.
    Cleared,
}

/// The parts of a merge, in order. The releases of the lanes follow.
pub(super) const MERGE: [MergePart; 8] = {
    use MergePart::{Cleared, FreeMark, Hint, Left, Parent, ParentCleared, ParentRecord, Record};
    [Record, Left, ParentRecord, Parent, ParentCleared, FreeMark, Hint, Cleared]
};

fn merge_parts() -> &'static [MergePart] {
    seam!(tree::merge_parts());
    &MERGE
}

/// The result of an attempt to merge or shrink.
enum Tidied {
    /// Nothing to do, or nothing that can be done.
    Nothing,
    /// Two nodes became one. The fields say whether that node, or its parent, is still too empty.
    Merged { small: bool, parent_small: bool },
    /// The root was replaced by its only child, at this level.
    Shrunk { level: u8 },
    /// The parent has no other child, so the parent must merge first.
    OnlyChild,
    /// The tree changed meanwhile: try again.
    Again,
}

/// A parent, read without its lane, and the children around the child that is too empty.
struct Family {
    parent: GlobalAddress,
    /// The parent's low fence.
    low: Vec<u8>,
    before: Option<GlobalAddress>,
    child: GlobalAddress,
    after: Option<GlobalAddress>,
}

impl<E: Endpoint> Op<'_, E> {
    /// Merges the node at `level` that covers `key` with a neighbour. Then does the same for nodes above that
    /// become too empty. Best effort, within a bounded time.
    pub(crate) async fn tidy(&self, tree: &TreeState, level: u8, key: &[u8]) {
        self.cap_remaining_wait(PATIENCE);
        if self.merge_backoff(tree) {
            return;
        }
        let mut wanting = vec![level];
        // Whether anything was merged since a level began to wait for the level above.
        let mut progress = false;
        while let Some(level) = wanting.pop() {
            match self.tidy_level(tree, level, key).await {
                Ok(Tidied::Merged { small, parent_small }) => {
                    progress = true;
                    // The parent comes last, because further merges below may leave it emptier still.
                    let known = wanting.contains(&(level + 1));
                    wanting.extend((parent_small && !known).then_some(level + 1));
                    wanting.extend(small.then_some(level));
                }
                Ok(Tidied::OnlyChild) => {
                    progress = false;
                    wanting.extend([level, level + 1]);
                }
                // The new root may have a single child too.
                Ok(Tidied::Shrunk { level }) => {
                    progress = true;
                    wanting.push(level);
                }
                Ok(Tidied::Again) => {
                    // During a merge backoff no operation of this compute server posts the separator that
                    // this may be waiting for.
                    if self.merge_backoff(tree) || self.retry(Cause::Merge).await.is_err() {
                        return;
                    }
                    wanting.push(level);
                }
                // Levels below may have been waiting for this one in vain. Levels above were not.
                Ok(Tidied::Nothing) => {
                    if !std::mem::take(&mut progress) {
                        wanting.retain(|&other| other > level);
                    }
                }
                Err(_) => return self.start_merge_backoff(tree),
            }
        }
    }

    async fn tidy_level(&self, tree: &TreeState, level: u8, key: &[u8]) -> Result<Tidied, Error> {
        let Some(family) = self.family(tree, level, key).await? else {
            return self.tidy_root(tree, level).await;
        };
        let Family { parent, low, before, child, after } = family;
        if before.is_none() && after.is_none() {
            // A node that is alone on its level need not be the root: a node above it may still have to be
            // shrunk.
            tree.forget_root();
            let root = self.root(tree).await?;
            return match root.level.cmp(&(level + 1)) {
                std::cmp::Ordering::Greater => Ok(Tidied::OnlyChild),
                std::cmp::Ordering::Equal if root.address == parent => {
                    self.shrink(tree, parent, child, level + 1).await
                }
                // The root was split, and the client that split it may have died before it put a new root
                // above both halves.
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

    /// Shrinks a root that has one child. The node at `level` is the root, or no longer exists.
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

    /// Finds the parent of the node at `level` that covers `key`, and that node's neighbours in the parent.
    /// Returns `None` if the node is the root.
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

    /// Merges two neighbouring children of a parent, if they still are that and should become one.
    async fn merge(&self, tree: &TreeState, level: u8, nodes: [GlobalAddress; 3]) -> Result<Tidied, Error> {
        let [parent, left, right] = nodes;
        let shape = tree.shape.at(level);
        let internal = &tree.shape.internal;
        let Some([(l, l_room), (r, r_room)]) = self.lens(tree, level, [left, right]).await? else {
            return Ok(Tidied::Again);
        };
        if !should_merge(l, r, l_room.min(r_room), level) {
            return Ok(Tidied::Nothing);
        }
        let sizes = [internal.node_bytes(), shape.node_bytes(), shape.node_bytes()];
        let locked = self.lock_several(&[(parent, sizes[0]), (left, sizes[1]), (right, sizes[2])]).await?;
        let merged = match Merged::plan(tree, level, nodes, &locked, self.endpoint().client()) {
            MergePlan::Merge(merged) => merged,
            plan => {
                self.release_several(locked.done(self)).await?;
                return Ok(match plan {
                    MergePlan::Unfit => Tidied::Nothing,
                    MergePlan::Unposted { key, child } => {
                        self.post_upwards(tree, level + 1, key, child).await;
                        Tidied::Again
                    }
                    MergePlan::Merge(_) | MergePlan::Changed => Tidied::Again,
                });
            }
        };
        let Merged { parent: p, left: l, body, .. } = &*merged;
        self.write_merge(tree, locked.done(self), nodes, &merged).await?;
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
            small: is_small(l.node().len(), l.node().capacity()),
            parent_small: is_small(body.len(), internal.capacity()),
        })
    }

    /// Returns how many entries two nodes have and can have, read without their lanes. `None` if one of them
    /// is gone.
    async fn lens(
        &self,
        tree: &TreeState,
        level: u8,
        nodes: [GlobalAddress; 2],
    ) -> Result<Option<[(usize, usize); 2]>, Error> {
        let mut lens = [(0, 0); 2];
        for (len, node) in lens.iter_mut().zip(nodes) {
            match self.visit(tree, node, level, |node| Ok((node.len(), node.capacity()))).await? {
                Some(found) => *len = found,
                None => return Ok(None),
            }
        }
        Ok(Some(lens))
    }

    /// Writes a merge and gives the lanes back. Then the place of the right node may be used again.
    async fn write_merge(
        &self,
        tree: &TreeState,
        lanes: Lanes,
        nodes: [GlobalAddress; 3],
        merged: &Merged<'_>,
    ) -> Result<(), Error> {
        seam!(let lanes = tree::write_merge(self, tree, lanes, nodes, merged).await);
        let claim = self.claim_merged(tree, nodes, merged);
        self.post_merge(tree, lanes, nodes, merged).await?;
        self.free_merged(tree, nodes, merged, claim);
        Ok(())
    }

    /// Claims the place of the right node of a merge, before its free mark is posted.
    pub(super) fn claim_merged(
        &self,
        tree: &TreeState,
        [_, _, right]: [GlobalAddress; 3],
        merged: &Merged<'_>,
    ) -> Claim {
        let class = tree.shape.at(merged.right.header().level).class();
        self.worker.compute.alloc.claim(class, right)
    }

    /// Adds the place of the right node of a merge to the free places.
    pub(super) fn free_merged(
        &self,
        tree: &TreeState,
        [_, _, right]: [GlobalAddress; 3],
        merged: &Merged<'_>,
        claim: Claim,
    ) {
        let header = merged.right.header();
        let class = tree.shape.at(header.level).class();
        self.worker.compute.alloc.freed(class, right, header.version, claim);
    }

    /// Posts the lists of a merge and gives the lanes back.
    pub(super) async fn post_merge(
        &self,
        tree: &TreeState,
        lanes: Lanes,
        nodes: [GlobalAddress; 3],
        merged: &Merged<'_>,
    ) -> Result<(), Error> {
        let servers = [nodes[1], nodes[0]].map(|node| Some(node.server()));
        let (lanes, slots) = self.slots_under(lanes, servers).await?;
        let lists = self.merge_lists(tree, merge_parts(), nodes, merged, &slots);
        self.write_back_several(lanes, lists).await?;
        self.settle(slots);
        Ok(())
    }

    /// Returns the lists of these parts of a merge. The slots are for the record of the merge and for the
    /// image of the parent.
    pub(super) fn merge_lists(
        &self,
        tree: &TreeState,
        parts: &[MergePart],
        [parent, left, right]: [GlobalAddress; 3],
        merged: &Merged<'_>,
        [slot, image_slot]: &[Option<RedoSlot>; 2],
    ) -> Vec<WorkList> {
        let Merged { parent: p, left: l, right: r, .. } = merged;
        let mut lists = Lists { op: self, lists: Vec::new() };
        for part in parts {
            match part {
                MergePart::Record => lists.log(slot, || {
                    let record = Record {
                        made: right,
                        made_version: r.header().version,
                        root: (parent.to_bits(), u64::from(p.header().version)),
                        ..self.about(RecordKind::Merge, tree, left, l)
                    };
                    record.with_pieces(l.image(), &merged.left_patch)
                }),
                MergePart::Left => lists.patch(left, l.image(), &merged.left_patch),
                MergePart::ParentRecord => lists.log(image_slot, || {
                    let image = self.about(RecordKind::Image, tree, parent, p);
                    image.with_pieces(p.image(), &merged.parent_patch)
                }),
                MergePart::Parent => lists.patch(parent, p.image(), &merged.parent_patch),
                MergePart::ParentCleared => lists.clear(image_slot),
                MergePart::FreeMark => lists.patch(right, r.image(), &merged.right_patch),
                MergePart::Hint => lists.hint(right, tree.shape.at(r.header().level).class()),
                MergePart::Cleared => lists.clear(slot),
            }
        }
        lists.lists
    }

    /// Takes redo slots on these servers, if `techniques` use redo records. On failure the lanes are given
    /// back.
    pub(super) async fn slots_under(
        &self,
        lanes: Lanes,
        servers: [Option<u16>; 2],
    ) -> Result<(Lanes, [Option<RedoSlot>; 2]), Error> {
        let servers = if self.worker.compute.techniques().redo { servers } else { [None; 2] };
        match self.worker.compute.redo.take(self, servers).await {
            Ok(slots) => Ok((lanes, slots)),
            Err(error) => {
                self.release_several(lanes).await?;
                Err(error)
            }
        }
    }

    /// Replaces a root that has one child by that child: takes both lanes, swaps the root word by CAS, then
    /// frees the old root.
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
            // The root has a right neighbour itself: the client that split it did not grow the tree.
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
        let record = Record {
            root: (words[0].to_bits(), words[1].to_bits()),
            ..self.about(RecordKind::Replace, tree, root, &old)
        };
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

    /// Swaps the root word as `record` says, under the old root's lane. Marks the old root free if the swap
    /// succeeded, and returns whether it did. `slot`, on the old root's server, takes the record and is
    /// returned. The record of a load that succeeded is still in it; any other record is cleared. The old
    /// root's place may be used again once the record is cleared.
    pub(super) async fn replace_root(
        &self,
        tree: &TreeState,
        lanes: Lanes,
        slot: Option<RedoSlot>,
        draft: &Draft<'_>,
        free: &Patch,
        record: &Record,
    ) -> Result<(bool, Option<RedoSlot>), Error> {
        let [old, new] = [record.root.0, record.root.1].map(RootWord::from_bits);
        let mut lists = Lists { op: self, lists: Vec::new() };
        lists.log(&slot, || record.clone());
        let swapped = match self.swap_root(tree, lists.lists, [old, new]).await {
            Ok(swapped) => swapped,
            Err(error) => {
                // It is unknown whether the root word changed. The old root stays under its lane, and the
                // record tells of the swap.
                self.abandon_several(lanes);
                return Err(Error::after_post(error));
            }
        };
        let mut lists = Lists { op: self, lists: Vec::new() };
        if swapped {
            lists.patch(old.address, draft.image(), free);
            lists.hint(old.address, tree.shape.at(old.level).class());
        }
        if !(swapped && record.kind == RecordKind::Load) {
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

    /// Swaps the root word. The record is complete before the swap: by F3 if it is in the same list, on the
    /// same server; otherwise by a completion.
    pub(super) async fn swap_root(
        &self,
        tree: &TreeState,
        mut record: Vec<WorkList>,
        [old, new]: [RootWord; 2],
    ) -> Result<bool, FabricError> {
        seam!(tree::swap_root(self, tree, &record, [old, new]).await);
        let combine = self.worker.compute.techniques().combine;
        let (server, offset) = (tree.info.root_word.server(), tree.info.root_word.offset());
        let last = record.pop_if(|list| combine && list.server() == server);
        for list in record {
            self.endpoint().recycle(self.execute(list).await?);
        }
        let mut list = last.unwrap_or_else(|| self.endpoint().list(server));
        let cas = list.cas(Space::Host, offset, old.to_bits(), new.to_bits());
        let list = self.execute(list).await?;
        let swapped = list.swapped(cas);
        self.endpoint().recycle(list);
        Ok(swapped)
    }
}

/// Lists to execute one after the other. Neighbouring lists for one server are combined.
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

    fn log(&mut self, slot: &Option<RedoSlot>, record: impl FnOnce() -> Record) {
        if let Some(slot) = slot {
            slot.log(self.to(slot.server()), &record());
        }
    }

    fn clear(&mut self, slot: &Option<RedoSlot>) {
        if let Some(slot) = slot {
            slot.clear(self.to(slot.server()));
        }
    }
}

/// What to do with three nodes under their lanes.
enum MergePlan<'s> {
    Merge(Box<Merged<'s>>),
    /// They are parent and neighbouring children, but too large to become one.
    Unfit,
    /// They are no longer parent and neighbouring children.
    Changed,
    /// The left node has a right neighbour that the parent does not know of.
    Unposted {
        key: Vec<u8>,
        child: GlobalAddress,
    },
}

/// Three nodes as a merge leaves them, and the patch to write for each.
pub(super) struct Merged<'s> {
    parent: Draft<'s>,
    parent_patch: Patch,
    left: Draft<'s>,
    left_patch: Patch,
    right: Draft<'s>,
    right_patch: Patch,
    body: SortedBody,
}

impl<'s> Merged<'s> {
    /// Checks under the lanes that the nodes are still what they were without them, and plans their merge.
    fn plan(
        tree: &'s TreeState,
        level: u8,
        [_, left, right]: [GlobalAddress; 3],
        locked: &LockedSeveral,
        owner: sherman_fabric::ComputeId,
    ) -> MergePlan<'s> {
        let (shape, internal) = (tree.shape.at(level), &tree.shape.internal);
        let parent = Node::open(internal, locked.image(0), level + 1);
        let nodes = [1, 2].map(|index| Node::open(shape, locked.image(index), level));
        let (Ok(p), [Ok(l), Ok(r)]) = (parent, nodes) else { return MergePlan::Changed };
        let Some(mut body) = p.sorted() else { return MergePlan::Changed };
        let separator = r.low();
        let named = body.find(&separator).ok().filter(|&at| {
            let child = |index| crate::cache::child_address(&body, index);
            at > 0 && child(at) == right && child(at - 1) == left && body.key(at - 1) == l.low()
        });
        let Some(at) = named else { return MergePlan::Changed };
        if l.header.sibling != right || l.high().as_ref() != Some(&separator) {
            return match l.high() {
                Some(key) if key < separator => MergePlan::Unposted { key, child: l.header.sibling },
                _ => MergePlan::Changed,
            };
        }
        if !should_merge(l.len(), r.len(), l.capacity().min(r.capacity()), level)
            || !l.entries_whole()
            || !r.entries_whole()
        {
            return MergePlan::Unfit;
        }
        let mut left = Draft::of(shape, &l, Vec::new());
        let Some(left_patch) = left.absorb(&r) else { return MergePlan::Unfit };
        let mut right = Draft::of(shape, &r, Vec::new());
        let right_patch = right.free(owner);
        let mut parent = Draft::of(internal, &p, Vec::new());
        body.remove(at);
        let parent_patch = parent.set_body(&body);
        MergePlan::Merge(Box::new(Self { parent, parent_patch, left, left_patch, right, right_patch, body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_merge_with_room_to_spare_or_if_one_is_of_no_use() {
        // (left, right, capacity, level), and whether they should merge.
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
