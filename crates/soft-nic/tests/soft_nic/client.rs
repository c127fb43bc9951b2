//! A client's reaction when servers misbehave, die or are missing.

use crate::fake::{CLIENT, FOUND, Lists, cluster};
use sherman_control::auth::Secret;
use sherman_control::wire::{GoodbyeCode, MAX_TRANSFER, MAX_VERBS};
use sherman_control::{ConnectError, JoinError, JoinOptions};
use sherman_executor::{LocalExecutor, block_on};
use sherman_fabric::{
    Clock, Counters, Endpoint, FabricError, Peer, Request, Response, Space, WorkList, call, execute,
};
use sherman_soft_nic::{SoftNicEndpoint, SoftNicFabric};
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

fn read(endpoint: &SoftNicEndpoint, server: u16) -> Result<WorkList, FabricError> {
    let mut list = endpoint.list(server);
    list.read(Space::Host, 0, 8);
    block_on(endpoint, execute(endpoint, list, &Counters::default()))
}

fn ask(endpoint: &SoftNicEndpoint, peer: Peer, request: Request) -> Result<Response, FabricError> {
    block_on(endpoint, call(endpoint, peer, request, &Counters::default()))
}

#[test]
fn a_cluster_is_joined_when_control_has_renewed_and_left_control_last() {
    let (fakes, options) = cluster(3);
    let fabric = SoftNicFabric::join(&options).unwrap();
    assert_eq!((fabric.client(), fabric.servers(), fabric.caps().on_chip_bytes), (CLIENT, 3, 64));
    assert_eq!(fakes[0].calls(), [Request::Renew]);
    let endpoint = fabric.endpoint().unwrap();
    let mut list = endpoint.list(2);
    let (cas, bytes) = (list.cas(Space::Host, 8, 1, 2), list.read(Space::Host, 64, 100));
    let list = block_on(&endpoint, execute(&endpoint, list, &Counters::default())).unwrap();
    assert_eq!((list.old(cas), list.bytes(bytes)), (u64::from_le_bytes([FOUND; 8]), [FOUND; 100].as_slice()));
    drop(fabric);
    assert_eq!(fakes[1].calls(), []);
    drop(endpoint);
    assert_eq!(fakes[0].calls(), [Request::Renew, Request::Release, Request::Leave]);
    assert_eq!((fakes[1].calls(), fakes[2].calls()), (vec![Request::Release], vec![Request::Release]));
}

#[test]
fn a_client_declared_dead_while_joining_posts_nothing() {
    let (fakes, options) = cluster(2);
    fakes[0].mind(|manners| manners.renews = false);
    let refused = SoftNicFabric::join(&options);
    assert!(matches!(refused, Err(JoinError::Renew(FabricError::Refused(_)))), "{refused:?}");
    assert_eq!(fakes[0].calls(), [Request::Renew, Request::Leave]);
}

#[test]
fn a_wrong_list_of_servers_is_reported_and_the_id_given_back() {
    let (fakes, mut options) = cluster(2);
    let both = options.servers.clone();
    options.servers = vec![both[0].clone()];
    let short = SoftNicFabric::join(&options);
    assert!(matches!(short, Err(JoinError::WrongCount { listed: 1, found: 2, .. })), "{short:?}");
    options.servers = vec![both[0].clone(), both[0].clone()];
    let twice = SoftNicFabric::join(&options);
    assert!(matches!(twice, Err(JoinError::WrongServer { expected: 1, found: 0, .. })), "{twice:?}");
    assert_eq!(fakes[0].calls(), [Request::Leave, Request::Leave]);
    options.servers.clear();
    assert!(matches!(SoftNicFabric::join(&options), Err(JoinError::NoServers)));
    fakes[1].die();
    options.servers = both;
    let dead = SoftNicFabric::join(&options);
    let told = matches!(dead, Err(JoinError::Connect { server: 1, error: ConnectError::Refused(_), .. }));
    assert!(told, "{dead:?}");
}

#[test]
fn both_sides_must_know_the_secret() {
    let (fakes, mut options) = cluster(1);
    let secret = |text: &str| Some(Secret::new(text.as_bytes()).unwrap());
    let error = |options: &JoinOptions| match SoftNicFabric::join(options) {
        Err(JoinError::Connect { error, .. }) => error,
        other => panic!("{other:?}"),
    };
    options.secret = secret("a secret of the client's alone");
    assert!(matches!(error(&options), ConnectError::Impostor), "a server without a secret was believed");
    fakes[0].mind(|manners| manners.secret = secret("another secret, the server's"));
    let refused = error(&options);
    assert!(
        matches!(&refused, ConnectError::Goodbye(goodbye) if goodbye.code == GoodbyeCode::BadSecret),
        "{refused:?}"
    );
    options.secret = None;
    assert!(matches!(error(&options), ConnectError::NeedsSecret));
    options.secret = secret("another secret, the server's");
    SoftNicFabric::join(&options).unwrap();
}

#[test]
fn a_connection_that_breaks_is_the_end_of_the_identity() {
    let (fakes, options) = cluster(2);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    read(&endpoint, 1).unwrap();
    fakes[1].mind(|manners| manners.lists = Lists::Close);
    for _ in 0..2 {
        assert_eq!(read(&endpoint, 1).unwrap_err(), FabricError::Disconnected { server: 1 });
    }
    read(&endpoint, 0).unwrap();
    // The client may still hold a lane: it neither renews, nor sends a goodbye that would free the id (I40).
    let asked = fakes[0].calls();
    for request in [Request::Renew, Request::Depart, Request::Leave] {
        assert_eq!(ask(&endpoint, Peer::Control, request), Err(FabricError::Disconnected { server: 0 }));
    }
    assert_eq!(ask(&endpoint, Peer::Volume(0), Request::Usage), Ok(Response::Done));
    drop((endpoint, fabric));
    assert_eq!(fakes[0].calls(), [asked, vec![Request::Usage]].concat());
}

#[test]
fn a_silent_server_is_waited_for_no_longer_than_patience_lasts() {
    let (fakes, options) = cluster(1);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    fakes[0].mind(|manners| manners.lists = Lists::Silence);
    let begun = Instant::now();
    assert_eq!(read(&endpoint, 0).unwrap_err(), FabricError::Disconnected { server: 0 });
    let waited = begun.elapsed();
    assert!(waited >= options.patience && waited < 3 * options.patience, "{waited:?}");
}

#[test]
fn a_server_that_is_dead_or_another_is_not_lost_and_ends_the_identity() {
    for restarted in [false, true] {
        let (fakes, options) = cluster(2);
        let fabric = SoftNicFabric::join(&options).unwrap();
        let endpoint = fabric.endpoint().unwrap();
        read(&endpoint, 1).unwrap();
        if restarted {
            fakes[1].mind(|manners| manners.boot += 1000);
            fakes[1].cut();
        } else {
            fakes[1].die();
        }
        let begun = Instant::now();
        let gone = FabricError::Disconnected { server: 1 };
        for _ in 0..2 {
            assert_eq!(read(&endpoint, 1).unwrap_err(), gone);
        }
        assert_eq!(ask(&endpoint, Peer::Volume(1), Request::Usage), Err(gone.clone()));
        assert_eq!(fabric.endpoint().err(), Some(gone.clone()), "no endpoint without that server");
        assert!(!fabric.is_lost(1) && fabric.is_cut(1));
        // The client neither renews its lease nor gives its id back: other clients must recover its
        // unfinished work at server 1.
        for request in [Request::Renew, Request::Leave, Request::Depart] {
            assert_eq!(ask(&endpoint, Peer::Control, request), Err(FabricError::Disconnected { server: 0 }));
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        drop((endpoint, fabric));
        assert_eq!(fakes[0].calls(), [Request::Renew]);
    }
}

#[test]
fn an_orderly_leave_that_does_not_reach_a_server_does_not_free_the_id() {
    for idle in [false, true] {
        let (fakes, options) = cluster(2);
        let fabric = SoftNicFabric::join(&options).unwrap();
        if idle {
            // The connections wait for the next endpoint, and break meanwhile.
            drop(fabric.endpoint().unwrap());
        }
        fakes[1].die();
        drop(fabric);
        assert_eq!(fakes[0].calls(), [Request::Renew], "server 0 received a request to leave");
    }
}

#[test]
fn a_server_that_the_cluster_has_declared_lost_is_neither_looked_for_nor_waited_for() {
    let (fakes, options) = cluster(3);
    fakes[0].mind(|manners| manners.lost = vec![1]);
    fakes[1].die();
    let fabric = SoftNicFabric::join(&options).unwrap();
    let (endpoint, other) = (fabric.endpoint().unwrap(), fabric.endpoint().unwrap());
    for endpoint in [&endpoint, &other] {
        assert_eq!(read(endpoint, 1).unwrap_err(), FabricError::ServerLost { server: 1 });
        assert_eq!(
            ask(endpoint, Peer::Volume(1), Request::Usage),
            Err(FabricError::ServerLost { server: 1 })
        );
        read(endpoint, 2).unwrap();
    }
    assert!(fabric.is_lost(1) && !fabric.is_lost(2));
    assert!(matches!(ask(&endpoint, Peer::Control, Request::Renew), Ok(Response::Renewed { .. })));
    drop((endpoint, other, fabric));
    assert_eq!(fakes[0].calls().last(), Some(&Request::Leave));
    assert_eq!(fakes[2].calls(), [Request::Release]);
}

#[test]
fn a_server_with_another_memory_is_not_taken_for_the_one_it_was() {
    let (fakes, options) = cluster(2);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let _kept = fabric.endpoint().unwrap();
    fakes[1].mind(|manners| manners.memory += 1);
    assert_eq!(fabric.endpoint().err(), Some(FabricError::Disconnected { server: 1 }));
}

#[test]
fn lists_in_flight_when_the_server_dies_end_in_an_error() {
    let (fakes, options) = cluster(1);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    fakes[0].mind(|manners| manners.lists = Lists::Silence);
    let lists: Vec<_> =
        (0..10).map(|_| execute(&endpoint, write(&endpoint, 100), &Counters::default())).collect();
    let counters = Counters::default();
    let usage = call(&endpoint, Peer::Volume(0), Request::Usage, &counters);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            fakes[0].die();
        });
        block_on(&endpoint, async {
            assert_eq!(usage.await, Ok(Response::Done), "it was answered before");
            for list in lists {
                assert_eq!(list.await.unwrap_err(), FabricError::Disconnected { server: 0 });
            }
        });
    });
}

fn write(endpoint: &SoftNicEndpoint, bytes: usize) -> WorkList {
    let mut list = endpoint.list(0);
    list.write(Space::Host, 0, &vec![1; bytes]);
    list
}

#[test]
fn lists_execute_though_nobody_waits_and_their_endpoint_goes() {
    let (fakes, options) = cluster(1);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    fakes[0].mind(|manners| manners.lists = Lists::Answer(Duration::from_millis(1)));
    for _ in 0..50 {
        drop(execute(&endpoint, write(&endpoint, 100_000), &Counters::default()));
    }
    drop(endpoint);
    assert_eq!(fakes[0].lists(), 50, "lists were left behind");
    let again = fabric.endpoint().unwrap();
    read(&again, 0).unwrap();
    assert_eq!(fakes[0].accepted(), 1, "its connection was not used again");
}

#[test]
fn nothing_waits_for_what_is_abandoned() {
    let (fakes, options) = cluster(1);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    fakes[0].mind(|manners| manners.lists = Lists::Silence);
    drop(execute(&endpoint, write(&endpoint, 100), &Counters::default()));
    fabric.abandon();
    assert_eq!(read(&endpoint, 0).unwrap_err(), FabricError::Fenced { client: CLIENT });
    assert!(matches!(fabric.endpoint(), Err(FabricError::Fenced { client: CLIENT })));
    let begun = Instant::now();
    drop((endpoint, fabric));
    assert!(begun.elapsed() < options.patience / 2);
    assert_eq!(fakes[0].calls(), [Request::Renew]);
}

#[test]
fn a_client_that_has_left_posts_nothing_more() {
    for goodbye in [Request::Leave, Request::Depart] {
        let (fakes, options) = cluster(1);
        let fabric = SoftNicFabric::join(&options).unwrap();
        let (endpoint, other) = (fabric.endpoint().unwrap(), fabric.endpoint().unwrap());
        assert_eq!(ask(&endpoint, Peer::Control, goodbye.clone()), Ok(Response::Done));
        for endpoint in [&endpoint, &other] {
            assert_eq!(read(endpoint, 0).unwrap_err(), FabricError::Fenced { client: CLIENT });
            assert_eq!(
                ask(endpoint, Peer::Volume(0), Request::Usage),
                Err(FabricError::Fenced { client: CLIENT })
            );
        }
        drop((endpoint, other, fabric));
        assert_eq!(fakes[0].calls(), [Request::Renew, goodbye]);
    }
}

#[test]
fn what_the_protocol_cannot_carry_is_refused_here() {
    let (fakes, options) = cluster(1);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    let outcome = |list| block_on(&endpoint, execute(&endpoint, list, &Counters::default())).unwrap_err();
    let mut list = endpoint.list(0);
    list.read(Space::Host, 0, MAX_TRANSFER + 1);
    assert!(matches!(outcome(list), FabricError::TooLarge { .. }));
    let mut list = endpoint.list(0);
    (0..=MAX_VERBS).for_each(|_| _ = list.read(Space::Host, 0, 8));
    assert!(matches!(outcome(list), FabricError::TooLarge { .. }));
    let mut list = endpoint.list(0);
    (0..MAX_VERBS).for_each(|_| _ = list.read(Space::Host, 0, MAX_TRANSFER));
    assert!(matches!(outcome(list), FabricError::TooLarge { .. }));
    let mut list = endpoint.list(1);
    list.read(Space::Host, 0, 8);
    assert_eq!(outcome(list), FabricError::NoSuchServer { server: 1 });
    assert_eq!(ask(&endpoint, Peer::Volume(1), Request::Usage), Err(FabricError::NoSuchServer { server: 1 }));
    assert_eq!(fakes[0].lists(), 0);
    read(&endpoint, 0).unwrap();
}

/// Waits for a wake from another thread.
async fn hear(ear: &Mutex<(bool, Option<Waker>)>) {
    poll_fn(|cx| {
        let mut ear = ear.lock().unwrap();
        ear.1 = Some(cx.waker().clone());
        if std::mem::take(&mut ear.0) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn say(ear: &Mutex<(bool, Option<Waker>)>) {
    let waker = {
        let mut ear = ear.lock().unwrap();
        ear.0 = true;
        ear.1.take()
    };
    waker.into_iter().for_each(Waker::wake);
}

#[test]
fn a_thread_that_sleeps_on_its_sockets_hears_another_thread() {
    let (fakes, options) = cluster(1);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let (there, back) = (Mutex::default(), Mutex::default());
    const ROUNDS: u32 = 300;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let endpoint = fabric.endpoint().unwrap();
            let executor = LocalExecutor::new();
            for _ in 0..ROUNDS {
                executor.run_until(&endpoint, hear(&there));
                say(&back);
            }
        });
        let endpoint = fabric.endpoint().unwrap();
        // With a list in flight, and without.
        fakes[0].mind(|manners| manners.lists = Lists::Answer(Duration::from_millis(2)));
        for _ in 0..ROUNDS {
            let list = execute(&endpoint, write(&endpoint, 8), &Counters::default());
            say(&there);
            block_on(&endpoint, hear(&back));
            drop(list);
        }
    });
}

#[test]
fn a_sleeper_wakes_in_time_and_costs_nothing_meanwhile() {
    let (fakes, options) = cluster(1);
    let fabric = SoftNicFabric::join(&options).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    fakes[0].mind(|manners| manners.lists = Lists::Answer(Duration::from_millis(200)));
    let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let begun = (endpoint.now(), spent());
    block_on(&endpoint, async {
        let list = execute(&endpoint, write(&endpoint, 8), &Counters::default());
        sherman_fabric::sleep_until(&endpoint, begun.0 + 50_000_000).await;
        let woken = endpoint.now() - begun.0;
        assert!((50_000_000..150_000_000).contains(&woken), "{woken}");
        list.await.unwrap();
    });
    let (waited, cpu) = (endpoint.now() - begun.0, spent());
    let cpu = (cpu.tv_sec - begun.1.tv_sec) * 1_000_000_000 + cpu.tv_nsec - begun.1.tv_nsec;
    assert!(waited >= 200_000_000, "{waited}");
    assert!(cpu < 10_000_000, "{cpu} ns of processor for a sleep");
}
