//! Bulk load: turns a sorted sequence into a tree with one swap of the root word.
//!
//! Any number of threads fill leaves to a given share and write them batch by batch. Then the loader writes
//! the levels above. Then it swaps the root word under the lane of the old, still empty root leaf. Until the
//! swap nothing leads to the new nodes, so a load that fails changes nothing and gives its places back.
//!
//! Nodes are written pending and linked after the swap (I13), for two reasons. A client may still have a
//! reused place in its cache, and the new node may fit by chance. And the loader may die. A record tells of
//! the swap until the last node is linked.
//!
//! The order of calls is [`Loading::push`] for each entry, then [`Op::write_leaves`] (on any thread) for each
//! batch from [`Loading::push`] or [`Loading::finish`]. Then comes [`Op::complete_load`] with all results of
//! these, or [`Loading::abandon`].

use super::TreeState;
use super::descend::Covering;
use crate::alloc::Claim;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::draft::NodePlace;
use crate::node::hashed::Layout;
use crate::node::{Draft, LINE, Node, Shape};
use crate::op::Op;
use crate::redo::{Record, RecordKind, RedoSlot};
use crate::root::RootWord;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};

/// Leaves per batch.
const BATCH: usize = 64;
/// Nodes, or lines, that one list writes.
const WRITES_PER_LIST: usize = 16;

/// A bulk load under way. It takes entries in order and cuts them into leaves.
#[derive(Debug)]
pub struct Loading {
    key_len: usize,
    entry_len: usize,
    fill: f64,
    /// The most entries of a leaf.
    per_leaf: usize,
    per_internal: usize,
    class: ChunkClass,
    /// The shape of hashed leaves, which may hold fewer entries than they should.
    hashed: Option<Shape>,
    layout: Layout,
    /// Entries taken so far.
    count: u64,
    last: Vec<u8>,
    /// Entries of the current batch.
    entries: Vec<u8>,
    /// A full batch that waits for the first key and place of the next batch.
    waiting: Option<Batch>,
    taken: Vec<(u8, NodePlace)>,
}

/// Leaves to be written.
#[derive(Debug)]
pub struct Batch {
    low: Vec<u8>,
    entries: Vec<u8>,
    /// Where the entries of each leaf end.
    ends: Vec<usize>,
    places: Vec<NodePlace>,
    next: Option<(Vec<u8>, GlobalAddress)>,
}

/// Nodes that were written but are not yet part of the tree.
#[derive(Debug, Default)]
pub struct Written {
    /// Separators and addresses, in the form of a parent's entries.
    children: Vec<u8>,
    /// Nodes to link after the swap, each with what it has then: the header line, or the whole node if its
    /// lines must be attached.
    pending: Vec<(GlobalAddress, Vec<u8>)>,
}

/// How many entries a load puts into a node to fill it to `fill` of its capacity, but at least to half.
pub(super) fn entries_of(capacity: usize, fill: f64) -> usize {
    ((capacity as f64 * fill) as usize).clamp(capacity.div_ceil(2), capacity)
}

impl Loading {
    /// Begins a load of `tree` that fills leaves and internal nodes to `fill` of their capacity, but at least
    /// to half.
    pub fn new(tree: &TreeState, fill: f64) -> Self {
        let share = |shape: &Shape| entries_of(shape.capacity(), fill);
        let leaf = &tree.shape.leaf;
        Self {
            key_len: leaf.key_len(),
            entry_len: leaf.key_len() + leaf.payload_len(),
            fill,
            per_leaf: share(leaf),
            per_internal: share(&tree.shape.internal),
            class: leaf.class(),
            hashed: leaf.is_hashed().then(|| leaf.clone()),
            layout: Layout::default(),
            count: 0,
            last: Vec::new(),
            entries: Vec::new(),
            waiting: None,
            taken: Vec::new(),
        }
    }

    /// Entries taken so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes the next entry. Returns a batch when one is complete.
    ///
    /// # Errors
    /// [`Error::KeySize`], [`Error::ValueSize`]; [`Error::Unsorted`] if the key is not above the one before;
    /// [`Error::OutOfMemory`]. After an error the load can only be abandoned.
    pub async fn push<E: Endpoint>(
        &mut self,
        op: &Op<'_, E>,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Batch>, Error> {
        if tree.has_blocks() {
            let what = "a bulk load of a tree whose values have any length: insert the entries";
            return Err(Error::Unsupported { what });
        }
        tree.check_key(key)?;
        tree.check_value(value)?;
        if self.count > 0 && key <= self.last.as_slice() {
            return Err(Error::Unsorted { at: self.count });
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
        if self.entries.len() < BATCH * self.per_leaf * self.entry_len {
            Ok(None)
        } else {
            self.cut(op).await
        }
    }

    /// Ends the entries. Returns the remaining batches.
    pub async fn finish<E: Endpoint>(&mut self, op: &Op<'_, E>) -> Result<[Option<Batch>; 2], Error> {
        let before = if self.entries.is_empty() { None } else { self.cut(op).await? };
        Ok([before, self.waiting.take()])
    }

    /// Makes a batch of the entries. It waits until the first key and place of the next batch are known.
    /// Returns the batch that waited.
    async fn cut<E: Endpoint>(&mut self, op: &Op<'_, E>) -> Result<Option<Batch>, Error> {
        let ends = self.ends(self.waiting.is_none());
        let mut places = Vec::new();
        for _ in &ends {
            places.push(self.spot(op, self.class, 0).await?);
        }
        let first = self.entries[..self.key_len].to_vec();
        let next = Some((first.clone(), places[0].address));
        let before = self.waiting.take().map(|batch| Batch { next, ..batch });
        let low = if before.is_none() { vec![0; self.key_len] } else { first };
        self.waiting =
            Some(Batch { low, entries: std::mem::take(&mut self.entries), ends, places, next: None });
        Ok(before)
    }

    /// Cuts the entries into leaves. Each takes as many as it should, or as fit. `leftmost`: the first of
    /// them is the first leaf of the tree. Returns where the entries of each leaf end.
    fn ends(&mut self, leftmost: bool) -> Vec<usize> {
        let (mut ends, mut from) = (Vec::with_capacity(BATCH), 0);
        let lowest = vec![0; self.key_len];
        while from < self.entries.len() {
            let rest = &self.entries[from..];
            let most = &rest[..rest.len().min(self.per_leaf * self.entry_len)];
            let bytes = match &self.hashed {
                Some(shape) => {
                    let low = if leftmost && from == 0 { &lowest } else { &rest[..self.key_len] };
                    let last = &most[most.len() - self.entry_len..][..self.key_len];
                    let wanted = entries_of(shape.capacity_for(low, Some(last)), self.fill) * self.entry_len;
                    self.layout.most(shape, low, &most[..most.len().min(wanted)]) * self.entry_len
                }
                None => most.len(),
            };
            from += bytes.max(self.entry_len);
            ends.push(from);
        }
        ends
    }

    async fn spot<E: Endpoint>(
        &mut self,
        op: &Op<'_, E>,
        class: ChunkClass,
        level: u8,
    ) -> Result<NodePlace, Error> {
        let place = loop {
            match op.worker.compute.alloc.allocate(op, class).await {
                Err(Error::OutOfMemory) => op.await_memory().await?,
                taken => break taken?,
            }
        };
        self.taken.push((level, place));
        Ok(place)
    }

    /// Gives all places back. For a load that failed before [`Op::complete_load`]; that function calls this
    /// itself when it fails.
    pub async fn abandon<E: Endpoint>(&mut self, op: &Op<'_, E>, tree: &TreeState) {
        for (level, place) in std::mem::take(&mut self.taken) {
            let shape = tree.shape.at(level);
            // A client with a stale pointer to this place must not wait for a node that will never be linked.
            let pending = place.used || op.worker.compute.techniques().redo;
            if !pending || op.free_pending(shape, place, level).await.is_ok() {
                op.worker.compute.alloc.give_back(shape.class(), place.address, place.version);
            }
        }
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Whether the tree has no entry at the moment.
    pub async fn is_empty(&self, tree: &TreeState) -> Result<bool, Error> {
        let mut scan = super::range::Scan::new(
            tree,
            std::ops::Bound::Unbounded,
            std::ops::Bound::Unbounded,
            super::range::Direction::Forward,
            1,
        )?;
        Ok(!self.refill(tree, &mut scan).await?)
    }

    /// Writes the leaves of a batch. Costs one round trip per sixteen leaves.
    pub async fn write_leaves(&self, tree: &TreeState, batch: &Batch) -> Result<Written, Error> {
        let shape = &tree.shape.leaf;
        let starts = std::iter::once(0).chain(batch.ends.iter().copied());
        let leaves: Vec<&[u8]> =
            starts.zip(&batch.ends).map(|(start, &end)| &batch.entries[start..end]).collect();
        let low = |at: usize| if at == 0 { &batch.low[..] } else { &leaves[at][..shape.key_len()] };
        let last = batch.next.as_ref().map(|(key, address)| (key.as_slice(), *address));
        let mut writer = Writer { op: self, shape, level: 0, written: Written::default(), lists: Vec::new() };
        for (at, (&spot, entries)) in batch.places.iter().zip(&leaves).enumerate() {
            let next = batch.places.get(at + 1).map(|next| (low(at + 1), next.address)).or(last);
            writer.write(spot, low(at), next, entries).await?;
        }
        writer.finish().await
    }

    /// Writes the levels above the leaves and makes them the tree. Returns the number of entries.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if the tree has entries by now; [`Error::Timeout`] if an empty tree of several
    /// leaves could not be merged into one leaf in time. Nothing was changed. After any error the places are
    /// given back.
    pub async fn complete_load(
        &self,
        tree: &TreeState,
        loading: &mut Loading,
        written: impl IntoIterator<Item = Written>,
    ) -> Result<u64, Error> {
        let mut all = Written::default();
        for part in written {
            all.children.extend(part.children);
            all.pending.extend(part.pending);
        }
        let outcome = self.link_load(tree, loading, all).await;
        match outcome {
            // The outcome of the swap is unknown: the places may be part of the tree.
            Err(Error::OutcomeUnknown { .. }) => loading.taken.clear(),
            Err(_) => loading.abandon(self, tree).await,
            Ok(()) => {
                for (level, spot) in std::mem::take(&mut loading.taken) {
                    self.worker.compute.alloc.linked(tree.shape.at(level).class(), spot.address);
                }
            }
        }
        outcome.map(|()| loading.count)
    }

    async fn link_load(
        &self,
        tree: &TreeState,
        loading: &mut Loading,
        mut all: Written,
    ) -> Result<(), Error> {
        if all.children.is_empty() {
            return if self.is_empty(tree).await? { Ok(()) } else { Err(Error::NotEmpty) };
        }
        let shape = &tree.shape.internal;
        let child_len = shape.key_len() + 8;
        let mut level = 0;
        while all.children.len() > child_len {
            level += 1;
            let below = std::mem::take(&mut all.children);
            let groups: Vec<&[u8]> = below.chunks(loading.per_internal * child_len).collect();
            let mut spots = Vec::with_capacity(groups.len());
            for _ in &groups {
                spots.push(loading.spot(self, shape.class(), level).await?);
            }
            let mut writer =
                Writer { op: self, shape, level, written: Written::default(), lists: Vec::new() };
            for (at, (&spot, entries)) in spots.iter().zip(&groups).enumerate() {
                let next = groups.get(at + 1).map(|next| (&next[..shape.key_len()], spots[at + 1].address));
                writer.write(spot, &entries[..shape.key_len()], next, entries).await?;
            }
            let written = writer.finish().await?;
            all.children = written.children;
            all.pending.extend(written.pending);
        }
        let address = GlobalAddress::from_bits(crate::node::get_u64(&all.children, shape.key_len()));
        let swapped = self.swap_in(tree, RootWord { address, level }).await?;
        self.link_all(all.pending, &swapped.slot).await.map_err(Error::after_post)?;
        self.settle([swapped.slot]);
        let NodePlace { address, version, .. } = swapped.leaf;
        self.worker.compute.alloc.freed(tree.shape.leaf.class(), address, version, swapped.claim);
        Ok(())
    }

    /// Makes `new` the root in place of the single empty leaf of the tree. Merges the leaves into one first,
    /// if there are several.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if it saw a leaf with entries under its lane. It never removes an entry.
    async fn swap_in(&self, tree: &TreeState, new: RootWord) -> Result<Swapped, Error> {
        tree.forget_everything();
        loop {
            let old = self.root(tree).await?;
            if old.level == 0 {
                // Taken before the lane: a load keeps its slot until all its nodes are linked.
                let server = old.address.server();
                let redo = self.worker.compute.techniques().redo;
                let slot = if redo { Some(self.slot_of_load(tree, server).await?) } else { None };
                match self.swap_leaf(tree, old, new, slot).await? {
                    Swap::Done(swapped) => return Ok(swapped),
                    Swap::Changed => {
                        // The tree may have been dropped, and its root word may belong to another tree by
                        // now.
                        self.ask_for_tree(tree).await?;
                        self.retry(Cause::RootMoved).await?;
                    }
                    Swap::Several => self.collapse(tree).await?,
                }
            } else {
                self.collapse(tree).await?;
            }
            tree.forget_root();
        }
    }

    /// Takes a redo slot for a load. The operations that hold the slots may be dropping this very tree and
    /// waiting for the nodes of this load. So the load checks whether the tree is still there.
    async fn slot_of_load(&self, tree: &TreeState, server: u16) -> Result<RedoSlot, Error> {
        self.worker.activate().await?;
        loop {
            if let Some(slot) = self.worker.compute.redo.try_take_long(server) {
                return Ok(slot);
            }
            self.wait_for_slot(tree).await?;
        }
    }

    /// Pauses before the next try to take a redo slot, if the tree is still there.
    async fn wait_for_slot(&self, tree: &TreeState) -> Result<(), Error> {
        seam!(tree::wait_for_slot(self).await);
        self.ask_for_tree(tree).await?;
        self.retry(Cause::RedoSlots).await
    }

    /// Makes `new` the root in place of the leaf `old`, if `old` is the root and has no entry and no right
    /// neighbour.
    async fn swap_leaf(
        &self,
        tree: &TreeState,
        old: RootWord,
        new: RootWord,
        slot: Option<RedoSlot>,
    ) -> Result<Swap, Error> {
        let shape = &tree.shape.leaf;
        let locked = match self.lock_several(&[(old.address, shape.node_bytes())]).await {
            Ok(locked) => locked,
            Err(error) => {
                self.settle([slot]);
                return Err(error);
            }
        };
        let draft = match Node::open(shape, locked.image(0), 0) {
            Ok(leaf) if !leaf.is_empty() => Err(Err(Error::NotEmpty)),
            Ok(leaf) if !leaf.header.flags.high_open => Err(Ok(Swap::Several)),
            Ok(leaf) => Ok(Draft::of(shape, &leaf, Vec::new())),
            Err(_) => Err(Ok(Swap::Changed)),
        };
        // If the leaf is the root under its lane, it stays the root until this operation changes that. The
        // record depends on it.
        tree.forget_root();
        let draft = match (draft, self.root(tree).await) {
            (draft, Ok(root)) if root == old => draft,
            (_, Ok(_)) => Err(Ok(Swap::Changed)),
            (_, Err(error)) => Err(Err(error)),
        };
        let mut draft = match draft {
            Ok(draft) => draft,
            Err(outcome) => {
                self.settle([slot]);
                self.release_several(locked.done(self)).await?;
                return outcome;
            }
        };
        let free = draft.free(self.endpoint().client());
        let about = self.about(RecordKind::Load, tree, old.address, &draft);
        let record = Record { root: (old.to_bits(), new.to_bits()), ..about };
        let claim = self.worker.compute.alloc.claim(shape.class(), old.address);
        let (swapped, slot) =
            self.replace_root(tree, locked.done(self), slot, &draft, &free, &record).await?;
        if swapped {
            let leaf = NodePlace {
                address: old.address,
                version: draft.header().version,
                owner: self.endpoint().client(),
                used: true,
            };
            return Ok(Swap::Done(Swapped { slot, leaf, claim }));
        }
        self.settle([slot]);
        Ok(Swap::Changed)
    }

    /// Merges the leaves of an empty tree into one. Merges are best effort, so an empty tree may still have
    /// many leaves.
    async fn collapse(&self, tree: &TreeState) -> Result<(), Error> {
        seam!(tree::collapse(self, tree).await);
        let mut next = Some(vec![0; tree.shape.leaf.key_len()]);
        while let Some(key) = next.take() {
            next = self.worker.op().collapse_leaf(tree, &key).await?;
        }
        tree.forget_root();
        if self.root(tree).await?.level == 0 { Ok(()) } else { self.retry(Cause::Merge).await }
    }

    /// Merges the leaf that covers `key` with a neighbour. Returns where the leaf ended; [`Error::NotEmpty`]
    /// if it has entries.
    async fn collapse_leaf(&self, tree: &TreeState, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Covering { locked, header, missed } = self.lock_leaf(tree, key).await?;
        let leaf = Node::reopen(&tree.shape.leaf, locked.image(), header);
        let (empty, high) = (leaf.is_empty(), leaf.high());
        self.release(locked.done(self)).await?;
        if !empty {
            return Err(Error::NotEmpty);
        }
        self.end_merge_backoff(tree);
        self.repair_missed(tree, missed).await;
        self.tidy(tree, 0, key).await;
        Ok(high)
    }

    /// Marks the node at a place as free, if it was written there but not linked.
    async fn free_pending(&self, shape: &Shape, place: NodePlace, level: u8) -> Result<(), FabricError> {
        let mut list = self.endpoint().list(place.address.server());
        let read = list.read(Space::Host, place.address.offset(), shape.node_bytes() as u32);
        let list = self.execute(list).await?;
        let node = Node::open_marked(shape, list.bytes(read), level).ok();
        let ours = node.filter(|node| node.header.flags.pending && node.header.version == place.version);
        let draft = ours.map(|node| Draft::of(shape, &node, self.worker.buffer()));
        self.endpoint().recycle(list);
        if let Some(mut draft) = draft {
            let free = draft.free(self.endpoint().client());
            let mut list = self.endpoint().list(place.address.server());
            super::write::push_patch(&mut list, place.address, draft.image(), &free);
            self.endpoint().recycle(self.execute(list).await?);
            self.worker.keep_buffer(draft.into_image());
        }
        Ok(())
    }

    /// Clears the pending marks, then the record that tells of them. The root is linked last, in a list of
    /// its own. A drop waits for it, so a dropped tree has no pending nodes of a load.
    async fn link_all(
        &self,
        mut pending: Vec<(GlobalAddress, Vec<u8>)>,
        slot: &Option<RedoSlot>,
    ) -> Result<(), FabricError> {
        let mut lists = Vec::new();
        let root = pending.pop();
        for (address, image) in pending {
            push_linked(self, &mut lists, address, &image);
            flush_full(self, &mut lists).await?;
        }
        flush(self, std::mem::take(&mut lists)).await?;
        if let Some((address, image)) = root {
            push_linked(self, &mut lists, address, &image);
            flush(self, std::mem::take(&mut lists)).await?;
        }
        if let Some(slot) = slot {
            let mut list = self.endpoint().list(slot.server());
            slot.clear(&mut list);
            self.endpoint().recycle(self.execute(list).await?);
        }
        Ok(())
    }
}

/// The result of an attempt to replace the root leaf.
enum Swap {
    /// The leaf was replaced.
    Done(Swapped),
    /// Another node is the root by now.
    Changed,
    /// The leaf has a right neighbour.
    Several,
}

/// The place of the replaced root leaf, and the slot of the record of the swap.
struct Swapped {
    slot: Option<RedoSlot>,
    leaf: NodePlace,
    claim: Claim,
}

/// Adds the WRITEs that link a node: its lines of entries, if `image` has them, then its header line.
fn push_linked<E: Endpoint>(op: &Op<'_, E>, lists: &mut Vec<WorkList>, address: GlobalAddress, image: &[u8]) {
    let (header, body) = image.split_at(LINE.min(image.len()));
    if !body.is_empty() {
        let at = GlobalAddress::new(address.server(), address.offset() + LINE as u64);
        push_write(op, lists, at, body);
    }
    push_write(op, lists, address, header);
}

/// Adds a WRITE to the list for its server.
fn push_write<E: Endpoint>(op: &Op<'_, E>, lists: &mut Vec<WorkList>, address: GlobalAddress, data: &[u8]) {
    let known = lists.iter().position(|list| list.server() == address.server());
    let at = known.unwrap_or_else(|| {
        lists.push(op.endpoint().list(address.server()));
        lists.len() - 1
    });
    lists[at].write(Space::Host, address.offset(), data);
}

/// Executes the lists if one of them is full.
async fn flush_full<E: Endpoint>(op: &Op<'_, E>, lists: &mut Vec<WorkList>) -> Result<(), FabricError> {
    if lists.iter().any(|list| list.len() >= WRITES_PER_LIST) {
        flush(op, std::mem::take(lists)).await
    } else {
        Ok(())
    }
}

async fn flush<E: Endpoint>(op: &Op<'_, E>, lists: Vec<WorkList>) -> Result<(), FabricError> {
    op.execute_all(lists).await?.into_iter().for_each(|list| op.endpoint().recycle(list));
    Ok(())
}

/// Writes nodes of one level from left to right.
struct Writer<'o, 'w, E: Endpoint> {
    op: &'o Op<'w, E>,
    shape: &'o Shape,
    level: u8,
    written: Written,
    lists: Vec<WorkList>,
}

impl<E: Endpoint> Writer<'_, '_, E> {
    /// Writes one node. `next` holds its right neighbour's low fence and address.
    async fn write(
        &mut self,
        place: NodePlace,
        low: &[u8],
        next: Option<(&[u8], GlobalAddress)>,
        entries: &[u8],
    ) -> Result<(), FabricError> {
        let pending = place.used || self.op.worker.compute.techniques().redo;
        let (high, sibling) = next.map_or((None, GlobalAddress::NULL), |(key, address)| (Some(key), address));
        let mut node = Draft::filled(self.shape, self.level, low, high, sibling, place, entries, pending);
        push_write(self.op, &mut self.lists, place.address, node.image());
        if pending {
            let bytes = node.link().bytes();
            self.written.pending.push((place.address, node.image()[..bytes].to_vec()));
        }
        self.written.children.extend_from_slice(low);
        self.written.children.extend_from_slice(&place.address.to_bits().to_le_bytes());
        flush_full(self.op, &mut self.lists).await
    }

    async fn finish(self) -> Result<Written, Error> {
        flush(self.op, self.lists).await?;
        Ok(self.written)
    }
}
