//! The model's view of memory: the owner of each span, the spans that may have free places, and the permanent
//! class of each chunk.

use crate::MemoryServer;
use fastrand::Rng;
use sherman_fabric::control::{ChunkClass, Span};
use sherman_fabric::{ComputeId, Memory, Refusal, Space};
use sherman_layout::Geometry;
use sherman_layout::testing::VecMemory;
use std::collections::{BTreeMap, BTreeSet};

const CHUNK: u64 = 4096;
const AREAS_PER_CHUNK: usize = 4;
/// Areas reserved for clients that recover others.
const AREAS_KEPT: usize = AREAS_PER_CHUNK.div_ceil(2);
/// All classes of the model have nodes of at most 1024 bytes, and so spans of this many places.
const PLACES: u64 = 4;
/// The last span of a chunk of 640-byte nodes has two places.
const NODE_BYTES: [u32; 3] = [256, 512, 640];

/// A span that was issued at least once.
#[derive(Clone, Copy, Debug)]
struct Held {
    class: ChunkClass,
    bytes: u64,
    owner: Option<u16>,
}

#[derive(Default)]
pub(super) struct Ground {
    pub(super) chunks: usize,
    chunks_offset: u64,
    class_permanent: BTreeMap<u64, ChunkClass>,
    spans: BTreeMap<u64, Held>,
    /// Spans that may have free places, owned or not.
    hints: BTreeSet<u64>,
    pub(super) areas: BTreeMap<u16, u64>,
    redo_chunks: usize,
}

/// The spans of a chunk: where each begins, and its size.
fn division(chunk: u64, class: ChunkClass) -> impl Iterator<Item = (u64, u64)> {
    let node = u64::from(class.node_bytes);
    let places = CHUNK / node;
    (0..places)
        .step_by(PLACES as usize)
        .map(move |first| (chunk + first * node, PLACES.min(places - first) * node))
}

/// Where the hint of the span at `offset` is.
pub(super) fn hint_at(geometry: &Geometry, class: ChunkClass, offset: u64) -> u64 {
    let Some((index, number)) = geometry.span_at(offset, class.node_bytes) else {
        panic!("no span at {offset}")
    };
    geometry.span_hint(index, number)
}

impl Ground {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self { chunks: geometry.chunks as usize, chunks_offset: geometry.chunks_offset, ..Self::default() }
    }

    pub(super) fn random_class(rng: &mut Rng) -> ChunkClass {
        ChunkClass { node_bytes: NODE_BYTES[rng.usize(0..NODE_BYTES.len())], format: 1 }
    }

    pub(super) fn chunks_used(&self) -> usize {
        self.class_permanent.len() + self.redo_chunks
    }

    fn untouched(&self) -> usize {
        self.chunks - self.chunks_used()
    }

    fn areas_full(&self) -> bool {
        self.areas.len() == self.redo_chunks * AREAS_PER_CHUNK
    }

    fn areas_free(&self) -> usize {
        self.redo_chunks * AREAS_PER_CHUNK - self.areas.len()
    }

    /// Chunks that nodes may still use. The last ones are reserved for redo areas, unless enough areas are
    /// free.
    fn to_be_had(&self) -> usize {
        let spare = AREAS_KEPT.saturating_sub(self.areas_free()).div_ceil(AREAS_PER_CHUNK);
        self.untouched().saturating_sub(spare)
    }

    fn fresh(&self, class: ChunkClass) -> Vec<u64> {
        let chunks = self.class_permanent.iter().filter(|(_, had)| **had == class);
        let spans = chunks.flat_map(|(&chunk, _)| division(chunk, class)).map(|(offset, _)| offset);
        spans.filter(|offset| !self.spans.contains_key(offset)).collect()
    }

    fn hinted(&self, class: ChunkClass) -> BTreeSet<u64> {
        let of_nobody = self.spans.iter().filter(|(_, held)| held.class == class && held.owner.is_none());
        of_nobody.map(|(&offset, _)| offset).filter(|offset| self.hints.contains(offset)).collect()
    }

    pub(super) fn is_out_of_memory(&self, class: ChunkClass) -> bool {
        self.hinted(class).is_empty() && self.fresh(class).is_empty() && self.to_be_had() == 0
    }

    pub(super) fn has_no_area_for(&self, client: ComputeId) -> bool {
        !self.areas.contains_key(&client.0) && self.areas_free() == 0 && self.untouched() == 0
    }

    /// Checks an allocation. Spans come in this order: spans that may have free places, unused spans, spans
    /// of unused chunks.
    pub(super) fn learn_alloc(&mut self, from: ComputeId, class: ChunkClass, count: u16, spans: &[Span]) {
        let (mut hinted, mut fresh) = (self.hinted(class), self.fresh(class));
        let per_chunk = division(0, class).count();
        let available = hinted.len() + fresh.len() + self.to_be_had() * per_chunk;
        assert_eq!(spans.len(), available.min(usize::from(count.clamp(1, 512))));
        for span in spans {
            assert_eq!(span.class, class);
            if !span.fresh {
                assert!(hinted.remove(&span.offset), "{span:?} was not available");
            } else {
                assert!(hinted.is_empty(), "{span:?} came before one that may have free places");
                if fresh.is_empty() {
                    let chunk = self.chunks_offset + self.chunks_used() as u64 * CHUNK;
                    assert_eq!(self.class_permanent.insert(chunk, class), None);
                    fresh = self.fresh(class);
                }
                assert_eq!(span.offset, fresh.remove(0));
            }
            let chunk = self.chunk_of(span.offset);
            assert!(division(chunk, class).any(|known| known == (span.offset, span.bytes)));
            let held = Held { class, bytes: span.bytes, owner: Some(from.0) };
            let was = self.spans.insert(span.offset, held);
            assert!(was.is_none_or(|was| was.owner.is_none()), "{span:?} belonged to another client");
            self.hints.remove(&span.offset);
        }
    }

    fn chunk_of(&self, offset: u64) -> u64 {
        offset - (offset - self.chunks_offset) % CHUNK
    }

    pub(super) fn refusal_to_free(&self, from: ComputeId, spans: &[(u64, bool)]) -> Option<Refusal> {
        spans.iter().find_map(|&(offset, _)| {
            let class = offset
                .checked_sub(self.chunks_offset)
                .and_then(|_| self.class_permanent.get(&self.chunk_of(offset)));
            let begins = class
                .is_some_and(|&class| division(self.chunk_of(offset), class).any(|known| known.0 == offset));
            let own = self.spans.get(&offset).is_some_and(|held| held.owner == Some(from.0));
            match (begins, own) {
                (false, _) => Some(Refusal::BadRequest { what: "no span begins at this offset" }),
                (true, false) => Some(Refusal::BadRequest { what: "the client does not own this span" }),
                (true, true) => None,
            }
        })
    }

    pub(super) fn learn_free(&mut self, spans: &[(u64, bool)]) {
        for (offset, free) in spans {
            self.spans.entry(*offset).and_modify(|held| held.owner = None);
            if *free {
                self.hints.insert(*offset);
            }
        }
    }

    /// All spans and the area of `client` become unowned. The spans may have free places.
    pub(super) fn learn_end(&mut self, client: u16) {
        self.areas.remove(&client);
        let of_client: Vec<_> = self.of(ComputeId(client)).iter().map(|span| (span.offset, true)).collect();
        self.learn_free(&of_client);
    }

    pub(super) fn of(&self, client: ComputeId) -> Vec<Span> {
        let own = self.spans.iter().filter(|(_, held)| held.owner == Some(client.0));
        own.map(|(&offset, held)| Span { class: held.class, offset, bytes: held.bytes, fresh: false })
            .collect()
    }

    pub(super) fn learn_area(&mut self, memory: &VecMemory, from: ComputeId, offset: u64, bytes: u64) {
        if let Some(&known) = self.areas.get(&from.0) {
            assert_eq!(known, offset);
        } else {
            let mut area = vec![1; bytes as usize];
            memory.load(Space::Host, offset, &mut area);
            assert!(area.iter().all(|&byte| byte == 0));
            if self.areas_full() {
                self.redo_chunks += 1;
            }
            self.areas.insert(from.0, offset);
        }
        memory.store(Space::Host, offset, &vec![0xa5; bytes as usize]);
    }

    /// Bytes of spans that members own, and bytes that may be free.
    pub(super) fn usage(&self) -> (u64, u64) {
        let bytes = |free: bool| {
            let spans = self.spans.iter().filter(move |(offset, held)| match held.owner {
                Some(_) => !free,
                None => free && self.hints.contains(offset),
            });
            spans.map(|(_, held)| held.bytes).sum::<u64>()
        };
        let chunks = self.class_permanent.iter().flat_map(|(&chunk, &class)| division(chunk, class));
        let fresh = chunks
            .filter(|(offset, _)| !self.spans.contains_key(offset))
            .map(|(_, bytes)| bytes)
            .sum::<u64>();
        (bytes(false), bytes(true) + fresh)
    }

    /// Now and then lets a client free a node and set the hint of its span, without a request to the server.
    pub(super) fn free_a_node(&mut self, rng: &mut Rng, memory: &VecMemory, geometry: &Geometry) {
        let span = rng.choice(self.spans.iter()).filter(|_| rng.u32(0..8) == 0);
        if let Some((&offset, held)) = span {
            memory.store_u64(Space::Host, hint_at(geometry, held.class, offset), rng.u64(1..));
            self.hints.insert(offset);
        }
    }

    /// Spans of `from`, mostly; now and then any span, or an offset that is no span.
    pub(super) fn pick_spans(&self, rng: &mut Rng, from: ComputeId) -> Vec<(u64, bool)> {
        let own: Vec<u64> = self.of(from).iter().map(|span| span.offset).collect();
        let mut spans: Vec<(u64, bool)> = Vec::new();
        for _ in 0..rng.u32(0..4) {
            spans.extend(rng.choice(own.iter()).map(|&offset| (offset, rng.bool())));
        }
        if rng.u32(0..8) == 0 {
            let any = rng.choice(self.class_permanent.iter()).and_then(|(&chunk, &class)| {
                let division: Vec<_> = division(chunk, class).collect();
                rng.choice(division).map(|(offset, _)| offset)
            });
            spans.extend(any.map(|offset| (offset + [0, 0, 0, 256][rng.usize(0..4)], rng.bool())));
        }
        if rng.u32(0..30) == 0 {
            spans.push((rng.u64(0..80 << 10), true));
        }
        spans
    }

    /// Checks that no byte belongs to two clients, that the server agrees, and that it has the model's hints.
    pub(super) fn check(&self, server: &MemoryServer, memory: &VecMemory, capacity: u16) {
        let geometry = server.geometry();
        let mut end = geometry.chunks_offset;
        let spans = self.spans.iter().map(|(&offset, held)| (offset, held.bytes));
        let areas = self.areas.values().map(|&offset| (offset, geometry.redo_area_bytes));
        let mut given: Vec<_> = spans.chain(areas).collect();
        given.sort_unstable();
        for (offset, bytes) in given {
            assert!(offset >= end, "two clients share memory");
            end = offset + bytes;
        }
        assert!(end <= geometry.memory_bytes);
        for (&offset, held) in &self.spans {
            let hint = memory.load_u64(Space::Host, hint_at(geometry, held.class, offset));
            assert_eq!(hint != 0, self.hints.contains(&offset), "the hint of {offset}, {held:?}");
        }
        for id in (0..=capacity + 1).map(ComputeId) {
            assert_eq!(server.client(id).redo_area, self.areas.get(&id.0).copied());
            assert_eq!(server.spans_owned(id), self.of(id));
        }
    }
}
