//! Clients that come and go: when a lease ends early, and what happens to an id whose holder owned nothing.

use crate::raw::{Raw, Reply, alone, eventually, host, host_for, member, memory_of, options, start};
use sherman_control::wire::{GoodbyeCode, Role, Welcome};
use sherman_control::{Address, JoinOptions};
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_executor::block_on;
use sherman_fabric::control::{ChunkClass, MemberInfo, Standing};
use sherman_fabric::{Call, ComputeId, Counters, Endpoint, FabricError, Peer, Request, call, calls};
use sherman_layout::FormatOptions;
use sherman_soft_nic::SoftNicFabric;
use sherman_soft_nic::server::{Limits, Listen, RunningServer, ServerOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A lease so long that no test waits for its end.
const LONG: Duration = Duration::from_secs(3600);

/// A memory with leases of this length.
fn leased(lease: Duration, member_capacity: u32) -> Arc<Host> {
    let region = Region::new(64 << 20, 64 << 10, Atomicity::Line, CopyPath::fastest()).unwrap();
    let locks = sherman_layout::LockOptions { lanes: Some(1024), ..Default::default() };
    let lease_nanos = lease.as_nanos() as u64;
    let format = FormatOptions {
        chunk_bytes: 1 << 20,
        member_capacity,
        locks,
        lease_nanos,
        ..FormatOptions::default()
    };
    Arc::new(Host::format(region, &format).unwrap())
}

fn serve(host: Arc<Host>) -> RunningServer {
    start(ServerOptions { host: Some(host), ..options() })
}

fn members(server: &RunningServer) -> Vec<MemberInfo> {
    memory_of(server).administer(&Request::Members).and_then(calls::Members::expect).unwrap()
}

fn standing(server: &RunningServer, client: ComputeId) -> Option<Standing> {
    members(server).iter().find(|member| member.client == client).map(|member| member.standing)
}

fn become_writer(raw: &mut Raw) {
    assert!(raw.call(calls::Activate).is_ok());
}

#[test]
fn a_client_whose_last_connection_ends_is_gone_at_once_if_it_owned_nothing_and_else_dead() {
    let server = serve(leased(LONG, 64));
    let (reader, of_reader) = Raw::join(&server);
    let (mut writer, of_writer) = Raw::join(&server);
    become_writer(&mut writer);
    let (mut owner, of_owner) = Raw::join(&server);
    become_writer(&mut owner);
    let class = ChunkClass { node_bytes: 1024, format: 1 };
    assert!(owner.call(calls::AllocSpans { class, count: 1 }).is_ok());
    drop((reader, writer, owner));
    let began = Instant::now();
    eventually(|| {
        let now = [&of_reader, &of_writer, &of_owner].map(|welcome| standing(&server, welcome.client));
        now == [None, Some(Standing::Dead), Some(Standing::Dead)]
    });
    assert!(began.elapsed() < LONG / 1000);
}

#[test]
fn only_the_last_connection_counts() {
    let server = serve(leased(LONG, 64));
    let (first, welcome) = Raw::join(&server);
    let mut kept = Raw::again(&server, &welcome).unwrap().0;
    drop(first);
    for _ in 0..20 {
        let (next, _) = Raw::again(&server, &welcome).unwrap();
        drop(std::mem::replace(&mut kept, next));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(standing(&server, welcome.client), Some(Standing::Live));
    }
    assert!(kept.call(calls::Renew).is_ok());
    drop(kept);
    eventually(|| members(&server).is_empty());
    let again = Raw::again(&server, &welcome).err().map(|goodbye| goodbye.code);
    assert_eq!(again, Some(GoodbyeCode::Fenced), "it is permanently gone");
}

#[test]
fn a_client_that_leaves_in_order_is_not_lost() {
    let server = serve(leased(LONG, 64));
    let (mut one, _) = Raw::join(&server);
    become_writer(&mut one);
    assert_eq!(one.call(calls::Release), Ok(()));
    assert_eq!(one.call(calls::Leave), Ok(()));
    drop(one);
    let (mut other, welcome) = Raw::join(&server);
    become_writer(&mut other);
    assert_eq!(other.call(calls::Depart), Ok(()));
    drop(other);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(members(&server).len(), 1);
    assert_eq!(standing(&server, welcome.client), Some(Standing::Leaving));
}

#[test]
fn as_many_joins_as_there_are_ids_that_drop_their_connection_leave_nobody_behind() {
    let server = serve(host(0, 1));
    let capacity = FormatOptions::default().member_capacity;
    for _ in 1..capacity {
        drop(Raw::enter(&server, None, alone()).unwrap());
    }
    let (mut last, _) = Raw::join(&server);
    become_writer(&mut last);
    eventually(|| members(&server).len() == 1);
}

#[test]
fn members_of_an_earlier_start_of_the_server_are_gone_or_wait_for_their_recovery() {
    let host = leased(LONG, 64);
    let server = serve(Arc::clone(&host));
    let idle: Vec<_> = (0..50).map(|_| Raw::join(&server)).collect();
    let (mut writer, of_writer) = Raw::join(&server);
    become_writer(&mut writer);
    drop(server);
    let server = serve(host);
    assert_eq!(members(&server).len(), 1);
    assert_eq!(standing(&server, of_writer.client), Some(Standing::Dead));
    let joined: Vec<_> = (0..50).map(|_| Raw::join(&server)).collect();
    assert_eq!(joined.len(), idle.len());
    assert!(Raw::again(&server, &of_writer).is_err());
}

/// Joins until the id of `old` is issued again.
fn next_with(server: &RunningServer, old: &Welcome) -> (Raw, Welcome) {
    let joins = (0..64).map(|_| Raw::join(server));
    joins.into_iter().find(|(_, welcome)| welcome.client == old.client).expect("the id is issued again")
}

#[test]
fn a_client_whose_lease_expired_and_that_owned_nothing_is_refused_after_its_id_is_reissued() {
    let lease = Duration::from_millis(100);
    let server = serve(leased(lease, 4));
    let (mut old, welcome) = Raw::join(&server);
    std::thread::sleep(lease + lease / 4);
    let (mut next, successor) = next_with(&server, &welcome);
    assert_eq!(successor.incarnation, welcome.incarnation + 1);
    assert_eq!(old.goodbye().code, GoodbyeCode::Fenced, "without a word of its own");
    let again = Raw::again(&server, &welcome).err().map(|goodbye| goodbye.code);
    assert_eq!(again, Some(GoodbyeCode::Fenced));
    become_writer(&mut next);
    drop(old);
    assert_eq!(
        standing(&server, successor.client),
        Some(Standing::Live),
        "the end of the old one is not its end"
    );
}

#[test]
fn a_server_other_than_the_first_refuses_an_incarnation_as_soon_as_the_next_is_introduced() {
    let server = serve(host_for(1, 2, 64));
    let enter = |incarnation| Raw::enter(&server, None, member(&server, 2, incarnation, server.boot()));
    let (mut old, _) = enter(1).unwrap();
    assert!(old.call(calls::RedoArea).is_ok());
    // Server 0 has freed the id and issued it again, and this server does not know it.
    let (mut new, _) = enter(2).unwrap();
    assert_eq!(old.goodbye().code, GoodbyeCode::Fenced);
    assert_eq!(enter(1).err().map(|goodbye| goodbye.code), Some(GoodbyeCode::Fenced));
    assert!(new.call(calls::RedoArea).is_ok());
    drop((old, new));
    let (mut new, _) = enter(2).unwrap();
    assert!(new.call(calls::RedoArea).is_ok());
}

#[test]
fn silent_connections_without_a_member_are_closed_and_those_of_members_stay() {
    let limits = Limits { idle_time: Duration::from_millis(300), ..Limits::default() };
    let server = start(ServerOptions { host: Some(leased(LONG, 64)), limits, ..options() });
    let (mut silent, _) = Raw::join(&server);
    let (mut busy, _) = Raw::enter(&server, None, Role::Admin).unwrap();
    let (mut admin, _) = Raw::enter(&server, None, Role::Admin).unwrap();
    let (mut newcomer, _) = Raw::enter(&server, None, Role::Newcomer).unwrap();
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(100));
        assert!(busy.call(calls::Members).is_ok());
    }
    for idle in [&mut admin, &mut newcomer, &mut busy] {
        assert_eq!(idle.goodbye().code, GoodbyeCode::Idle);
    }
    assert!(silent.call(calls::Renew).is_ok());
    assert_eq!(crate::raw::refused(&server, "idle"), 3);
}

#[test]
fn a_stranger_cannot_make_the_server_wait_for_a_long_request() {
    let server = serve(leased(LONG, 64));
    let mut raw = Raw::connect(&server, 0);
    raw.hello();
    // The header of a call that announces a long body, within the limit of calls.
    let mut header = [0u8; 16];
    header[..4].copy_from_slice(&30_000u32.to_le_bytes());
    header[4] = 2;
    raw.send(&header);
    assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed);
    assert_eq!(raw.receive(), Reply::End);
}

#[test]
fn a_fabric_whose_endpoints_go_with_calls_in_flight_stays_a_member() {
    let server = serve(leased(LONG, 64));
    let Listen::Tcp(at) = &server.addresses()[0] else { panic!() };
    let fabric = SoftNicFabric::join(&JoinOptions::new(vec![Address::Tcp(at.clone())])).unwrap();
    for _ in 0..100 {
        let endpoint = fabric.endpoint().unwrap();
        for _ in 0..3 {
            endpoint.call(Peer::Control, Request::Members);
        }
    }
    std::thread::sleep(Duration::from_millis(20));
    let endpoint = fabric.endpoint().unwrap();
    let renewed = block_on(&endpoint, call(&endpoint, Peer::Control, calls::Renew, &Counters::default()));
    assert!(renewed.is_ok(), "{renewed:?}");
    let open = server.stats().connections;
    assert!(open <= 8, "{open} connections");
    fabric.abandon();
    drop(endpoint);
    // The client owned nothing, so it is gone at once, without waiting for its lease.
    eventually(|| members(&server).is_empty());
    assert_eq!(fabric.endpoint().err(), Some(FabricError::Fenced { client: fabric.client() }));
}
