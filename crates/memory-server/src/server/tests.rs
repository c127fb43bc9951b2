//! Tests which clients may send which request to which server, and with which refusal.

use super::*;
use crate::testing::Pair;
use sherman_fabric::control::{CatalogReply, Usage};
use sherman_fabric::control::{ChunkClass, TreeSpec};
use sherman_fabric::{GlobalAddress, RequestId};
use sherman_layout::SUPERBLOCK_BYTES;
use sherman_layout::testing::{VecMemory, small_options};
use sherman_layout::{LaneWidth, LockOptions, ReleaseMode};

const CLASS: ChunkClass = ChunkClass { node_bytes: 512, format: 1 };
const SPEC: TreeSpec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 512, internal_bytes: 512 };
const NOBODY: ComputeId = ComputeId::NOBODY;

struct World {
    memory: Pair,
    server: MemoryServer,
}

impl World {
    fn new(server: u16) -> Self {
        let options = FormatOptions { server, servers: 2, ..small_options() };
        let memory = Pair::new(128 << 10, 0, &options);
        let server = MemoryServer::format(memory.both(), &options).unwrap();
        Self { memory, server }
    }

    fn ask(&mut self, from: ComputeId, request: Request) -> Result<Response, Refusal> {
        self.server.handle(self.memory.both(), from, &request, 1_000)
    }

    fn join(&mut self) -> ComputeId {
        match self.ask(NOBODY, Request::Join) {
            Ok(Response::Joined { client }) => client,
            other => panic!("{other:?}"),
        }
    }
}

fn tree(name: &str) -> Request {
    Request::CreateTree { name: name.to_owned(), spec: SPEC, types: None, asked: RequestId::default() }
}

fn root_only() -> [Request; 4] {
    let name = "t".to_owned();
    let open = Request::OpenTree { name: name.clone() };
    [tree("t"), open, Request::ListTrees, Request::DropTree { name, id: 1 }]
}

fn anywhere() -> [Request; 6] {
    [
        Request::Release,
        Request::AllocSpans { class: CLASS, count: 1 },
        Request::FreeSpans { spans: Vec::new() },
        Request::RedoArea,
        Request::Fence { client: ComputeId(1) },
        Request::Usage,
    ]
}

#[test]
fn only_joining_is_open_to_strangers() {
    let mut world = World::new(0);
    world.join();
    for stranger in [NOBODY, ComputeId(2), ComputeId(16), ComputeId(17), ComputeId(u16::MAX)] {
        for request in root_only().into_iter().chain([Request::Activate, Request::Leave, Request::Renew]) {
            assert_eq!(world.ask(stranger, request), Err(Refusal::NotAMember { client: stranger }));
        }
    }
}

#[test]
fn a_volume_takes_any_id_in_range() {
    for server in [0, 1] {
        let mut world = World::new(server);
        let alloc = Request::AllocSpans { class: CLASS, count: 1 };
        assert!(matches!(world.ask(ComputeId(16), alloc), Ok(Response::Spans(_))));
        for impossible in [NOBODY, ComputeId(17)] {
            for request in anywhere() {
                assert_eq!(world.ask(impossible, request), Err(Refusal::NotAMember { client: impossible }));
            }
        }
    }
}

#[test]
fn members_and_catalog_are_not_on_other_servers() {
    let mut world = World::new(1);
    for request in root_only().into_iter().chain([Request::Join]) {
        assert_eq!(world.ask(ComputeId(1), request), Err(Refusal::NotHere));
    }
}

#[test]
fn a_fenced_client_is_refused_on_its_volume_even_after_a_restart() {
    for index in [0, 1] {
        let mut world = World::new(index);
        let (dead, other) =
            if index == 0 { (world.join(), world.join()) } else { (ComputeId(1), ComputeId(2)) };
        assert_eq!(world.ask(other, Request::Fence { client: dead }), Ok(Response::Done));
        assert_eq!(
            world.ask(other, Request::Fence { client: dead }),
            Ok(Response::Done),
            "fencing can be repeated"
        );
        world.server = MemoryServer::open(world.memory.both()).unwrap();
        assert!(world.server.is_fenced(dead) && !world.server.is_fenced(other));
        for request in anywhere() {
            assert_eq!(world.ask(dead, request), Err(Refusal::Fenced { client: dead }));
        }
        assert!(world.ask(other, Request::Usage).is_ok());
    }
}

#[test]
fn the_id_of_a_dead_member_is_not_issued_again() {
    let mut world = World::new(0);
    let (dead, other) = (world.join(), world.join());
    world.ask(dead, Request::Activate).unwrap();
    for _ in 0..13 {
        assert_ne!(world.join(), dead);
    }
    assert_eq!(
        world.ask(NOBODY, Request::Join),
        Err(Refusal::TooManyMembers),
        "the last id is for a recoverer"
    );
    world.ask(other, Request::Condemn { client: dead }).unwrap();
    world.ask(other, Request::Leave).unwrap();
    assert_eq!(world.join(), ComputeId(16));
    world.ask(ComputeId(16), Request::Leave).unwrap();
    assert_eq!(world.join(), other);
}

#[test]
fn an_impossible_id_is_not_fenced() {
    let mut world = World::new(0);
    let member = world.join();
    for client in [NOBODY, ComputeId(17)] {
        assert_eq!(world.ask(member, Request::Fence { client }), Err(Refusal::NotAMember { client }));
        assert!(!world.server.is_fenced(client));
    }
}

#[test]
fn a_client_that_has_left_is_a_stranger_and_its_redo_area_is_reused() {
    let mut world = World::new(0);
    let (leaver, stayer) = (world.join(), world.join());
    let area = world.ask(leaver, Request::RedoArea).unwrap();
    let Ok(Response::Spans(spans)) = world.ask(leaver, Request::AllocSpans { class: CLASS, count: 3 }) else {
        panic!()
    };
    assert_eq!(world.server.spans_owned(leaver).len(), 3);
    for _ in 0..2 {
        assert_eq!(world.ask(leaver, Request::Release), Ok(Response::Done), "it may repeat this");
    }
    assert_eq!(world.ask(leaver, Request::Leave), Ok(Response::Done));
    assert_eq!(world.ask(leaver, Request::Leave), Err(Refusal::NotAMember { client: leaver }));
    assert_eq!(world.ask(stayer, Request::RedoArea), Ok(area));
    assert_eq!(world.server.spans_owned(leaver), []);
    let Ok(Response::Spans(next)) = world.ask(stayer, Request::AllocSpans { class: CLASS, count: 3 }) else {
        panic!()
    };
    let offsets = |spans: &[Span]| spans.iter().map(|span| span.offset).collect::<Vec<_>>();
    assert_eq!(offsets(&next), offsets(&spans), "the next member gets the spans of a member that left");
    assert!(next.iter().all(|span| !span.fresh));
}

#[test]
fn a_tree_is_created_opened_and_listed() {
    let mut world = World::new(0);
    let me = world.join();
    let missing = Request::OpenTree { name: "b".to_owned() };
    assert_eq!(world.ask(me, missing), Err(Refusal::NoSuchTree { name: "b".to_owned() }));
    for name in ["b", "a"] {
        assert!(matches!(world.ask(me, tree(name)), Ok(Response::Tree(CatalogReply { created: true, .. }))));
    }
    let Ok(Response::Tree(CatalogReply { info, created: false })) = world.ask(me, tree("b")) else {
        panic!()
    };
    let root_word = GlobalAddress::new(0, world.server.geometry().root_word(0));
    assert_eq!((info.id, info.root_word), (1, root_word));
    let opened = world.ask(me, Request::OpenTree { name: "b".to_owned() });
    assert_eq!(opened, Ok(Response::Tree(CatalogReply { info: info.clone(), created: false })));
    let Ok(Response::Trees(trees)) = world.ask(me, Request::ListTrees) else { panic!() };
    assert_eq!(trees.iter().map(|tree| tree.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(world.ask(me, tree("")), Err(Refusal::BadName));
}

#[test]
fn a_dropped_tree_is_gone_after_a_restart_too_and_its_name_and_entry_are_free() {
    let mut world = World::new(0);
    let me = world.join();
    let drop = |id| Request::DropTree { name: "t".to_owned(), id };
    for id in 1..10 {
        let Ok(Response::Tree(CatalogReply { info, created: true })) = world.ask(me, tree("t")) else {
            panic!()
        };
        assert_eq!(info.id, id, "no id comes back");
        assert_eq!(info.root_word.offset(), world.server.geometry().root_word(0));
        assert_eq!(world.server.trees(), std::slice::from_ref(&info));
        assert_eq!(world.ask(me, drop(id)), Ok(Response::Done));
        world.server = MemoryServer::open(world.memory.both()).unwrap();
        let missing = Err(Refusal::NoSuchTree { name: "t".to_owned() });
        assert_eq!(world.ask(me, drop(id)), missing);
        assert_eq!(world.ask(me, Request::OpenTree { name: "t".to_owned() }), missing);
        assert_eq!(world.ask(me, Request::ListTrees), Ok(Response::Trees(Vec::new())));
    }
}

#[test]
fn usage_counts_chunks_spans_and_clients() {
    let mut world = World::new(0);
    let me = world.join();
    let Ok(Response::Spans(spans)) = world.ask(me, Request::AllocSpans { class: CLASS, count: 3 }) else {
        panic!()
    };
    world
        .ask(me, Request::FreeSpans { spans: vec![(spans[0].offset, true), (spans[1].offset, false)] })
        .unwrap();
    world.ask(me, Request::RedoArea).unwrap();
    let chunks = u64::from(world.server.geometry().chunks);
    let members = vec![me];
    // Two chunks of two spans of 2048 bytes: one owned, one free, one full, one never used.
    let (bytes_owned, bytes_free) = (2048, 2 * 2048);
    assert_eq!(
        world.ask(me, Request::Usage),
        Ok(Response::Usage(Usage {
            chunks,
            chunks_used: 3,
            chunk_bytes: 4096,
            bytes_owned,
            bytes_free,
            members
        }))
    );
}

#[test]
fn formatting_clears_the_lanes_and_leaves_chunks_alone_unless_known() {
    let locks = LockOptions {
        space: Space::OnChip,
        width: LaneWidth::Bits64,
        lanes: Some(16),
        release: ReleaseMode::Cas,
    };
    for wipe_chunks in [false, true] {
        let memory = VecMemory::new(128 << 10, 256);
        memory.store(Space::Host, 0, &[0xff; 128 << 10]);
        memory.store(Space::OnChip, 0, &[0xff; 256]);
        let options = FormatOptions { locks, wipe_chunks, ..small_options() };
        let server = Volume::format(&memory, &options).unwrap();
        assert!((0..16).all(|lane| memory.load_u64(Space::OnChip, server.geometry().lane_word(lane).1) == 0));
        assert_eq!(memory.load_u64(Space::OnChip, 128), u64::MAX, "only the table is the server's");
        let last = server.geometry().chunk_offset(server.geometry().chunks - 1) + 4088;
        assert_eq!(memory.load_u64(Space::Host, last) == 0, wipe_chunks);
        assert_eq!(Volume::open(&memory), Ok(server));
    }
}

#[test]
fn a_client_decodes_what_the_server_formatted() {
    let world = World::new(1);
    let mut image = [0; SUPERBLOCK_BYTES];
    world.memory.load(Space::Host, 0, &mut image);
    let superblock = Superblock::decode(&image).unwrap();
    assert_eq!(&superblock, world.server.superblock());
    assert_eq!((superblock.server, superblock.servers), (1, 2));
}

#[test]
fn foreign_or_truncated_memory_is_not_opened() {
    let empty = VecMemory::new(4096, 0);
    assert_eq!(Volume::open(&empty), Err(OpenError::Superblock(SuperblockError::NotFormatted)));
    let tiny = VecMemory::new(100, 0);
    assert!(matches!(Volume::open(&tiny), Err(OpenError::Truncated { found: 100, .. })));
    let world = World::new(0);
    let shorter = VecMemory::new(64 << 10, 0);
    let mut bytes = vec![0; 64 << 10];
    world.memory.load(Space::Host, 0, &mut bytes);
    shorter.store(Space::Host, 0, &bytes);
    let expected = 128 << 10;
    let truncated = OpenError::Truncated { space: Space::Host, found: 64 << 10, expected };
    assert_eq!(Volume::open(&shorter), Err(truncated));
}

#[test]
fn a_memory_too_small_is_refused_with_what_it_would_take_and_left_alone() {
    for bytes in [0, 100, 4096, 8191] {
        let memory = VecMemory::new(bytes, 0);
        let Err(FormatError::TooSmall { memory: found, minimum }) = Volume::format(&memory, &small_options())
        else {
            panic!("{bytes} bytes were formatted")
        };
        assert_eq!(found, bytes as u64);
        assert!(Volume::format(&VecMemory::new(minimum as usize, 0), &small_options()).is_ok());
        assert_eq!(memory, VecMemory::new(bytes, 0));
    }
}

#[test]
fn the_same_requests_leave_the_same_bytes() {
    let run = || {
        let mut world = World::new(0);
        let me = world.join();
        for request in root_only().into_iter().chain(anywhere()) {
            let _ = world.ask(me, request);
        }
        world.memory
    };
    assert_eq!(run(), run());
}

#[test]
fn a_control_state_belongs_to_one_volume_0() {
    let options = |memory_id| FormatOptions { memory_id, ..small_options() };
    let [one, other] = [1, 2].map(|memory_id| {
        let memory = Pair::new(128 << 10, 0, &options(memory_id));
        MemoryServer::format(memory.both(), &options(memory_id)).unwrap();
        memory
    });
    let mixed = MemoryServer::open(Memories { volume: &one.volume, control: &other.control });
    assert!(matches!(mixed, Err(OpenError::Corrupt { table: "control block", .. })), "{mixed:?}");
    let none = MemoryServer::open(Memories { volume: &one.volume, control: &VecMemory::new(0, 0) });
    assert!(matches!(none, Err(OpenError::Truncated { .. })), "{none:?}");
    let small = VecMemory::new(64, 0);
    let refused = MemoryServer::format(Memories { volume: &one.volume, control: &small }, &options(3));
    assert!(matches!(refused, Err(FormatError::TooSmall { memory: 64, .. })), "{refused:?}");
    assert!(MemoryServer::open(one.both()).is_ok(), "a refusal changes nothing");
}
