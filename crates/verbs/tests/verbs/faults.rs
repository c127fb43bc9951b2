//! Tests what a NIC reports when something goes wrong, and which error the caller gets.

use crate::common::{SCRATCH, has_device, join, outcome, read, serve, write};
use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, FabricError, Peer, Space, call, calls};
use sherman_verbs::{VerbsEndpoint, VerbsOptions};
use std::time::{Duration, Instant};

fn options() -> VerbsOptions {
    VerbsOptions::default()
}

/// A queue pair that fails ends the link of its own endpoint to the server, and no other client's link.
fn breaks(break_it: fn(&VerbsEndpoint), offset: u64) {
    if !has_device() {
        return;
    }
    let servers = [serve(0, 1, &options())];
    let [mine, other] = [(); 2].map(|()| join(&servers, &options()).expect("a cluster"));
    let (endpoint, beside) = (mine.endpoint().expect("an endpoint"), other.endpoint().expect("an endpoint"));
    write(&endpoint, 0, SCRATCH, 5).expect("all is well");
    break_it(&endpoint);
    // Several lists are in flight: all of them end, and the first of them had no effect.
    let tickets: Vec<_> = (0..3u64)
        .map(|at| {
            let mut list = endpoint.list(0);
            list.write(Space::Host, offset, &at.to_le_bytes());
            list.write(Space::Host, SCRATCH + 64, &[9; 8]);
            endpoint.post(list)
        })
        .collect();
    let began = Instant::now();
    for ticket in tickets {
        let ended = outcome(&endpoint, ticket);
        assert!(matches!(ended, Err(FabricError::Disconnected { server: 0 })), "{ended:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let after = write(&endpoint, 0, SCRATCH, 6);
    assert_eq!(after, Err(FabricError::Disconnected { server: 0 }));
    assert_eq!((read(&beside, 0, SCRATCH), read(&beside, 0, SCRATCH + 64)), (Ok(5), Ok(0)));
    // The client has given up its identity: it neither renews nor leaves.
    let renewed = block_on(&endpoint, call(&endpoint, Peer::Control, calls::Renew, &Counters::default()));
    assert_eq!(renewed, Err(FabricError::Disconnected { server: 0 }));
}

#[test]
fn a_key_that_nobody_gave_out_ends_the_link() {
    breaks(|endpoint| endpoint.spoil_key(0), SCRATCH + 64);
}

#[test]
fn memory_that_is_not_there_ends_the_link() {
    breaks(|endpoint| endpoint.believe_more(0), crate::common::MEMORY + 4096);
}

#[test]
fn a_queue_pair_in_error_ends_the_link() {
    breaks(|endpoint| endpoint.end_queue_pair(0), SCRATCH + 64);
}

#[test]
fn a_server_that_is_gone_ends_the_identity() {
    if !has_device() {
        return;
    }
    let mut servers = vec![serve(0, 2, &options()), serve(1, 2, &options())];
    let fabric = join(&servers, &options()).expect("a cluster");
    let endpoint = fabric.endpoint().expect("an endpoint");
    write(&endpoint, 1, SCRATCH, 1).expect("all is well");
    drop(servers.pop());
    let began = Instant::now();
    let ended = write(&endpoint, 1, SCRATCH, 2);
    println!("a server that is gone: {ended:?} after {:?}", began.elapsed());
    assert_eq!(ended, Err(FabricError::Disconnected { server: 1 }));
    assert!(began.elapsed() < Duration::from_secs(5));
    write(&endpoint, 0, SCRATCH, 3).expect("this one is there");
    // The client gets no further endpoint and no further renewal: others recover its unfinished work.
    assert_eq!(fabric.endpoint().err(), Some(FabricError::Disconnected { server: 1 }));
    let renewed = block_on(&endpoint, call(&endpoint, Peer::Control, calls::Renew, &Counters::default()));
    assert_eq!(renewed, Err(FabricError::Disconnected { server: 0 }));
}

/// When a server is lost, lists that wait for room get the registered memory of the lists to that server.
#[test]
fn lists_that_wait_for_room_go_on_when_another_server_is_lost() {
    if !has_device() {
        return;
    }
    let mut servers = vec![serve(0, 2, &options()), serve(1, 2, &options())];
    let fabric = join(&servers, &options()).expect("a cluster");
    let endpoint = fabric.endpoint().expect("an endpoint");
    write(&endpoint, 0, SCRATCH, 7).expect("all is well");
    drop(servers.pop());
    let post = |server, bytes: u32| {
        let mut list = endpoint.list(server);
        list.read(Space::Host, SCRATCH, bytes);
        endpoint.post(list)
    };
    let lost: Vec<_> = (0..8).map(|_| post(1, 512 << 10)).collect();
    let waiting = post(0, 512 << 10);
    assert_eq!(endpoint.wire().waited, 1);
    let list = outcome(&endpoint, waiting).expect("this one is there");
    assert_eq!(list.len(), 1);
    for ticket in lost {
        let ended = outcome(&endpoint, ticket);
        assert!(matches!(ended, Err(FabricError::Disconnected { server: 1 })), "{ended:?}");
    }
}

#[test]
fn nothing_of_a_fenced_client_is_executed_and_it_gets_the_error() {
    if !has_device() {
        return;
    }
    let servers = [serve(0, 1, &options())];
    let [mine, other] = [(); 2].map(|()| join(&servers, &options()).expect("a cluster"));
    let (endpoint, beside) = (mine.endpoint().expect("an endpoint"), other.endpoint().expect("an endpoint"));
    write(&endpoint, 0, SCRATCH, 1).expect("all is well");
    let client = endpoint.client();
    let fenced =
        block_on(&beside, call(&beside, Peer::Volume(0), calls::Fence { client }, &Counters::default()));
    assert!(fenced.is_ok(), "{fenced:?}");
    let began = Instant::now();
    assert_eq!(write(&endpoint, 0, SCRATCH, 2), Err(FabricError::Fenced { client }));
    println!("a fenced client got the error after {:?}", began.elapsed());
    // The device reports it, long before the client's `patience` ends.
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!((read(&beside, 0, SCRATCH), write(&beside, 0, SCRATCH, 3)), (Ok(1), Ok(())));
    // The client gets no new link either.
    let again = mine.endpoint().map(|endpoint| write(&endpoint, 0, SCRATCH, 4));
    assert!(
        matches!(again, Err(FabricError::Fenced { .. }) | Ok(Err(FabricError::Fenced { .. }))),
        "{again:?}"
    );
    assert_eq!(read(&beside, 0, SCRATCH), Ok(3));
}

/// A fence during a stream of lists: every acknowledged write is there, and nothing changes after the fence
/// was answered.
#[test]
fn a_fence_stops_a_stream_of_lists() {
    if !has_device() {
        return;
    }
    let servers = [serve(0, 1, &options())];
    let [mine, other] = [(); 2].map(|()| join(&servers, &options()).expect("a cluster"));
    let beside = other.endpoint().expect("an endpoint");
    let client = mine.client();
    let acknowledged = std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let endpoint = mine.endpoint().expect("an endpoint");
            let (mut last, began) = (0, Instant::now());
            loop {
                assert!(began.elapsed() < Duration::from_secs(20), "no fence stops it");
                match write(&endpoint, 0, SCRATCH, last + 1) {
                    Ok(()) => last += 1,
                    Err(error) => {
                        assert_eq!(error, FabricError::Fenced { client });
                        return last;
                    }
                }
            }
        });
        while read(&beside, 0, SCRATCH).expect("a word") < 20 {}
        let fenced =
            block_on(&beside, call(&beside, Peer::Volume(0), calls::Fence { client }, &Counters::default()));
        assert!(fenced.is_ok(), "{fenced:?}");
        let still = read(&beside, 0, SCRATCH).expect("a word");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(read(&beside, 0, SCRATCH), Ok(still), "memory moved after the fence was answered");
        let last = stream.join().expect("it ends");
        assert!(last == still || last + 1 == still, "{last} acknowledged, {still} found");
        last
    });
    assert!(acknowledged >= 19, "{acknowledged}");
}

#[test]
fn bad_verbs_are_refused_before_they_cost_the_link() {
    if !has_device() {
        return;
    }
    let servers = [serve(0, 1, &options())];
    let fabric = join(&servers, &options()).expect("a cluster");
    let endpoint = fabric.endpoint().expect("an endpoint");
    for round in 0..3 {
        let mut list = endpoint.list(0);
        list.write(Space::Host, SCRATCH, &[1; 8]);
        match round {
            0 => list.cas(Space::Host, SCRATCH + 4, 0, 1),
            1 => list.faa(Space::OnChip, 3, 1),
            _ => list.read(Space::Host, u64::MAX - 3, 8),
        };
        let refused = crate::common::run(&endpoint, list);
        let due = matches!(refused, Err(FabricError::Misaligned { .. } | FabricError::OutOfBounds { .. }));
        assert!(due, "{refused:?}");
        // Nothing of the list happened, and the link still works.
        assert_eq!(read(&endpoint, 0, SCRATCH), Ok(0));
    }
}
