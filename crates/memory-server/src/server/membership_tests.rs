//! Tests of leases, deaths and recovery, request by request.

use super::*;
use crate::testing::Pair;
use sherman_fabric::control::{ChunkClass, MemberInfo, Renewal, Standing, Verdict};
use sherman_layout::testing::small_options;

const CLASS: ChunkClass = ChunkClass { node_bytes: 512, format: 1 };
const LEASE: u64 = 1_000;

/// Two servers and a clock.
struct World {
    memories: [Pair; 2],
    servers: [MemoryServer; 2],
    now: u64,
}

impl World {
    fn new() -> Self {
        let options = |server| FormatOptions { server, servers: 2, lease_nanos: LEASE, ..small_options() };
        let memories = [0, 1].map(|server| Pair::new(128 << 10, 0, &options(server)));
        let servers = [0, 1].map(|server| {
            MemoryServer::format(memories[usize::from(server)].both(), &options(server)).unwrap()
        });
        Self { memories, servers, now: 5_000 }
    }

    fn ask(&mut self, server: usize, from: ComputeId, request: Request) -> Result<Response, Refusal> {
        self.servers[server].handle(self.memories[server].both(), from, &request, self.now)
    }

    fn join(&mut self) -> ComputeId {
        match self.ask(0, ComputeId::NOBODY, Request::Join) {
            Ok(Response::Joined { client }) => client,
            other => panic!("{other:?}"),
        }
    }

    /// Joins as a member that must be recovered if it dies.
    fn join_as_writer(&mut self) -> ComputeId {
        let client = self.join();
        assert!(matches!(self.ask(0, client, Request::Activate), Ok(Response::Active { .. })));
        client
    }

    fn alloc(&mut self, server: usize, client: ComputeId) -> Vec<Span> {
        match self.ask(server, client, Request::AllocSpans { class: CLASS, count: 1 }) {
            Ok(Response::Spans(spans)) => spans,
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, client: ComputeId) -> Vec<ComputeId> {
        match self.ask(0, client, Request::Renew) {
            Ok(Response::Renewed(Renewal { expired, short: false })) => expired,
            other => panic!("{other:?}"),
        }
    }

    fn suspect(&mut self, from: ComputeId, client: ComputeId) -> Verdict {
        match self.ask(0, from, Request::Suspect { client }) {
            Ok(Response::Verdict(verdict)) => verdict,
            other => panic!("{other:?}"),
        }
    }

    fn members(&mut self, from: ComputeId) -> Vec<MemberInfo> {
        match self.ask(0, from, Request::Members) {
            Ok(Response::Members(members)) => members,
            other => panic!("{other:?}"),
        }
    }

    /// Sends the requests by which `by` recovers `client`, without the verbs.
    fn recover(&mut self, by: ComputeId, client: ComputeId) {
        for request in
            [Request::Fence { client }, Request::SpansOf { client, from: 0 }, Request::Retire { client }]
        {
            for server in [1, 0] {
                let answer = self.ask(server, by, request.clone());
                assert!(
                    matches!(answer, Ok(Response::Done | Response::Spans(_))),
                    "{request:?} at {server}: {answer:?}"
                );
            }
        }
        assert_eq!(self.ask(0, by, Request::FreeId { client }), Ok(Response::Done));
    }

    fn reopen(&mut self) {
        self.servers = [0, 1].map(|server| MemoryServer::open(self.memories[server].both()).unwrap());
    }
}

const NOT_FENCED: Refusal =
    Refusal::BadRequest { what: "the client to recover is not fenced on this server" };

#[test]
fn a_lease_runs_out_by_being_asked_about_and_a_late_renewal_before_that_counts() {
    let mut world = World::new();
    let (a, b) = (world.join_as_writer(), world.join_as_writer());
    world.now += LEASE - 1;
    assert_eq!(world.suspect(b, a), Verdict::Alive { lease_left: 1 });
    world.now += 500;
    assert_eq!(world.renew(a), [b], "the other's lease has run out");
    assert_eq!(world.suspect(b, a), Verdict::Alive { lease_left: LEASE });
    world.now += LEASE;
    assert_eq!(world.suspect(b, a), Verdict::Recover);
    assert_eq!(world.ask(0, a, Request::Renew), Err(Refusal::Fenced { client: a }));
    assert_eq!(world.suspect(b, a), Verdict::Recover, "and again, since it asks again");
    assert_eq!(world.renew(b), [a]);
}

#[test]
fn a_dead_or_leaving_member_is_refused_every_control_request() {
    for leaving in [false, true] {
        let mut world = World::new();
        let (a, b) = (world.join_as_writer(), world.join_as_writer());
        if leaving {
            assert_eq!(world.ask(0, a, Request::Depart), Ok(Response::Done));
        } else {
            assert_eq!(world.ask(0, b, Request::Condemn { client: a }), Ok(Response::Done));
        }
        for request in [
            Request::Activate,
            Request::Leave,
            Request::ListTrees,
            Request::Renew,
            Request::Depart,
            Request::Suspect { client: b },
            Request::Condemn { client: b },
            Request::Short,
            Request::Succeed { client: b, incarnation: 1 },
            Request::Relieve { client: b },
            Request::FreeId { client: b },
            Request::Members,
        ] {
            assert_eq!(world.ask(0, a, request), Err(Refusal::Fenced { client: a }));
        }
    }
}

#[test]
fn only_server_0_keeps_members() {
    let mut world = World::new();
    let (a, client) = (world.join_as_writer(), world.join_as_writer());
    for request in [
        Request::Activate,
        Request::Leave,
        Request::FreeId { client },
        Request::Relieve { client },
        Request::Renew,
        Request::Short,
        Request::Depart,
        Request::Suspect { client },
        Request::Succeed { client, incarnation: 1 },
        Request::Condemn { client },
        Request::Members,
    ] {
        assert_eq!(world.ask(1, a, request), Err(Refusal::NotHere));
    }
}

#[test]
fn no_member_suspects_itself_and_none_condemns_a_stranger() {
    let mut world = World::new();
    let a = world.join_as_writer();
    assert!(matches!(world.ask(0, a, Request::Suspect { client: a }), Err(Refusal::BadRequest { .. })));
    for client in [ComputeId::NOBODY, ComputeId(9), ComputeId(17)] {
        assert_eq!(world.suspect(a, client), Verdict::Gone);
        assert_eq!(world.ask(0, a, Request::Condemn { client }), Err(Refusal::NotAMember { client }));
    }
}

#[test]
fn a_recovered_id_is_issued_again_with_nothing_of_its_former_holder() {
    let mut world = World::new();
    let (a, b) = (world.join_as_writer(), world.join_as_writer());
    let mut spans = Vec::new();
    for server in [0, 1] {
        world.ask(server, a, Request::RedoArea).unwrap();
        spans.push(world.alloc(server, a));
    }
    world.ask(0, b, Request::Condemn { client: a }).unwrap();
    assert_eq!(world.suspect(b, a), Verdict::Recover);
    world.recover(b, a);
    for (server, spans) in spans.into_iter().enumerate() {
        assert_eq!(world.servers[server].client(a), ClientWord::default());
        assert_eq!(world.servers[server].spans_owned(a), []);
        assert_eq!(world.alloc(server, b)[0].offset, spans[0].offset, "it may have free places");
    }
    assert_eq!((world.suspect(b, a), world.renew(b)), (Verdict::Gone, vec![]));
    let others: Vec<_> = (0..13).map(|_| world.join()).collect();
    assert!(!others.contains(&a));
    world.ask(0, others[0], Request::Leave).unwrap();
    assert_eq!(world.join(), ComputeId(16));
    world.ask(0, others[1], Request::Leave).unwrap();
    assert_eq!(world.join(), a);
    assert_eq!(world.servers[0].member(a).unwrap().incarnation, 2);
    assert!(world.ask(0, a, Request::Usage).is_ok() && world.ask(1, a, Request::Usage).is_ok());
}

#[test]
fn an_id_is_not_issued_while_its_holder_is_recovered() {
    let mut world = World::new();
    let (a, b) = (world.join_as_writer(), world.join_as_writer());
    world.ask(0, b, Request::Condemn { client: a }).unwrap();
    world.suspect(b, a);
    // Joins and leaves until every free id has been issued once.
    let issued = |world: &mut World| {
        let ids = (0..16).map(|_| {
            let client = world.join();
            world.ask(0, client, Request::Leave).unwrap();
            client
        });
        ids.collect::<Vec<_>>()
    };
    for request in
        [Request::Fence { client: a }, Request::SpansOf { client: a, from: 0 }, Request::Retire { client: a }]
    {
        for server in [1, 0] {
            assert!(!issued(&mut world).contains(&a), "issued before {request:?} at {server}");
            world.ask(server, b, request.clone()).unwrap();
        }
    }
    assert!(!issued(&mut world).contains(&a), "issued before its recoverer freed it");
    world.ask(0, b, Request::FreeId { client: a }).unwrap();
    assert!(issued(&mut world).contains(&a));
}

#[test]
fn a_dead_member_has_one_recoverer_until_that_one_is_recovered_itself() {
    let mut world = World::new();
    let [dead, first, second] = [(); 3].map(|()| world.join_as_writer());
    world.now += LEASE;
    world.renew(first);
    world.renew(second);
    assert_eq!(world.suspect(first, dead), Verdict::Recover);
    assert_eq!(world.suspect(second, dead), Verdict::Recovering { by: first });
    assert_eq!(world.renew(second), [], "another member recovers it");
    world.now += LEASE;
    assert_eq!(world.renew(second), [dead, first], "the recoverer too");
    assert_eq!(world.suspect(second, dead), Verdict::Displaced { by: first });
    assert_eq!(
        world.ask(0, first, Request::Renew),
        Err(Refusal::Fenced { client: first }),
        "it counts as dead from now on"
    );
    assert_eq!(world.suspect(second, dead), Verdict::Displaced { by: first });
    assert_eq!(world.suspect(second, first), Verdict::Recover);
    assert_eq!(world.suspect(second, dead), Verdict::Displaced { by: first }, "until it is retired");
    world.recover(second, first);
    assert_eq!(world.suspect(second, dead), Verdict::Recover);
    world.recover(second, dead);
    assert_eq!(world.members(second).len(), 1);
}

#[test]
fn a_member_that_leaves_or_departs_recovers_no_other_any_more() {
    for request in [Request::Leave, Request::Depart] {
        let mut world = World::new();
        let [dead, first, second] = [(); 3].map(|()| world.join_as_writer());
        world.ask(0, first, Request::Condemn { client: dead }).unwrap();
        assert_eq!(world.suspect(first, dead), Verdict::Recover);
        world.ask(0, first, request).unwrap();
        assert_eq!(world.suspect(second, dead), Verdict::Recover);
    }
}

#[test]
fn a_second_recoverer_ends_what_the_first_began_wherever_it_stopped() {
    for stopped_after in 0..=7 {
        let mut world = World::new();
        let [dead, first, second] = [(); 3].map(|()| world.join_as_writer());
        for server in [0, 1] {
            world.ask(server, dead, Request::RedoArea).unwrap();
            world.alloc(server, dead);
        }
        world.now += LEASE;
        world.renew(first);
        world.suspect(first, dead);
        let client = dead;
        let steps =
            [Request::Fence { client }, Request::SpansOf { client, from: 0 }, Request::Retire { client }];
        let free = Request::FreeId { client };
        let steps = steps.iter().flat_map(|request| [(1, request), (0, request)]).chain([(0, &free)]);
        for (server, request) in steps.take(stopped_after) {
            world.ask(server, first, request.clone()).unwrap();
        }
        world.now += LEASE;
        world.renew(second);
        let verdict = world.suspect(second, dead);
        if stopped_after < 7 {
            assert_eq!(verdict, Verdict::Displaced { by: first });
        }
        while let Some(&expired) = world.renew(second).first() {
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
        for server in [0, 1] {
            assert_eq!(world.servers[server].spans_owned(dead), []);
            assert!(!world.alloc(server, second)[0].fresh, "the dead client's span can be issued");
        }
    }
}

#[test]
fn a_member_that_is_not_fenced_is_neither_inspected_nor_retired() {
    let mut world = World::new();
    let [a, b, c] = [(); 3].map(|()| world.join_as_writer());
    world.ask(0, b, Request::Condemn { client: a }).unwrap();
    world.suspect(b, a);
    for server in [0, 1] {
        for request in [Request::SpansOf { client: a, from: 0 }, Request::Retire { client: a }] {
            assert_eq!(world.ask(server, b, request), Err(NOT_FENCED));
        }
        world.ask(server, b, Request::Fence { client: a }).unwrap();
    }
    assert!(
        matches!(world.ask(0, c, Request::FreeId { client: a }), Err(Refusal::BadRequest { .. })),
        "not by another"
    );
    assert!(
        matches!(world.ask(0, c, Request::FreeId { client: b }), Err(Refusal::BadRequest { .. })),
        "it is live"
    );
}

#[test]
fn one_that_departs_keeps_its_id_and_spans_until_it_is_recovered() {
    let mut world = World::new();
    let (gone, stays) = (world.join_as_writer(), world.join_as_writer());
    let spans = world.alloc(1, gone);
    assert_eq!(world.ask(0, gone, Request::Depart), Ok(Response::Done));
    world.reopen();
    assert_eq!(world.servers[1].spans_owned(gone), [Span { fresh: false, ..spans[0] }]);
    let standing = |world: &mut World| {
        let members = world.members(stays);
        members.into_iter().map(|member| (member.client, member.standing)).collect::<Vec<_>>()
    };
    assert_eq!(standing(&mut world), [(gone, Standing::Leaving), (stays, Standing::Live)]);
    assert_eq!(world.renew(stays), [gone]);
    assert_eq!(world.suspect(stays, gone), Verdict::Recover);
    assert_eq!(standing(&mut world), [(gone, Standing::Leaving), (stays, Standing::Live)]);
    world.recover(stays, gone);
    assert_eq!(standing(&mut world), [(stays, Standing::Live)]);
    assert_eq!(world.servers[1].spans_owned(gone), []);
}

#[test]
fn members_are_listed_with_age_lease_and_recoverer() {
    let mut world = World::new();
    let (a, b) = (world.join_as_writer(), world.join_as_writer());
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
    let (dead, live) =
        (info(a, Standing::Dead, 0, b), info(b, Standing::Live, LEASE - 100, ComputeId::NOBODY));
    assert_eq!(world.members(b), [dead, live]);
}

#[test]
fn leases_start_again_with_the_first_request_after_a_restart_whatever_the_time_is() {
    for restart_at in [0, 5_000 + LEASE / 2, 1 << 60] {
        let mut world = World::new();
        let [a, b, c] = [(); 3].map(|()| world.join_as_writer());
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
fn a_member_that_owns_nothing_is_gone_when_its_lease_runs_out() {
    for by_join in [false, true] {
        let mut world = World::new();
        let (reader, late, stays) = (world.join(), world.join(), world.join_as_writer());
        world.now += LEASE - 1;
        world.renew(stays);
        world.now += 1;
        world.ask(0, late, Request::Renew).unwrap();
        assert_eq!(
            world.servers[0].take_reaped(),
            [reader],
            "a renewal frees members that own nothing, never its sender"
        );
        world.now += LEASE;
        if by_join {
            world.join();
            assert_eq!(world.servers[0].take_reaped(), [late]);
        } else {
            assert_eq!(world.renew(stays), []);
            assert_eq!(world.servers[0].take_reaped(), [late]);
        }
        for gone in [reader, late] {
            assert_eq!(world.ask(0, gone, Request::Activate), Err(Refusal::NotAMember { client: gone }));
            assert_eq!(world.ask(0, gone, Request::Renew), Err(Refusal::NotAMember { client: gone }));
        }
        assert_eq!(
            world.servers[0].member(stays).unwrap().state,
            sherman_layout::MemberState::Live,
            "it is active"
        );
        assert_eq!(world.servers[0].take_reaped(), []);
    }
}

#[test]
fn a_condemned_or_lost_member_that_owns_nothing_is_gone_at_once() {
    let mut world = World::new();
    let (reader, lost, stays) = (world.join(), world.join(), world.join_as_writer());
    world.ask(0, stays, Request::Condemn { client: reader }).unwrap();
    world.servers[0].lose(world.memories[0].both(), lost);
    assert_eq!(world.servers[0].take_reaped(), [reader, lost]);
    assert_eq!(world.members(stays).len(), 1);
    assert_eq!(
        world.ask(0, stays, Request::Condemn { client: reader }),
        Err(Refusal::NotAMember { client: reader })
    );
    world.servers[0].lose(world.memories[0].both(), lost);
    world.servers[1].lose(world.memories[1].both(), stays);
    assert!(world.servers[0].take_reaped().is_empty() && world.servers[1].take_reaped().is_empty());
}

#[test]
fn a_condemned_or_lost_member_that_owns_something_waits_for_its_recoverer() {
    {
        let owns = Request::Activate;
        for lost in [false, true] {
            let mut world = World::new();
            let (dead, stays) = (world.join(), world.join_as_writer());
            world.ask(0, dead, owns.clone()).unwrap();
            if lost {
                world.servers[0].lose(world.memories[0].both(), dead);
            } else {
                world.ask(0, stays, Request::Condemn { client: dead }).unwrap();
            }
            assert_eq!(world.servers[0].take_reaped(), []);
            assert_eq!(world.renew(stays), [dead]);
            assert_eq!(world.suspect(stays, dead), Verdict::Recover);
            world.recover(stays, dead);
            assert_eq!(world.members(stays).len(), 1);
        }
    }
}

#[test]
fn a_renewal_names_all_waiting_members_up_to_a_limit() {
    let mut world = World::new();
    let dead: Vec<_> = (0..10).map(|_| world.join_as_writer()).collect();
    let stays = world.join_as_writer();
    world.now += LEASE;
    assert_eq!(world.renew(stays), dead);
}

#[test]
fn a_member_that_finds_no_memory_is_heard_by_others_for_a_lease() {
    let mut world = World::new();
    let (hungry, other) = (world.join_as_writer(), world.join_as_writer());
    let short = |world: &mut World, client| match world.ask(0, client, Request::Renew) {
        Ok(Response::Renewed(Renewal { short, .. })) => short,
        answer => panic!("{answer:?}"),
    };
    assert!(!short(&mut world, other));
    world.ask(0, hungry, Request::Short).unwrap();
    assert_eq!((short(&mut world, other), short(&mut world, hungry)), (true, false));
    world.now += LEASE - 1;
    assert!(short(&mut world, other));
    world.now += 1;
    assert!(!short(&mut world, other));
}

#[test]
fn a_successor_recovers_its_former_identity_without_waiting_for_its_lease() {
    let mut world = World::new();
    let (old, new, other) = (world.join_as_writer(), world.join_as_writer(), world.join_as_writer());
    let succeed = |incarnation| Request::Succeed { client: old, incarnation };
    assert_eq!(
        world.ask(0, new, succeed(2)),
        Ok(Response::Verdict(Verdict::Gone)),
        "another issue of the id"
    );
    assert!(world.servers[0].member(old).unwrap().is_alive(world.now));
    assert_eq!(world.ask(0, new, succeed(1)), Ok(Response::Verdict(Verdict::Inherit)), "nobody began before");
    assert_eq!(world.ask(0, old, Request::Renew), Err(Refusal::Fenced { client: old }));
    assert_eq!(world.ask(0, other, succeed(1)), Ok(Response::Verdict(Verdict::Recovering { by: new })));
    assert_eq!(world.ask(0, new, succeed(1)), Ok(Response::Verdict(Verdict::Recover)), "again");
    world.recover(new, old);
    assert_eq!(world.ask(0, new, succeed(1)), Ok(Response::Verdict(Verdict::Gone)));
    let myself = Request::Succeed { client: new, incarnation: 1 };
    assert!(matches!(world.ask(0, new, myself), Err(Refusal::BadRequest { .. })));
}

#[test]
fn a_former_identity_that_owns_nothing_is_gone_when_its_successor_says_so() {
    let mut world = World::new();
    let (old, new, writer) = (world.join(), world.join(), world.join_as_writer());
    let succeed = |client| Request::Succeed { client, incarnation: 1 };
    assert_eq!(world.ask(0, new, succeed(old)), Ok(Response::Verdict(Verdict::Gone)));
    assert_eq!(world.servers[0].take_reaped(), [old]);
    let inherit = Ok(Response::Verdict(Verdict::Inherit));
    assert_eq!(world.ask(0, new, succeed(writer)), inherit, "a recoverer need not be active");
}

#[test]
fn a_recoverer_that_is_not_active_is_recovered_before_its_work_goes_on() {
    let mut world = World::new();
    let (dead, first, second) = (world.join_as_writer(), world.join(), world.join());
    world.ask(0, first, Request::Condemn { client: dead }).unwrap();
    assert_eq!(world.suspect(first, dead), Verdict::Recover);
    world.now += 3 * world.servers[0].geometry().lease_nanos;
    world.ask(0, second, Request::Renew).unwrap();
    assert_eq!(world.servers[0].take_reaped(), [], "it may still be writing, and hold lanes");
    assert_eq!(world.suspect(second, dead), Verdict::Displaced { by: first });
    assert_eq!(world.suspect(second, first), Verdict::Recover);
    world.recover(second, first);
    assert_eq!(world.suspect(second, dead), Verdict::Recover);
    world.recover(second, dead);
    world.now += 3 * world.servers[0].geometry().lease_nanos;
    let last = world.join();
    assert_eq!(world.servers[0].take_reaped(), [second], "it recovers no member any more");
    assert_ne!(last, second);
}

#[test]
fn the_last_ids_are_issued_only_while_a_member_waits_for_recovery() {
    let mut world = World::new();
    let members: Vec<_> = (0..15).map(|_| world.join_as_writer()).collect();
    let refused = Err(Refusal::TooManyMembers);
    assert_eq!(world.ask(0, ComputeId::NOBODY, Request::Join), refused);
    world.ask(0, members[3], Request::Depart).unwrap();
    let helper = world.join_as_writer();
    assert_eq!(helper, ComputeId(16));
    assert_eq!(world.ask(0, ComputeId::NOBODY, Request::Join), refused, "no id at all");
    assert_eq!(world.suspect(helper, members[3]), Verdict::Recover);
    world.recover(helper, members[3]);
    assert_eq!(
        world.ask(0, ComputeId::NOBODY, Request::Join),
        refused,
        "the last id is kept for the next time"
    );
}

#[test]
fn when_all_are_lost_those_that_own_nothing_are_gone_and_the_others_wait() {
    let mut world = World::new();
    let (reader, writer, leaving) = (world.join(), world.join_as_writer(), world.join_as_writer());
    world.ask(0, leaving, Request::Depart).unwrap();
    world.reopen();
    world.servers[0].lose_all(world.memories[0].both());
    world.servers[1].lose_all(world.memories[1].both());
    assert_eq!(world.servers[0].take_reaped(), [reader]);
    let next = world.join_as_writer();
    assert_eq!(world.renew(next), [writer, leaving]);
}

#[test]
fn a_census_counts_members_by_standing_and_what_is_left() {
    let mut world = World::new();
    let [dead, leaving, recovered, live] = [(); 4].map(|()| world.join_as_writer());
    let spans = world.alloc(0, live);
    world.ask(0, leaving, Request::Depart).unwrap();
    for client in [dead, recovered] {
        world.ask(0, live, Request::Condemn { client }).unwrap();
    }
    assert_eq!(world.suspect(live, recovered), Verdict::Recover);
    let census =
        |world: &World, server: usize| world.servers[server].census(world.memories[server].both(), world.now);
    let Census { chunks, chunks_used, bytes_owned, bytes_free, .. } = census(&world, 0);
    assert_eq!((bytes_owned, bytes_free), (spans[0].bytes, 4096 - spans[0].bytes));
    assert!(chunks_used == 1 && chunks > 1);
    let expected =
        Census { ids: 16, ids_free: 12, live: 1, leaving: 1, dead: 2, waiting: 2, ..census(&world, 0) };
    assert_eq!(census(&world, 0), expected);
    assert_eq!(census(&world, 1), Census { chunks: census(&world, 1).chunks, ..Census::default() });
    world.now += LEASE;
    assert_eq!(census(&world, 0).waiting, 4, "the recoverer's lease has expired too");
}
