//! Computes the nodes that a bulk load leaves in memory, one at a time, without the load.
//!
//! A simulator of a billion keys cannot write all their leaves. But a load is a function of the sorted
//! entries. The number of a node determines its entries, its fences and the location of its neighbours.
//! [`LoadImage`] takes the chunks that the load would take, and then makes any node on demand.

use super::TreeState;
use super::bulk::entries_of;
use crate::alloc::FIRST_VERSION;
use crate::error::Error;
use crate::node::draft::NodePlace;
use crate::node::hashed::Layout;
use crate::node::{Draft, Shape, TreeShape};
use crate::op::Op;
use crate::root::RootWord;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ComputeId, Endpoint, GlobalAddress, Peer, Space, calls};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Hashed leaves are cut in groups of this many. A group has a fixed number of entries; its leaves take what
/// fits.
const GROUP: u64 = 128;

/// How many leaves of a load are looked at to find out how many entries they can hold.
const LOOKS: u64 = 16;

/// The entries of a load, by their position in key order.
pub trait Entries {
    /// The number of entries, at least one.
    fn count(&self) -> u64;

    /// Writes the key of entry `nth`.
    fn write_key(&self, nth: u64, key: &mut [u8]);

    /// Writes the value of entry `nth`.
    fn write_value(&self, nth: u64, value: &mut [u8]);
}

/// How many entries a group of leaves with this capacity can hold, divided by its leaves. A hashed leaf is
/// full before all its slots are, at 96 % on average.
fn most_on_average(leaf: &Shape, capacity: usize) -> usize {
    if leaf.is_hashed() { capacity * 19 / 20 } else { capacity }
}

/// How many entries a leaf of this load can hold. Looks at a few leaves: in a load all are mostly alike.
fn capacity_of_leaves(leaf: &Shape, entries: &dyn Entries) -> usize {
    let most = leaf.capacity() as u64;
    let last = entries.count().saturating_sub(most);
    let capacity_at = |first: u64| {
        let [mut low, mut high] = [(); 2].map(|()| vec![0; leaf.key_len()]);
        entries.write_key(first, &mut low);
        entries.write_key((first + most).min(entries.count()) - 1, &mut high);
        leaf.capacity_for(&low, Some(&high))
    };
    (0..=LOOKS).map(|look| capacity_at(last / LOOKS * look)).min().unwrap_or(1)
}

/// How many children a load that fills nodes to `fill` gives to an internal node of this shape.
pub fn children_of(internal: &Shape, fill: f64) -> usize {
    entries_of(internal.capacity(), fill)
}

/// One level of the tree.
#[derive(Debug)]
struct Level {
    nodes: u64,
    per_chunk: u64,
    /// Server and offset of each chunk.
    chunks: Vec<(u16, u64)>,
}

/// The nodes of a tree that was loaded in bulk.
#[derive(Debug)]
pub struct LoadImage {
    shape: TreeShape,
    owner: ComputeId,
    count: u64,
    per_leaf: u64,
    per_internal: u64,
    levels: Vec<Level>,
    chunk_bytes: u64,
    chunks_offset: u64,
    /// Level and number of the chunk at each server and offset.
    at: BTreeMap<(u16, u64), (u8, u64)>,
    /// Number of spans taken from chunks that are not yet taken whole, by class, server and chunk number.
    taken: BTreeMap<(ChunkClass, u16, u32), u64>,
    /// Where the hashed leaves of each group begin that was asked for, counted from the group's first entry.
    starts: Mutex<HashMap<u64, Arc<[u16]>>>,
}

impl LoadImage {
    /// Takes the chunks for `entries`, in nodes that are filled to `fill`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and others. Chunks that were taken stay taken.
    pub async fn plan<E: Endpoint>(
        op: &Op<'_, E>,
        tree: &TreeState,
        entries: &dyn Entries,
        fill: f64,
    ) -> Result<Self, Error> {
        let geometry = op.worker.compute.geometry();
        let (count, leaf) = (entries.count(), &tree.shape.leaf);
        let capacity = capacity_of_leaves(leaf, entries);
        let mut image = Self {
            shape: tree.shape.clone(),
            owner: op.endpoint().client(),
            count,
            per_leaf: entries_of(capacity, fill).min(most_on_average(leaf, capacity)) as u64,
            per_internal: children_of(&tree.shape.internal, fill) as u64,
            levels: Vec::new(),
            chunk_bytes: geometry.chunk_bytes,
            chunks_offset: geometry.chunks_offset,
            at: BTreeMap::new(),
            taken: BTreeMap::new(),
            starts: Mutex::default(),
        };
        let mut nodes = count.max(1).div_ceil(image.per_leaf);
        loop {
            image.take_chunks(op, nodes).await?;
            if nodes == 1 {
                return Ok(image);
            }
            nodes = nodes.div_ceil(image.per_internal);
        }
    }

    /// Takes the chunks of one more level.
    async fn take_chunks<E: Endpoint>(&mut self, op: &Op<'_, E>, nodes: u64) -> Result<(), Error> {
        let number = self.levels.len() as u8;
        let shape = self.shape.at(number).clone();
        let per_chunk = self.chunk_bytes / shape.node_bytes() as u64;
        let mut level = Level { nodes, per_chunk, chunks: Vec::new() };
        for nth in 0..nodes.div_ceil(per_chunk) {
            // Levels begin at different servers, as in the allocator.
            let server = ((nth + u64::from(number)) % u64::from(op.endpoint().servers())) as u16;
            let offset = self.take_chunk(op, server, shape.class()).await?;
            self.at.insert((server, offset), (number, nth));
            level.chunks.push((server, offset));
        }
        self.levels.push(level);
        Ok(())
    }

    /// Takes all spans of a chunk. Returns the offset where it begins.
    async fn take_chunk<E: Endpoint>(
        &mut self,
        op: &Op<'_, E>,
        server: u16,
        class: ChunkClass,
    ) -> Result<u64, Error> {
        let geometry = *op.worker.compute.geometry_of(server);
        let whole = geometry.spans_in_chunk(class.node_bytes);
        loop {
            let count = whole.min(512) as u16;
            for span in op.call(Peer::Volume(server), calls::AllocSpans { class, count }).await? {
                let chunk = geometry.chunk_at(span.offset).unwrap_or(0);
                *self.taken.entry((class, server, chunk)).or_default() += 1;
            }
            // A chunk never becomes whole if other clients own spans of it.
            let mut of_class = self.taken.range((class, server, 0)..=(class, server, u32::MAX));
            if let Some((&name, _)) = of_class.find(|(_, taken)| **taken == whole) {
                self.taken.remove(&name);
                return Ok(geometry.chunk_offset(name.2));
            }
        }
    }

    /// Returns the server, offset and node size in bytes of every chunk.
    pub fn chunks(&self) -> Vec<(u16, u64, u32)> {
        let level = |(number, level): (u8, &Level)| {
            let bytes = self.shape.at(number).node_bytes() as u32;
            level.chunks.iter().map(|&(server, offset)| (server, offset, bytes)).collect::<Vec<_>>()
        };
        (0..).zip(&self.levels).flat_map(level).collect()
    }

    /// Returns the entries per leaf and the children per internal node.
    pub fn per_node(&self) -> (u64, u64) {
        (self.per_leaf, self.per_internal)
    }

    /// Returns the number of nodes of each level, leaves first.
    pub fn nodes(&self) -> Vec<u64> {
        self.levels.iter().map(|level| level.nodes).collect()
    }

    fn address(&self, level: u8, index: u64) -> GlobalAddress {
        let Level { per_chunk, chunks, .. } = &self.levels[usize::from(level)];
        let (server, offset) = chunks[(index / per_chunk) as usize];
        GlobalAddress::new(server, offset + index % per_chunk * self.shape.at(level).node_bytes() as u64)
    }

    /// Makes the image the tree: from now on the root word leads to it.
    ///
    /// Call this only if no client uses the tree yet and the image is in memory.
    pub async fn install<E: Endpoint>(&self, op: &Op<'_, E>, tree: &TreeState) -> Result<(), Error> {
        let level = self.levels.len() as u8 - 1;
        let root = RootWord { address: self.address(level, 0), level };
        let mut list = op.endpoint().list(tree.info.root_word.server());
        list.write(Space::Host, tree.info.root_word.offset(), &root.to_bits().to_le_bytes());
        op.endpoint().recycle(op.execute(list).await?);
        tree.forget_everything();
        Ok(())
    }

    /// Returns the low fence of node `index` of `level`: the key of the first entry below it, or the lowest
    /// key for node 0. Returns `None` beyond the last node.
    fn low(&self, entries: &dyn Entries, level: u8, index: u64) -> Option<Vec<u8>> {
        let leaf = &self.shape.leaf;
        let mut key = vec![0; leaf.key_len()];
        if index == 0 {
            return Some(key);
        }
        let leaf = (0..level).fold(index, |index, _| index * self.per_internal);
        (index < self.levels[usize::from(level)].nodes).then(|| {
            entries.write_key(self.start(entries, leaf), &mut key);
            key
        })
    }

    /// Returns the first entry of a leaf.
    fn start(&self, entries: &dyn Entries, leaf: u64) -> u64 {
        if !self.shape.leaf.is_hashed() || leaf >= self.levels[0].nodes {
            return (leaf * self.per_leaf).min(self.count);
        }
        let group = leaf / GROUP;
        let known = self.starts.lock().unwrap_or_else(PoisonError::into_inner).get(&group).cloned();
        let starts = known.unwrap_or_else(|| {
            let starts: Arc<[u16]> = self.cut_group(entries, group).into();
            let mut all = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(group).or_insert(starts))
        });
        group * GROUP * self.per_leaf + u64::from(starts[(leaf % GROUP) as usize])
    }

    /// Cuts the entries of a group into hashed leaves. Each takes the usual number or what fits. If the last
    /// leaf cannot hold the rest, all others take more.
    fn cut_group(&self, entries: &dyn Entries, group: u64) -> Vec<u16> {
        let shape = &self.shape.leaf;
        let first = group * GROUP * self.per_leaf;
        let count = (GROUP * self.per_leaf).min(self.count - first) as usize;
        let leaves = count.div_ceil(self.per_leaf as usize);
        let mut keys = vec![0; count * shape.key_len()];
        for (nth, key) in (first..).zip(keys.chunks_exact_mut(shape.key_len())) {
            entries.write_key(nth, key);
        }
        let mut layout = Layout::default();
        let lowest = vec![0; shape.key_len()];
        let mut fits = |from: usize, end: usize| {
            let keys = &keys[from * shape.key_len()..end * shape.key_len()];
            let low = if first == 0 && from == 0 { &lowest } else { &keys[..shape.key_len()] };
            layout.keys_fit(shape, low, keys)
        };
        for more in 0..=shape.capacity() - self.per_leaf as usize {
            let (mut starts, mut from) = (vec![0], 0);
            for leaf in 1..leaves {
                let wanted = if more == 0 {
                    leaf * self.per_leaf as usize
                } else {
                    from + self.per_leaf as usize + more
                };
                // Each of the leaves that follow needs an entry.
                let mut end = wanted.min(count - (leaves - leaf));
                while end > from + 1 && !fits(from, end) {
                    end -= 1;
                }
                from = end;
                starts.push(from as u16);
            }
            if fits(from, count) {
                return starts;
            }
        }
        // The hash spreads keys, so this needs keys chosen against it. An experiment has none.
        panic!("the entries of a group of leaves cannot be laid out");
    }

    /// Returns the node at `offset` of `server`; `None` where the load left none.
    pub fn node(&self, entries: &dyn Entries, server: u16, offset: u64) -> Option<Vec<u8>> {
        let within = offset.checked_sub(self.chunks_offset)? % self.chunk_bytes;
        let &(level, chunk) = self.at.get(&(server, offset - within))?;
        let shape = self.shape.at(level);
        let index = chunk * self.levels[usize::from(level)].per_chunk + within / shape.node_bytes() as u64;
        let low = self.low(entries, level, index)?;
        let high = self.low(entries, level, index + 1);
        let sibling = if high.is_some() { self.address(level, index + 1) } else { GlobalAddress::NULL };
        let place = NodePlace {
            address: self.address(level, index),
            version: FIRST_VERSION,
            owner: self.owner,
            used: false,
        };
        let body = if level == 0 {
            self.leaf_body(entries, index)
        } else {
            self.internal_body(entries, level, index)
        };
        Some(Draft::filled(shape, level, &low, high.as_deref(), sibling, place, &body, false).into_image())
    }

    fn leaf_body(&self, entries: &dyn Entries, index: u64) -> Vec<u8> {
        let shape: &Shape = &self.shape.leaf;
        let first = self.start(entries, index);
        let count = self.start(entries, index + 1) - first;
        let each = shape.key_len() + shape.payload_len();
        let mut body = vec![0; count as usize * each];
        for (nth, entry) in (first..).zip(body.chunks_exact_mut(each)) {
            let (key, value) = entry.split_at_mut(shape.key_len());
            entries.write_key(nth, key);
            entries.write_value(nth, value);
        }
        body
    }

    fn internal_body(&self, entries: &dyn Entries, level: u8, index: u64) -> Vec<u8> {
        let below = level - 1;
        let first = index * self.per_internal;
        let last = (first + self.per_internal).min(self.levels[usize::from(below)].nodes);
        let mut body = Vec::with_capacity((last - first) as usize * (self.shape.internal.key_len() + 8));
        for child in first..last {
            body.extend(self.low(entries, below, child).unwrap_or_default());
            body.extend_from_slice(&self.address(below, child).to_bits().to_le_bytes());
        }
        body
    }
}
