//! Well-formed frames: messages of every kind, and lists whose values may be false.

use super::Side;
use crate::source::Source;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::group::Fill;
use sherman_control::wire::{
    Also, FrameKind, Goodbye, GoodbyeCode, Hello, Introduce, Role, VERSION, Welcome, errors, requests,
    responses,
};
use sherman_fabric::control::{
    CatalogReply, ChunkClass, Extent, MemberInfo, Renewal, Span, Standing, TreeInfo, TreeSpec, Usage,
};
use sherman_fabric::stats::{HotWord, RefusedCount};
use sherman_fabric::{
    Caps, ComputeId, FabricError, FenceMode, GlobalAddress, Refusal, Request, RequestId, Response, Seen,
    ServerInfo, ServerStats, Space, TreeTypes, Verdict, WorkList,
};
use sherman_soft_nic::verbs;

/// First offset that well-formed lists read and write: in the middle of a memory server.
const AREA: u64 = 48 << 20;
/// Size of that area in bytes.
const AREA_BYTES: u64 = 1 << 20;

/// Returns a frame of any kind except `List`.
pub(super) fn message(source: &mut Source<'_>, side: Side) -> Vec<u8> {
    let tag = u64::from(source.byte());
    let kind = match (side, source.below(10)) {
        (_, 0) => source.pick(&[FrameKind::Introduce, FrameKind::Also, FrameKind::Attach]),
        (Side::Client, _) | (_, 1..=3) => FrameKind::Call,
        (_, 4 | 5) => FrameKind::Answer,
        (_, 6) => source.pick(&[FrameKind::Refused, FrameKind::ListFailed]),
        (_, 7) => source.pick(&[FrameKind::Hello, FrameKind::Welcome]),
        (_, 8) => FrameKind::Goodbye,
        _ => FrameKind::ListDone,
    };
    let mut frame = Vec::new();
    let put = put_frame(&mut frame, kind, tag, |out| body(source, kind, out));
    assert_eq!(put, Ok(()), "an honest message fits a frame");
    frame
}

/// Appends the body of a frame of that kind.
fn body(source: &mut Source<'_>, kind: FrameKind, out: &mut Vec<u8>) {
    match kind {
        FrameKind::Call => assert_eq!(requests::put_request(out, &request(source)), Ok(())),
        FrameKind::Answer => assert_eq!(responses::put_response(out, &response(source)), Ok(())),
        FrameKind::Refused | FrameKind::ListFailed => errors::put_error(out, &error(source)),
        FrameKind::Introduce => introduce(source).put(out, |covered| [covered.len() as u8; 32]),
        FrameKind::Hello => {
            Hello { version_min: 1, version_max: 1, needs_secret: true, nonce: [7; 32] }.put(out)
        }
        FrameKind::Welcome => welcome(source).put(out, |_| [9; 32]),
        FrameKind::Goodbye => {
            let error = (source.byte() & 1 == 0).then(|| error(source));
            Goodbye { code: source.pick(&GoodbyeCode::ALL), error }.put(out);
        }
        FrameKind::Also => Also { copy: source.u16(), epoch: source.u64() }.put(out),
        FrameKind::Fill => {
            let bytes = source.bytes(64);
            Fill { copy: source.u16(), epoch: source.u64(), offset: source.u64(), bytes: &bytes }.put(out);
        }
        FrameKind::List
        | FrameKind::ListDone
        | FrameKind::Attach
        | FrameKind::Attached
        | FrameKind::Group => {
            out.extend(std::iter::repeat_n(source.byte(), source.below(600)));
        }
    }
}

/// Returns a work list.
pub(super) fn work(source: &mut Source<'_>) -> WorkList {
    let mut list = WorkList::new(0);
    for _ in 0..source.below(6) {
        let how = source.byte();
        let space = if how & 1 == 0 { Space::Host } else { Space::OnChip };
        let offset = offset(source, how >> 1 & 7, space);
        let len = if space == Space::Host { source.below(200) } else { 8 };
        match how >> 4 {
            0..=5 => _ = list.read(space, offset, len as u32),
            6..=8 => _ = list.write(space, offset, &source.bytes(len)),
            9 => _ = list.write_fenced(space, offset, &source.bytes(len)),
            10..=12 => _ = list.masked_cas(space, offset, source.u64(), source.u64(), source.u64()),
            _ => _ = list.faa(space, offset, source.u64()),
        }
    }
    list
}

/// Returns an offset: mostly a valid one, else one at an edge, or an arbitrary one.
fn offset(source: &mut Source<'_>, how: u8, space: Space) -> u64 {
    match (how, space) {
        (0, _) => source.u64(),
        (1, _) => u64::MAX - u64::from(source.byte()),
        (2, _) => (64 << 20) - u64::from(source.byte()),
        (_, Space::Host) => AREA + u64::from(source.u16()) * 8 % AREA_BYTES,
        (_, Space::OnChip) => u64::from(source.u16()) * 8 % (64 << 10),
    }
}

/// Returns a frame that holds a list.
pub(super) fn list(source: &mut Source<'_>) -> Vec<u8> {
    let (tag, mut frame) = (source.u64(), Vec::new());
    let put = verbs::put_list(&mut frame, tag, &mut work(source));
    assert!(put.is_ok(), "an honest list fits a frame");
    frame
}

fn client(source: &mut Source<'_>) -> ComputeId {
    ComputeId(source.u16())
}

/// Returns a name: short, empty, with multi-byte letters, or long.
fn name(source: &mut Source<'_>) -> String {
    let len = source.below(140);
    source.pick(&["", "a", "orders", "straße"]).repeat(len / 6)
}

/// Returns the shape of a tree, valid or not.
pub(crate) fn spec(source: &mut Source<'_>) -> TreeSpec {
    TreeSpec {
        format: source.byte() & 3,
        key_len: 8,
        value_len: u32::from(source.byte()),
        leaf_bytes: 64 * u32::from(source.byte()),
        internal_bytes: 1024,
    }
}

/// Returns the types of a tree, if it has any.
fn types(source: &mut Source<'_>) -> Option<TreeTypes> {
    let names = ["", "u64", "Größe"];
    TreeTypes::new(source.pick(&names), source.pick(&names))
}

fn request(source: &mut Source<'_>) -> Request {
    match source.below(27) {
        0 => Request::Join,
        1 => Request::Leave,
        2 => {
            let (node_bytes, format) = (64 * u32::from(source.byte()), source.byte() & 3);
            Request::AllocSpans { class: ChunkClass { node_bytes, format }, count: source.u16() }
        }
        3 => {
            let one = |source: &mut Source<'_>| (source.u64() >> source.below(64), source.byte() & 1 == 0);
            Request::FreeSpans { spans: (0..source.below(5)).map(|_| one(source)).collect() }
        }
        4 => Request::RedoArea,
        5 => {
            let (name, spec, types) = (name(source), spec(source), types(source));
            let (incarnation, number) = (u32::from(source.byte()), source.u64());
            let asked = RequestId { client: client(source), incarnation, number };
            Request::CreateTree { name, spec, types, asked }
        }
        6 => Request::Activate,
        7 => Request::OpenTree { name: name(source) },
        8 => Request::ListTrees,
        9 => Request::DropTree { name: name(source), id: u32::from(source.byte()) },
        10 => Request::Fence { client: client(source) },
        11 => Request::Usage,
        12 => Request::Renew,
        13 => Request::Depart,
        14 => Request::Suspect { client: client(source) },
        15 => Request::Condemn { client: client(source) },
        16 => Request::SpansOf { client: client(source), from: 0 },
        17 => Request::Retire { client: client(source) },
        18 => Request::Members,
        19 => Request::Servers,
        20 => Request::DeclareLost { server: source.u16() },
        21 => Request::Relieve { client: client(source) },
        22 => Request::Short,
        23 => Request::Succeed { client: client(source), incarnation: u32::from(source.byte()) },
        24 => Request::Release,
        25 => Request::FreeId { client: client(source) },
        _ => Request::Stats,
    }
}

fn response(source: &mut Source<'_>) -> Response {
    let tree = |source: &mut Source<'_>| TreeInfo {
        id: u32::from(source.u16()),
        name: name(source),
        spec: spec(source),
        types: types(source),
        root_word: GlobalAddress::from_bits(source.u64()),
    };
    match source.below(13) {
        0 => Response::Done,
        1 => Response::Joined { client: client(source) },
        2 => {
            let span = |source: &mut Source<'_>| Span {
                class: ChunkClass { node_bytes: 64 * u32::from(source.byte()), format: source.byte() & 3 },
                offset: source.u64(),
                bytes: source.u64(),
                fresh: source.byte() & 1 == 0,
            };
            Response::Spans((0..source.below(4)).map(|_| span(source)).collect())
        }
        3 => Response::RedoArea(Extent { offset: source.u64(), bytes: source.u64() }),
        4 => Response::Active { incarnation: u32::from(source.u16()) },
        5 => Response::Tree(CatalogReply { info: tree(source), created: source.byte() & 1 == 0 }),
        6 => Response::Trees((0..source.below(4)).map(|_| tree(source)).collect()),
        7 => {
            let members = (0..source.below(8)).map(|_| client(source)).collect();
            let (bytes_owned, bytes_free) = (source.u64(), source.u64());
            Response::Usage(Usage {
                chunks: source.u64(),
                chunks_used: 8,
                chunk_bytes: 7,
                bytes_owned,
                bytes_free,
                members,
            })
        }
        8 => {
            let expired = (0..source.below(8)).map(|_| client(source)).collect();
            Response::Renewed(Renewal { expired, short: source.byte() & 1 == 0 })
        }
        9 => Response::Verdict(match source.below(5) {
            0 => Verdict::Alive { lease_left: source.u64() },
            1 => Verdict::Recover,
            2 => Verdict::Recovering { by: client(source) },
            3 => Verdict::Displaced { by: client(source) },
            4 => Verdict::Inherit,
            _ => Verdict::Gone,
        }),
        10 => Response::Members((0..source.below(4)).map(|_| member(source)).collect()),
        11 => {
            let server =
                |source: &mut Source<'_>| ServerInfo { memory: source.u64(), lost: source.byte() & 1 == 0 };
            Response::Servers((0..source.below(4)).map(|_| server(source)).collect())
        }
        _ => Response::Stats(Box::new(stats(source))),
    }
}

fn member(source: &mut Source<'_>) -> MemberInfo {
    MemberInfo {
        client: client(source),
        standing: source.pick(&[Standing::Live, Standing::Leaving, Standing::Dead]),
        incarnation: u32::from(source.u16()),
        age: source.u64(),
        lease_left: source.u64(),
        recoverer: client(source),
    }
}

fn stats(source: &mut Source<'_>) -> ServerStats {
    let refused = (0..source.below(3)).map(|_| RefusedCount { reason: name(source), count: source.u64() });
    let refused = refused.collect();
    let hottest =
        (0..source.below(3)).map(|_| HotWord { space: Space::OnChip, offset: source.u64(), failed: 1 });
    let hottest = hottest.collect();
    ServerStats { server: source.u16(), boot: source.u64(), refused, hottest, ..ServerStats::default() }
}

fn error(source: &mut Source<'_>) -> FabricError {
    let space = source.pick(&[Space::Host, Space::OnChip]);
    let address = GlobalAddress::from_bits(source.u64());
    let refusal = match source.below(21) {
        0 => return FabricError::OutOfBounds { space, address, len: source.u64() },
        1 => return FabricError::Misaligned { space, address },
        2 => return FabricError::TooLarge { asked: source.u64(), limit: 64 },
        3 => return FabricError::NoSuchServer { server: source.u16() },
        4 => return FabricError::Fenced { client: client(source) },
        5 => return FabricError::ServerLost { server: source.u16() },
        6 => return FabricError::Disconnected { server: source.u16() },
        7 => return FabricError::Unsupported { what: "this server does not know the request" },
        8 => Refusal::OutOfMemory,
        9 => Refusal::TooManyMembers,
        10 => Refusal::NoSuchTree { name: name(source) },
        11 => Refusal::BadName,
        12 => Refusal::NotHere,
        13 => Refusal::NotAMember { client: client(source) },
        14 => Refusal::Fenced { client: client(source) },
        15 => return FabricError::OwnerStalled { client: client(source) },
        16 => Refusal::Unreachable { server: source.u16() },
        17 => Refusal::OtherCluster { server: source.u16() },
        18 => Refusal::OtherMemory { server: source.u16() },
        19 => Refusal::OtherCount { servers: source.u16() },
        _ => Refusal::BadRequest { what: "an entry does not fit a leaf" },
    };
    FabricError::Refused(refusal)
}

fn introduce(source: &mut Source<'_>) -> Introduce {
    let role = match source.below(6) {
        0 => Role::Join { seen: (0..source.below(4)).map(|_| seen(source)).collect() },
        1 => Role::Admin,
        2 => Role::Newcomer,
        _ => Role::Member {
            client: client(source),
            incarnation: u32::from(source.byte()),
            boot: source.u64(),
            cluster: source.u64(),
            memory: source.u64(),
        },
    };
    Introduce { version: if source.below(8) == 0 { source.u16() } else { VERSION }, nonce: [3; 32], role }
}

fn seen(source: &mut Source<'_>) -> Option<Seen> {
    let seen = Seen { memory: source.u64(), cluster: source.u64() };
    (source.below(4) != 0).then_some(seen)
}

fn welcome(source: &mut Source<'_>) -> Welcome {
    let caps = Caps {
        atomic_unit: 64,
        crash_unit: 64,
        verb_atomic: false,
        masked_cas: true,
        write_releases: true,
        lock_read: true,
        on_chip_bytes: source.u64(),
        fence: source.pick(&[FenceMode::Revoke, FenceMode::DeathOnly]),
        shortest_write_nanos: 0,
        max_verbs: 64,
        max_transfer: u32::from(source.u16()),
    };
    Welcome {
        version: VERSION,
        boot: source.u64(),
        server: 0,
        servers: source.u16(),
        memory: source.u64(),
        cluster: source.u64(),
        lost: (0..source.below(4)).map(|_| source.u16()).collect(),
        client: client(source),
        incarnation: 1,
        host_bytes: source.u64(),
        caps,
        max_frame: 1 << 20,
        max_reply: 1 << 20,
        lease_nanos: source.u64(),
    }
}
