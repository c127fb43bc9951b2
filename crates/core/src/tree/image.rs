//! What a bulk load leaves in memory, node by node, without doing it.
//!
//! A simulator of a billion keys cannot write all their leaves. A load is a function of the sorted entries, though: which of them a node
//! holds, what its fences are and where its neighbours lie follow from its number alone. [`LoadImage`] takes the chunks that the load
//! would take, and then makes any node of it on demand.

use super::bulk::entries_of;
use super::{CATALOG_SERVER, TreeState};
use crate::alloc::FIRST_VERSION;
use crate::error::Error;
use crate::node::draft::Place;
use crate::node::{Draft, Shape, TreeShape};
use crate::op::Op;
use crate::root::RootWord;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ClientId, Endpoint, GlobalAddress, Request, Response, Space};
use std::collections::BTreeMap;

/// The entries of a load, by their place in the order of keys.
pub trait Entries {
    /// How many there are; at least one.
    fn count(&self) -> u64;

    /// Writes the key of the `nth`.
    fn write_key(&self, nth: u64, key: &mut [u8]);

    /// Writes the value of the `nth`.
    fn write_value(&self, nth: u64, value: &mut [u8]);
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
    owner: ClientId,
    count: u64,
    per_leaf: u64,
    per_internal: u64,
    levels: Vec<Level>,
    chunk_bytes: u64,
    chunks_offset: u64,
    /// Level and number of the chunk at a server's offset.
    at: BTreeMap<(u16, u64), (u8, u64)>,
    /// Spans taken of chunks that are not whole, by class, server and number of the chunk.
    taken: BTreeMap<(ChunkClass, u16, u32), u64>,
}

impl LoadImage {
    /// Takes the chunks for `count` entries in nodes that are filled to `fill`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and others: chunks that were taken stay taken.
    pub async fn plan<E: Endpoint>(op: &Op<'_, E>, tree: &TreeState, count: u64, fill: f64) -> Result<Self, Error> {
        let geometry = op.worker.compute.geometry();
        let mut image = Self {
            shape: tree.shape.clone(),
            owner: op.endpoint().client(),
            count,
            per_leaf: entries_of(&tree.shape.leaf, fill) as u64,
            per_internal: entries_of(&tree.shape.internal, fill) as u64,
            levels: Vec::new(),
            chunk_bytes: geometry.chunk_bytes,
            chunks_offset: geometry.chunks_offset,
            at: BTreeMap::new(),
            taken: BTreeMap::new(),
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
            // Levels begin at different servers, as the allocator has it.
            let server = ((nth + u64::from(number)) % u64::from(op.endpoint().servers())) as u16;
            let offset = self.take_chunk(op, server, shape.class()).await?;
            self.at.insert((server, offset), (number, nth));
            level.chunks.push((server, offset));
        }
        self.levels.push(level);
        Ok(())
    }

    /// Takes all spans of a chunk: where it begins.
    async fn take_chunk<E: Endpoint>(&mut self, op: &Op<'_, E>, server: u16, class: ChunkClass) -> Result<u64, Error> {
        let geometry = *op.worker.compute.geometry_of(server);
        let whole = geometry.spans_in_chunk(class.node_bytes);
        loop {
            let count = whole.min(512) as u16;
            let spans = match op.call(server, Request::AllocSpans { class, count }).await? {
                Response::Spans(spans) => spans,
                _ => return Err(Error::Unsupported { what: "the memory server's answer to a request for memory" }),
            };
            for span in spans {
                let chunk = geometry.chunk_at(span.offset).unwrap_or(0);
                *self.taken.entry((class, server, chunk)).or_default() += 1;
            }
            // A chunk of which others have spans never becomes whole.
            let mut of_class = self.taken.range((class, server, 0)..=(class, server, u32::MAX));
            if let Some((&name, _)) = of_class.find(|(_, taken)| **taken == whole) {
                self.taken.remove(&name);
                return Ok(geometry.chunk_offset(name.2));
            }
        }
    }

    /// Every chunk: its server, its offset and the bytes of its nodes.
    pub fn chunks(&self) -> Vec<(u16, u64, u32)> {
        let level = |(number, level): (u8, &Level)| {
            let bytes = self.shape.at(number).node_bytes() as u32;
            level.chunks.iter().map(|&(server, offset)| (server, offset, bytes)).collect::<Vec<_>>()
        };
        (0..).zip(&self.levels).flat_map(level).collect()
    }

    /// Entries of a leaf, and children of an internal node.
    pub fn per_node(&self) -> (u64, u64) {
        (self.per_leaf, self.per_internal)
    }

    /// Nodes of each level, leaves first.
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
    /// Only for a world in which nobody uses the tree yet, and in which the image is in memory.
    pub async fn install<E: Endpoint>(&self, op: &Op<'_, E>, tree: &TreeState) -> Result<(), Error> {
        let level = self.levels.len() as u8 - 1;
        let root = RootWord { address: self.address(level, 0), level };
        let mut list = op.endpoint().list(CATALOG_SERVER);
        list.write(Space::Host, tree.info.root_word, &root.to_bits().to_le_bytes());
        op.endpoint().recycle(op.execute(list).await?);
        tree.forget_everything();
        Ok(())
    }

    /// The key of the first entry below node `index` of `level`: its low fence. `None` beyond the last.
    fn low(&self, entries: &dyn Entries, level: u8, index: u64) -> Option<Vec<u8>> {
        let leaf = &self.shape.leaf;
        let mut key = vec![0; leaf.key_len()];
        if index == 0 {
            return Some(key);
        }
        let leaves = (0..level).fold(index, |index, _| index * self.per_internal);
        let nth = leaves * self.per_leaf;
        (index < self.levels[usize::from(level)].nodes).then(|| {
            entries.write_key(nth, &mut key);
            key
        })
    }

    /// The node at `offset` of `server`; zeros where the load left none.
    pub fn node(&self, entries: &dyn Entries, server: u16, offset: u64) -> Option<Vec<u8>> {
        let within = offset.checked_sub(self.chunks_offset)? % self.chunk_bytes;
        let &(level, chunk) = self.at.get(&(server, offset - within))?;
        let shape = self.shape.at(level);
        let index = chunk * self.levels[usize::from(level)].per_chunk + within / shape.node_bytes() as u64;
        let low = self.low(entries, level, index)?;
        let high = self.low(entries, level, index + 1);
        let sibling = if high.is_some() { self.address(level, index + 1) } else { GlobalAddress::NULL };
        let place = Place { address: self.address(level, index), version: FIRST_VERSION, owner: self.owner };
        let body = if level == 0 { self.leaf_body(entries, index) } else { self.internal_body(entries, level, index) };
        Some(Draft::filled(shape, level, &low, high.as_deref(), sibling, place, &body, false).into_image())
    }

    fn leaf_body(&self, entries: &dyn Entries, index: u64) -> Vec<u8> {
        let shape: &Shape = &self.shape.leaf;
        let first = index * self.per_leaf;
        let count = self.per_leaf.min(self.count - first);
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
