//! One value of each kind that crosses the wire, and checks that every codec must pass.

use super::bytes::WireError;
use super::words::JOIN_BY_CALL;
use fastrand::Rng;
use sherman_fabric::control::{
    CatalogReply, ChunkClass, Extent, MemberInfo, Renewal, Span, Spreading, Standing, TreeInfo, TreeSpec,
    Usage,
};
use sherman_fabric::group::{
    Admission, ClusterInfo, CopyMaking, CopyProgress, CopyWork, HostInfo, HostOffer, Registration, Store,
};
use sherman_fabric::stats::{HotWord, RefusedCount};
use sherman_fabric::{
    ComputeId, FabricError, GlobalAddress, Refusal, Request, RequestId, Response, ServerInfo, ServerStats,
    Space, TreeTypes, Verdict,
};
use std::fmt::Debug;

const CLIENT: ComputeId = ComputeId(0xfffe);
const CLASS: ChunkClass = ChunkClass { node_bytes: 65_536, format: 3 };
const SPEC: TreeSpec =
    TreeSpec { format: 2, key_len: 1024, value_len: 70_000, leaf_bytes: 65_536, internal_bytes: 1024 };

fn stores() -> Vec<Store> {
    vec![
        Store::Bytes { offset: 1 << 40, bytes: vec![7; 8] },
        Store::Zeros { offset: 64, len: 1 << 20 },
        Store::RedoArea { offset: 72, word: 1 << 50, area: 1 << 40, len: 1 << 20 },
    ]
}

fn offer() -> HostOffer {
    HostOffer { address: "tcp://[::1]:7000".into(), memory_bytes: 1 << 40, boot: 5, cluster: 6, keeps: true }
}

fn progress() -> CopyProgress {
    CopyProgress { copy: 3, done: 1 << 40, total: u64::MAX, millis: 5 }
}

fn making(replaces: Option<u16>) -> CopyMaking {
    CopyMaking { volume: 1, copy: 2, host: 3, replaces, copied: true, progress: progress() }
}

fn host() -> HostInfo {
    let address = "unix:/run/größe.sock".to_owned();
    HostInfo {
        number: 3,
        incarnation: 4,
        node: 5,
        address,
        up: true,
        voter: false,
        memory_bytes: 6,
        leaving: true,
    }
}

fn types() -> Option<TreeTypes> {
    TreeTypes::new("(u64, u32)", "Größe#0123abcd")
}

pub(super) fn requests() -> Vec<Request> {
    let name = || "bestellungen-ö".to_owned();
    vec![
        Request::Join,
        Request::Activate,
        Request::Release,
        Request::Leave,
        Request::AllocSpans { class: CLASS, count: 0xfffe },
        Request::FreeSpans { spans: Vec::new() },
        Request::FreeSpans { spans: vec![(u64::MAX, true), (64, false)] },
        Request::RedoArea,
        Request::CreateTree { name: name(), spec: SPEC, types: None, asked: RequestId::default() },
        Request::CreateTree {
            name: name(),
            spec: SPEC,
            types: types(),
            asked: RequestId { client: CLIENT, incarnation: u32::MAX, number: u64::MAX - 1 },
        },
        Request::OpenTree { name: String::new() },
        Request::ListTrees,
        Request::DropTree { name: name(), id: u32::MAX },
        Request::Fence { client: CLIENT },
        Request::Usage,
        Request::Renew,
        Request::Depart,
        Request::Suspect { client: CLIENT },
        Request::Condemn { client: CLIENT },
        Request::SpansOf { client: CLIENT, from: 0 },
        Request::Short,
        Request::Succeed { client: CLIENT, incarnation: u32::MAX },
        Request::Retire { client: CLIENT },
        Request::FreeId { client: CLIENT },
        Request::Relieve { client: CLIENT },
        Request::Members,
        Request::Stats,
        Request::Servers,
        Request::DeclareLost { server: 0xfffe },
        Request::Volumes,
        Request::Mirror { copy: 1, epoch: 2, number: 9, stores: Vec::new(), fenced: Some(CLIENT) },
        Request::Mirror { copy: 3, epoch: 4, number: 1 << 40, stores: stores(), fenced: None },
        Request::Cluster,
        Request::Register { offer: offer() },
        Request::Return { host: 0xfffe, incarnation: 7, offer: offer() },
        Request::Alive { host: 0xfffe, incarnation: 7, progress: Vec::new() },
        Request::Alive { host: 1, incarnation: 2, progress: vec![progress(); 2] },
        Request::Drain { host: 0xfffe, cancel: true },
        Request::Drain { host: 0, cancel: false },
        Request::Rebalance { when: Spreading::Now },
        Request::Rebalance { when: Spreading::Always },
        Request::Rebalance { when: Spreading::Never },
        Request::Copied { copy: 0xfffe },
        Request::Settled { copy: 3, epoch: u64::MAX },
        Request::Digest { copy: 3, offset: 1 << 40, len: 8 << 20 },
    ]
}

pub(super) fn responses() -> Vec<Response> {
    let tree = |name: &str, types| {
        let name = name.to_owned();
        TreeInfo { id: 9, name, spec: SPEC, types, root_word: GlobalAddress::new(3, 1 << 40) }
    };
    let member = |standing| MemberInfo {
        client: CLIENT,
        standing,
        incarnation: 3,
        age: 1 << 50,
        lease_left: 17,
        recoverer: ComputeId(2),
    };
    vec![
        Response::Done,
        Response::Joined { client: CLIENT },
        Response::Active { incarnation: u32::MAX },
        Response::Spans(Vec::new()),
        Response::Spans(vec![
            Span { class: CLASS, offset: 1 << 47, bytes: 8 << 20, fresh: true },
            Span { class: CLASS, offset: 64, bytes: 1024, fresh: false },
        ]),
        Response::RedoArea(Extent { offset: 4096, bytes: 65_536 }),
        Response::Tree(CatalogReply { info: tree("orders", types()), created: true }),
        Response::Tree(CatalogReply { info: tree("", None), created: false }),
        Response::Trees(vec![tree("a", types()), tree("b", None), tree(&"c".repeat(128), types())]),
        Response::Trees(Vec::new()),
        Response::Usage(Usage {
            chunks: 9,
            chunks_used: 8,
            chunk_bytes: 7,
            bytes_owned: 6,
            bytes_free: 5,
            members: vec![ComputeId(1), CLIENT],
        }),
        Response::Renewed(Renewal { expired: Vec::new(), short: false }),
        Response::Renewed(Renewal { expired: vec![CLIENT, ComputeId(1)], short: true }),
        Response::Verdict(Verdict::Alive { lease_left: u64::MAX }),
        Response::Verdict(Verdict::Recover),
        Response::Verdict(Verdict::Recovering { by: CLIENT }),
        Response::Verdict(Verdict::Displaced { by: ComputeId(1) }),
        Response::Verdict(Verdict::Gone),
        Response::Verdict(Verdict::Inherit),
        Response::Members(vec![member(Standing::Live), member(Standing::Leaving), member(Standing::Dead)]),
        Response::Stats(Box::new(stats())),
        Response::Volumes(vec![1, 2, 3]),
        Response::Cluster(Box::default()),
        Response::Cluster(Box::new(ClusterInfo {
            cluster: 1,
            host: 2,
            leader: Some("tcp://a:7000".into()),
            epoch: 3,
            formed: true,
            lease_nanos: 4,
            hosts: vec![host(), HostInfo { up: false, voter: true, ..host() }],
            table: vec![5, 6],
            work: CopyWork {
                makings: vec![making(None), making(Some(9))],
                swaps: 4,
                pause: true,
                spreading: false,
                always: true,
            },
        })),
        Response::Registered(Box::new(Registration {
            cluster: 1,
            host: 2,
            incarnation: 3,
            node: 4,
            settings: vec![5; 7],
            hosts: vec![host()],
        })),
        Response::Admitted(Box::new(Admission {
            client: CLIENT,
            incarnation: 3,
            cluster: 4,
            lease_nanos: 5,
            table: vec![6; 20],
            hosts: vec![(0, "tcp://a:7000".into()), (7, String::new())],
        })),
        Response::Digests(vec![0, u64::MAX]),
        Response::Servers(vec![
            ServerInfo { memory: u64::MAX, lost: false },
            ServerInfo { memory: 0, lost: true },
        ]),
    ]
}

/// Counters that all differ.
fn stats() -> ServerStats {
    ServerStats {
        server: 3,
        boot: u64::MAX,
        uptime_nanos: 2,
        host_bytes: 3,
        on_chip_bytes: 4,
        connections: 5,
        accepted: 6,
        refused: vec![
            RefusedCount { reason: "bad_secret".into(), count: 7 },
            RefusedCount { reason: "malformed".into(), count: 8 },
        ],
        lists: 9,
        lists_failed: 10,
        reads: 11,
        writes: 12,
        cas: 13,
        cas_failed: 14,
        faa: 15,
        bytes_read: 16,
        bytes_written: 17,
        bytes_in: 18,
        bytes_out: 19,
        calls: 20,
        fences: 21,
        ids: 24,
        ids_free: 25,
        members_live: 26,
        members_leaving: 27,
        members_dead: 28,
        members_waiting: 29,
        chunks: 30,
        chunks_used: 31,
        bytes_owned: 32,
        bytes_free: 33,
        hottest: vec![HotWord { space: Space::OnChip, offset: 22, failed: 23 }],
    }
}

pub(super) fn errors() -> Vec<FabricError> {
    let address = GlobalAddress::new(65_535, 77);
    let refusals = [
        Refusal::OutOfMemory,
        Refusal::TooManyMembers,
        Refusal::TooManyTrees,
        Refusal::NoSuchTree { name: "nein".into() },
        Refusal::BadName,
        Refusal::NotHere,
        Refusal::NotAMember { client: CLIENT },
        Refusal::Fenced { client: CLIENT },
        Refusal::BadRequest { what: "an entry does not fit a leaf" },
        Refusal::Unreachable { server: 1 },
        Refusal::OtherCluster { server: 2 },
        Refusal::OtherMemory { server: 3 },
        Refusal::OtherCount { servers: 0xfffe },
        Refusal::NotLeader { leader: "tcp://b:7001".into() },
        Refusal::Forming { hosts: 1, expected: 3 },
        Refusal::NoSuchHost { host: 7 },
        Refusal::LastCopy { volume: 8 },
        Refusal::TooFewHosts { left: 1, replicas: 2 },
        Refusal::NoRoom { copies: 12, room: 3 },
        Refusal::HostLeft { host: 9 },
    ];
    let errors = [
        FabricError::OutOfBounds { space: Space::Host, address, len: u64::MAX },
        FabricError::Misaligned { space: Space::OnChip, address },
        FabricError::TooLarge { asked: 1 << 60, limit: 64 },
        FabricError::NoSuchServer { server: 9 },
        FabricError::Fenced { client: CLIENT },
        FabricError::ServerLost { server: 1 },
        FabricError::VolumeLost { volume: 2 },
        FabricError::Disconnected { server: 2 },
        FabricError::OwnerStalled { client: CLIENT },
        FabricError::SlowRead { server: 2 },
        FabricError::EpochEnded { client: CLIENT },
        FabricError::NoLeader,
        FabricError::Unsupported { what: JOIN_BY_CALL },
    ];
    errors.into_iter().chain(refusals.map(FabricError::Refused)).collect()
}

/// Checks that each value decodes to itself. Cut anywhere, or with an extra byte, it must be refused.
pub(super) fn round_trips<T: PartialEq + Debug>(
    samples: &[T],
    put: impl Fn(&mut Vec<u8>, &T),
    take: impl Fn(&[u8]) -> Result<T, WireError>,
) {
    for sample in samples {
        let mut bytes = Vec::new();
        put(&mut bytes, sample);
        assert_eq!(take(&bytes).as_ref(), Ok(sample));
        for end in 0..bytes.len() {
            assert!(take(&bytes[..end]).is_err(), "{sample:?} cut at {end}");
        }
        bytes.push(0);
        assert_eq!(take(&bytes), Err(WireError::Leftover), "{sample:?}");
    }
}

/// Checks damaged values and random bytes: each is refused, or decodes to a value that then decodes to
/// itself.
pub(super) fn garbage<T: PartialEq + Debug>(
    samples: &[T],
    put: impl Fn(&mut Vec<u8>, &T),
    take: impl Fn(&[u8]) -> Result<T, WireError>,
) {
    let mut random = Rng::with_seed(0x5eed);
    let (mut taken, mut refused) = (0, 0);
    for round in 0..100_000 {
        let mut bytes = Vec::new();
        if round % 4 == 0 {
            let len = random.usize(..64);
            bytes.extend(std::iter::repeat_with(|| random.u8(..38)).take(len));
        } else {
            put(&mut bytes, &samples[random.usize(..samples.len())]);
            for _ in 0..random.usize(..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = if random.bool() { random.u8(..) } else { bytes[at] ^ (1 << random.u8(..8)) };
            }
            bytes.truncate(random.usize(bytes.len() / 2..=bytes.len()));
        }
        match take(&bytes) {
            Ok(value) => {
                taken += 1;
                let mut again = Vec::new();
                put(&mut again, &value);
                assert_eq!(take(&again), Ok(value));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
}
