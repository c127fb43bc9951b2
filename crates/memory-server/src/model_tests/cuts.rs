//! Servers that crash between two words, and the state that must be there when they are opened again.

use super::{CAPACITY, HOST, options, run};
use crate::testing::Pair;
use crate::{Control, Memories, MemoryServer, OpenError};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response, Space};
use sherman_layout::testing::VecMemory;
use sherman_layout::{ChunkEntry, FormatOptions, MemberEntry, MemberState, SpanWord, SuperblockError};
use std::cell::Cell;
use std::collections::BTreeMap;

/// A memory that ignores stores after `words_left` words, as if the server's process had died there.
struct Cut<'a> {
    memory: &'a VecMemory,
    words_left: &'a Cell<u64>,
}

/// Lets `act` work on memories that ignore all stores after `words`. Returns how many more there could have
/// been.
fn cut<T>(memory: &Pair, words: u64, act: impl FnOnce(Memories<'_>) -> T) -> (T, u64) {
    let words_left = &Cell::new(words);
    let [volume, control] = [&memory.volume, &memory.control].map(|memory| Cut { memory, words_left });
    (act(Memories { volume: &volume, control: &control }), words_left.get())
}

impl Memory for Cut<'_> {
    fn size(&self, space: Space) -> u64 {
        self.memory.size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        self.memory.load(space, offset, into);
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        assert!(offset.is_multiple_of(8) && from.len().is_multiple_of(8), "the server stores whole words");
        for (word, at) in from.chunks(8).zip((offset..).step_by(8)) {
            if self.words_left.get() > 0 {
                self.words_left.set(self.words_left.get() - 1);
                self.memory.store(space, at, word);
            }
        }
    }
}

/// The clients whose property `request` may change: its sender, its subject, and holders whose ids the server
/// frees meanwhile.
fn concerned(
    from: ComputeId,
    request: &Request,
    before: &MemoryServer,
    after: &MemoryServer,
) -> Vec<ComputeId> {
    let holder = |server: &MemoryServer, id| {
        server.member(id).filter(|member| member.state != MemberState::Free).map(|member| member.incarnation)
    };
    let freed = (1..=CAPACITY).map(ComputeId).filter(|&id| holder(before, id) != holder(after, id));
    let about = match request {
        Request::Retire { client } => Some(*client),
        _ => None,
    };
    freed.chain(about).chain([from]).collect()
}

/// The property of clients that the request does not concern, the permanent classes, the root words, and the
/// trees but `dropped`.
fn must_survive(
    server: &MemoryServer,
    memory: &Pair,
    concerned: &[ComputeId],
    dropped: Option<u32>,
) -> Vec<String> {
    let mut facts = Vec::new();
    for index in 0..server.geometry().chunks {
        if let Some(ChunkEntry::Nodes { class }) = server.chunk(index) {
            facts.push(format!("{index} {class:?}"));
        }
    }
    for id in (1..=CAPACITY).map(ComputeId).filter(|id| !concerned.contains(id)) {
        facts.push(format!("{id} owns {:?}", server.spans_owned(id)));
    }
    for id in (1..=CAPACITY).map(ComputeId).filter(|id| !concerned.contains(id)) {
        facts.extend(server.client(id).redo_area.map(|area| format!("{id} {area}")));
        facts.extend(server.is_fenced(id).then(|| format!("{id} fenced")));
        let taken = server.member(id).filter(|member| member.state != MemberState::Free);
        facts.extend(taken.map(|member| format!("{id} issued {}", member.incarnation)));
    }
    let geometry = server.geometry();
    let mut roots = vec![0; geometry.root_table_bytes() as usize];
    memory.load(Space::Host, geometry.root_offset, &mut roots);
    facts.push(format!("root words {roots:?}"));
    facts.extend(
        server.trees().iter().filter(|tree| dropped != Some(tree.id)).map(|tree| format!("{tree:?}")),
    );
    facts
}

/// Whether `facts` still hold.
fn still_there(facts: &[String], after: &MemoryServer, memory: &Pair, concerned: &[ComputeId]) -> bool {
    let after = must_survive(after, memory, concerned, None);
    facts.iter().all(|fact| after.contains(fact))
}

/// The spans of nodes, by offset: owner, whether the span was ever issued, and whether its hint is set.
fn spans(server: &MemoryServer, memory: &Pair) -> BTreeMap<u64, (SpanWord, bool)> {
    let geometry = server.geometry();
    let chunks = (0..geometry.chunks).filter_map(|index| match server.chunk(index) {
        Some(ChunkEntry::Nodes { class }) => Some((index, class)),
        _ => None,
    });
    let load = |offset| memory.load_u64(Space::Host, offset);
    let spans = chunks.flat_map(|(index, class)| {
        (0..geometry.spans_in_chunk(class.node_bytes)).map(move |number| {
            let Some(word) = SpanWord::from_bits(load(geometry.span_entry(index, number))) else {
                panic!("no word")
            };
            (
                geometry.span_range(index, class.node_bytes, number).0,
                (word, load(geometry.span_hint(index, number)) != 0),
            )
        })
    });
    spans.collect()
}

/// An unowned span that may have free places has its hint, wherever the server stopped.
fn check_hints(
    before: &BTreeMap<u64, (SpanWord, bool)>,
    cut: &BTreeMap<u64, (SpanWord, bool)>,
    request: &Request,
) {
    let without_room = |offset: &u64| match request {
        Request::FreeSpans { spans } => !spans.contains(&(*offset, true)),
        _ => false,
    };
    for (offset, (word, hint)) in before {
        let Some((now, hinted)) = cut.get(offset) else { panic!("{request:?} forgot the class of {offset}") };
        assert!(now.issued || !word.issued, "{request:?} made {offset} new again");
        let of_nobody = now.issued && now.owner == ComputeId::NOBODY;
        let had_room = *hint || (word.owner != ComputeId::NOBODY && !without_room(offset));
        assert!(
            !of_nobody || !had_room || *hinted,
            "{request:?} left {offset} without an owner and without a hint"
        );
    }
}

/// Each member entry is as it was before the request or as it is after it. Times of a free entry do not
/// count.
fn check_members(before: &MemoryServer, cut: &MemoryServer, after: &MemoryServer, request: &Request) {
    let visible = |server: &MemoryServer, id| match server.member(id) {
        Some(entry) if entry.state == MemberState::Free => {
            Some(MemberEntry { joined_at: 0, lease_until: 0, ..entry })
        }
        entry => entry,
    };
    for id in (1..=CAPACITY).map(ComputeId) {
        let entry = visible(cut, id);
        let (was, is) = (visible(before, id), visible(after, id));
        // A join may free an id whose lease ran out, and issue it again at once.
        let freed =
            was.map(|was| MemberEntry { state: MemberState::Free, joined_at: 0, lease_until: 0, ..was });
        let reissued = *request == Request::Join
            && entry == freed
            && was.zip(is).is_some_and(|(was, is)| is.incarnation == was.incarnation + 1);
        assert!(entry == was || entry == is || reissued, "{request:?} left {id} as {entry:?}");
        let by = entry.map_or(ComputeId::NOBODY, |entry| entry.recoverer);
        let named = by == ComputeId::NOBODY || cut.member(by).is_some_and(|by| by.state != MemberState::Free);
        assert!(named, "{request:?} left {id} to {by}, which is no member");
    }
}

/// The recoverer of `client` can always start again and finish.
fn check_retiring(mut server: MemoryServer, memory: &Pair, from: ComputeId, client: ComputeId, now: u64) {
    for request in
        [Request::Fence { client }, Request::SpansOf { client, from: 0 }, Request::Retire { client }]
    {
        let answer = server.handle(memory.both(), from, &request, now);
        assert!(matches!(answer, Ok(Response::Done | Response::Spans(_))), "{request:?}: {answer:?}");
    }
    assert_eq!((server.is_fenced(client), server.client(client).redo_area), (false, None));
    assert_eq!(server.spans_owned(client), []);
}

/// No request, wherever it was cut, brings back a tree or enters one that was not requested.
fn check_catalog(before: &Pair, reopened: &MemoryServer, request: &Request) {
    let Ok(old) = MemoryServer::open(before.both()) else { panic!("the memory opened before") };
    let known = old.trees();
    for tree in reopened.trees().iter().filter(|tree| !known.contains(tree)) {
        assert!(
            matches!(request, Request::CreateTree { name, .. } if *name == tree.name),
            "{request:?} brought {tree:?}"
        );
    }
}

#[test]
fn a_server_that_dies_at_any_word_opens_again_with_everyone_s_property() {
    for seed in 100..106 {
        run(seed, (seed % 2) as u16, 400, |server, memory, from, request, now| {
            let mut after = server.clone();
            let _ = after.handle(memory.clone().both(), from, request, now);
            let whom = concerned(from, request, server, &after);
            let dropped = match request {
                Request::DropTree { id, .. } => Some(*id),
                _ => None,
            };
            let (facts, ground) = (must_survive(server, memory, &whom, dropped), spans(server, memory));
            for words in 0.. {
                let bytes = memory.clone();
                let (answer, left) =
                    cut(&bytes, words, |memories| server.clone().handle(memories, from, request, now));
                let mut reopened = MemoryServer::open(bytes.both())
                    .unwrap_or_else(|error| panic!("{request:?} {words}: {error}"));
                assert!(still_there(&facts, &reopened, &bytes, &whom), "{request:?} cut after {words} words");
                check_hints(&ground, &spans(&reopened, &bytes), request);
                check_members(server, &reopened, &after, request);
                check_catalog(memory, &reopened, request);
                if left > 0 {
                    break;
                }
                if answer.is_ok() && matches!(request, Request::DropTree { .. }) {
                    let again = reopened.clone().handle(bytes.both(), from, request, now);
                    assert!(
                        matches!(again, Ok(Response::Done) | Err(Refusal::NoSuchTree { .. })),
                        "{again:?}"
                    );
                }
                if answer.is_ok()
                    && let Request::Retire { client } = *request
                {
                    check_retiring(reopened.clone(), &bytes.clone(), from, client, now);
                }
                let still_in = reopened.member(from).is_none_or(|member| member.state == MemberState::Live);
                let leaves = *request == Request::Leave || *request == Request::Release;
                if answer.is_ok() && leaves && still_in {
                    let again = reopened.handle(bytes.both(), from, request, now);
                    assert_eq!(
                        again,
                        Ok(Response::Done),
                        "a client that was cut off while leaving can leave again"
                    );
                }
            }
        });
    }
}

#[test]
fn a_member_whose_retiring_was_cut_at_any_word_is_retired_when_asked_again() {
    let memory = Pair::new(HOST, 0, &options(0));
    let mut server = MemoryServer::format(memory.both(), &options(0)).unwrap();
    let (first, dead, second) = (ComputeId(1), ComputeId(2), ComputeId(3));
    let class = ChunkClass { node_bytes: 256, format: 1 };
    // The first member dies while it recovers another, and has an area and chunks.
    for (from, request) in [
        (ComputeId::NOBODY, Request::Join),
        (ComputeId::NOBODY, Request::Join),
        (ComputeId::NOBODY, Request::Join),
        (first, Request::Activate),
        (dead, Request::Activate),
        (second, Request::Activate),
        (first, Request::RedoArea),
        (first, Request::AllocSpans { class, count: 2 }),
        (second, Request::Condemn { client: dead }),
        (first, Request::Suspect { client: dead }),
        (second, Request::Condemn { client: first }),
        (second, Request::Suspect { client: first }),
        (second, Request::Fence { client: first }),
    ] {
        server.handle(memory.both(), from, &request, 5).unwrap();
    }
    let request = Request::Retire { client: first };
    let mut after = server.clone();
    assert_eq!(after.handle(memory.clone().both(), second, &request, 6), Ok(Response::Done));
    for words in 0.. {
        let bytes = memory.clone();
        let (answer, left) =
            cut(&bytes, words, |memories| server.clone().handle(memories, second, &request, 6));
        assert_eq!(answer, Ok(Response::Done));
        let reopened = MemoryServer::open(bytes.both()).unwrap();
        check_members(&server, &reopened, &after, &request);
        check_retiring(reopened, &bytes, second, first, 6);
        if left > 0 {
            assert!(words > 4, "two words of each span and the client word: {words} words");
            break;
        }
    }
    let request = Request::FreeId { client: first };
    let mut after = server.clone();
    assert_eq!(after.handle(memory.clone().both(), second, &request, 6), Ok(Response::Done));
    for words in 0.. {
        let bytes = memory.clone();
        let (answer, left) =
            cut(&bytes, words, |memories| server.clone().handle(memories, second, &request, 6));
        assert_eq!(answer, Ok(Response::Done));
        let mut reopened = MemoryServer::open(bytes.both()).unwrap();
        check_members(&server, &reopened, &after, &request);
        if left > 0 {
            assert!(words > 1, "the other's recoverer and the entry: {words} words");
            break;
        }
        if reopened.member(first).is_some_and(|member| member.state.needs_recovery()) {
            assert_eq!(reopened.handle(bytes.both(), second, &request, 6), Ok(Response::Done));
        }
        assert_eq!(reopened.member(first).map(|member| member.state), Some(MemberState::Free));
    }
}

#[test]
fn a_declared_loss_that_was_cut_at_any_word_leaves_no_live_member_with_the_old_view() {
    let memory = Pair::new(HOST, 0, &options(0));
    let mut server = MemoryServer::format(memory.both(), &options(0)).unwrap();
    let live = |server: &MemoryServer| {
        let members = (1..=CAPACITY).filter_map(|id| server.member(ComputeId(id)));
        members.filter(|member| member.state == MemberState::Live).count()
    };
    let seen = [None, Some(sherman_fabric::Seen { memory: 77, cluster: 0 })];
    for id in 1..=3 {
        server.join_seeing(memory.both(), &seen, 5).unwrap();
        // The third member owns nothing.
        if id < 3 {
            server.handle(memory.both(), ComputeId(id), &Request::Activate, 5).unwrap();
        }
    }
    let request = Request::DeclareLost { server: 1 };
    for words in 0.. {
        let bytes = memory.clone();
        let (answer, left) = cut(&bytes, words, |memories| server.clone().administer(memories, &request, 6));
        assert_eq!(answer, Ok(Response::Done));
        let mut reopened = MemoryServer::open(bytes.both()).unwrap();
        assert!(reopened.lost().is_empty() || live(&reopened) == 0, "{words} words");
        assert_eq!(reopened.administer(bytes.both(), &request, 6), Ok(Response::Done));
        assert_eq!((reopened.lost(), live(&reopened)), (vec![1], 0));
        if left > 0 {
            assert!(words > 3, "three members and the server: {words} words");
            break;
        }
    }
}

#[test]
fn a_format_that_dies_at_any_word_is_no_format() {
    let old = Pair::new(HOST, 0, &options(0));
    MemoryServer::format(old.both(), &FormatOptions { cluster_id: 1, ..options(0) }).unwrap();
    let new = FormatOptions { cluster_id: 2, memory_id: 77, ..options(0) };
    for words in 1.. {
        let memory = old.clone();
        let (formatted, left) = cut(&memory, words, |memories| MemoryServer::format(memories, &new).is_ok());
        let opened = MemoryServer::open(memory.both()).map(|server| server.superblock().cluster_id);
        if formatted && opened == Ok(2) {
            assert_eq!(left, 0);
            break;
        }
        // The control state is formatted first, for another cluster than that of the volume.
        let expected = |error| match error {
            OpenError::Superblock(SuperblockError::NotFormatted) => true,
            OpenError::Corrupt { table, .. } => table == "control block",
            _ => false,
        };
        assert!(opened.is_err_and(expected), "{opened:?} after {words} words");
    }
}

#[test]
fn a_snapshot_of_the_control_state_is_restored_to_the_same_bytes() {
    run(200, 0, 600, |server, memory, _, _, _| {
        let control = server.control.as_ref().unwrap();
        let snapshot = control.snapshot(&memory.control);
        let copy = VecMemory::new(memory.control.size(Space::Host) as usize, 0);
        copy.store(Space::Host, 128, &[0xff; 64]);
        let restored = Control::restore(&copy, &snapshot).unwrap();
        assert_eq!((&copy, &restored.with_clock_of(control)), (&memory.control, control));
        assert!(snapshot.len() < memory.control.size(Space::Host) as usize);
        for cut in [0, 8, 15, 16, 20, snapshot.len() - 8] {
            assert_eq!(Control::restore(&copy, &snapshot[..cut]), None, "{cut} bytes");
        }
        let small = VecMemory::new(memory.control.size(Space::Host) as usize - 64, 0);
        assert_eq!(Control::restore(&small, &snapshot), None, "it does not fit");
    });
}
