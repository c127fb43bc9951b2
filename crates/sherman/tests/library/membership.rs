//! Leases, fences and departures as a user sees them.

use sherman::{Cluster, ClusterOptions, ComputeId, Error, Refusal, Standing, Tree, Verdict};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_millis(200);

fn cluster() -> Cluster {
    Cluster::open("embedded:?servers=2&memory=64MiB&chunk=1MiB&lease=200ms").expect("a cluster")
}

fn tree(cluster: &Cluster) -> Tree<u64, u64> {
    cluster.tree("t").expect("a tree")
}

fn ids(cluster: &Cluster) -> Vec<ComputeId> {
    cluster.members().expect("server 0 answers").into_iter().map(|member| member.id).collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "still not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn members_are_listed_while_they_live() {
    let first = cluster();
    let second = first.join().expect("another");
    let members = second.members().expect("server 0 answers");
    assert_eq!(members.iter().map(|member| member.id).collect::<Vec<_>>(), [first.id(), second.id()]);
    for member in members {
        assert_eq!((member.standing, member.recoverer), (Standing::Live, None));
        assert!(
            member.lease_left <= LEASE && member.age < Duration::from_secs(60) && member.incarnation >= 1
        );
    }
}

#[test]
fn no_live_client_is_declared_dead() {
    let first = cluster();
    let others: Vec<Cluster> = (0..3).map(|_| first.join().expect("another")).collect();
    let began = Instant::now();
    std::thread::sleep(5 * LEASE);
    assert_eq!(ids(&first).len(), 4);
    for one in others.iter().chain([&first]) {
        let renewals = one.participation().renewals;
        let leases = began.elapsed().as_secs_f64() / LEASE.as_secs_f64();
        assert!(!one.is_fenced() && renewals >= 5, "{renewals} renewals in {leases} leases");
        // One extra renewal may have been due at the beginning.
        assert!(renewals as f64 <= 3.0 * leases + 1.0, "{renewals} renewals in {leases} leases");
        assert_eq!(one.participation().recoveries, 0);
    }
}

#[test]
fn a_client_keeps_its_compute_server_alive() {
    let cluster = cluster();
    let other = cluster.join().expect("another");
    let id = other.id();
    let client = tree(&other).client().expect("a client");
    drop(other);
    std::thread::sleep(3 * LEASE);
    assert_eq!(client.insert(1, 2), Ok(None));
    assert!(ids(&cluster).contains(&id));
    drop(client);
    wait_until("the last client of it is gone, so it leaves", || !ids(&cluster).contains(&id));
}

#[test]
fn a_client_that_leaves_leaves_its_memory_to_others() {
    let cluster = cluster();
    let used = |cluster: &Cluster| -> u64 {
        cluster.usage().expect("an answer").iter().map(|server| server.chunks_used).sum()
    };
    let tree = tree(&cluster);
    let client = tree.client().expect("a client");
    // Leaves and internal nodes lie in chunks of their own: let the tree have both.
    for key in 0..200 {
        client.insert(5_000 + key, 0).expect("room");
    }
    let mut after_first = 0;
    for round in 0..30 {
        let guest = cluster.join().expect("room for one more");
        assert_eq!(self::tree(&guest).client().expect("a client").insert(round, round), Ok(None));
        // The guest creates its own tree, so that it requests memory, of which it needs one node.
        guest.tree::<u64, u64>(&format!("of {round}")).expect("room");
        let id = guest.id();
        drop(guest);
        wait_until("it is gone", || !ids(&cluster).contains(&id));
        if round == 0 {
            after_first = used(&cluster);
        }
    }
    assert_eq!(
        cluster.participation().recoveries,
        0,
        "a client that leaves in order leaves nothing to recover"
    );
    for key in 0..1_000 {
        client.insert(1_000 + key, 0).expect("room");
    }
    assert_eq!(used(&cluster), after_first, "each went on where the others had stopped");
    assert!(tree.check().expect("a check").is_clean());
}

#[test]
fn a_fenced_compute_server_says_so_if_it_may_not_join_again() {
    let cluster = cluster();
    let broken = cluster.join_with(ClusterOptions::new().rejoin(false)).expect("another");
    let tree = tree(&broken);
    let client = tree.client().expect("a client");
    let session = tree.session().expect("a session");
    assert_eq!(client.insert(7, 700), Ok(None));

    let recovery = cluster.fence(broken.id()).expect("it is fenced");
    assert_eq!(recovery.verdict, Verdict::Recover);
    let fenced = Error::Fenced { client: broken.id() };
    assert_eq!(client.get(7), Err(fenced.clone()));
    assert_eq!(client.insert(8, 8), Err(fenced.clone()));
    assert_eq!(client.range(..).next(), Some(Err(fenced.clone())));
    assert_eq!(session.run(session.get(7)), Err(fenced.clone()));
    assert_eq!(tree.check(), Err(fenced.clone()));
    assert_eq!(broken.members(), Err(fenced.clone()));
    assert_eq!(broken.tree::<u64, u64>("u").map(drop), Err(fenced.clone()));
    wait_until("it knows", || broken.is_fenced());

    let again = broken.join().expect("a new identity");
    assert_ne!(again.id(), broken.id());
    let again = self::tree(&again).client().expect("a client");
    assert_eq!((again.get(7), again.insert(8, 80)), (Ok(Some(700)), Ok(None)));
    assert_eq!(client.get(7), Err(fenced), "the old one stays what it is");
    assert_eq!(cluster.participation().recoveries, 1);
}

#[test]
fn only_others_that_there_are_can_be_fenced() {
    let cluster = cluster();
    assert!(matches!(cluster.fence(cluster.id()), Err(Error::Refused(Refusal::BadRequest { .. }))));
    assert!(matches!(cluster.fence(ComputeId(99)), Err(Error::Refused(Refusal::NotAMember { .. }))));
    assert!(matches!(cluster.fence(ComputeId(0)), Err(Error::Refused(_))));
    let other = cluster.join_with(ClusterOptions::new().rejoin(false)).expect("another");
    let id = other.id();
    cluster.fence(id).expect("it is fenced");
    assert!(matches!(cluster.fence(id), Err(Error::Refused(Refusal::NotAMember { .. }))), "once is enough");
    assert_eq!(ids(&cluster), [cluster.id()]);
}

#[test]
fn ids_do_not_run_out_while_compute_servers_come_and_go() {
    let cluster = cluster();
    for _ in 0..300 {
        let guest = cluster.join().expect("room for one more");
        tree(&guest).client().expect("a client").insert(1, 1).expect("room");
    }
    wait_until("all are gone", || ids(&cluster).len() == 1);
    assert!(tree(&cluster).check().expect("a check").is_clean());
}

#[test]
fn the_last_handle_goes_at_once() {
    // With the default lease; a third of it is one second.
    let began = Instant::now();
    for _ in 0..20 {
        let cluster = Cluster::open("embedded:?memory=64MiB").expect("a cluster");
        tree(&cluster).client().expect("a client").insert(1, 1).expect("room");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn an_operation_that_waits_for_dead_clients_goes_on_when_they_are_recovered() {
    let cluster = Cluster::open_with(
        "embedded:?servers=2&memory=64MiB&chunk=1MiB&lease=200ms",
        ClusterOptions::new().timeout(Duration::from_secs(5)),
    );
    let cluster = cluster.expect("a cluster");
    let tree = tree(&cluster);
    let client = tree.client().expect("a client");
    for key in 0..1_000 {
        client.insert(key, key).expect("room");
    }
    // Several threads at once, round after round, fenced in the middle of their operations.
    for round in 0..10 {
        let terminated = cluster.join_with(ClusterOptions::new().rejoin(false)).expect("another");
        let id = terminated.id();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let tree = self::tree(&terminated);
                scope.spawn(move || {
                    let client = tree.client().expect("a client");
                    for turn in 0_u64.. {
                        let key = 1_000 + (turn * 7 + thread) % 5_000;
                        let outcome =
                            if turn % 3 == 2 { client.remove(key) } else { client.insert(key, round) };
                        match outcome {
                            Ok(_) => {}
                            Err(Error::Fenced { .. } | Error::OutcomeUnknown { .. }) => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            cluster.fence(id).expect("it is fenced");
            for key in 0..1_000 {
                assert_eq!(
                    client.insert(key, key + round),
                    Ok(Some(if round == 0 { key } else { key + round - 1 }))
                );
            }
        });
    }
    assert!(tree.check().expect("a check").is_clean());
    assert!(tree.walk().is_ok());
}
