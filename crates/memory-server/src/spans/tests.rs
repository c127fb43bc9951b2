use super::*;
use sherman_layout::FormatOptions;
use sherman_layout::geometry::{NODE_BYTES_MAX, NODE_BYTES_MIN, SPAN_PLACES_MAX};
use sherman_layout::testing::{VecMemory, small_options};

/// Four spans to a chunk.
const A: ChunkClass = ChunkClass { node_bytes: 256, format: 1 };
/// Six places to a chunk: a span of four and one of two.
const B: ChunkClass = ChunkClass { node_bytes: 640, format: 1 };
const ME: ComputeId = ComputeId(3);
const OTHER: ComputeId = ComputeId(4);

struct World {
    memory: VecMemory,
    geometry: Geometry,
    chunks: ChunkTable,
    spans: SpanTable,
}

impl World {
    fn new() -> Self {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        let chunks = ChunkTable::load(&memory, &geometry).unwrap();
        let spans = SpanTable::load(&memory, &geometry, &chunks).unwrap();
        Self { memory, geometry, chunks, spans }
    }

    fn alloc(&mut self, owner: ComputeId, class: ChunkClass, count: u16) -> Result<Vec<Span>, Refusal> {
        self.alloc_sparing(owner, class, count, 0)
    }

    fn alloc_sparing(
        &mut self,
        owner: ComputeId,
        class: ChunkClass,
        count: u16,
        spare: u64,
    ) -> Result<Vec<Span>, Refusal> {
        let spans =
            self.spans.alloc(&self.memory, &self.geometry, &mut self.chunks, (owner, class), count, spare);
        self.check();
        spans
    }

    fn free(&mut self, from: ComputeId, spans: &[(u64, bool)]) -> Result<(), Refusal> {
        let freed = self.spans.free(&self.memory, &self.geometry, &self.chunks, from, spans);
        self.check();
        freed
    }

    fn disown(&mut self, owner: ComputeId) {
        self.spans.disown(&self.memory, &self.geometry, &self.chunks, owner);
        self.check();
    }

    /// Checks that the table in memory equals the table of the server.
    fn check(&self) {
        assert_eq!(SpanTable::load(&self.memory, &self.geometry, &self.chunks).as_ref(), Ok(&self.spans));
    }

    fn hint_offset(&self, span: &Span) -> u64 {
        let (index, number) = self.geometry.span_at(span.offset, span.class.node_bytes).unwrap();
        self.geometry.span_hint(index, number)
    }

    fn hint(&self, span: &Span) -> u64 {
        self.memory.load_u64(Space::Host, self.hint_offset(span))
    }

    /// Sets the hint as a client that frees a node of `span` does.
    fn set_hint(&self, span: &Span) {
        self.memory.store_u64(Space::Host, self.hint_offset(span), 77);
    }

    fn owned(&self, client: ComputeId) -> Vec<u64> {
        offsets(&self.spans.of(&self.geometry, &self.chunks, client, 0))
    }
}

fn offsets(spans: &[Span]) -> Vec<u64> {
    spans.iter().map(|span| span.offset).collect()
}

fn back(spans: &[Span], free: bool) -> Vec<(u64, bool)> {
    spans.iter().map(|span| (span.offset, free)).collect()
}

#[test]
fn spans_with_room_come_first_then_new_ones_then_those_of_a_new_chunk() {
    let mut world = World::new();
    let first = world.alloc(ME, A, 3).unwrap();
    assert!(first.iter().all(|span| span.fresh && span.class == A && span.bytes == 1024));
    assert_eq!((world.chunks.used(), first[2].offset), (1, world.geometry.chunk_offset(0) + 2048));
    world.free(ME, &back(&first[1..], true)).unwrap();
    let next = world.alloc(OTHER, A, 5).unwrap();
    let chunk = |index, number| world.geometry.span_range(index, 256, number).0;
    let expected = [first[1].offset, first[2].offset, chunk(0, 3), chunk(1, 0), chunk(1, 1)];
    assert_eq!(offsets(&next), expected);
    assert_eq!(next.iter().map(|span| span.fresh).collect::<Vec<_>>(), [false, false, true, true, true]);
    assert_eq!(world.chunks.used(), 2);
}

#[test]
fn a_request_gives_one_span_at_least_and_no_more_than_the_limit() {
    let mut world = World::new();
    assert_eq!(world.alloc(ME, A, 0).unwrap().len(), 1);
    let most = usize::from(world.geometry.chunks as u16) * 4 - 1;
    assert!(most < usize::from(MOST_SPANS));
    assert_eq!(world.alloc(ME, A, u16::MAX).unwrap().len(), most, "what there is");
    assert_eq!(world.alloc(ME, A, 1), Err(Refusal::OutOfMemory));
    let geometry = FormatOptions { span_places: 1, ..small_options() }.plan(1 << 20, 0).unwrap();
    let memory = VecMemory::new(1 << 20, 0);
    let mut chunks = ChunkTable::load(&memory, &geometry).unwrap();
    let mut spans = SpanTable::load(&memory, &geometry, &chunks).unwrap();
    let given = spans.alloc(&memory, &geometry, &mut chunks, (ME, A), u16::MAX, 0).unwrap();
    assert_eq!(given.len(), usize::from(MOST_SPANS));
}

#[test]
fn spans_are_listed_page_by_page() {
    let bytes = 20 << 20;
    let memory = VecMemory::new(bytes, 0);
    let geometry = FormatOptions { span_places: 1, ..small_options() }.plan(bytes as u64, 0).unwrap();
    let mut chunks = ChunkTable::load(&memory, &geometry).unwrap();
    let mut spans = SpanTable::load(&memory, &geometry, &chunks).unwrap();
    let mut owned = Vec::new();
    while let Ok(given) = spans.alloc(&memory, &geometry, &mut chunks, (ME, A), 500, 0) {
        owned.extend(given.into_iter().map(|span| span.offset));
    }
    let (mut listed, mut from) = (Vec::new(), 0);
    loop {
        let page = spans.of(&geometry, &chunks, ME, from);
        assert!(page.len() <= MOST_LISTED);
        let Some(last) = page.last() else { break };
        from = last.offset + last.bytes;
        listed.extend(page.iter().map(|span| span.offset));
    }
    assert!(owned.len() > MOST_LISTED, "{}", owned.len());
    assert_eq!(listed, owned);
}

#[test]
fn a_hint_is_cleared_when_a_span_is_issued_and_set_when_it_returns_with_room() {
    let mut world = World::new();
    let spans = world.alloc(ME, A, 4).unwrap();
    assert!(spans.iter().all(|span| world.hint(span) == 0));
    world.free(ME, &[(spans[0].offset, true), (spans[1].offset, false)]).unwrap();
    assert_eq!(spans.iter().map(|span| world.hint(span)).collect::<Vec<_>>(), [HINT_FREE, 0, 0, 0]);
    assert_eq!(offsets(&world.alloc(OTHER, A, 1).unwrap()), [spans[0].offset]);
    assert_eq!(world.hint(&spans[0]), 0);
}

#[test]
fn a_full_span_of_nobody_is_issued_again_only_once_a_client_has_set_its_hint() {
    let mut world = World::new();
    let spans = world.alloc(ME, A, 4).unwrap();
    world.free(ME, &back(&spans, false)).unwrap();
    let other = world.alloc(OTHER, A, 1).unwrap();
    assert!(other[0].fresh, "the four are full");
    world.set_hint(&spans[2]);
    let again = world.alloc(OTHER, A, 1).unwrap();
    assert_eq!((offsets(&again), again[0].fresh), (vec![spans[2].offset], false));
    assert_eq!(world.hint(&spans[2]), 0);
}

#[test]
fn a_hint_that_came_while_the_span_was_owned_counts_when_it_is_given_back() {
    let mut world = World::new();
    let spans = world.alloc(ME, A, 1).unwrap();
    world.set_hint(&spans[0]);
    world.free(ME, &back(&spans, false)).unwrap();
    assert_eq!(offsets(&world.alloc(OTHER, A, 1).unwrap()), offsets(&spans));
}

#[test]
fn spans_are_given_back_all_or_none_and_by_their_owner_only() {
    let mut world = World::new();
    let mine = world.alloc(ME, A, 2).unwrap();
    let others = world.alloc(OTHER, A, 1).unwrap();
    let own = (mine[0].offset, true);
    let not_owner = Refusal::BadRequest { what: "the client does not own this span" };
    let no_span = Refusal::BadRequest { what: "no span begins at this offset" };
    let end = world.geometry.chunk_offset(world.geometry.chunks - 1);
    let never_used = world.geometry.span_range(0, A.node_bytes, 3).0;
    for (offset, refusal) in [
        (others[0].offset, &not_owner),
        (never_used, &not_owner),
        (mine[1].offset + 256, &no_span),
        (mine[1].offset + 1, &no_span),
        (0, &no_span),
        (end, &no_span),
        (u64::MAX, &no_span),
    ] {
        let bytes = world.memory.clone();
        for list in [vec![own, (offset, true)], vec![(offset, true), own]] {
            assert_eq!(world.free(ME, &list).as_ref(), Err(refusal), "{offset}");
        }
        assert_eq!((&world.memory, world.owned(ME)), (&bytes, offsets(&mine)));
    }
    assert_eq!(world.free(ME, &[]), Ok(()));
    assert_eq!(
        world.free(ME, &[own, (own.0, false)]),
        Ok(()),
        "a span that is named twice has room if either says so"
    );
    assert_eq!((world.owned(ME), world.hint(&mine[0])), (vec![mine[1].offset], HINT_FREE));
    assert_eq!(world.free(ME, &[own]), Err(not_owner), "once");
}

#[test]
fn spans_of_a_client_that_left_are_unowned_and_may_have_room() {
    let mut world = World::new();
    let (a, b) = (world.alloc(ME, A, 2).unwrap(), world.alloc(ME, B, 1).unwrap());
    let others = world.alloc(OTHER, A, 1).unwrap();
    assert!(!world.owned(ME).is_empty());
    world.disown(ME);
    assert!(world.owned(ME).is_empty());
    assert_eq!(world.owned(OTHER), offsets(&others));
    assert!(a.iter().chain(&b).all(|span| world.hint(span) == HINT_FREE));
    assert_eq!(offsets(&world.alloc(OTHER, B, 1).unwrap()), offsets(&b));
    world.disown(ME);
    world.disown(ComputeId(9));
}

#[test]
fn the_last_span_of_a_chunk_may_have_fewer_places() {
    let mut world = World::new();
    let spans = world.alloc(ME, B, 3).unwrap();
    assert_eq!(spans.iter().map(|span| span.bytes).collect::<Vec<_>>(), [2560, 1280, 2560]);
    assert_eq!(spans[1].offset + spans[1].bytes, world.geometry.chunk_offset(0) + 6 * 640);
    assert_eq!(spans[2].offset, world.geometry.chunk_offset(1), "what lies behind the last place is no span");
    assert_eq!(world.free(ME, &back(&spans, true)), Ok(()));
}

#[test]
fn spare_chunks_are_left_for_redo_areas() {
    let mut world = World::new();
    let all = u64::from(world.geometry.chunks);
    let given = world.alloc_sparing(ME, A, 64, 1).unwrap();
    assert_eq!((given.len() as u64, world.chunks.unused()), ((all - 1) * 4, 1));
    assert_eq!(world.alloc_sparing(ME, A, 1, 1), Err(Refusal::OutOfMemory));
    world.free(ME, &[(given[5].offset, true)]).unwrap();
    assert_eq!(
        offsets(&world.alloc_sparing(ME, A, 3, 1).unwrap()),
        [given[5].offset],
        "what returned is no chunk"
    );
    assert_eq!(world.chunks.take(&world.memory, &world.geometry, ChunkEntry::Redo), Ok(all as u32 - 1));
    assert_eq!(world.alloc_sparing(ME, A, 1, 0), Err(Refusal::OutOfMemory));
}

#[test]
fn a_span_never_changes_its_class() {
    let mut world = World::new();
    while let Ok(spans) = world.alloc(ME, A, 64) {
        world.free(ME, &back(&spans, false)).unwrap();
    }
    assert_eq!(world.alloc(ME, B, 1), Err(Refusal::OutOfMemory));
    for node_bytes in [0, 64, 192, 257, 4096 + 64, NODE_BYTES_MAX + 64] {
        let class = ChunkClass { node_bytes, format: 1 };
        assert!(matches!(world.alloc(ME, class, 1), Err(Refusal::BadRequest { .. })), "{node_bytes}");
    }
}

#[test]
fn usage_tells_what_is_owned_from_what_is_free() {
    let mut world = World::new();
    let usage = |world: &World| world.spans.usage(&world.memory, &world.geometry, &world.chunks);
    assert_eq!(usage(&world), (0, 0));
    let spans = world.alloc(ME, B, 1).unwrap();
    assert_eq!(usage(&world), (2560, 1280));
    world.free(ME, &back(&spans, false)).unwrap();
    assert_eq!(usage(&world), (0, 1280), "a full span is neither");
    world.set_hint(&spans[0]);
    assert_eq!(usage(&world), (0, 3840));
}

#[test]
fn a_damaged_table_is_refused() {
    let mut world = World::new();
    world.alloc(ME, A, 2).unwrap();
    for (number, bits) in [(0, 1 << 17), (0, 1), (1, 0x1_0011), (2, 5), (3, u64::MAX), (0, 1 << 63)] {
        let copy = world.memory.clone();
        copy.store_u64(Space::Host, world.geometry.span_entry(0, number), bits);
        let refused = SpanTable::load(&copy, &world.geometry, &world.chunks);
        assert!(
            matches!(refused, Err(OpenError::Corrupt { table: "span table", entry, .. }) if entry == number),
            "{bits:#x}"
        );
    }
    // A hint may have any value, and entries of an unused chunk are never read.
    let copy = world.memory.clone();
    copy.store_u64(Space::Host, world.geometry.span_hint(0, 3), u64::MAX);
    copy.store_u64(Space::Host, world.geometry.span_entry(1, 0), u64::MAX);
    assert!(SpanTable::load(&copy, &world.geometry, &world.chunks).is_ok());
}

#[test]
fn every_hint_is_found_however_many_full_spans_there_are() {
    let memory = VecMemory::new(8 << 20, 0);
    let geometry = FormatOptions { span_places: 1, ..small_options() }.plan(8 << 20, 0).unwrap();
    let mut chunks = ChunkTable::load(&memory, &geometry).unwrap();
    let mut table = SpanTable::load(&memory, &geometry, &chunks).unwrap();
    let mut all = Vec::new();
    while let Ok(spans) = table.alloc(&memory, &geometry, &mut chunks, (ME, A), 64, 0) {
        all.extend(spans);
    }
    assert!(all.len() > 3 * MOST_LOOKS, "{}", all.len());
    let full: Vec<_> = all.iter().map(|span| (span.offset, false)).collect();
    table.free(&memory, &geometry, &chunks, ME, &full).unwrap();
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..20 {
        let span = all[rng.usize(0..all.len())];
        let (index, number) = geometry.span_at(span.offset, A.node_bytes).unwrap();
        memory.store_u64(Space::Host, geometry.span_hint(index, number), 1);
        let found = table.alloc(&memory, &geometry, &mut chunks, (ME, A), 2, 0).unwrap();
        assert_eq!(offsets(&found), [span.offset]);
        table.free(&memory, &geometry, &chunks, ME, &[(span.offset, false)]).unwrap();
    }
}

/// Every place lies in one span, every span has its own entry, and no span is larger than one list can read.
#[test]
fn spans_divide_a_chunk_for_every_node_size_and_number_of_places() {
    let mut rng = fastrand::Rng::with_seed(7);
    let sizes: Vec<u32> = (NODE_BYTES_MIN..=NODE_BYTES_MAX).step_by(64).collect();
    for span_places in 1..=SPAN_PLACES_MAX {
        let chunk_bytes =
            [4096, 64 << 10, 1 << 20, (1 << 20) + 64 * rng.u64(0..1000), 8 << 20][rng.usize(0..5)];
        let options = FormatOptions { span_places, chunk_bytes, ..small_options() };
        let memory = options.minimum_memory(0).unwrap() + 4 * chunk_bytes;
        let geometry = options.plan(memory, 0).unwrap();
        let fitting = sizes.iter().copied().filter(|&node| geometry.allows_node_bytes(node));
        for node_bytes in fitting.filter(|&node| node.is_power_of_two() || rng.u32(0..40) == 0) {
            let node = u64::from(node_bytes);
            let places = geometry.places_per_span(node_bytes);
            assert!((1..=u64::from(span_places)).contains(&places));
            assert!(node > 1024 || places == u64::from(span_places));
            let spans = geometry.spans_in_chunk(node_bytes);
            assert!(spans <= geometry.spans_per_chunk(), "{span_places} {node_bytes}");
            let mut end = geometry.chunk_offset(1);
            for number in 0..spans {
                let (offset, bytes) = geometry.span_range(1, node_bytes, number);
                assert_eq!((offset, bytes % node), (end, 0));
                assert!(
                    bytes > 0 && (bytes == places * node || number == spans - 1 && bytes < places * node)
                );
                for at in [offset, offset + bytes - node, offset + bytes - 1] {
                    assert_eq!(geometry.span_at(at, node_bytes), Some((1, number)));
                }
                let entry = geometry.span_entry(1, number);
                assert_eq!(geometry.span_hint(1, number), entry + 8);
                assert!(entry + 16 <= geometry.span_table_offset + geometry.span_table_bytes());
                end = offset + bytes;
            }
            assert_eq!(end, geometry.chunk_offset(1) + geometry.chunk_bytes / node * node);
            assert!(geometry.span_entry(1, spans - 1) < geometry.span_entry(2, 0));
        }
        assert_eq!(geometry.span_at(geometry.chunks_offset - 1, 256), None);
    }
}
