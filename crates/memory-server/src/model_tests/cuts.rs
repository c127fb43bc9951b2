//! Servers that die between two words, and what must be there when they are opened again.

use super::{CAPACITY, HOST, options, root_of, run};
use crate::testing::VecMemory;
use crate::{ChunkEntry, FormatOptions, MemberEntry, MemberState, MemoryServer, OpenError, SuperblockError};
use sherman_fabric::control::{ChunkClass, TreeInfo};
use sherman_fabric::{ClientId, Memory, Refusal, Request, Response, Space};
use std::cell::Cell;

/// A memory that stops taking stores after so many words, as if the server's process had died there.
struct Cut<'a> {
    memory: &'a VecMemory,
    words_left: Cell<u64>,
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

/// Who may have something else after `request`: its sender, and whom it is about.
fn concerned(from: ClientId, request: &Request) -> [ClientId; 2] {
    match request {
        Request::TakeOver { client } | Request::Retire { client } => [from, *client],
        _ => [from, from],
    }
}

/// What clients have that a request does not concern, the classes that last for ever, and the trees with their root words.
fn must_survive(server: &MemoryServer, memory: &VecMemory, concerned: [ClientId; 2]) -> Vec<String> {
    let mut facts = Vec::new();
    for index in 0..server.geometry().chunks {
        match server.chunk(index) {
            Some(ChunkEntry::Issued { class, owner }) if !concerned.contains(&owner) => {
                facts.push(format!("{index} {class:?} {owner}"))
            }
            Some(ChunkEntry::Issued { class, .. } | ChunkEntry::Free { class }) => {
                facts.push(format!("{index} {class:?}"))
            }
            _ => {}
        }
    }
    for id in (1..=CAPACITY).map(ClientId).filter(|id| !concerned.contains(id)) {
        facts.extend(server.client(id).redo_area.map(|area| format!("{id} {area}")));
        facts.extend(server.is_fenced(id).then(|| format!("{id} fenced")));
        let taken = server.member(id).filter(|member| member.state != MemberState::Free);
        facts.extend(taken.map(|member| format!("{id} issued {}", member.incarnation)));
    }
    let root = |tree: &TreeInfo| memory.load_u64(Space::Host, tree.root_word);
    facts.extend(server.trees(memory).iter().map(|tree| format!("{tree:?} {}", root(tree))));
    facts
}

/// Whether `facts` still hold; a chunk of one who is concerned may have become nobody's.
fn still_there(facts: &[String], after: &MemoryServer, memory: &VecMemory, concerned: [ClientId; 2]) -> bool {
    let after = must_survive(after, memory, concerned);
    facts.iter().all(|fact| after.iter().any(|kept| kept == fact || kept.starts_with(&format!("{fact} "))))
}

/// Each member entry is as it was before the request or as it is after it, and of a free one only that it is.
fn check_members(before: &MemoryServer, cut: &MemoryServer, after: &MemoryServer, request: &Request) {
    let visible = |server: &MemoryServer, id| match server.member(id) {
        Some(entry) if entry.state == MemberState::Free => Some(MemberEntry { joined_at: 0, lease_until: 0, ..entry }),
        entry => entry,
    };
    for id in (1..=CAPACITY).map(ClientId) {
        let entry = visible(cut, id);
        assert!(entry == visible(before, id) || entry == visible(after, id), "{request:?} left {id} as {entry:?}");
        let by = entry.map_or(ClientId::NOBODY, |entry| entry.recoverer);
        let named = by == ClientId::NOBODY || cut.member(by).is_some_and(|by| by.state != MemberState::Free);
        assert!(named, "{request:?} left {id} to {by}, whom nobody knows");
    }
}

/// Whoever recovers `client` can always begin again and come to the end.
fn check_retiring(mut server: MemoryServer, memory: &VecMemory, from: ClientId, client: ClientId, now: u64) {
    if server.member(client).is_some_and(|member| !member.state.needs_recovery()) {
        assert!(!server.is_fenced(client), "{client} is free and fenced");
        return;
    }
    for request in [Request::Fence { client }, Request::TakeOver { client }, Request::Retire { client }] {
        assert_eq!(server.handle(memory, from, &request, now), Ok(Response::Done), "{request:?}");
    }
    assert_eq!((server.is_fenced(client), server.client(client).redo_area), (false, None));
}

/// No request, however cut, brings back a tree or enters one that was not asked for.
fn check_catalog(before: &VecMemory, bytes: &VecMemory, reopened: &MemoryServer, request: &Request) {
    let Ok(old) = MemoryServer::open(before) else { panic!("the memory opened before") };
    let known = old.trees(before);
    for tree in reopened.trees(bytes).iter().filter(|tree| !known.contains(tree)) {
        assert!(
            matches!(request, Request::CreateTree { name, id, .. } if (name, *id) == (&tree.name, tree.id)),
            "{request:?} brought {tree:?}"
        );
        assert_eq!(bytes.load_u64(Space::Host, tree.root_word), root_of(tree.id));
    }
}

#[test]
fn a_server_that_dies_at_any_word_opens_again_with_everyone_s_property() {
    for seed in 100..106 {
        run(seed, (seed % 2) as u16, 400, |server, memory, from, request, now| {
            let whom = concerned(from, request);
            let facts = must_survive(server, memory, whom);
            let mut after = server.clone();
            let _ = after.handle(&memory.clone(), from, request, now);
            for words in 0.. {
                let bytes = memory.clone();
                let cut = Cut { memory: &bytes, words_left: Cell::new(words) };
                let answer = server.clone().handle(&cut, from, request, now);
                let mut reopened =
                    MemoryServer::open(&bytes).unwrap_or_else(|error| panic!("{request:?} {words}: {error}"));
                assert!(still_there(&facts, &reopened, &bytes, whom), "{request:?} cut after {words} words");
                check_members(server, &reopened, &after, request);
                check_catalog(memory, &bytes, &reopened, request);
                if cut.words_left.get() > 0 {
                    break;
                }
                if answer.is_ok() && matches!(request, Request::DropTree { .. }) {
                    let again = reopened.clone().handle(&bytes, from, request, now);
                    assert!(matches!(again, Ok(Response::Done) | Err(Refusal::NoSuchTree { .. })), "{again:?}");
                }
                if answer.is_ok()
                    && let Request::Retire { client } = *request
                {
                    check_retiring(reopened.clone(), &bytes.clone(), from, client, now);
                }
                let still_in = reopened.member(from).is_none_or(|member| member.state == MemberState::Live);
                if answer.is_ok() && *request == Request::Leave && still_in {
                    let again = reopened.handle(&bytes, from, request, now);
                    assert_eq!(again, Ok(Response::Done), "who was cut off while leaving leaves again");
                }
            }
        });
    }
}

#[test]
fn a_member_whose_retiring_was_cut_at_any_word_is_retired_when_asked_again() {
    let memory = VecMemory::new(HOST, 0);
    let mut server = MemoryServer::format(&memory, &options(0)).unwrap();
    let (first, dead, second) = (ClientId(1), ClientId(2), ClientId(3));
    let class = ChunkClass { node_bytes: 256, format: 1 };
    // The first dies while it recovers another, and has an area and chunks.
    for (from, request) in [
        (ClientId::NOBODY, Request::Join),
        (ClientId::NOBODY, Request::Join),
        (ClientId::NOBODY, Request::Join),
        (first, Request::RedoArea),
        (first, Request::AllocChunk { class }),
        (first, Request::AllocChunk { class }),
        (second, Request::Condemn { client: dead }),
        (first, Request::Suspect { client: dead }),
        (second, Request::Condemn { client: first }),
        (second, Request::Suspect { client: first }),
        (second, Request::Fence { client: first }),
    ] {
        server.handle(&memory, from, &request, 5).unwrap();
    }
    let request = Request::Retire { client: first };
    let mut after = server.clone();
    assert_eq!(after.handle(&memory.clone(), second, &request, 6), Ok(Response::Done));
    for words in 0.. {
        let bytes = memory.clone();
        let cut = Cut { memory: &bytes, words_left: Cell::new(words) };
        assert_eq!(server.clone().handle(&cut, second, &request, 6), Ok(Response::Done));
        let reopened = MemoryServer::open(&bytes).unwrap();
        check_members(&server, &reopened, &after, &request);
        check_retiring(reopened, &bytes, second, first, 6);
        if cut.words_left.get() > 0 {
            assert!(words > 5, "chunks, the other's recoverer, the client word and the entry: {words} words");
            break;
        }
    }
}

#[test]
fn a_declared_loss_that_was_cut_at_any_word_leaves_no_live_member_with_the_old_view() {
    let memory = VecMemory::new(HOST, 0);
    let mut server = MemoryServer::format(&memory, &options(0)).unwrap();
    let live = |server: &MemoryServer| {
        let members = (1..=CAPACITY).filter_map(|id| server.member(ClientId(id)));
        members.filter(|member| member.state == MemberState::Live).count()
    };
    let seen = [None, Some(sherman_fabric::Seen { memory: 77, cluster: 0 })];
    for _ in 0..3 {
        server.join_seeing(&memory, &seen, 5).unwrap();
    }
    let request = Request::DeclareLost { server: 1 };
    for words in 0.. {
        let bytes = memory.clone();
        let cut = Cut { memory: &bytes, words_left: Cell::new(words) };
        assert_eq!(server.clone().administer(&cut, &request, 6), Ok(Response::Done));
        let mut reopened = MemoryServer::open(&bytes).unwrap();
        assert!(reopened.lost().is_empty() || live(&reopened) == 0, "{words} words");
        assert_eq!(reopened.administer(&bytes, &request, 6), Ok(Response::Done));
        assert_eq!((reopened.lost(), live(&reopened)), (vec![1], 0));
        if cut.words_left.get() > 0 {
            assert!(words > 3, "three members and the server: {words} words");
            break;
        }
    }
}

#[test]
fn a_format_that_dies_at_any_word_is_no_format() {
    let old = VecMemory::new(HOST, 0);
    MemoryServer::format(&old, &FormatOptions { cluster_id: 1, ..options(0) }).unwrap();
    let new = FormatOptions { cluster_id: 2, ..options(1) };
    for words in 1.. {
        let memory = old.clone();
        let cut = Cut { memory: &memory, words_left: Cell::new(words) };
        let formatted = MemoryServer::format(&cut, &new).is_ok();
        let opened = MemoryServer::open(&memory).map(|server| server.superblock().cluster_id);
        if formatted {
            assert_eq!((opened, cut.words_left.get()), (Ok(2), 0));
            break;
        }
        assert_eq!(opened, Err(OpenError::Superblock(SuperblockError::NotFormatted)), "{words} words");
    }
}
