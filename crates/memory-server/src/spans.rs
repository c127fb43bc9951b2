//! The span table: two words per span, one that the server writes and one that clients write.
//!
//! A chunk of nodes is divided into spans of a few places (at most 64). A place is room for one node. A
//! client owns spans while it makes nodes in them, and gives them back when it no longer needs them. So a
//! client that makes one node takes a few places from the others, not a chunk. Unused places go to the next
//! client. Everything that a dead client may have left unfinished lies in the few spans that it owned.
//!
//! - The **server's word** names the owner of the span. It commits by one store.
//! - The **hint** is a word that clients write: not 0 if the span may have free places. A client that frees a
//!   node marks it free. Then, in the same list, it sets the hint of the node's span, whether or not the span
//!   has an owner. The server clears the hint when it gives the span to a client, *before* the client looks
//!   for free places there. A client that frees a node later sets it again. So every unowned span that has a
//!   free place has its hint set. A hint without a free place costs one look.
//!
//! The nodes themselves record where the free places of a span are (`docs/LAYOUT.md`): the server never
//! looks.

use crate::bytes::{load_host, zero};
use crate::chunks::ChunkTable;
use crate::server::OpenError;
use sherman_fabric::control::{ChunkClass, MOST_LISTED, Span};
use sherman_fabric::{ComputeId, Memory, Refusal, Space};
use sherman_layout::bytes::get_u64;
use sherman_layout::geometry::{Geometry, SPAN_ENTRY_BYTES};
use sherman_layout::{ChunkEntry, HINT_FREE, SpanWord};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most spans that one request returns.
pub const MOST_SPANS: u16 = 512;
/// The most hints that one allocation of a span checks while unused memory remains.
const MOST_LOOKS: usize = 4096;

/// A span: its chunk, and its number there.
type Name = (u32, u64);

/// The spans of a class that no client owns.
#[derive(Clone, Debug, Default)]
struct Unowned {
    /// Issued before.
    used: BTreeSet<Name>,
    /// Never issued, in order.
    fresh: VecDeque<Name>,
    /// Where the search for a hint continues. Not kept across restarts; any value is correct.
    cursor: Name,
}

impl PartialEq for Unowned {
    fn eq(&self, other: &Self) -> bool {
        (&self.used, &self.fresh) == (&other.used, &other.fresh)
    }
}

impl Eq for Unowned {}

/// The table and the data derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanTable {
    unowned: BTreeMap<ChunkClass, Unowned>,
    owned: BTreeMap<ComputeId, BTreeSet<Name>>,
}

impl SpanTable {
    /// Loads the table from memory.
    pub(crate) fn load(
        memory: &dyn Memory,
        geometry: &Geometry,
        chunks: &ChunkTable,
    ) -> Result<Self, OpenError> {
        let mut table = Self { unowned: BTreeMap::new(), owned: BTreeMap::new() };
        let per_chunk = geometry.spans_per_chunk();
        for (index, class) in chunks.node_chunks() {
            let bytes = load_host(memory, geometry.span_entry(index, 0), per_chunk * SPAN_ENTRY_BYTES);
            for number in 0..geometry.spans_in_chunk(class.node_bytes) {
                let entry = u64::from(index) * per_chunk + number;
                let corrupt = |what| OpenError::Corrupt { table: "span table", entry, what };
                let bits = get_u64(&bytes, (number * SPAN_ENTRY_BYTES) as usize);
                let word = SpanWord::from_bits(bits).ok_or(corrupt("is not a valid span word"))?;
                if word.owner != ComputeId::NOBODY && !geometry.is_client(word.owner) {
                    return Err(corrupt("has an impossible owner"));
                }
                match word {
                    SpanWord { issued: false, .. } => {
                        table.unowned_of(class).fresh.push_back((index, number))
                    }
                    SpanWord { owner: ComputeId::NOBODY, .. } => {
                        table.unowned_of(class).used.insert((index, number));
                    }
                    SpanWord { owner, .. } => {
                        table.owned.entry(owner).or_default().insert((index, number));
                    }
                }
            }
        }
        Ok(table)
    }

    fn unowned_of(&mut self, class: ChunkClass) -> &mut Unowned {
        self.unowned.entry(class).or_default()
    }

    fn set(memory: &dyn Memory, geometry: &Geometry, (index, number): Name, owner: ComputeId) {
        let word = SpanWord { issued: true, owner };
        memory.store_u64(Space::Host, geometry.span_entry(index, number), word.to_bits());
    }

    /// Gives `owner` up to `count` spans of `class`, at least one. First come spans that may have free
    /// places, then unused spans, then spans of an unused chunk. It leaves `spare` unused chunks alone.
    pub(crate) fn alloc(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        chunks: &mut ChunkTable,
        (owner, class): (ComputeId, ChunkClass),
        count: u16,
        spare: u64,
    ) -> Result<Vec<Span>, Refusal> {
        if !geometry.allows_class(class) {
            return Err(Refusal::BadRequest {
                what: "node_bytes is not a multiple of 64 from 256 to 65536 (blocks: 2 MiB) that fits",
            });
        }
        let mut spans = Vec::new();
        for _ in 0..count.clamp(1, MOST_SPANS) {
            let fresh_left = self.unowned.get(&class).is_some_and(|unowned| !unowned.fresh.is_empty());
            let most = if fresh_left || chunks.unused() > spare { MOST_LOOKS } else { usize::MAX };
            let found = self.unowned.get_mut(&class).and_then(|unowned| {
                let hinted = unowned.take_hinted(memory, geometry, most).map(|name| (name, false));
                hinted.or_else(|| unowned.fresh.pop_front().map(|name| (name, true)))
            });
            let (name, fresh) = match found {
                Some(found) => found,
                None if chunks.unused() > spare => {
                    // The words of an unused chunk may hold anything, since nothing has read them so far.
                    let words = geometry.spans_per_chunk() * SPAN_ENTRY_BYTES;
                    zero(memory, Space::Host, geometry.span_entry(chunks.used() as u32, 0), words);
                    let index = chunks.take(memory, geometry, ChunkEntry::Nodes { class })?;
                    let spans = (0..geometry.spans_in_chunk(class.node_bytes)).map(|number| (index, number));
                    let unowned = self.unowned_of(class);
                    unowned.fresh.extend(spans);
                    let Some(name) = unowned.fresh.pop_front() else { break };
                    (name, true)
                }
                None => break,
            };
            Self::set(memory, geometry, name, owner);
            // Only after that store: an unowned span with a free place must have its hint.
            memory.store_u64(Space::Host, geometry.span_hint(name.0, name.1), 0);
            self.owned.entry(owner).or_default().insert(name);
            spans.push(span(geometry, class, name, fresh));
        }
        self.unowned.retain(|_, unowned| !unowned.used.is_empty() || !unowned.fresh.is_empty());
        if spans.is_empty() { Err(Refusal::OutOfMemory) } else { Ok(spans) }
    }

    /// Takes spans back from their owner: the offset of each, and whether it has free places. Takes all or
    /// none.
    pub(crate) fn free(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        chunks: &ChunkTable,
        from: ComputeId,
        spans: &[(u64, bool)],
    ) -> Result<(), Refusal> {
        let mut names = BTreeMap::new();
        for &(offset, free) in spans {
            let name = name_at(geometry, chunks, offset)
                .ok_or(Refusal::BadRequest { what: "no span begins at this offset" })?;
            if !self.owned.get(&from).is_some_and(|owned| owned.contains(&name)) {
                return Err(Refusal::BadRequest { what: "the client does not own this span" });
            }
            *names.entry(name).or_insert(false) |= free;
        }
        for (name, free) in names {
            self.release(memory, geometry, chunks, from, name, free);
        }
        Ok(())
    }

    /// Makes one span unowned. The hint is stored first: if the server stops in between, the span still has
    /// its owner.
    fn release(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        chunks: &ChunkTable,
        owner: ComputeId,
        name: Name,
        free: bool,
    ) {
        if free {
            memory.store_u64(Space::Host, geometry.span_hint(name.0, name.1), HINT_FREE);
        }
        Self::set(memory, geometry, name, ComputeId::NOBODY);
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.remove(&name);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
        if let Some(ChunkEntry::Nodes { class }) = chunks.get(name.0) {
            self.unowned_of(class).used.insert(name);
        }
    }

    /// Makes all spans of `owner` unowned, with whatever free places they have. Each span commits by itself:
    /// if the server stops, the caller repeats the request.
    pub(crate) fn disown(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        chunks: &ChunkTable,
        owner: ComputeId,
    ) {
        for name in self.owned.get(&owner).cloned().unwrap_or_default() {
            self.release(memory, geometry, chunks, owner, name, true);
        }
    }

    /// The spans of `owner` from the offset `from` on, in order, at most [`MOST_LISTED`].
    pub(crate) fn of(
        &self,
        geometry: &Geometry,
        chunks: &ChunkTable,
        owner: ComputeId,
        from: u64,
    ) -> Vec<Span> {
        let first =
            geometry.chunk_at(from).unwrap_or(if from < geometry.chunks_offset { 0 } else { u32::MAX });
        let names = self.owned.get(&owner).into_iter().flat_map(|owned| owned.range((first, 0)..));
        let spans = names.filter_map(|&name| match chunks.get(name.0) {
            Some(ChunkEntry::Nodes { class }) => Some(span(geometry, class, name, false)),
            _ => None,
        });
        spans.filter(|span| span.offset >= from).take(MOST_LISTED).collect()
    }

    /// Sets the hint of every unowned span that a client has owned. A hint without a free place costs one
    /// look.
    pub(crate) fn hint_all(&self, memory: &dyn Memory, geometry: &Geometry) {
        for &(index, number) in self.unowned.values().flat_map(|unowned| &unowned.used) {
            memory.store_u64(Space::Host, geometry.span_hint(index, number), HINT_FREE);
        }
    }

    /// Bytes of spans that members own, and bytes of unowned spans that may have free places.
    pub(crate) fn usage(&self, memory: &dyn Memory, geometry: &Geometry, chunks: &ChunkTable) -> (u64, u64) {
        let bytes = |&(index, number): &Name| match chunks.get(index) {
            Some(ChunkEntry::Nodes { class }) => geometry.span_range(index, class.node_bytes, number).1,
            _ => 0,
        };
        let hinted =
            |&&(index, number): &&Name| memory.load_u64(Space::Host, geometry.span_hint(index, number)) != 0;
        let owned = self.owned.values().flatten().map(bytes).sum();
        let free = self.unowned.values().map(|unowned| {
            let used: u64 = unowned.used.iter().filter(hinted).map(bytes).sum();
            used + unowned.fresh.iter().map(bytes).sum::<u64>()
        });
        (owned, free.sum())
    }
}

impl Unowned {
    /// Takes a span whose hint is set, if there is one among the next `most`.
    fn take_hinted(&mut self, memory: &dyn Memory, geometry: &Geometry, most: usize) -> Option<Name> {
        let names = self.used.range(self.cursor..).chain(self.used.range(..self.cursor));
        let mut last = self.cursor;
        let mut found = None;
        for &name in names.take(most) {
            last = name;
            if memory.load_u64(Space::Host, geometry.span_hint(name.0, name.1)) != 0 {
                found = Some(name);
                break;
            }
        }
        self.cursor = last;
        found.inspect(|name| {
            self.used.remove(name);
        })
    }
}

fn span(geometry: &Geometry, class: ChunkClass, (index, number): Name, fresh: bool) -> Span {
    let (offset, bytes) = geometry.span_range(index, class.node_bytes, number);
    Span { class, offset, bytes, fresh }
}

/// The span that begins at `offset`.
fn name_at(geometry: &Geometry, chunks: &ChunkTable, offset: u64) -> Option<Name> {
    let Some(ChunkEntry::Nodes { class }) = geometry.chunk_at(offset).and_then(|index| chunks.get(index))
    else {
        return None;
    };
    let (index, number) = geometry.span_at(offset, class.node_bytes)?;
    (geometry.span_range(index, class.node_bytes, number).0 == offset).then_some((index, number))
}

#[cfg(test)]
mod tests;
