//! A server against an independent model, step by step, reopened after every step and cut at every word.
//!
//! The model knows nothing of tables or words. It keeps what a client may rely on: who is a member ([`roll`]), which bytes
//! are whose, which class a chunk once had; and it predicts which requests are refused.

mod cuts;
mod roll;

use crate::testing::{VecMemory, small_options};
use crate::{ChunkEntry, FormatOptions, MemoryServer};
use fastrand::Rng;
use roll::{LEASE, Roll};
use sherman_fabric::control::{ChunkClass, TreeInfo, TreeSpec};
use sherman_fabric::{ClientId, Memory, Refusal, Request, Response, Space};
use std::collections::{BTreeMap, BTreeSet};

const HOST: usize = 72 << 10;
const CAPACITY: u16 = 6;
const TREES: usize = 4;
const SPEC: TreeSpec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 512, internal_bytes: 512 };

fn options(server: u16) -> FormatOptions {
    FormatOptions { server, servers: 2, member_capacity: u32::from(CAPACITY), lease_nanos: LEASE, ..small_options() }
}

/// What the requests so far allow a client to expect.
#[derive(Default)]
struct Model {
    root: bool,
    chunks: usize,
    roll: Roll,
    fenced: BTreeSet<u16>,
    issued: BTreeMap<u64, Option<u16>>,
    class_for_ever: BTreeMap<u64, ChunkClass>,
    areas: BTreeMap<u16, u64>,
    redo_chunks: usize,
    trees: BTreeMap<String, Known>,
    /// Trees whose root word a client has made null, and whose entry may still be there.
    ended: BTreeMap<String, Known>,
    ids: u32,
    ids_used: BTreeSet<u32>,
}

/// What is known of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Known {
    id: u32,
    root_word: u64,
}

impl Model {
    fn refusal_for(&self, from: ClientId, request: &Request) -> Option<Refusal> {
        let here = !matches!(
            request,
            Request::Join
                | Request::CreateTree { .. }
                | Request::NewTreeId
                | Request::OpenTree { .. }
                | Request::ListTrees
                | Request::DropTree { .. }
                | Request::Renew
                | Request::Depart
                | Request::Suspect { .. }
                | Request::Condemn { .. }
                | Request::Members
        );
        if !self.root && !here {
            return Some(Refusal::NotHere);
        }
        if *request == Request::Join {
            return self.roll.is_full().then_some(Refusal::TooManyMembers);
        }
        if self.fenced.contains(&from.0) || self.roll.is_ending(from.0) {
            return Some(Refusal::Fenced { client: from });
        }
        if !self.knows(from) {
            return Some(Refusal::NotAMember { client: from });
        }
        let untouched = self.chunks - self.class_for_ever.len() - self.redo_chunks;
        match request {
            Request::AllocChunk { class } => {
                (self.free_of(*class) == 0 && untouched == 0).then_some(Refusal::OutOfMemory)
            }
            Request::FreeChunk { offset } => (self.issued.get(offset) != Some(&Some(from.0)))
                .then_some(Refusal::BadRequest { what: "the client does not own this chunk" }),
            Request::RedoArea => {
                let full = self.areas.len() == self.redo_chunks * 4 && untouched == 0;
                (full && !self.areas.contains_key(&from.0)).then_some(Refusal::OutOfMemory)
            }
            Request::OpenTree { name } => {
                (!self.trees.contains_key(name)).then(|| Refusal::NoSuchTree { name: name.clone() })
            }
            Request::CreateTree { name, .. } => {
                let full = !self.trees.contains_key(name) && self.trees.len() == TREES;
                full.then_some(Refusal::TooManyTrees)
            }
            Request::DropTree { name, id } => {
                let has = |trees: &BTreeMap<String, Known>| trees.get(name).is_some_and(|tree| tree.id == *id);
                let alive = Refusal::BadRequest { what: "the root word of the tree to drop is not null" };
                let missing = Refusal::NoSuchTree { name: name.clone() };
                (!has(&self.ended)).then_some(if has(&self.trees) { alive } else { missing })
            }
            Request::TakeOver { client } | Request::Retire { client } if !self.fenced.contains(&client.0) => {
                Some(Refusal::BadRequest { what: "who is to be recovered is not fenced here" })
            }
            request if self.root => self.roll.refusal_for(from, request),
            Request::Fence { client } => (!self.knows(*client)).then_some(Refusal::NotAMember { client: *client }),
            _ => None,
        }
    }

    fn knows(&self, client: ClientId) -> bool {
        if self.root { self.roll.is_live(client.0) } else { (1..=CAPACITY).contains(&client.0) }
    }

    fn free_of(&self, class: ChunkClass) -> usize {
        let of_class = self.class_for_ever.iter().filter(|(_, had)| **had == class);
        of_class.filter(|(offset, _)| !self.issued.contains_key(offset)).count()
    }

    /// Checks an answer and learns from it.
    fn learn(
        &mut self,
        server: &MemoryServer,
        memory: &VecMemory,
        from: ClientId,
        request: &Request,
        answer: Response,
        now: u64,
    ) {
        match (request, answer) {
            (Request::Join, Response::Joined { client }) => {
                assert!(!self.fenced.contains(&client.0));
                assert!(!self.issued.values().any(|owner| *owner == Some(client.0)), "a new member inherits no chunk");
                self.roll.join(client.0, now);
                assert!(!self.areas.contains_key(&client.0), "a new member inherits no redo area");
            }
            (Request::Leave, Response::Done) => {
                self.roll.leave(from.0);
                self.areas.remove(&from.0);
                self.pass_on(from.0, None);
            }
            (Request::TakeOver { client }, Response::Done) => self.pass_on(client.0, Some(from.0)),
            (Request::Retire { client }, Response::Done) => {
                self.roll.retire(client.0);
                self.areas.remove(&client.0);
                self.fenced.remove(&client.0);
                self.pass_on(client.0, None);
            }
            (Request::AllocChunk { class }, Response::Chunk { offset, bytes }) => {
                let reused = self.free_of(*class) > 0;
                assert_eq!(self.class_for_ever.insert(offset, *class), reused.then_some(*class));
                assert_eq!(self.issued.insert(offset, Some(from.0)), None);
                assert!(offset.is_multiple_of(4096) && offset + bytes <= HOST as u64);
            }
            (Request::FreeChunk { offset }, Response::Done) => {
                assert_eq!(self.issued.remove(offset), Some(Some(from.0)));
            }
            (Request::RedoArea, Response::RedoArea { offset, bytes }) => {
                if let Some(&known) = self.areas.get(&from.0) {
                    assert_eq!(known, offset);
                } else {
                    let mut area = vec![1; bytes as usize];
                    memory.load(Space::Host, offset, &mut area);
                    assert!(area.iter().all(|&byte| byte == 0));
                    if self.areas.len() == self.redo_chunks * 4 {
                        self.redo_chunks += 1;
                    }
                    self.areas.insert(from.0, offset);
                }
                memory.store(Space::Host, offset, &vec![0xa5; bytes as usize]);
            }
            (Request::NewTreeId, Response::TreeId { id }) => {
                assert!(id > self.ids);
                self.ids = id;
            }
            (Request::CreateTree { name, id, .. }, Response::Tree { info, created }) => {
                assert_eq!(created, !self.trees.contains_key(name));
                if created {
                    self.learn_tree(memory, name, Known { id: *id, root_word: info.root_word });
                }
                assert_eq!((&info.name, known(&info)), (name, self.trees[name]));
            }
            (Request::OpenTree { name }, Response::Tree { info, created: false }) => {
                assert_eq!((&info.name, known(&info)), (name, self.trees[name]));
            }
            (Request::ListTrees, Response::Trees(trees)) => {
                assert!(trees.iter().map(|tree| (tree.name.clone(), known(tree))).eq(self.trees.clone()));
            }
            (Request::DropTree { name, id }, Response::Done) => {
                assert_eq!(self.ended.remove(name).map(|tree| tree.id), Some(*id));
            }
            (Request::Fence { client }, Response::Done) => {
                self.fenced.insert(client.0);
            }
            (Request::Usage, Response::Usage { chunks, chunks_used, members, .. }) => {
                assert_eq!(chunks as usize, self.chunks);
                assert_eq!(chunks_used as usize, self.issued.len() + self.redo_chunks);
                let known: BTreeSet<u16> =
                    if self.root { self.roll.live().collect() } else { self.areas.keys().copied().collect() };
                assert!(members.iter().map(|client| client.0).eq(known.difference(&self.fenced).copied()));
            }
            (request, answer) => self.roll.learn(from, request, answer, now),
        }
        self.check_server(server);
    }

    fn pass_on(&mut self, from: u16, to: Option<u16>) {
        for owner in self.issued.values_mut().filter(|owner| **owner == Some(from)) {
            *owner = to;
        }
    }

    /// A tree that was created now; it may have the entry of one that ended, and then nothing is left of that one.
    fn learn_tree(&mut self, memory: &VecMemory, name: &str, tree: Known) {
        assert_eq!(memory.load_u64(Space::Host, tree.root_word), root_of(tree.id));
        self.ended.retain(|ended, left| ended != name && left.root_word != tree.root_word);
        assert!(self.ids_used.insert(tree.id));
        assert!(self.trees.values().all(|other| other.root_word != tree.root_word));
        self.trees.insert(name.to_owned(), tree);
        assert!(self.trees.len() + self.ended.len() <= TREES);
    }

    /// Now and then a client ends a tree, by its root word and past the server.
    fn end_a_tree(&mut self, rng: &mut Rng, memory: &VecMemory) {
        let name = rng.choice(self.trees.keys()).filter(|_| rng.u32(0..50) == 0).cloned();
        if let Some((name, tree)) = name.and_then(|name| self.trees.remove_entry(&name)) {
            memory.store_u64(Space::Host, tree.root_word, 0);
            self.ended.insert(name, tree);
        }
    }

    /// No byte is two clients', and the server says so too.
    fn check_server(&self, server: &MemoryServer) {
        let geometry = server.geometry();
        let mut end = geometry.chunks_offset;
        let chunks = self.issued.keys().map(|&offset| (offset, geometry.chunk_bytes));
        let areas = self.areas.values().map(|&offset| (offset, geometry.redo_area_bytes));
        let mut given: Vec<_> = chunks.chain(areas).collect();
        given.sort_unstable();
        for (offset, bytes) in given {
            assert!(offset >= end, "two clients share memory");
            end = offset + bytes;
        }
        for (&offset, owner) in &self.issued {
            let owner = ClientId(owner.unwrap_or(0));
            let class = self.class_for_ever[&offset];
            let entry = geometry.chunk_at(offset).and_then(|index| server.chunk(index));
            assert_eq!(entry, Some(ChunkEntry::Issued { class, owner }));
        }
        for id in 0..=CAPACITY + 1 {
            assert_eq!(server.is_fenced(ClientId(id)), self.fenced.contains(&id));
            assert_eq!(server.client(ClientId(id)).redo_area, self.areas.get(&id).copied());
        }
    }

    /// A chunk of `from`, mostly; now and then any that was ever given out.
    fn pick_chunk(&self, rng: &mut Rng, from: ClientId) -> Option<u64> {
        if rng.u32(0..4) == 0 {
            return rng.choice(self.class_for_ever.keys()).copied();
        }
        let own = self.issued.iter().filter(|(_, owner)| **owner == Some(from.0));
        own.map(|(&offset, _)| offset).nth(rng.usize(0..3))
    }

    /// Mostly anyone asks anything. But if few are left who may ask, these recover others and nobody else ends.
    fn random_sender_and_request(&self, rng: &mut Rng) -> (ClientId, Request) {
        let from = self.roll.pick_sender(rng);
        let usable: Vec<ClientId> = (1..=CAPACITY).map(ClientId).filter(|&id| self.may_ask(id)).collect();
        if usable.len() >= 3 {
            return (from, self.random_request(rng, from));
        }
        let from = rng.choice(usable).unwrap_or(from);
        let request = match self.random_request(rng, from) {
            Request::Condemn { client } | Request::Fence { client } if !self.roll.is_ending(client.0) => Request::Renew,
            Request::Depart | Request::Leave => Request::Renew,
            request => request,
        };
        (from, request)
    }

    fn may_ask(&self, client: ClientId) -> bool {
        self.knows(client) && !self.fenced.contains(&client.0)
    }

    fn random_membership_request(&self, rng: &mut Rng) -> Request {
        let client = self.roll.pick_victim(rng);
        let fenced = rng.choice(self.fenced.iter().copied()).filter(|_| rng.bool()).map_or(client, ClientId);
        match rng.u32(0..100) {
            0..35 => Request::Renew,
            35..55 => Request::Suspect { client },
            55..60 => Request::Condemn { client },
            60..62 => Request::Depart,
            62..68 if self.root || rng.u32(0..4) == 0 => Request::Fence { client },
            68..78 => Request::TakeOver { client: fenced },
            78..96 => Request::Retire { client: fenced },
            _ => Request::Members,
        }
    }

    fn random_request(&self, rng: &mut Rng, from: ClientId) -> Request {
        if rng.u32(0..100) < 40 {
            return self.random_membership_request(rng);
        }
        let class = ChunkClass { node_bytes: 256 << rng.u32(0..2), format: 1 };
        let name = ["a", "b", "c", "d", "e"][rng.usize(0..5)].to_owned();
        match rng.u32(0..100) {
            0..18 => Request::Join,
            18..26 => Request::Leave,
            26..50 => Request::AllocChunk { class },
            50..68 => match self.pick_chunk(rng, from) {
                Some(offset) => Request::FreeChunk { offset },
                None => Request::Usage,
            },
            68..80 => Request::RedoArea,
            80..84 => Request::NewTreeId,
            84..88 if self.ids > 0 && !self.ids_used.contains(&self.ids) => {
                Request::CreateTree { name, spec: SPEC, id: self.ids, root: root_of(self.ids) }
            }
            88..90 => Request::OpenTree { name },
            90..92 => {
                let tree = self.ended.get(&name).or(self.trees.get(&name));
                let id = tree.map_or(0, |tree| tree.id) + u32::from(rng.u32(0..8) == 0);
                Request::DropTree { name, id }
            }
            92..94 => Request::ListTrees,
            94 if rng.u32(0..8) == 0 => Request::Fence { client: ClientId(rng.u16(0..=CAPACITY + 1)) },
            _ => Request::Usage,
        }
    }
}

fn known(info: &TreeInfo) -> Known {
    Known { id: info.id, root_word: info.root_word }
}

/// The first root word of the tree with this id.
fn root_of(id: u32) -> u64 {
    u64::from(id) * 64
}

/// Runs, and tells how often what has happened to members.
fn run(
    seed: u64,
    server_index: u16,
    steps: u32,
    check: impl Fn(&MemoryServer, &VecMemory, ClientId, &Request, u64),
) -> BTreeMap<&'static str, u32> {
    let mut rng = Rng::with_seed(seed);
    let memory = VecMemory::new(HOST, 0);
    let mut server = MemoryServer::format(&memory, &options(server_index)).unwrap();
    let chunks = server.geometry().chunks as usize;
    let mut model = Model { root: server_index == 0, chunks, ..Model::default() };
    let mut answered = 0;
    for now in 0..u64::from(steps) {
        model.end_a_tree(&mut rng, &memory);
        let (from, request) = model.random_sender_and_request(&mut rng);
        check(&server, &memory, from, &request, now);
        let (before, bytes) = (server.clone(), memory.clone());
        let refusal = model.refusal_for(from, &request);
        match server.handle(&memory, from, &request, now) {
            Ok(answer) => {
                assert_eq!(refusal, None, "{from} {request:?}");
                answered += 1;
                model.learn(&server, &memory, from, &request, answer, now);
            }
            Err(found) => {
                assert_eq!(Some(found), refusal, "{from} {request:?}");
                assert_eq!((&server, &memory), (&before, &bytes), "a refusal changes nothing");
            }
        }
        let reopened = MemoryServer::open(&memory).map(|reopened| reopened.with_clock_of(&server));
        assert_eq!(reopened.as_ref(), Ok(&server), "{from} {request:?}");
    }
    assert!(answered > steps / 8, "the run is not all refusals: {answered} of {steps}");
    model.roll.seen
}

#[test]
fn a_server_behaves_like_its_model_and_reopens_equal_after_every_step() {
    let mut seen = BTreeMap::<_, u32>::new();
    for seed in 0..40 {
        for (what, times) in run(seed, (seed % 2) as u16, 1_500, |_, _, _, _, _| {}) {
            *seen.entry(what).or_default() += times;
        }
    }
    for what in
        ["alive", "recover", "recover again", "recovering", "displaced", "gone", "unattended", "retired", "reissued"]
    {
        let times = seen.get(what).copied().unwrap_or(0);
        assert!(times >= 50, "{what} came up {times} times only");
    }
}

#[test]
fn a_damaged_memory_is_refused_or_opened_but_never_panics() {
    let mut rng = Rng::with_seed(5);
    let memory = VecMemory::new(HOST, 0);
    let mut server = MemoryServer::format(&memory, &options(0)).unwrap();
    for _ in 0..3 {
        let Ok(Response::Joined { client }) = server.handle(&memory, ClientId(0), &Request::Join, 0) else { panic!() };
        server.handle(&memory, client, &Request::RedoArea, 0).unwrap();
        let class = ChunkClass { node_bytes: 256, format: 1 };
        server.handle(&memory, client, &Request::AllocChunk { class }, 0).unwrap();
    }
    let tables = server.geometry().chunks_offset;
    let mut refused = 0;
    for _ in 0..20_000 {
        let copy = memory.clone();
        for _ in 0..rng.u32(1..4) {
            let word = rng.u64(..) >> rng.u32(0..64);
            copy.store_u64(Space::Host, rng.u64(256 / 8..tables / 8) * 8, word);
        }
        match MemoryServer::open(&copy) {
            Err(_) => refused += 1,
            Ok(mut opened) => {
                let _ = opened.handle(&copy, ClientId(1), &Request::RedoArea, 1);
                let _ = opened.handle(&copy, ClientId(1), &Request::Leave, 2);
                let _ = opened.handle(&copy, ClientId(0), &Request::Join, 3);
                let _ = opened.handle(&copy, ClientId(2), &Request::Suspect { client: ClientId(1) }, 4_000_000);
                let _ = opened.handle(&copy, ClientId(2), &Request::Fence { client: ClientId(1) }, 5_000_000);
                let _ = opened.handle(&copy, ClientId(2), &Request::Retire { client: ClientId(1) }, 5_000_000);
                let _ = opened.handle(&copy, ClientId(2), &Request::Members, 0);
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}
