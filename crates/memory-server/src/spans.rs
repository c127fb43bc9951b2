//! The span table: two words per span, one of the server's and one of the clients'.
//!
//! A chunk of nodes is divided into spans of a few places (at most 64). A client owns spans while it makes nodes in them, and
//! gives them back when it has no use for them. So a client that makes one node takes a few places from the others, not a chunk; what it does
//! not use goes to the next client; and what a dead client may have left unfinished lies in the few spans that it owned.
//!
//! - The **server's word** says who owns the span. It commits by one store.
//! - The **hint** is a word that clients write: not 0 if the span may have free places. A client that frees a node marks it free and then,
//!   in the same list, sets the hint of its span, whoever owns that. The server clears the hint when it gives the span to a client, *before* the client looks for
//!   free places there: a node that is freed later sets it again. So every span of nobody that has a free place has its hint set. A hint without
//!   a free place costs one look.
//!
//! Where the free places of a span are, the nodes themselves say (`docs/LAYOUT.md`): the server never looks.

use crate::bytes::{get_u64, load_host, zero};
use crate::chunks::{ChunkEntry, ChunkTable};
use crate::geometry::{Geometry, SPAN_ENTRY_BYTES};
use crate::server::OpenError;
use sherman_fabric::control::{ChunkClass, MOST_LISTED, Span};
use sherman_fabric::{ClientId, Memory, Refusal, Space};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const OWNER_MASK: u64 = 0xffff;
const ISSUED: u64 = 1 << 16;
/// What a hint says if the span may have free places. Any value but 0 does.
pub const HINT_FREE: u64 = 1;
/// The most spans that one request gives.
pub const MOST_SPANS: u16 = 512;
/// Hints that one request looks at while there is memory never used.
const MOST_LOOKS: usize = 4096;

/// The server's word of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanWord {
    /// Whether a client ever owned it.
    pub issued: bool,
    /// Its owner, or nobody.
    pub owner: ClientId,
}

impl SpanWord {
    /// The word: bits 0–15 the owner, bit 16 whether it was ever issued.
    pub const fn to_bits(self) -> u64 {
        self.owner.0 as u64 | if self.issued { ISSUED } else { 0 }
    }

    /// What is stored as `bits`, if they make sense.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let word = Self { issued: bits & ISSUED != 0, owner: ClientId((bits & OWNER_MASK) as u16) };
        let known = bits & !(OWNER_MASK | ISSUED) == 0 && (word.issued || word.owner.0 == 0);
        if known { Some(word) } else { None }
    }
}

/// A span: its chunk, and its number there.
type Name = (u32, u64);

/// The spans of a class that nobody owns.
#[derive(Clone, Debug, Default)]
struct Unowned {
    /// Issued before.
    used: BTreeSet<Name>,
    /// Never issued, in order.
    fresh: VecDeque<Name>,
    /// Where to look for a hint next. Not kept across restarts, and of no consequence.
    cursor: Name,
}

impl PartialEq for Unowned {
    fn eq(&self, other: &Self) -> bool {
        (&self.used, &self.fresh) == (&other.used, &other.fresh)
    }
}

impl Eq for Unowned {}

/// The table and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanTable {
    unowned: BTreeMap<ChunkClass, Unowned>,
    owned: BTreeMap<ClientId, BTreeSet<Name>>,
}

impl SpanTable {
    /// The table in memory.
    pub(crate) fn load<M: Memory + ?Sized>(
        memory: &M,
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
                let word = SpanWord::from_bits(bits).ok_or(corrupt("is no span word"))?;
                if word.owner != ClientId::NOBODY && !geometry.is_client(word.owner) {
                    return Err(corrupt("has an impossible owner"));
                }
                match word {
                    SpanWord { issued: false, .. } => table.unowned_of(class).fresh.push_back((index, number)),
                    SpanWord { owner: ClientId::NOBODY, .. } => {
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

    fn set<M: Memory + ?Sized>(memory: &M, geometry: &Geometry, (index, number): Name, owner: ClientId) {
        let word = SpanWord { issued: true, owner };
        memory.store_u64(Space::Host, geometry.span_entry(index, number), word.to_bits());
    }

    /// Up to `count` spans of `class` for `owner`, at least one: first those that may have free places, then those never used, then those of a
    /// chunk never used. `spare` chunks never used are left alone.
    pub(crate) fn alloc<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        chunks: &mut ChunkTable,
        (owner, class): (ClientId, ChunkClass),
        count: u16,
        spare: u64,
    ) -> Result<Vec<Span>, Refusal> {
        if !geometry.allows_node_bytes(class.node_bytes) {
            return Err(Refusal::BadRequest { what: "node_bytes is not a multiple of 64 from 256 to 65536 that fits" });
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
                    // Nobody looked at these words so far, whatever they hold.
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
            // Only then: a span of nobody with a free place must have its hint.
            memory.store_u64(Space::Host, geometry.span_hint(name.0, name.1), 0);
            self.owned.entry(owner).or_default().insert(name);
            spans.push(span(geometry, class, name, fresh));
        }
        self.unowned.retain(|_, unowned| !unowned.used.is_empty() || !unowned.fresh.is_empty());
        if spans.is_empty() { Err(Refusal::OutOfMemory) } else { Ok(spans) }
    }

    /// Takes spans back from their owner: the offset of each, and whether it has free places. All or none.
    pub(crate) fn free<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        chunks: &ChunkTable,
        from: ClientId,
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

    /// Makes one span nobody's. The hint comes first: cut in between, it is still its owner's.
    fn release<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        chunks: &ChunkTable,
        owner: ClientId,
        name: Name,
        free: bool,
    ) {
        if free {
            memory.store_u64(Space::Host, geometry.span_hint(name.0, name.1), HINT_FREE);
        }
        Self::set(memory, geometry, name, ClientId::NOBODY);
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

    /// Makes all spans of `owner` nobody's, with whatever free places they have. Each by itself: cut short, it is done again.
    pub(crate) fn disown<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        chunks: &ChunkTable,
        owner: ClientId,
    ) {
        for name in self.owned.get(&owner).cloned().unwrap_or_default() {
            self.release(memory, geometry, chunks, owner, name, true);
        }
    }

    /// The spans of `owner` from the offset `from` on, in order, the first [`MOST_LISTED`].
    pub(crate) fn of(&self, geometry: &Geometry, chunks: &ChunkTable, owner: ClientId, from: u64) -> Vec<Span> {
        let first = geometry.chunk_at(from).unwrap_or(if from < geometry.chunks_offset { 0 } else { u32::MAX });
        let names = self.owned.get(&owner).into_iter().flat_map(|owned| owned.range((first, 0)..));
        let spans = names.filter_map(|&name| match chunks.get(name.0) {
            Some(ChunkEntry::Nodes { class }) => Some(span(geometry, class, name, false)),
            _ => None,
        });
        spans.filter(|span| span.offset >= from).take(MOST_LISTED).collect()
    }

    /// Whether `client` owns any span.
    pub(crate) fn owns_any(&self, client: ClientId) -> bool {
        self.owned.contains_key(&client)
    }

    /// Bytes of spans that members own, and bytes of spans of nobody that may have free places.
    pub(crate) fn usage<M: Memory + ?Sized>(&self, memory: &M, geometry: &Geometry, chunks: &ChunkTable) -> (u64, u64) {
        let bytes = |&(index, number): &Name| match chunks.get(index) {
            Some(ChunkEntry::Nodes { class }) => geometry.span_range(index, class.node_bytes, number).1,
            _ => 0,
        };
        let hinted = |&&(index, number): &&Name| memory.load_u64(Space::Host, geometry.span_hint(index, number)) != 0;
        let owned = self.owned.values().flatten().map(bytes).sum();
        let free = self.unowned.values().map(|unowned| {
            let used: u64 = unowned.used.iter().filter(hinted).map(bytes).sum();
            used + unowned.fresh.iter().map(bytes).sum::<u64>()
        });
        (owned, free.sum())
    }
}

impl Unowned {
    /// Takes a span whose hint is set, if one of the next `most` has it.
    fn take_hinted<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, most: usize) -> Option<Name> {
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
    let Some(ChunkEntry::Nodes { class }) = geometry.chunk_at(offset).and_then(|index| chunks.get(index)) else {
        return None;
    };
    let (index, number) = geometry.span_at(offset, class.node_bytes)?;
    (geometry.span_range(index, class.node_bytes, number).0 == offset).then_some((index, number))
}

#[cfg(test)]
mod tests;
