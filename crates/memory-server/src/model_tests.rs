//! Compares a server with an independent model, step by step. Reopens the server after every step, and
//! crashes it after every word.
//!
//! The model knows nothing of tables or words. It keeps the facts that a client may rely on: the members
//! ([`roll`]), the owner of each byte and where there may be room ([`ground`]). It also predicts which
//! requests are refused.

mod cuts;
mod ground;
mod roll;

use crate::MemoryServer;
use crate::testing::Pair;
use fastrand::Rng;
use ground::Ground;
use roll::{LEASE, Roll};
use sherman_fabric::control::{
    CatalogReply, ChunkClass, Extent, Renewal, TreeInfo, TreeSpec, Usage, Verdict,
};
use sherman_fabric::{
    ComputeId, GlobalAddress, Memory, Refusal, Request, RequestId, Response, Space, TreeTypes,
};
use sherman_layout::FormatOptions;
use sherman_layout::testing::small_options;
use std::collections::{BTreeMap, BTreeSet};

const HOST: usize = 72 << 10;
/// One of these ids is reserved for a member that recovers others.
const CAPACITY: u16 = 16;
const TREES: usize = 4;
const SPEC: TreeSpec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 512, internal_bytes: 512 };

fn options(server: u16) -> FormatOptions {
    FormatOptions {
        server,
        servers: 2,
        member_capacity: u32::from(CAPACITY),
        lease_nanos: LEASE,
        ..small_options()
    }
}

/// What the requests so far allow a client to expect.
#[derive(Default)]
struct Model {
    root: bool,
    ground: Ground,
    roll: Roll,
    fenced: BTreeSet<u16>,
    /// The members whose ids the server must have freed by itself in this step.
    reaped: Vec<ComputeId>,
    trees: BTreeMap<String, Known>,
    ids: u32,
}

/// The known facts of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Known {
    id: u32,
    root_word: GlobalAddress,
}

impl Model {
    fn refusal_for(&self, from: ComputeId, request: &Request, now: u64) -> Option<Refusal> {
        if request.is_for_control() {
            self.control_refusal_for(from, request, now)
        } else {
            self.volume_refusal_for(from, request)
        }
    }

    fn volume_refusal_for(&self, from: ComputeId, request: &Request) -> Option<Refusal> {
        let exists = |client: ComputeId| (1..=CAPACITY).contains(&client.0);
        if self.fenced.contains(&from.0) {
            return Some(Refusal::Fenced { client: from });
        }
        if !exists(from) {
            return Some(Refusal::NotAMember { client: from });
        }
        match request {
            Request::AllocSpans { class, .. } => {
                self.ground.is_out_of_memory(*class).then_some(Refusal::OutOfMemory)
            }
            Request::FreeSpans { spans } => self.ground.refusal_to_free(from, spans),
            Request::RedoArea => self.ground.has_no_area_for(from).then_some(Refusal::OutOfMemory),
            Request::SpansOf { client, .. } | Request::Retire { client }
                if !self.fenced.contains(&client.0) =>
            {
                Some(Refusal::BadRequest { what: "the client to recover is not fenced on this server" })
            }
            Request::Fence { client } => {
                (!exists(*client)).then_some(Refusal::NotAMember { client: *client })
            }
            _ => None,
        }
    }

    fn control_refusal_for(&self, from: ComputeId, request: &Request, now: u64) -> Option<Refusal> {
        if !self.root {
            return Some(Refusal::NotHere);
        }
        if *request == Request::Join {
            return self.roll.is_full(&self.to_reap(now), now).then_some(Refusal::TooManyMembers);
        }
        if self.roll.is_ending(from.0) {
            return Some(Refusal::Fenced { client: from });
        }
        if !self.roll.is_live(from.0) {
            return Some(Refusal::NotAMember { client: from });
        }
        let bad = |what| Some(Refusal::BadRequest { what });
        match request {
            Request::Suspect { client } if *client == from => bad("a member suspects itself"),
            Request::Succeed { client, .. } if *client == from => bad("a member succeeds itself"),
            Request::Succeed { client, incarnation } if self.is_free_to_go(client.0, *incarnation) => None,
            Request::OpenTree { name } => {
                (!self.trees.contains_key(name)).then(|| Refusal::NoSuchTree { name: name.clone() })
            }
            Request::CreateTree { name, .. } => {
                let full = !self.trees.contains_key(name) && self.trees.len() == TREES;
                full.then_some(Refusal::TooManyTrees)
            }
            Request::DropTree { name, id } => {
                let has = self.trees.get(name).is_some_and(|tree| tree.id == *id);
                (!has).then(|| Refusal::NoSuchTree { name: name.clone() })
            }
            request => self.roll.refusal_for(from, request),
        }
    }

    fn knows(&self, client: ComputeId) -> bool {
        if self.root { self.roll.is_live(client.0) } else { (1..=CAPACITY).contains(&client.0) }
    }

    fn owns_nothing(&self, client: u16) -> bool {
        !self.roll.is_active(client) && !self.roll.recovers_any(client)
    }

    /// Whether a successor need not recover `client`.
    fn is_free_to_go(&self, client: u16, incarnation: u32) -> bool {
        self.roll.is_live(client) && self.roll.incarnation(client) == incarnation && self.owns_nothing(client)
    }

    /// The members whose ids the server frees if it checks leases now.
    fn to_reap(&self, now: u64) -> Vec<u16> {
        self.roll.run_out(now).filter(|&client| self.owns_nothing(client)).collect()
    }

    fn reap(&mut self, now: u64) {
        for client in self.to_reap(now) {
            self.let_go(client);
        }
    }

    fn let_go(&mut self, client: u16) {
        self.roll.reap(client);
        self.reaped.push(ComputeId(client));
    }

    /// Makes `client` dead, or frees its id if it owns nothing.
    fn lose(&mut self, client: u16) {
        if self.roll.is_live(client) && self.owns_nothing(client) {
            self.let_go(client);
        } else {
            self.roll.condemn(client);
        }
    }

    /// Checks an answer and learns from it.
    fn learn(
        &mut self,
        server: &MemoryServer,
        memory: &Pair,
        from: ComputeId,
        request: &Request,
        answer: Response,
        now: u64,
    ) {
        match (request, answer) {
            (Request::Join, Response::Joined { client }) => {
                self.reap(now);
                assert!(!self.roll.is_active(client.0) && !self.roll.recovers_any(client.0));
                self.roll.join(client.0, now);
            }
            (Request::Leave, Response::Done) => self.roll.leave(from.0),
            (Request::Release, Response::Done) => self.ground.learn_end(from.0),
            (Request::Condemn { client }, Response::Done) => self.lose(client.0),
            (Request::Succeed { client, incarnation }, Response::Verdict(Verdict::Gone))
                if self.is_free_to_go(client.0, *incarnation) =>
            {
                self.let_go(client.0);
            }
            (Request::FreeId { client }, Response::Done) => self.roll.retire(client.0),
            (Request::Retire { client }, Response::Done) => {
                self.fenced.remove(&client.0);
                self.ground.learn_end(client.0);
            }
            (Request::SpansOf { client, .. }, Response::Spans(spans)) => {
                assert_eq!(spans, self.ground.of(*client))
            }
            (Request::AllocSpans { class, count }, Response::Spans(spans)) => {
                self.ground.learn_alloc(from, *class, *count, &spans);
            }
            (Request::FreeSpans { spans }, Response::Done) => self.ground.learn_free(spans),
            (Request::RedoArea, Response::RedoArea(Extent { offset, bytes })) => {
                self.ground.learn_area(&memory.volume, from, offset, bytes);
            }
            (Request::CreateTree { name, .. }, Response::Tree(CatalogReply { info, created })) => {
                assert_eq!(created, !self.trees.contains_key(name));
                if created {
                    self.learn_tree(name, Known { id: info.id, root_word: info.root_word });
                }
                assert_eq!((&info.name, known(&info)), (name, self.trees[name]));
            }
            (Request::OpenTree { name }, Response::Tree(CatalogReply { info, created: false })) => {
                assert_eq!((&info.name, known(&info)), (name, self.trees[name]));
            }
            (Request::ListTrees, Response::Trees(trees)) => {
                assert!(trees.iter().map(|tree| (tree.name.clone(), known(tree))).eq(self.trees.clone()));
            }
            (Request::DropTree { name, id }, Response::Done) => {
                assert_eq!(self.trees.remove(name).map(|tree| tree.id), Some(*id));
            }
            (Request::Fence { client }, Response::Done) => {
                self.fenced.insert(client.0);
            }
            (
                Request::Usage,
                Response::Usage(Usage { chunks, chunks_used, bytes_owned, bytes_free, members, .. }),
            ) => {
                let ground = &self.ground;
                assert_eq!((chunks as usize, chunks_used as usize), (ground.chunks, ground.chunks_used()));
                assert_eq!((bytes_owned, bytes_free), ground.usage());
                let known: BTreeSet<u16> = ground.areas.keys().copied().collect();
                assert!(members.iter().map(|client| client.0).eq(known.difference(&self.fenced).copied()));
            }
            (Request::Renew, Response::Renewed(Renewal { expired, short })) => {
                self.roll.renew(from.0, now);
                self.reap(now);
                self.roll.learn_renewed(from.0, &expired, short, now);
            }
            (request, answer) => self.roll.learn(from, request, answer, now),
        }
        self.check_server(server, memory);
    }

    /// Records a tree that was just created.
    fn learn_tree(&mut self, name: &str, tree: Known) {
        assert!(tree.id > self.ids, "an id is never issued again");
        self.ids = tree.id;
        assert!(self.trees.values().all(|other| other.root_word != tree.root_word));
        self.trees.insert(name.to_owned(), tree);
        assert!(self.trees.len() <= TREES);
    }

    fn check_server(&self, server: &MemoryServer, memory: &Pair) {
        self.ground.check(server, &memory.volume, CAPACITY);
        for id in 0..=CAPACITY + 1 {
            assert_eq!(server.is_fenced(ComputeId(id)), self.fenced.contains(&id));
        }
    }

    /// Mostly any member sends any request. If few members may still ask, they recover others, and no more
    /// members end.
    fn random_sender_and_request(&self, rng: &mut Rng) -> (ComputeId, Request) {
        let from = self.roll.pick_sender(rng);
        let usable: Vec<ComputeId> = (1..=CAPACITY).map(ComputeId).filter(|&id| self.may_ask(id)).collect();
        if usable.len() >= 3 {
            return (from, self.random_request(rng, from));
        }
        let from = rng.choice(usable).unwrap_or(from);
        let request = match self.random_request(rng, from) {
            Request::Condemn { client } | Request::Succeed { client, .. } | Request::Fence { client }
                if !self.roll.is_ending(client.0) =>
            {
                Request::Renew
            }
            Request::Depart | Request::Leave => Request::Renew,
            request => request,
        };
        (from, request)
    }

    fn may_ask(&self, client: ComputeId) -> bool {
        self.knows(client) && !self.fenced.contains(&client.0)
    }

    fn random_membership_request(&self, rng: &mut Rng) -> Request {
        let client = self.roll.pick_victim(rng);
        let fenced = rng.choice(self.fenced.iter().copied()).filter(|_| rng.bool()).map_or(client, ComputeId);
        match rng.u32(0..100) {
            0..35 => Request::Renew,
            35..47 => Request::Suspect { client },
            47..55 => {
                let other = u32::from(rng.u32(0..4) == 0);
                Request::Succeed { client, incarnation: self.roll.incarnation(client.0) + other }
            }
            55..59 => Request::Condemn { client },
            59 => Request::Short,
            60..62 => Request::Depart,
            62..67 if self.root || rng.u32(0..4) == 0 => Request::Fence { client },
            67..74 => Request::SpansOf { client: fenced, from: 0 },
            74..83 => Request::Retire { client: fenced },
            83..94 => Request::FreeId { client },
            94..96 => Request::Relieve { client },
            _ => Request::Members,
        }
    }

    fn random_request(&self, rng: &mut Rng, from: ComputeId) -> Request {
        if rng.u32(0..100) < 40 {
            return self.random_membership_request(rng);
        }
        let class = Ground::random_class(rng);
        let name = ["a", "b", "c", "d", "e"][rng.usize(0..5)].to_owned();
        match rng.u32(0..100) {
            0..18 => Request::Join,
            18..22 => Request::Leave,
            22..26 => Request::Release,
            26..30 => Request::Activate,
            30..50 => Request::AllocSpans { class, count: rng.u16(0..4) },
            50..68 => Request::FreeSpans { spans: self.ground.pick_spans(rng, from) },
            68..80 => Request::RedoArea,
            80..86 => {
                let types = types_of(&name);
                Request::CreateTree { name, spec: SPEC, types, asked: RequestId::default() }
            }
            86..90 => Request::OpenTree { name },
            90..92 => {
                let id = self.trees.get(&name).map_or(0, |tree| tree.id) + u32::from(rng.u32(0..8) == 0);
                Request::DropTree { name, id }
            }
            92..94 => Request::ListTrees,
            94 if rng.u32(0..8) == 0 => Request::Fence { client: ComputeId(rng.u16(0..=CAPACITY + 1)) },
            _ => Request::Usage,
        }
    }
}

fn known(info: &TreeInfo) -> Known {
    assert_eq!(info.types, types_of(&info.name));
    Known { id: info.id, root_word: info.root_word }
}

/// The types of the tree with this name. One tree has none.
fn types_of(name: &str) -> Option<TreeTypes> {
    TreeTypes::new(&format!("K{name}"), "u64").filter(|_| name != "c")
}

/// Runs `steps` requests. Returns how often each kind of membership event happened.
fn run(
    seed: u64,
    server_index: u16,
    steps: u32,
    check: impl Fn(&MemoryServer, &Pair, ComputeId, &Request, u64),
) -> BTreeMap<&'static str, u32> {
    let mut rng = Rng::with_seed(seed);
    let memory = Pair::new(HOST, 0, &options(server_index));
    let mut server = MemoryServer::format(memory.both(), &options(server_index)).unwrap();
    let ground = Ground::new(server.geometry());
    let mut model = Model { root: server_index == 0, ground, ..Model::default() };
    let mut answered = 0;
    for now in 0..u64::from(steps) {
        model.ground.free_a_node(&mut rng, &memory.volume, server.geometry());
        if rng.u32(0..100) == 0 {
            let client = model.roll.pick_victim(&mut rng);
            server.lose(memory.both(), client);
            model.lose(client.0);
            assert_eq!(server.take_reaped(), std::mem::take(&mut model.reaped), "{client} was lost");
        }
        let (from, request) = model.random_sender_and_request(&mut rng);
        check(&server, &memory, from, &request, now);
        let (before, bytes) = (server.clone(), memory.clone());
        let refusal = model.refusal_for(from, &request, now);
        match server.handle(memory.both(), from, &request, now) {
            Ok(answer) => {
                assert_eq!(refusal, None, "{from} {request:?}");
                answered += 1;
                model.learn(&server, &memory, from, &request, answer, now);
            }
            Err(found) => {
                assert_eq!(Some(found), refusal, "{from} {request:?}");
                if request == Request::Join {
                    model.reap(now);
                }
                if model.reaped.is_empty() {
                    assert_eq!((&server, &memory), (&before, &bytes), "a refusal changes nothing");
                }
            }
        }
        assert_eq!(server.take_reaped(), std::mem::take(&mut model.reaped), "{from} {request:?}");
        let reopened = MemoryServer::open(memory.both()).map(|reopened| reopened.with_clock_of(&server));
        assert_eq!(reopened.as_ref(), Ok(&server), "{from} {request:?}");
    }
    assert!(answered > steps / 8, "the run is not all refusals: {answered} of {steps}");
    model.roll.seen
}

#[test]
fn a_server_behaves_like_its_model_and_reopens_equal_after_every_step() {
    let mut seen = BTreeMap::<_, u32>::new();
    for seed in 0..60 {
        for (what, times) in run(seed, (seed % 2) as u16, 3_000, |_, _, _, _, _| {}) {
            *seen.entry(what).or_default() += times;
        }
    }
    for what in [
        "alive",
        "recover",
        "recover again",
        "recovering",
        "displaced",
        "gone",
        "unattended",
        "retired",
        "reissued",
        "reaped",
        "succeeded",
        "short",
    ] {
        let times = seen.get(what).copied().unwrap_or(0);
        assert!(times >= 50, "{what} came up {times} times only");
    }
}

#[test]
fn a_damaged_memory_is_refused_or_opened_but_never_panics() {
    let mut rng = Rng::with_seed(5);
    let memory = Pair::new(HOST, 0, &options(0));
    let mut server = MemoryServer::format(memory.both(), &options(0)).unwrap();
    for _ in 0..3 {
        let Ok(Response::Joined { client }) = server.handle(memory.both(), ComputeId(0), &Request::Join, 0)
        else {
            panic!()
        };
        server.handle(memory.both(), client, &Request::RedoArea, 0).unwrap();
        let class = ChunkClass { node_bytes: 256, format: 1 };
        server.handle(memory.both(), client, &Request::AllocSpans { class, count: 3 }, 0).unwrap();
    }
    let tables = server.geometry().chunks_offset;
    let mut refused = 0;
    for _ in 0..20_000 {
        let copy = memory.clone();
        for _ in 0..rng.u32(1..4) {
            let word = rng.u64(..) >> rng.u32(0..64);
            if rng.bool() {
                copy.volume.store_u64(Space::Host, rng.u64(256 / 8..tables / 8) * 8, word);
            } else {
                let words = copy.control.size(Space::Host) / 8;
                copy.control.store_u64(Space::Host, rng.u64(128 / 8..words) * 8, word);
            }
        }
        match MemoryServer::open(copy.both()) {
            Err(_) => refused += 1,
            Ok(mut opened) => {
                let _ = opened.handle(copy.both(), ComputeId(1), &Request::RedoArea, 1);
                let _ = opened.handle(copy.both(), ComputeId(1), &Request::Release, 2);
                let _ = opened.handle(copy.both(), ComputeId(1), &Request::Leave, 2);
                let _ = opened.handle(copy.both(), ComputeId(0), &Request::Join, 3);
                let _ = opened.handle(
                    copy.both(),
                    ComputeId(2),
                    &Request::Suspect { client: ComputeId(1) },
                    4_000_000,
                );
                let _ = opened.handle(
                    copy.both(),
                    ComputeId(2),
                    &Request::Fence { client: ComputeId(1) },
                    5_000_000,
                );
                let _ = opened.handle(
                    copy.both(),
                    ComputeId(2),
                    &Request::Retire { client: ComputeId(1) },
                    5_000_000,
                );
                let _ = opened.handle(copy.both(), ComputeId(2), &Request::Members, 0);
                let class = ChunkClass { node_bytes: 256 << rng.u32(0..3), format: 1 };
                let _ =
                    opened.handle(copy.both(), ComputeId(3), &Request::AllocSpans { class, count: 64 }, 0);
                let spans = opened.spans_owned(ComputeId(3)).iter().map(|span| (span.offset, true)).collect();
                let _ = opened.handle(copy.both(), ComputeId(3), &Request::FreeSpans { spans }, 0);
                let _ = opened.handle(copy.both(), ComputeId(3), &Request::Renew, u64::MAX);
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}
