//! F6 and membership: nothing of a fenced client executes, and a client that leaves returns its id.

use crate::common::{MEMBERS, MEMORY, SCRATCH, ask, cluster, read_word, run, write};
use sherman_embedded::{EmbeddedCluster, EmbeddedFabric};
use sherman_fabric::control::{Renewal, Standing, Usage, Verdict};
use sherman_fabric::{ComputeId, Endpoint, FabricError, Peer, Request, Response, Space, calls};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ROUNDS: usize = if cfg!(miri) { 3 } else { 300 };

fn members(endpoint: &sherman_embedded::EmbeddedEndpoint) -> Vec<sherman_fabric::ComputeId> {
    let members = ask(endpoint, Peer::Control, calls::Members).unwrap();
    members.iter().filter(|member| member.standing == Standing::Live).map(|member| member.client).collect()
}

#[test]
fn nothing_of_a_fenced_client_is_written_after_the_answer() {
    let cluster = cluster(2);
    let fencer = cluster.join().unwrap().endpoint();
    for round in 0..ROUNDS {
        let victim = cluster.join().unwrap();
        let posted = AtomicU64::new(0);
        thread::scope(|scope| {
            for slot in 0..2 {
                let (victim, posted) = (&victim, &posted);
                scope.spawn(move || {
                    let endpoint = victim.endpoint();
                    let fenced = FabricError::Fenced { client: endpoint.client() };
                    let error = loop {
                        let mut list = endpoint.list(0);
                        list.write(Space::Host, SCRATCH + 1024 * slot, &[round as u8; 1024]);
                        list.faa(Space::OnChip, 8 * slot, 1);
                        match run(&endpoint, list) {
                            Ok(list) => endpoint.recycle(list),
                            Err(error) => break error,
                        }
                        posted.fetch_add(1, Ordering::Relaxed);
                    };
                    assert_eq!(error, fenced);
                    // The fence on this server is permanent. Other servers still serve the client.
                    assert_eq!(read_word(&endpoint, Space::Host, SCRATCH), Err(fenced.clone()));
                    assert_eq!(ask(&endpoint, Peer::Volume(0), calls::Usage), Err(fenced));
                    let mut list = endpoint.list(1);
                    list.write(Space::Host, SCRATCH, &[1]);
                    assert!(run(&endpoint, list).is_ok());
                });
            }
            while posted.load(Ordering::Relaxed) < 4 + round as u64 % 7 {
                thread::yield_now();
            }
            ask(&fencer, Peer::Volume(0), calls::Fence { client: victim.client() }).unwrap();
            let look = || {
                let mut list = fencer.list(0);
                let (lines, counts) = (list.read(Space::Host, SCRATCH, 2048), list.read(Space::OnChip, 0, 8));
                let list = run(&fencer, list).unwrap();
                (list.bytes(lines).to_vec(), list.bytes(counts).to_vec())
            };
            let at_answer = look();
            for _ in 0..50 {
                assert_eq!(look(), at_answer);
            }
        });
    }
}

#[test]
fn a_fenced_client_reads_nothing_of_what_came_after_the_answer() {
    let cluster = cluster(1);
    let fencer = cluster.join().unwrap().endpoint();
    let mark = MEMORY - 64;
    for _ in 0..ROUNDS {
        let victim = cluster.join().unwrap();
        write(&fencer, Space::Host, mark, &[0; 8]).unwrap();
        let posted = AtomicU64::new(0);
        thread::scope(|scope| {
            let (victim, posted) = (&victim, &posted);
            scope.spawn(move || {
                let endpoint = victim.endpoint();
                loop {
                    // A long list, so that the fence and the WRITE after it often fall into its middle.
                    let mut list = endpoint.list(0);
                    list.read(Space::Host, SCRATCH, (MEMORY / 4) as u32);
                    let read = list.read(Space::Host, mark, 8);
                    match run(&endpoint, list) {
                        Ok(list) => {
                            assert_eq!(list.bytes(read), [0; 8], "read what was written after the fence");
                            endpoint.recycle(list);
                        }
                        Err(error) => {
                            return assert_eq!(error, FabricError::Fenced { client: victim.client() });
                        }
                    }
                    posted.fetch_add(1, Ordering::Relaxed);
                }
            });
            while posted.load(Ordering::Relaxed) < 2 {
                thread::yield_now();
            }
            ask(&fencer, Peer::Volume(0), calls::Fence { client: victim.client() }).unwrap();
            write(&fencer, Space::Host, mark, &[1; 8]).unwrap();
        });
    }
}

#[test]
fn the_last_handle_to_go_leaves_and_a_fenced_one_does_not() {
    let cluster = cluster(2);
    let watcher = cluster.join().unwrap().endpoint();
    let fabric = cluster.join().unwrap();
    let (client, endpoint) = (fabric.client(), fabric.clone().endpoint());
    drop(fabric);
    assert!(members(&watcher).contains(&client));
    drop(endpoint);
    assert!(!members(&watcher).contains(&client));
    let fenced = cluster.join().unwrap();
    let client = fenced.client();
    ask(&watcher, Peer::Volume(1), calls::Fence { client }).unwrap();
    drop(fenced);
    assert!(members(&watcher).contains(&client), "its id is still in the lanes it held");
}

#[test]
fn one_that_asked_to_leave_is_stopped_and_leaves_once() {
    let cluster = cluster(2);
    let watcher = cluster.join().unwrap().endpoint();
    let fabric = cluster.join().unwrap();
    let endpoint = fabric.endpoint();
    let client = fabric.client();
    assert_eq!(ask(&endpoint, Peer::Control, calls::Leave), Ok(()));
    assert!(!members(&watcher).contains(&client));
    assert_eq!(write(&endpoint, Space::Host, SCRATCH, &[1]), Err(FabricError::Fenced { client }));
    assert_eq!(ask(&endpoint, Peer::Volume(1), calls::Usage), Err(FabricError::Fenced { client }));
    let successor = successor_of(&cluster, client);
    drop((fabric, endpoint));
    // The id now belongs to the successor. The successor stays a member, and a fence finds it.
    assert!(members(&watcher).contains(&client));
    let endpoint = successor.endpoint();
    assert!(write(&endpoint, Space::Host, SCRATCH, &[1]).is_ok());
    ask(&watcher, Peer::Volume(0), calls::Fence { client }).unwrap();
    assert_eq!(write(&endpoint, Space::Host, SCRATCH, &[1]), Err(FabricError::Fenced { client }));
}

#[test]
fn a_client_that_leaves_gives_back_its_memory_on_every_server() {
    let cluster = cluster(2);
    let watcher = cluster.join().unwrap().endpoint();
    let known = |client| match ask(&watcher, Peer::Volume(1), calls::Usage) {
        Ok(Usage { members, .. }) => members.contains(&client),
        other => panic!("{other:?}"),
    };
    let fabric = cluster.join().unwrap();
    let client = fabric.client();
    ask(&fabric.endpoint(), Peer::Volume(1), calls::RedoArea).unwrap();
    assert!(known(client));
    drop(fabric);
    assert!(!known(client));
}

#[test]
fn an_id_fenced_before_it_was_issued_is_fenced() {
    let cluster = cluster(2);
    let first = cluster.join().unwrap();
    let client = sherman_fabric::ComputeId(first.client().0 + 1);
    ask(&first.endpoint(), Peer::Volume(1), calls::Fence { client }).unwrap();
    let second = cluster.join().unwrap();
    assert_eq!(second.client(), client);
    let endpoint = second.endpoint();
    assert_eq!(run(&endpoint, endpoint.list(1)).err(), Some(FabricError::Fenced { client }));
    assert!(run(&endpoint, endpoint.list(0)).is_ok());
}

/// Fences, takes over and retires `client` on every volume, then frees its id.
fn recover(by: &sherman_embedded::EmbeddedEndpoint, client: ComputeId) {
    ask(by, Peer::Control, calls::Activate).unwrap();
    assert_eq!(ask(by, Peer::Control, calls::Condemn { client }), Ok(()));
    assert_eq!(ask(by, Peer::Control, calls::Suspect { client }), Ok(Verdict::Recover));
    for request in
        [Request::Fence { client }, Request::SpansOf { client, from: 0 }, Request::Retire { client }]
    {
        for server in (0..by.servers()).rev() {
            let answer = ask(by, Peer::Volume(server), request.clone());
            assert!(
                matches!(answer, Ok(Response::Done | Response::Spans(_))),
                "{request:?} at {server}: {answer:?}"
            );
        }
    }
    ask(by, Peer::Control, calls::FreeId { client }).unwrap();
}

/// Joins until `client` is issued again.
fn successor_of(cluster: &Arc<EmbeddedCluster>, client: ComputeId) -> EmbeddedFabric {
    let mut all = (0..MEMBERS).map(|_| cluster.join().unwrap());
    all.find(|fabric| fabric.client() == client).expect("its id was issued again")
}

#[test]
fn an_old_incarnation_stays_refused_when_its_id_is_another_s() {
    let cluster = cluster(2);
    let survivor = cluster.join().unwrap().endpoint();
    let zombie = cluster.join().unwrap();
    let client = zombie.client();
    ask(&zombie.endpoint(), Peer::Control, calls::Activate).unwrap();
    let (before, fenced) = (zombie.endpoint(), Err(FabricError::Fenced { client }));
    recover(&survivor, client);
    let successor = successor_of(&cluster, client);
    let present = successor.endpoint();
    let area = ask(&present, Peer::Volume(1), calls::RedoArea).unwrap();
    for endpoint in [&before, &zombie.endpoint()] {
        for server in [0, 1] {
            let mut list = endpoint.list(server);
            list.write(Space::Host, SCRATCH, &[9]);
            assert_eq!(run(endpoint, list).map(drop), fenced.clone());
            let mut list = endpoint.list(server);
            list.read(Space::Host, SCRATCH, 8);
            assert_eq!(run(endpoint, list).map(drop), fenced.clone());
            let other = survivor.client();
            for request in [
                Request::Usage,
                Request::RedoArea,
                Request::Release,
                Request::Renew,
                Request::Activate,
                Request::Leave,
                Request::Depart,
                Request::Fence { client: other },
                Request::Condemn { client: other },
            ] {
                let peer = if request.is_for_control() { Peer::Control } else { Peer::Volume(server) };
                assert_eq!(ask(endpoint, peer, request).map(drop), fenced.clone());
            }
        }
    }
    drop((before, zombie));
    // None of this affected the successor, and a new fence stops the successor.
    assert!(members(&survivor).contains(&client));
    assert_eq!(ask(&present, Peer::Volume(1), calls::RedoArea), Ok(area));
    assert!(write(&present, Space::Host, SCRATCH, &[1]).is_ok());
    ask(&survivor, Peer::Volume(0), calls::Fence { client }).unwrap();
    assert_eq!(write(&present, Space::Host, SCRATCH, &[2]).map(drop), fenced);
    assert_eq!(read_word(&survivor, Space::Host, SCRATCH), Ok(1));
}

#[test]
fn a_client_that_departs_is_stopped_and_its_id_waits_for_a_recoverer() {
    let cluster = cluster(2);
    let watcher = cluster.join().unwrap().endpoint();
    ask(&watcher, Peer::Control, calls::Activate).unwrap();
    let fabric = cluster.join().unwrap();
    let (client, endpoint) = (fabric.client(), fabric.endpoint());
    ask(&endpoint, Peer::Volume(1), calls::RedoArea).unwrap();
    assert_eq!(ask(&endpoint, Peer::Control, calls::Depart), Ok(()));
    assert_eq!(write(&endpoint, Space::Host, SCRATCH, &[1]), Err(FabricError::Fenced { client }));
    assert_eq!(ask(&endpoint, Peer::Volume(1), calls::Usage), Err(FabricError::Fenced { client }));
    drop((fabric, endpoint));
    let standing = |client| match ask(&watcher, Peer::Control, calls::Members) {
        Ok(all) => all.iter().find(|member| member.client == client).map(|member| member.standing),
        other => panic!("{other:?}"),
    };
    assert_eq!(standing(client), Some(Standing::Leaving), "its handles are gone, but the member stays");
    let Ok(Usage { members: known, .. }) = ask(&watcher, Peer::Volume(1), calls::Usage) else { panic!() };
    assert!(known.contains(&client), "its redo area stays for the recoverer");
    assert_eq!(
        ask(&watcher, Peer::Control, calls::Renew),
        Ok(Renewal { expired: vec![client], short: false })
    );
    assert_eq!(ask(&watcher, Peer::Control, calls::Suspect { client }), Ok(Verdict::Recover));
    for request in
        [Request::Fence { client }, Request::SpansOf { client, from: 0 }, Request::Retire { client }]
    {
        for server in [1, 0] {
            assert!(matches!(
                ask(&watcher, Peer::Volume(server), request.clone()),
                Ok(Response::Done | Response::Spans(_))
            ));
        }
    }
    assert_eq!(standing(client), Some(Standing::Leaving));
    assert_eq!(ask(&watcher, Peer::Control, calls::FreeId { client }), Ok(()));
    assert_eq!(standing(client), None);
}

#[test]
fn a_dead_client_cannot_leave_and_loses_nothing_to_its_own_destructor() {
    let cluster = cluster(1);
    let watcher = cluster.join().unwrap().endpoint();
    ask(&watcher, Peer::Control, calls::Activate).unwrap();
    let fabric = cluster.join().unwrap();
    let (client, endpoint) = (fabric.client(), fabric.endpoint());
    ask(&endpoint, Peer::Control, calls::Activate).unwrap();
    ask(&watcher, Peer::Control, calls::Condemn { client }).unwrap();
    assert_eq!(ask(&endpoint, Peer::Control, calls::Renew), Err(FabricError::Fenced { client }));
    drop((fabric, endpoint));
    assert_eq!(ask(&watcher, Peer::Control, calls::Suspect { client }), Ok(Verdict::Recover));
}

#[test]
fn ids_run_out_with_an_error() {
    let cluster = cluster(1);
    let mut all = Vec::new();
    let error = loop {
        match cluster.join() {
            Ok(fabric) => all.push(fabric),
            Err(error) => break error,
        }
    };
    // The server keeps a few ids for clients that recover others.
    let issued = if MEMBERS < 16 { MEMBERS } else { MEMBERS - 16 };
    assert_eq!(
        (all.len(), error),
        (issued as usize, FabricError::Refused(sherman_fabric::Refusal::TooManyMembers))
    );
    drop(all);
    assert!(cluster.join().is_ok());
}

/// A cluster whose leases expire soon.
fn hasty_cluster(lease: Duration) -> Arc<EmbeddedCluster> {
    let mut options = crate::common::options(2);
    options.format.member_capacity = 8;
    options.format.lease_nanos = lease.as_nanos() as u64;
    EmbeddedCluster::new(options).unwrap()
}

#[test]
fn a_client_whose_lease_expired_and_that_owned_nothing_is_refused_on_every_server_after_its_id_is_reissued() {
    let lease = Duration::from_millis(if cfg!(miri) { 2_000 } else { 20 });
    let cluster = hasty_cluster(lease);
    let old = cluster.join().unwrap();
    let (client, endpoint) = (old.client(), old.endpoint());
    thread::sleep(lease + lease / 4);
    let successor = successor_of(&cluster, client);
    let present = successor.endpoint();
    let fenced = FabricError::Fenced { client };
    for server in [0, 1] {
        for request in
            [Request::RedoArea, Request::Renew, Request::Usage, Request::FreeSpans { spans: Vec::new() }]
        {
            let peer = if request.is_for_control() { Peer::Control } else { Peer::Volume(server) };
            assert_eq!(ask(&endpoint, peer, request), Err(fenced.clone()));
        }
        let mut list = endpoint.list(server);
        list.write(Space::Host, SCRATCH, &[9]);
        assert_eq!(run(&endpoint, list).map(drop), Err(fenced.clone()));
    }
    drop((old, endpoint));
    // The destructor of the old client took nothing from its successor.
    assert!(
        ask(&present, Peer::Volume(0), calls::RedoArea).is_ok()
            && ask(&present, Peer::Volume(1), calls::RedoArea).is_ok()
    );
    assert!(write(&present, Space::Host, SCRATCH, &[1]).is_ok());
}

#[test]
fn one_that_is_condemned_and_owns_nothing_is_stopped_at_once() {
    let cluster = cluster(2);
    let watcher = cluster.join().unwrap().endpoint();
    let reader = cluster.join().unwrap();
    let (client, endpoint) = (reader.client(), reader.endpoint());
    assert_eq!(ask(&watcher, Peer::Control, calls::Condemn { client }), Ok(()));
    assert!(!members(&watcher).contains(&client));
    assert_eq!(ask(&endpoint, Peer::Control, calls::Renew), Err(FabricError::Fenced { client }));
    assert_eq!(run(&endpoint, endpoint.list(1)).err(), Some(FabricError::Fenced { client }));
}
