//! Which clients are admitted: with and without a secret, with a replayed message, in which role, at which
//! boot of the server.

use crate::raw::{
    Raw, Reply, alone, eventually, host, introduction, member, memory_of, options, refused, secret, start,
};
use sherman_control::Address;
use sherman_control::JoinOptions;
use sherman_control::auth;
use sherman_control::wire::{FrameKind, GoodbyeCode, Introduce, Role, VERSION};
use sherman_fabric::{ComputeId, FabricError, Refusal, Request, Space, WorkList, calls};
use sherman_soft_nic::SoftNicFabric;
use sherman_soft_nic::server::{Limits, Listen, ServeError, ServerOptions, SoftNicServer};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[test]
fn a_client_joins_and_its_verbs_and_requests_are_served_on_tcp_and_unix() {
    let path = std::env::temp_dir().join(format!("sherman-handshake-{}.sock", std::process::id()));
    let listen = vec![Listen::Tcp("127.0.0.1:0".into()), Listen::Unix(path.clone())];
    let server = start(ServerOptions { listen, ..options() });
    for index in [0, 1] {
        let (mut raw, welcome) = Raw::enter_at(&server, index, None, alone()).unwrap();
        assert_eq!((welcome.boot, welcome.server, welcome.servers), (server.boot(), 0, 1));
        assert!(welcome.incarnation > 0 && welcome.client != ComputeId::NOBODY);
        let mut list = WorkList::new(0);
        list.write(Space::Host, crate::raw::FREE, b"one line");
        let read = list.read(Space::Host, crate::raw::FREE, 8);
        let cas = list.cas(Space::OnChip, 8 * index as u64, 0, 5);
        let faa = list.faa(Space::OnChip, 8 * index as u64, 1);
        raw.execute(&mut list).unwrap();
        assert_eq!((list.bytes(read), list.old(cas), list.old(faa)), (&b"one line"[..], 0, 5));
        let Ok(members) = raw.call(calls::Members) else { panic!() };
        assert!(members.iter().any(|member| member.client == welcome.client));
        let not_by_call = raw.call(calls::Join);
        assert!(matches!(not_by_call, Err(FabricError::Refused(Refusal::BadRequest { .. }))));
    }
    let stats = server.stats();
    assert_eq!((stats.lists, stats.reads, stats.writes, stats.cas, stats.faa), (2, 2, 2, 2, 2));
    assert_eq!((stats.accepted, stats.bytes_read, stats.bytes_written, stats.calls), (2, 16, 16, 4));
    eventually(|| server.stats().connections == 0);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_server_that_was_stopped_lets_its_memory_go() {
    let server = start(options());
    let memory = Arc::downgrade(memory_of(&server));
    let (_member, _) = Raw::enter_at(&server, 0, None, alone()).unwrap();
    server.stop();
    server.join().unwrap();
    assert_eq!(memory.strong_count(), 0);
}

#[test]
fn only_clients_that_know_the_secret_come_in() {
    let server = start(ServerOptions { secret: Some(secret("a secret of this test")), ..options() });
    let right = secret("a secret of this test");
    let (mut raw, _) = Raw::enter(&server, Some(&right), alone()).unwrap();
    assert!(raw.call(calls::Usage).is_ok());
    for wrong in [None, Some(secret("another secret of it"))] {
        for role in [alone(), Role::Admin, member(&server, 1, 1, 0)] {
            let goodbye = Raw::enter(&server, wrong.as_ref(), role).err().unwrap();
            assert_eq!((goodbye.code, goodbye.error), (GoodbyeCode::BadSecret, None));
        }
    }
    assert_eq!(refused(&server, "bad_secret"), 6);
    let Ok(members) = raw.call(calls::Members) else { panic!() };
    assert_eq!(members.len(), 1, "no client joined with a wrong secret");
}

#[test]
fn a_recorded_handshake_is_worth_nothing_on_another_connection() {
    let right = secret("a secret of this test");
    let server = start(ServerOptions { secret: Some(right.clone()), ..options() });
    let mut first = Raw::connect(&server, 0);
    let hello = first.hello();
    assert!(hello.needs_secret);
    let introduce = Introduce { version: VERSION, nonce: auth::nonce().unwrap(), role: alone() };
    let recorded = introduction(&introduce, Some(&right), &hello);
    first.send(&recorded);
    assert!(matches!(first.receive(), Reply::Frame(FrameKind::Welcome, ..)));
    let mut second = Raw::connect(&server, 0);
    assert_ne!(second.hello().nonce, hello.nonce);
    second.send(&recorded);
    assert_eq!(second.goodbye().code, GoodbyeCode::BadSecret);
    assert_eq!(refused(&server, "bad_secret"), 1);
    // The message is not accepted twice on the same connection either.
    first.send(&recorded);
    assert_eq!(first.goodbye().code, GoodbyeCode::Malformed);
}

#[test]
fn another_version_gets_an_error() {
    let server = start(options());
    let mut raw = Raw::connect(&server, 0);
    let hello = raw.hello();
    assert!(hello.speaks_our_version() && !hello.needs_secret);
    let introduce = Introduce { version: VERSION + 1, nonce: [1; 32], role: alone() };
    raw.send(&introduction(&introduce, None, &hello));
    assert_eq!(raw.goodbye().code, GoodbyeCode::Version);
}

#[test]
fn a_connection_that_does_not_introduce_itself_is_ended_and_others_are_served_meanwhile() {
    let limits = Limits { handshake_time: Duration::from_millis(200), ..Limits::default() };
    let server = start(ServerOptions { limits, shards: 1, ..options() });
    let mut silent = Raw::connect(&server, 0);
    silent.hello();
    let mut slow = Raw::connect(&server, 0);
    let hello = slow.hello();
    let introduce = Introduce { version: VERSION, nonce: [1; 32], role: alone() };
    slow.send(&introduction(&introduce, None, &hello)[..30]);
    let (mut quick, _) = Raw::join(&server);
    let began = Instant::now();
    assert_eq!(silent.goodbye().code, GoodbyeCode::TooSlow);
    assert_eq!(slow.goodbye().code, GoodbyeCode::TooSlow);
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(refused(&server, "slow_handshake"), 2);
    assert!(quick.call(calls::Usage).is_ok(), "a client after its handshake has no deadline");
    drop((silent, slow));
    eventually(|| server.stats().connections == 1);
}

#[test]
fn a_member_connects_again_but_not_to_another_start_of_the_server_nor_as_another_client() {
    let server = start(options());
    let (_first, welcome) = Raw::join(&server);
    let (mut again, same) = Raw::again(&server, &welcome).unwrap();
    assert_eq!(same, welcome);
    assert!(again.call(calls::Usage).is_ok());
    let (client, incarnation, boot) = (welcome.client.0, welcome.incarnation, welcome.boot);
    let code = |role| Raw::enter(&server, None, role).err().map(|goodbye| goodbye.code);
    assert_eq!(code(member(&server, client, incarnation, boot ^ 1)), Some(GoodbyeCode::Restarted));
    assert_eq!(code(member(&server, client, incarnation, 0)), Some(GoodbyeCode::Restarted));
    assert_eq!(code(member(&server, client, incarnation + 1, boot)), Some(GoodbyeCode::Fenced));
    assert_eq!(code(member(&server, client, incarnation - 1, boot)), Some(GoodbyeCode::Fenced));
    assert_eq!(
        code(member(&server, client + 1, incarnation, boot)),
        Some(GoodbyeCode::Fenced),
        "nobody has that id"
    );
    assert_eq!(code(member(&server, 0, 0, boot)), Some(GoodbyeCode::NotAllowed));
    assert_eq!(code(member(&server, u16::MAX, 1, boot)), Some(GoodbyeCode::NotAllowed));
}

#[test]
fn other_servers_let_members_in_by_what_they_say_and_know_their_order() {
    let server = start(ServerOptions { host: Some(host(1, 2)), ..options() });
    let refused = Raw::enter(&server, None, alone()).err().unwrap();
    assert_eq!(
        (refused.code, refused.error),
        (GoodbyeCode::JoinRefused, Some(FabricError::Refused(Refusal::NotHere)))
    );
    let (mut old, _) = Raw::enter(&server, None, member(&server, 7, 3, server.boot())).unwrap();
    assert!(old.call(calls::Usage).is_ok());
    let (mut new, _) = Raw::enter(&server, None, member(&server, 7, 4, server.boot())).unwrap();
    assert!(new.call(calls::Usage).is_ok());
    let goodbye = Raw::enter(&server, None, member(&server, 7, 3, server.boot())).err().unwrap();
    assert_eq!(goodbye.code, GoodbyeCode::Fenced);
    let mut list = WorkList::new(1);
    list.read(Space::Host, crate::raw::FREE, 8);
    assert_eq!(old.goodbye().code, GoodbyeCode::Fenced);
    assert!(old.execute(&mut list).is_err());
    assert!(new.execute(&mut list).is_ok());
}

#[test]
fn a_member_of_another_cluster_or_of_another_memory_is_refused() {
    let server = start(ServerOptions { host: Some(host(1, 2)), ..options() });
    let role = |cluster, memory| {
        let (client, incarnation, boot) = (ComputeId(7), 3, server.boot());
        Role::Member { client, incarnation, boot, cluster, memory }
    };
    let memory = memory_of(&server).superblock().memory_id;
    let code = |role| Raw::enter(&server, None, role).err().map(|goodbye| goodbye.code);
    assert_eq!(code(role(77, memory ^ 1)), Some(GoodbyeCode::OtherMemory));
    assert_eq!(code(role(0, memory)), Some(GoodbyeCode::OtherCluster));
    assert_eq!(memory_of(&server).look(|tables| tables.cluster()), 0, "a refusal changes nothing");
    let (_, welcome) = Raw::enter(&server, None, Role::Newcomer).unwrap();
    assert_eq!((welcome.memory, welcome.cluster, welcome.client), (memory, 0, ComputeId::NOBODY));
    assert_eq!(code(role(77, memory)), None);
    let cluster = memory_of(&server).look(|tables| tables.cluster());
    assert_eq!(cluster, 77, "it belongs to the first member's cluster");
    assert_eq!(code(role(78, memory)), Some(GoodbyeCode::OtherCluster));
    assert_eq!(code(role(77, memory)), None);
    assert_eq!((refused(&server, "other_cluster"), refused(&server, "other_memory")), (2, 1));
}

#[test]
fn an_operator_looks_and_decides_and_posts_nothing() {
    let server = start(options());
    let (_member, joined) = Raw::join(&server);
    let (mut raw, welcome) = Raw::enter(&server, None, Role::Admin).unwrap();
    assert_eq!(welcome.client, ComputeId::NOBODY);
    assert!(raw.call(calls::Stats).is_ok());
    assert!(raw.call(calls::Usage).is_ok());
    assert!(matches!(raw.call(calls::Members), Ok(members) if members.len() == 1));
    assert!(matches!(raw.call(calls::Servers), Ok(servers) if servers.len() == 1));
    assert_eq!(raw.call(calls::ListTrees), Ok(Vec::new()));
    assert_eq!(raw.call(calls::Condemn { client: joined.client }), Ok(()));
    for request in
        [Request::Leave, Request::Renew, Request::RedoArea, Request::Fence { client: ComputeId(1) }]
    {
        let refused = raw.call(request.clone());
        assert!(
            matches!(refused, Err(FabricError::Refused(Refusal::BadRequest { .. }))),
            "{request:?}: {refused:?}"
        );
    }
    let mut list = WorkList::new(0);
    list.read(Space::Host, 0, 8);
    raw.post(&mut list);
    assert_eq!(raw.goodbye().code, GoodbyeCode::NotAllowed);
}

#[test]
fn a_newcomer_learns_which_memory_is_there_and_may_do_nothing_else() {
    let server = start(options());
    let (mut raw, welcome) = Raw::enter(&server, None, Role::Newcomer).unwrap();
    let memory = memory_of(&server).superblock().memory_id;
    assert_eq!((welcome.client, welcome.memory), (ComputeId::NOBODY, memory));
    let nobody = FabricError::Refused(Refusal::NotAMember { client: ComputeId::NOBODY });
    for request in [Request::Usage, Request::Members, Request::Stats, Request::DeclareLost { server: 1 }] {
        assert_eq!(raw.call(request.clone()), Err(nobody.clone()));
    }
    let mut list = WorkList::new(0);
    list.read(Space::Host, 0, 8);
    raw.post(&mut list);
    assert_eq!(raw.goodbye().code, GoodbyeCode::NotAllowed);
}

#[test]
fn a_server_without_a_secret_stays_on_this_host_unless_known_otherwise() {
    let open = || vec![Listen::Tcp("0.0.0.0:0".into())];
    let refused = SoftNicServer::start(ServerOptions { listen: open(), ..options() });
    assert!(matches!(refused, Err(ServeError::Exposed { .. })));
    assert!(matches!(
        SoftNicServer::start(ServerOptions { listen: vec![], ..options() }),
        Err(ServeError::NoListeners)
    ));
    drop(start(ServerOptions { listen: open(), insecure: true, ..options() }));
    drop(start(ServerOptions { listen: open(), secret: Some(secret("a secret of this test")), ..options() }));
}

#[test]
fn one_connection_too_many_is_refused_until_another_one_ends() {
    let limits = Limits { max_connections: 3, ..Limits::default() };
    let server = start(ServerOptions { limits, ..options() });
    let mut inside: Vec<_> = (0..3).map(|_| Raw::join(&server).0).collect();
    let told = Raw::enter(&server, None, Role::Join { seen: vec![None] }).err().expect("it is full");
    assert_eq!(told.code, GoodbyeCode::TooManyConnections);
    assert_eq!(refused(&server, "too_many_connections"), 1);
    assert_eq!(
        inside[0].call(calls::Members).map(|members| members.len()),
        Ok(3),
        "a client that cannot stay does not join"
    );
    inside.pop();
    eventually(|| server.stats().connections == 2);
    assert!(Raw::enter(&server, None, Role::Admin).is_ok());
}

#[test]
fn a_connection_counts_before_its_client_can_ask() {
    let server = start(options());
    for _ in 0..3_000 {
        let (_client, _) = Raw::enter(&server, None, Role::Admin).expect("there is room");
        let open = server.stats().connections;
        assert!((1..100).contains(&open), "{open} connections");
    }
    eventually(|| server.stats().connections == 0);
}

#[test]
fn silent_connections_take_no_place_of_clients() {
    let limits = Limits { max_connections: 8, max_newcomers: 6, ..Limits::default() };
    let server = start(ServerOptions { limits, ..options() });
    let (mut early, _) = Raw::join(&server);
    let silent: Vec<_> = (0..60)
        .map(|_| {
            let mut raw = Raw::connect(&server, 0);
            raw.hello();
            raw
        })
        .collect();
    // The server closed the oldest connections for the newest.
    assert!(server.stats().connections <= 1 + 6);
    assert_eq!(refused(&server, "too_many_newcomers"), 54);
    // As many clients connect as the limit allows, and work. The client that was connected before stays.
    let mut late: Vec<_> = (0..7).map(|_| Raw::join(&server).0).collect();
    for client in late.iter_mut().chain([&mut early]) {
        let mut list = WorkList::new(0);
        list.read(Space::Host, crate::raw::FREE, 8);
        client.execute(&mut list).unwrap();
    }
    let mut codes = silent.into_iter().take(54).map(|mut raw| raw.goodbye().code);
    assert!(codes.all(|code| code == GoodbyeCode::TooManyConnections));
}

#[test]
fn clients_come_and_work_while_others_only_knock() {
    let limits = Limits { max_connections: 64, max_newcomers: 256, ..Limits::default() };
    let server = start(ServerOptions { limits, ..options() });
    let Listen::Tcp(at) = &server.addresses()[0] else { panic!("it listens there") };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut open = VecDeque::new();
            while !over.load(Relaxed) {
                open.push_back(TcpStream::connect(at).unwrap());
                if open.len() > 300 {
                    open.pop_front();
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        eventually(|| refused(&server, "too_many_newcomers") > 0);
        for _ in 0..100 {
            let (mut client, _) = Raw::join(&server);
            let mut list = WorkList::new(0);
            list.read(Space::Host, crate::raw::FREE, 8);
            client.execute(&mut list).unwrap();
            assert_eq!(client.call(calls::Leave), Ok(()));
        }
        over.store(true, Relaxed);
        flood.join().unwrap();
    });
    assert_eq!(refused(&server, "too_many_connections"), 0);
}

#[test]
fn a_crowd_that_connects_at_once_is_greeted_and_not_turned_away() {
    let server = start(options());
    // As many as a server that is short of time meets after a restart: nobody has introduced itself yet.
    let mut crowd: Vec<_> = (0..1_000).map(|_| Raw::connect(&server, 0)).collect();
    for raw in &mut crowd {
        let _ = raw.hello();
    }
    assert_eq!(refused(&server, "too_many_newcomers"), 0);
    assert_eq!(server.stats().connections, 1_000);
    drop(crowd);
    eventually(|| server.stats().connections == 0);
}

#[test]
fn a_client_that_a_flood_closed_tries_again() {
    let limits = Limits { max_connections: 64, max_newcomers: 2, ..Limits::default() };
    let server = start(ServerOptions { limits, ..options() });
    let Listen::Tcp(at) = &server.addresses()[0] else { panic!("it listens there") };
    let options = JoinOptions::new(vec![Address::from(server.addresses()[0].clone())]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            while !over.load(Relaxed) {
                let _silent: Vec<_> = (0..20).map(|_| TcpStream::connect(at).unwrap()).collect();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let refused = (0..200).filter(|_| SoftNicFabric::join(&options).is_err()).count();
        over.store(true, Relaxed);
        flood.join().unwrap();
        assert_eq!(refused, 0, "of 200 clients");
    });
    assert!(refused(&server, "too_many_newcomers") > 0);
}

#[test]
fn a_server_that_stops_says_goodbye_and_is_gone_soon() {
    let server = start(options());
    let (mut served, _) = Raw::join(&server);
    let mut greeted = Raw::connect(&server, 0);
    greeted.hello();
    let handle = server.handle();
    let waiter = std::thread::spawn(move || server.join());
    let began = Instant::now();
    handle.stop();
    assert_eq!(served.goodbye().code, GoodbyeCode::ShuttingDown);
    assert_eq!(greeted.goodbye().code, GoodbyeCode::ShuttingDown);
    waiter.join().unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
}
