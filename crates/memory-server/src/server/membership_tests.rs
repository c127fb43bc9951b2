//! Leases, deaths and recovery, request by request.

use super::*;
use crate::testing::{VecMemory, small_options};
use sherman_fabric::control::{ChunkClass, MemberInfo, Standing, Verdict};

const CLASS: ChunkClass = ChunkClass { node_bytes: 512, format: 1 };
const LEASE: u64 = 1_000;

/// Two servers and a clock.
struct World {
    memories: [VecMemory; 2],
    servers: [MemoryServer; 2],
    now: u64,
}

impl World {
    fn new() -> Self {
        let memories = [VecMemory::new(128 << 10, 0), VecMemory::new(128 << 10, 0)];
        let servers = [0, 1].map(|server| {
            let options = FormatOptions { server, servers: 2, lease_nanos: LEASE, ..small_options() };
            MemoryServer::format(&memories[usize::from(server)], &options).unwrap()
        });
        Self { memories, servers, now: 5_000 }
    }

    fn ask(&mut self, server: usize, from: ClientId, request: Request) -> Result<Response, Refusal> {
        self.servers[server].handle(&self.memories[server], from, &request, self.now)
    }

    fn join(&mut self) -> ClientId {
        match self.ask(0, ClientId::NOBODY, Request::Join) {
            Ok(Response::Joined { client }) => client,
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, client: ClientId) -> Option<ClientId> {
        match self.ask(0, client, Request::Renew) {
            Ok(Response::Renewed { expired }) => expired,
            other => panic!("{other:?}"),
        }
    }

    fn suspect(&mut self, from: ClientId, client: ClientId) -> Verdict {
        match self.ask(0, from, Request::Suspect { client }) {
            Ok(Response::Verdict(verdict)) => verdict,
            other => panic!("{other:?}"),
        }
    }

    fn members(&mut self, from: ClientId) -> Vec<MemberInfo> {
        match self.ask(0, from, Request::Members) {
            Ok(Response::Members(members)) => members,
            other => panic!("{other:?}"),
        }
    }

    /// What `by` does once it is to recover `client`, but for the verbs.
    fn recover(&mut self, by: ClientId, client: ClientId) {
        for request in [Request::Fence { client }, Request::TakeOver { client }, Request::Retire { client }] {
            for server in [1, 0] {
                assert_eq!(self.ask(server, by, request.clone()), Ok(Response::Done), "{request:?} at {server}");
            }
        }
    }

    fn reopen(&mut self) {
        self.servers = [0, 1].map(|server| MemoryServer::open(&self.memories[server]).unwrap());
    }
}

const NOT_FENCED: Refusal = Refusal::BadRequest { what: "who is to be recovered is not fenced here" };

#[test]
fn a_lease_runs_out_by_being_asked_about_and_a_late_renewal_before_that_counts() {
    let mut world = World::new();
    let (a, b) = (world.join(), world.join());
    world.now += LEASE - 1;
    assert_eq!(world.suspect(b, a), Verdict::Alive { lease_left: 1 });
    world.now += 500;
    assert_eq!(world.renew(a), Some(b), "the other's lease has run out");
    assert_eq!(world.suspect(b, a), Verdict::Alive { lease_left: LEASE });
    world.now += LEASE;
    assert_eq!(world.suspect(b, a), Verdict::Recover);
    assert_eq!(world.ask(0, a, Request::Renew), Err(Refusal::Fenced { client: a }));
    assert_eq!(world.suspect(b, a), Verdict::Recover, "and again, since it asks again");
    assert_eq!(world.renew(b), Some(a));
}

#[test]
fn a_dead_or_leaving_member_is_refused_everything_on_server_0() {
    for leaving in [false, true] {
        let mut world = World::new();
        let (a, b) = (world.join(), world.join());
        if leaving {
            assert_eq!(world.ask(0, a, Request::Depart), Ok(Response::Done));
        } else {
            assert_eq!(world.ask(0, b, Request::Condemn { client: a }), Ok(Response::Done));
        }
        for request in [
            Request::Leave,
            Request::AllocChunk { class: CLASS },
            Request::RedoArea,
            Request::NewTreeId,
            Request::Fence { client: b },
            Request::Usage,
            Request::Renew,
            Request::Depart,
            Request::Suspect { client: b },
            Request::Condemn { client: b },
            Request::TakeOver { client: b },
            Request::Retire { client: b },
            Request::Members,
        ] {
            assert_eq!(world.ask(0, a, request), Err(Refusal::Fenced { client: a }));
        }
    }
}

#[test]
fn only_server_0_keeps_members() {
    let mut world = World::new();
    let (a, client) = (world.join(), world.join());
    for request in
        [Request::Renew, Request::Depart, Request::Suspect { client }, Request::Condemn { client }, Request::Members]
    {
        assert_eq!(world.ask(1, a, request), Err(Refusal::NotHere));
    }
}

#[test]
fn nobody_suspects_itself_and_nobody_condemns_a_stranger() {
    let mut world = World::new();
    let a = world.join();
    assert!(matches!(world.ask(0, a, Request::Suspect { client: a }), Err(Refusal::BadRequest { .. })));
    for client in [ClientId::NOBODY, ClientId(9), ClientId(17)] {
        assert_eq!(world.suspect(a, client), Verdict::Gone);
        assert_eq!(world.ask(0, a, Request::Condemn { client }), Err(Refusal::NotAMember { client }));
    }
}

#[test]
fn a_recovered_id_is_issued_again_with_nothing_of_its_former_holder() {
    let mut world = World::new();
    let (a, b) = (world.join(), world.join());
    let mut chunks = Vec::new();
    for server in [0, 1] {
        world.ask(server, a, Request::RedoArea).unwrap();
        let Ok(Response::Chunk { offset, .. }) = world.ask(server, a, Request::AllocChunk { class: CLASS }) else {
            panic!()
        };
        chunks.push(world.servers[server].geometry().chunk_at(offset).unwrap());
    }
    world.ask(0, b, Request::Condemn { client: a }).unwrap();
    assert_eq!(world.suspect(b, a), Verdict::Recover);
    world.recover(b, a);
    for (server, chunk) in chunks.into_iter().enumerate() {
        assert_eq!(world.servers[server].chunk(chunk), Some(ChunkEntry::Issued { class: CLASS, owner: b }));
        assert_eq!(world.servers[server].client(a), ClientWord::default());
    }
    assert_eq!((world.suspect(b, a), world.renew(b)), (Verdict::Gone, None));
    let others: Vec<_> = (0..14).map(|_| world.join()).collect();
    assert!(!others.contains(&a));
    assert_eq!(world.join(), a);
    assert_eq!(world.servers[0].member(a).unwrap().incarnation, 2);
    assert!(world.ask(0, a, Request::Usage).is_ok() && world.ask(1, a, Request::Usage).is_ok());
}

#[test]
fn an_id_is_not_issued_while_its_holder_is_recovered() {
    let mut world = World::new();
    let (a, b) = (world.join(), world.join());
    world.ask(0, b, Request::Condemn { client: a }).unwrap();
    world.suspect(b, a);
    // Joins and leaves until every id that is free has been issued once.
    let issued = |world: &mut World| {
        let ids = (0..16).map(|_| {
            let client = world.join();
            world.ask(0, client, Request::Leave).unwrap();
            client
        });
        ids.collect::<Vec<_>>()
    };
    for request in [Request::Fence { client: a }, Request::TakeOver { client: a }, Request::Retire { client: a }] {
        for server in [1, 0] {
            assert!(!issued(&mut world).contains(&a), "issued before {request:?} at {server}");
            world.ask(server, b, request.clone()).unwrap();
        }
    }
    assert!(issued(&mut world).contains(&a));
}

#[test]
fn a_dead_member_has_one_recoverer_until_that_one_is_recovered_itself() {
    let mut world = World::new();
    let (dead, first, second) = (world.join(), world.join(), world.join());
    world.now += LEASE;
    world.renew(first);
    world.renew(second);
    assert_eq!(world.suspect(first, dead), Verdict::Recover);
    assert_eq!(world.suspect(second, dead), Verdict::Recovering { by: first });
    assert_eq!(world.renew(second), None, "somebody is at it");
    world.now += LEASE;
    assert_eq!(world.renew(second), Some(dead));
    assert_eq!(world.suspect(second, dead), Verdict::Displaced { by: first });
    assert_eq!(world.ask(0, first, Request::Renew), Err(Refusal::Fenced { client: first }), "it is dead from now on");
    assert_eq!(world.suspect(second, dead), Verdict::Displaced { by: first });
    assert_eq!(world.suspect(second, first), Verdict::Recover);
    assert_eq!(world.suspect(second, dead), Verdict::Displaced { by: first }, "until it is retired");
    world.recover(second, first);
    assert_eq!(world.suspect(second, dead), Verdict::Recover);
    world.recover(second, dead);
    assert_eq!(world.members(second).len(), 1);
}

#[test]
fn who_leaves_or_departs_recovers_nobody_any_more() {
    for request in [Request::Leave, Request::Depart] {
        let mut world = World::new();
        let (dead, first, second) = (world.join(), world.join(), world.join());
        world.ask(0, first, Request::Condemn { client: dead }).unwrap();
        assert_eq!(world.suspect(first, dead), Verdict::Recover);
        world.ask(0, first, request).unwrap();
        assert_eq!(world.suspect(second, dead), Verdict::Recover);
    }
}

#[test]
fn a_second_recoverer_ends_what_the_first_began_wherever_it_stopped() {
    for stopped_after in 0..=6 {
        let mut world = World::new();
        let (dead, first, second) = (world.join(), world.join(), world.join());
        for server in [0, 1] {
            world.ask(server, dead, Request::RedoArea).unwrap();
            world.ask(server, dead, Request::AllocChunk { class: CLASS }).unwrap();
        }
        world.now += LEASE;
        world.renew(first);
        world.suspect(first, dead);
        let client = dead;
        let steps = [Request::Fence { client }, Request::TakeOver { client }, Request::Retire { client }];
        let steps = steps.iter().flat_map(|request| [(1, request), (0, request)]);
        for (server, request) in steps.take(stopped_after) {
            world.ask(server, first, request.clone()).unwrap();
        }
        world.now += LEASE;
        world.renew(second);
        let verdict = world.suspect(second, dead);
        if stopped_after < 6 {
            assert_eq!(verdict, Verdict::Displaced { by: first });
        }
        while let Some(expired) = world.renew(second) {
            match world.suspect(second, expired) {
                Verdict::Recover => world.recover(second, expired),
                Verdict::Displaced { by } => {
                    assert_eq!(world.suspect(second, by), Verdict::Recover);
                    world.recover(second, by);
                }
                verdict => panic!("{verdict:?}"),
            }
        }
        assert_eq!(world.members(second).len(), 1);
        for server in &world.servers {
            let owned = (0..server.geometry().chunks).filter_map(|index| match server.chunk(index) {
                Some(ChunkEntry::Issued { owner, .. }) => Some(owner),
                _ => None,
            });
            assert_eq!(owned.collect::<Vec<_>>(), [second]);
        }
    }
}

#[test]
fn who_is_not_fenced_is_neither_taken_over_nor_retired() {
    let mut world = World::new();
    let (a, b, c) = (world.join(), world.join(), world.join());
    world.ask(0, b, Request::Condemn { client: a }).unwrap();
    world.suspect(b, a);
    for server in [0, 1] {
        for request in [Request::TakeOver { client: a }, Request::Retire { client: a }] {
            assert_eq!(world.ask(server, b, request), Err(NOT_FENCED));
        }
        world.ask(server, b, Request::Fence { client: a }).unwrap();
    }
    assert!(
        matches!(world.ask(0, c, Request::Retire { client: a }), Err(Refusal::BadRequest { .. })),
        "not by another"
    );
    world.ask(0, c, Request::Fence { client: b }).unwrap();
    assert!(matches!(world.ask(0, c, Request::Retire { client: b }), Err(Refusal::BadRequest { .. })), "it is live");
}

#[test]
fn one_that_departs_keeps_its_id_and_chunks_until_it_is_taken_over() {
    let mut world = World::new();
    let (gone, stays) = (world.join(), world.join());
    world.ask(1, gone, Request::AllocChunk { class: CLASS }).unwrap();
    assert_eq!(world.ask(0, gone, Request::Depart), Ok(Response::Done));
    world.reopen();
    assert_eq!(world.servers[1].chunk(0), Some(ChunkEntry::Issued { class: CLASS, owner: gone }));
    let standing = |world: &mut World| {
        let members = world.members(stays);
        members.into_iter().map(|member| (member.client, member.standing)).collect::<Vec<_>>()
    };
    assert_eq!(standing(&mut world), [(gone, Standing::Leaving), (stays, Standing::Live)]);
    assert_eq!(world.renew(stays), Some(gone));
    assert_eq!(world.suspect(stays, gone), Verdict::Recover);
    assert_eq!(standing(&mut world), [(gone, Standing::Leaving), (stays, Standing::Live)]);
    world.recover(stays, gone);
    assert_eq!(standing(&mut world), [(stays, Standing::Live)]);
    assert_eq!(world.servers[1].chunk(0), Some(ChunkEntry::Issued { class: CLASS, owner: stays }));
}

#[test]
fn members_are_told_with_age_lease_and_recoverer() {
    let mut world = World::new();
    let (a, b) = (world.join(), world.join());
    world.now += 400;
    world.renew(b);
    world.ask(0, b, Request::Condemn { client: a }).unwrap();
    world.suspect(b, a);
    world.now += 100;
    let info = |client, standing, lease_left, recoverer| MemberInfo {
        client,
        standing,
        incarnation: 1,
        age: 500,
        lease_left,
        recoverer,
    };
    let (dead, live) = (info(a, Standing::Dead, 0, b), info(b, Standing::Live, LEASE - 100, ClientId::NOBODY));
    assert_eq!(world.members(b), [dead, live]);
}

#[test]
fn leases_begin_anew_with_the_first_request_after_a_restart_whatever_the_time_is() {
    for restart_at in [0, 5_000 + LEASE / 2, 1 << 60] {
        let mut world = World::new();
        let (a, b, c) = (world.join(), world.join(), world.join());
        world.ask(0, b, Request::Condemn { client: c }).unwrap();
        world.now += 10;
        world.reopen();
        world.now = restart_at;
        assert_eq!(world.suspect(b, a), Verdict::Alive { lease_left: LEASE });
        world.now += LEASE - 1;
        assert_eq!(world.suspect(b, a), Verdict::Alive { lease_left: 1 }, "they begin once");
        assert_eq!(world.suspect(b, c), Verdict::Recover, "nobody comes back");
        world.now += 1;
        assert_eq!(world.suspect(b, a), Verdict::Recover);
    }
}

#[test]
fn a_fence_of_a_dead_or_leaving_member_is_taken_everywhere_and_of_a_retired_one_not_on_server_0() {
    let mut world = World::new();
    let (a, b, c) = (world.join(), world.join(), world.join());
    world.ask(0, a, Request::Depart).unwrap();
    world.ask(0, c, Request::Condemn { client: b }).unwrap();
    for client in [a, b] {
        assert_eq!(world.suspect(c, client), Verdict::Recover);
        world.recover(c, client);
        assert_eq!(world.ask(0, c, Request::Fence { client }), Err(Refusal::NotAMember { client }));
    }
}
