//! Links begin and end with their endpoints, and end with their servers.

use crate::raw::{MEMBERS, SCRATCH, eventually, join, options, serve};
use sherman_control::Operator;
use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, FabricError, Peer, Response, Space, call, calls, execute};
use sherman_shm::{JoinShmError, ShmEndpoint, ShmFabric, ShmOptions};
use sherman_soft_nic::server::{Listen, ServerOptions, SoftNicServer};
use std::sync::Arc;

fn write(endpoint: &ShmEndpoint, server: u16) -> Result<(), FabricError> {
    let mut list = endpoint.list(server);
    list.write(Space::Host, SCRATCH, &[7; 64]);
    block_on(endpoint, execute(endpoint, list, &Counters::default())).map(drop)
}

fn read(endpoint: &ShmEndpoint, server: u16) -> Result<(), FabricError> {
    let mut list = endpoint.list(server);
    list.read(Space::Host, SCRATCH, 64);
    block_on(endpoint, execute(endpoint, list, &Counters::default())).map(drop)
}

#[test]
fn slots_are_used_again_and_their_end_is_an_error() {
    let servers = [serve(0, 1, &ShmOptions { links: 6, ..options() })];
    let fabric = ShmFabric::join(&join(&servers)).unwrap();
    for _ in 0..3 {
        // The server notices the end of the previous links a little later.
        let endpoints: Vec<ShmEndpoint> = (0..6)
            .map(|_| {
                eventually(|| fabric.endpoint().is_ok());
                fabric.endpoint().unwrap()
            })
            .collect();
        assert_eq!(fabric.endpoint().err(), Some(FabricError::TooLarge { asked: 7, limit: 6 }));
        endpoints.iter().for_each(|endpoint| write(endpoint, 0).unwrap());
    }
}

#[test]
fn a_server_that_stops_ends_the_identity_of_clients_that_map_its_memory() {
    let mut servers = vec![serve(0, 2, &options()), serve(1, 2, &options())];
    let fabric = ShmFabric::join(&join(&servers)).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    assert_eq!((write(&endpoint, 1), read(&endpoint, 1)), (Ok(()), Ok(())));
    drop(servers.pop());
    let gone = FabricError::Disconnected { server: 1 };
    assert_eq!((write(&endpoint, 1), read(&endpoint, 1)), (Err(gone.clone()), Err(gone.clone())));
    assert_eq!((write(&endpoint, 0), read(&endpoint, 0)), (Ok(()), Ok(())));
    assert_eq!(write(&endpoint, 2), Err(FabricError::NoSuchServer { server: 2 }));
    eventually(|| fabric.endpoint().err().as_ref() == Some(&gone));
    // The client no longer renews its lease: other clients recover its unfinished work.
    let renewed = block_on(&endpoint, call(&endpoint, Peer::Control, calls::Renew, &Counters::default()));
    assert_eq!(renewed, Err(FabricError::Disconnected { server: 0 }));
}

#[test]
fn a_server_that_is_declared_lost_is_not_mapped() {
    let mut servers = vec![serve(0, 2, &options()), serve(1, 2, &options())];
    let joining = join(&servers);
    let old = ShmFabric::join(&joining).unwrap();
    let admin = Operator::open(&joining).unwrap();
    assert!(matches!(admin.ask(Peer::Control, calls::DeclareLost { server: 1 }), Ok(())));
    drop(servers.pop());
    let fabric = ShmFabric::join(&joining).unwrap();
    for _ in 0..2 {
        let endpoint = fabric.endpoint().unwrap();
        let lost = Err(FabricError::ServerLost { server: 1 });
        assert_eq!((write(&endpoint, 1), read(&endpoint, 1)), (lost.clone(), lost));
        assert_eq!((write(&endpoint, 0), read(&endpoint, 0)), (Ok(()), Ok(())));
    }
    drop(old);
}

#[test]
fn a_client_that_gives_up_its_identity_posts_nothing_and_a_client_that_leaves_is_gone() {
    let servers = [serve(0, 1, &options())];
    let watcher = ShmFabric::join(&join(&servers)).unwrap().endpoint().unwrap();
    let members = || match block_on(&watcher, call(&watcher, Peer::Control, MEMBERS, &Counters::default())) {
        Ok(Response::Members(members)) => members.len(),
        other => panic!("{other:?}"),
    };
    let fabric = ShmFabric::join(&join(&servers)).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    assert_eq!((write(&endpoint, 0), members()), (Ok(()), 2));
    drop((fabric, endpoint));
    assert_eq!(members(), 1);
    let fabric = ShmFabric::join(&join(&servers)).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    let active = block_on(&endpoint, call(&endpoint, Peer::Control, calls::Activate, &Counters::default()));
    assert!(active.is_ok(), "{active:?}");
    fabric.abandon();
    let fenced = Err(FabricError::Fenced { client: fabric.client() });
    assert_eq!((write(&endpoint, 0), read(&endpoint, 0)), (fenced.clone(), fenced));
    assert!(fabric.endpoint().is_err());
    drop((fabric, endpoint));
    assert_eq!(members(), 2, "a member must recover it");
    // A client that owns nothing needs no recovery, and has no process that could touch a slot.
    let fabric = ShmFabric::join(&join(&servers)).unwrap();
    fabric.abandon();
    drop(fabric);
    let began = std::time::Instant::now();
    while members() > 2 {
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "its connections have ended");
        std::thread::yield_now();
    }
}

#[test]
fn servers_that_do_not_share_their_memory_say_so() {
    let shared = serve(0, 1, &options());
    let socket = std::env::temp_dir().join(format!("sherman-shm-none-{}.sock", std::process::id()));
    let listen = vec![Listen::Unix(socket), Listen::Tcp("127.0.0.1:0".into())];
    let host = Arc::clone(shared.host().unwrap());
    let plain = SoftNicServer::start(ServerOptions::new(host, listen)).unwrap();
    let refused = ShmFabric::join(&join(&[plain])).unwrap_err();
    assert!(matches!(refused, JoinShmError::Refused { server: 0, .. }), "{refused}");
    // Over TCP the server does not know which process asks, and could not pass it the memory.
    let far = sherman_control::JoinOptions::new(vec![shared.addresses()[1].clone().into()]);
    let refused = ShmFabric::join(&far).unwrap_err();
    assert!(
        matches!(refused, JoinShmError::Refused { error: FabricError::Unsupported { .. }, .. }),
        "{refused}"
    );
    let nobody = ShmFabric::join(&sherman_control::JoinOptions::new(Vec::new())).unwrap_err();
    assert!(matches!(nobody, JoinShmError::Join(_)), "{nobody}");
}
