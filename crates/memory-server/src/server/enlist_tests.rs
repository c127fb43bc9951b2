//! Tests which memories belong to the cluster, which clients may join, and what a declared loss changes.

use super::*;
use crate::testing::Pair;
use sherman_fabric::control::Standing;
use sherman_fabric::{Seen, ServerInfo};
use sherman_layout::testing::{MEMORY_ID, small_options};

struct World {
    memory: Pair,
    server: MemoryServer,
}

impl World {
    fn new(server: u16) -> Self {
        let options = FormatOptions { server, servers: 3, ..small_options() };
        let memory = Pair::new(128 << 10, 0, &options);
        let server = MemoryServer::format(memory.both(), &options).unwrap();
        Self { memory, server }
    }

    /// Joins as a client that has seen these memories and clusters at servers 1 and 2.
    fn join(&mut self, seen: [Option<(u64, u64)>; 2]) -> Result<ComputeId, Refusal> {
        let seen = seen.map(|seen| seen.map(|(memory, cluster)| Seen { memory, cluster }));
        self.server.join_seeing(self.memory.both(), &[None, seen[0], seen[1]], 1_000)
    }

    fn administer(&mut self, request: &Request) -> Result<Response, Refusal> {
        self.server.administer(self.memory.both(), request, 1_000)
    }

    fn servers(&mut self) -> Vec<ServerInfo> {
        match self.administer(&Request::Servers) {
            Ok(Response::Servers(servers)) => servers,
            other => panic!("{other:?}"),
        }
    }

    fn standings(&mut self) -> Vec<Standing> {
        match self.administer(&Request::Members) {
            Ok(Response::Members(members)) => members.into_iter().map(|member| member.standing).collect(),
            other => panic!("{other:?}"),
        }
    }
}

const OURS: u64 = MEMORY_ID;

#[test]
fn the_first_to_join_enlists_the_memories_it_sees_and_others_must_see_the_same() {
    let mut world = World::new(0);
    assert_eq!(world.join([Some((11, 0)), Some((12, OURS))]), Ok(ComputeId(1)));
    world.server = MemoryServer::open(world.memory.both()).unwrap();
    let memories: Vec<u64> = world.servers().iter().map(|server| server.memory).collect();
    assert_eq!(memories, [OURS, 11, 12]);
    assert_eq!(world.join([Some((11, OURS)), Some((12, OURS))]), Ok(ComputeId(2)));
}

#[test]
fn a_client_that_sees_something_else_is_refused_and_nothing_changes() {
    let mut world = World::new(0);
    let ours = |memory| Some((memory, OURS));
    let refuse = |world: &mut World, seen, refusal| {
        let (bytes, tables) = (world.memory.clone(), world.server.clone());
        assert_eq!(world.join(seen), Err(refusal), "{seen:?}");
        assert!(world.memory == bytes && world.server == tables, "{seen:?} changed something");
    };
    let (unreachable, other) =
        (|server| Refusal::Unreachable { server }, |server| Refusal::OtherCluster { server });
    let memory = |server| Refusal::OtherMemory { server };
    refuse(&mut world, [None, Some((12, 0))], unreachable(1));
    refuse(&mut world, [Some((11, 0)), None], unreachable(2));
    refuse(&mut world, [Some((0, 0)), Some((12, 0))], unreachable(1));
    refuse(&mut world, [Some((11, 0)), Some((12, 99))], other(2));
    refuse(&mut world, [Some((11, 0)), Some((11, 0))], memory(2));
    refuse(&mut world, [Some((OURS, OURS)), Some((12, 0))], memory(1));
    world.join([Some((11, 0)), Some((12, 0))]).unwrap();
    refuse(&mut world, [None, ours(12)], unreachable(1));
    refuse(&mut world, [Some((13, 0)), ours(12)], memory(1));
    refuse(&mut world, [ours(11), ours(13)], memory(2));
    refuse(&mut world, [ours(12), ours(11)], memory(1));
    refuse(&mut world, [ours(11), Some((12, 99))], other(2));
    let seen = [None, Some(Seen { memory: 11, cluster: OURS })];
    let refused = world.server.join_seeing(world.memory.both(), &seen, 0);
    assert_eq!(refused, Err(Refusal::OtherCount { servers: 3 }));
    assert_eq!(World::new(1).join([None, None]), Err(Refusal::NotHere));
}

#[test]
fn a_full_member_table_enlists_nobody_and_still_answers_an_operator() {
    let mut world = World::new(0);
    for id in 1..=15 {
        world.server.handle(world.memory.both(), ComputeId::NOBODY, &Request::Join, 0).unwrap();
        world.server.handle(world.memory.both(), ComputeId(id), &Request::Activate, 0).unwrap();
    }
    let bytes = world.memory.clone();
    assert_eq!(world.join([Some((11, 0)), Some((12, 0))]), Err(Refusal::TooManyMembers));
    assert!(world.memory == bytes);
    assert_eq!(world.standings().len(), 15);
    assert_eq!(world.administer(&Request::Condemn { client: ComputeId(3) }), Ok(Response::Done));
    assert_eq!(world.standings()[2], Standing::Dead);
    assert!(matches!(world.administer(&Request::Usage), Ok(Response::Usage { .. })));
    assert_eq!(world.administer(&Request::ListTrees), Ok(Response::Trees(Vec::new())));
    let no_member = Request::Condemn { client: ComputeId(17) };
    assert_eq!(world.administer(&no_member), Err(Refusal::NotAMember { client: ComputeId(17) }));
    for request in [Request::Join, Request::Renew, Request::Activate, Request::Fence { client: ComputeId(1) }]
    {
        assert!(matches!(world.administer(&request), Err(Refusal::BadRequest { .. })), "{request:?}");
    }
}

#[test]
fn a_memory_belongs_permanently_to_the_first_cluster_that_takes_it() {
    let mut world = World::new(1);
    assert_eq!(world.server.cluster(), 0);
    assert!(!world.server.adopt(world.memory.both(), 0) || world.server.cluster() == 0);
    assert!(world.server.adopt(world.memory.both(), 7));
    assert!(!world.server.adopt(world.memory.both(), 8));
    world.server = MemoryServer::open(world.memory.both()).unwrap();
    assert_eq!(world.server.cluster(), 7);
    assert!(world.server.adopt(world.memory.both(), 7));
    let mut first = World::new(0);
    assert_eq!(first.server.cluster(), OURS);
    assert!(!first.server.adopt(first.memory.both(), 7));
}

#[test]
fn a_declared_loss_ends_every_lease_and_joins_skip_the_server_permanently() {
    let mut world = World::new(0);
    for id in 1..=4 {
        world.join([Some((11, 0)), Some((12, 0))]).unwrap();
        if id <= 3 {
            world.server.handle(world.memory.both(), ComputeId(id), &Request::Activate, 0).unwrap();
        }
    }
    world.server.handle(world.memory.both(), ComputeId(1), &Request::Depart, 0).unwrap();
    for server in [0, 3] {
        assert!(matches!(
            world.administer(&Request::DeclareLost { server }),
            Err(Refusal::BadRequest { .. })
        ));
    }
    assert_eq!(world.administer(&Request::DeclareLost { server: 2 }), Ok(Response::Done));
    assert_eq!(world.standings(), [Standing::Leaving, Standing::Dead, Standing::Dead]);
    assert_eq!(world.server.take_reaped(), [ComputeId(4)], "it owned nothing");
    assert_eq!(world.server.lost(), [2]);
    world.server = MemoryServer::open(world.memory.both()).unwrap();
    assert_eq!(world.servers()[2], ServerInfo { memory: 12, lost: true });
    assert!(world.join([Some((11, OURS)), None]).is_ok(), "not seen");
    assert!(world.join([Some((11, OURS)), Some((12, OURS))]).is_ok(), "it came back, and nobody looks at it");
    assert_eq!(world.join([None, None]), Err(Refusal::Unreachable { server: 1 }));
    assert_eq!(world.administer(&Request::DeclareLost { server: 2 }), Ok(Response::Done), "again");
    assert_eq!(world.standings().iter().filter(|standing| **standing == Standing::Live).count(), 2);
    let mut elsewhere = World::new(1);
    for request in
        [Request::Servers, Request::DeclareLost { server: 2 }, Request::Members, Request::ListTrees]
    {
        assert_eq!(elsewhere.administer(&request), Err(Refusal::NotHere), "{request:?}");
    }
}

#[test]
fn a_member_may_ask_for_the_servers_and_declare_one_lost() {
    let mut world = World::new(0);
    world.join([Some((11, 0)), Some((12, 0))]).unwrap();
    world.server.handle(world.memory.both(), ComputeId(1), &Request::Activate, 0).unwrap();
    let mut ask = |request| world.server.handle(world.memory.both(), ComputeId(1), &request, 0);
    assert!(matches!(ask(Request::Servers), Ok(Response::Servers(servers)) if servers.len() == 3));
    assert_eq!(ask(Request::DeclareLost { server: 1 }), Ok(Response::Done));
    assert_eq!(
        ask(Request::Servers),
        Err(Refusal::Fenced { client: ComputeId(1) }),
        "its own lease ended too"
    );
}
