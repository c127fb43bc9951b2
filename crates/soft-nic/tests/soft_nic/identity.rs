//! Which memory belongs to which cluster: mixed clusters, servers that lost their memory, servers that are
//! declared lost.

use crate::raw::{host, host_for, memory_of, start};
use sherman_control::{Address, ConnectError, JoinError, JoinOptions, Operator};
use sherman_embedded::host::Host;
use sherman_executor::block_on;
use sherman_fabric::control::Standing;
use sherman_fabric::{
    Call, Counters, Endpoint, FabricError, Memory, Peer, Refusal, Space, call, calls, execute,
};
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions};
use sherman_soft_nic::{SoftNicEndpoint, SoftNicFabric};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A cluster of two servers.
struct Pair {
    servers: [RunningServer; 2],
}

impl Pair {
    fn start() -> Self {
        Self { servers: [0, 1].map(|server| serve(host(server, 2))) }
    }

    fn options(&self) -> JoinOptions {
        join(&[&self.servers[0], &self.servers[1]])
    }

    /// The content of each server's reserved area.
    fn tables(&self) -> [Vec<u8>; 2] {
        [0, 1].map(|server| {
            let host = memory_of(&self.servers[server]);
            let mut bytes = vec![0; host.superblock().geometry.chunks_offset as usize];
            host.memory().load(Space::Host, 0, &mut bytes);
            bytes
        })
    }
}

fn serve(host: Arc<Host>) -> RunningServer {
    start(ServerOptions { shards: 1, ..ServerOptions::new(host, vec![Listen::Tcp("127.0.0.1:0".into())]) })
}

fn join(servers: &[&RunningServer]) -> JoinOptions {
    JoinOptions::new(servers.iter().map(|server| Address::from(server.addresses()[0].clone())).collect())
}

fn ask<C: Call>(endpoint: &SoftNicEndpoint, peer: Peer, request: C) -> Result<C::Reply, FabricError> {
    block_on(endpoint, call(endpoint, peer, request, &Counters::default()))
}

fn read(endpoint: &SoftNicEndpoint, server: u16) -> Result<(), FabricError> {
    let mut list = endpoint.list(server);
    list.read(Space::Host, 0, 8);
    block_on(endpoint, execute(endpoint, list, &Counters::default())).map(drop)
}

#[test]
fn a_list_that_mixes_two_clusters_is_refused_and_changes_neither() {
    let (one, other) = (Pair::start(), Pair::start());
    for pair in [&one, &other] {
        drop(SoftNicFabric::join(&pair.options()).unwrap());
    }
    let before = (one.tables(), other.tables());
    let refused = SoftNicFabric::join(&join(&[&one.servers[0], &other.servers[1]])).unwrap_err();
    assert!(matches!(refused, JoinError::OtherCluster { server: 1, .. }), "{refused:?}");
    let said = refused.to_string();
    for words in
        ["memory server 1 at tcp://127.0.0.1:", "belongs to another cluster", "mixes", "restarted empty"]
    {
        assert!(said.contains(words), "{said}");
    }
    assert!(before == (one.tables(), other.tables()), "a refusal changed something");
    for pair in [&one, &other] {
        drop(SoftNicFabric::join(&pair.options()).unwrap());
    }
}

#[test]
fn a_server_that_was_restarted_empty_is_refused_by_name() {
    let pair = Pair::start();
    drop(SoftNicFabric::join(&pair.options()).unwrap());
    let empty = [0, 1].map(|server| serve(host(server, 2)));
    let begun = Instant::now();
    let second = SoftNicFabric::join(&join(&[&pair.servers[0], &empty[1]])).unwrap_err();
    assert!(matches!(second, JoinError::OtherMemory { server: 1, .. }), "{second:?}");
    let said = second.to_string();
    assert!(
        said.contains("memory server 1 at tcp://127.0.0.1:") && said.contains("lost its memory"),
        "{said}"
    );
    let first = SoftNicFabric::join(&join(&[&empty[0], &pair.servers[1]])).unwrap_err();
    assert!(first.to_string().contains("memory server 0 was restarted empty"), "{first}");
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(memory_of(&empty[1]).look(|tables| tables.cluster()), 0, "it still belongs to nobody");
    drop(SoftNicFabric::join(&join(&[&empty[0], &empty[1]])).unwrap());
    drop(SoftNicFabric::join(&pair.options()).unwrap());
}

#[test]
fn a_server_that_is_down_is_named_and_no_id_is_issued() {
    let pair = Pair::start();
    drop(SoftNicFabric::join(&pair.options()).unwrap());
    let options = pair.options();
    let Pair { servers: [first, second] } = pair;
    second.stop();
    second.join().unwrap();
    let refused = SoftNicFabric::join(&options).unwrap_err();
    assert!(
        matches!(&refused, JoinError::Connect { server: 1, error: ConnectError::Refused(_), .. }),
        "{refused:?}"
    );
    let said = refused.to_string();
    assert!(said.starts_with("cannot reach memory server 1 at tcp://127.0.0.1:"), "{said}");
    assert!(said.ends_with("Is it running?"), "{said}");
    let admin = Operator::open(&options).unwrap();
    assert!(matches!(admin.ask(Peer::Control, calls::Members), Ok(members) if members.is_empty()));
    assert!(admin.find(1).is_err() && admin.ask(Peer::Volume(1), calls::Usage).is_err());
    drop(first);
}

#[test]
fn a_declared_loss_ends_every_identity_and_newcomers_go_on_without_the_server() {
    let pair = Pair::start();
    let old = SoftNicFabric::join(&pair.options()).unwrap();
    let endpoint = old.endpoint().unwrap();
    assert!(ask(&endpoint, Peer::Control, calls::Activate).is_ok());
    assert!(ask(&endpoint, Peer::Volume(0), calls::RedoArea).is_ok());
    let admin = Operator::open(&pair.options()).unwrap();
    let declare = |server| admin.ask(Peer::Control, calls::DeclareLost { server });
    assert!(declare(0).is_err());
    assert!(declare(1).is_ok());
    assert_eq!(
        ask(&endpoint, Peer::Control, calls::Renew),
        Err(FabricError::Fenced { client: old.client() })
    );
    let new = SoftNicFabric::join(&pair.options()).unwrap();
    let endpoint = new.endpoint().unwrap();
    assert_eq!(read(&endpoint, 1), Err(FabricError::ServerLost { server: 1 }));
    assert_eq!(read(&endpoint, 0), Ok(()));
    let options = pair.options();
    let Pair { servers: [_first, second] } = pair;
    drop(second);
    assert!(SoftNicFabric::join(&options).is_ok(), "it need not be there");
    let Ok(members) = admin.ask(Peer::Control, calls::Members) else { panic!() };
    let of_old = members.iter().find(|member| member.client == old.client()).unwrap();
    assert_eq!(of_old.standing, Standing::Dead, "a member must recover it");
}

#[test]
fn an_operator_is_answered_though_the_member_table_is_full() {
    let server = serve(host_for(0, 1, 2));
    let options = join(&[&server]);
    let members = [(); 2].map(|()| SoftNicFabric::join(&options).unwrap());
    let full = SoftNicFabric::join(&options).unwrap_err();
    assert!(full.to_string().contains("no free member id"), "{full}");
    let admin = Operator::open(&options).unwrap();
    assert!(matches!(admin.ask(Peer::Control, calls::Members), Ok(members) if members.len() == 2));
    assert!(matches!(admin.ask(Peer::Control, calls::Condemn { client: members[0].client() }), Ok(())));
    let nobody = admin.ask(Peer::Control, calls::Condemn { client: sherman_fabric::ComputeId(9) });
    let told = matches!(
        nobody,
        Err(sherman_control::AdminError::Refused(FabricError::Refused(Refusal::NotAMember { .. })))
    );
    assert!(told, "no such member");
}

/// A tunnel to a server for one client; the test can cut it.
struct Tunnel {
    address: Address,
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Tunnel {
    fn to(server: &RunningServer) -> Self {
        let Listen::Tcp(target) = server.addresses()[0].clone() else { panic!() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let streams = Arc::clone(&open);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let mut streams = streams.lock().unwrap();
                // After the cut the tunnel refuses every client: this thread ends, and the listener with it.
                let Some(streams) = streams.as_mut() else { return };
                let server = TcpStream::connect(&target).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || pass(&mut from, &mut to));
                }
                streams.extend([client, server]);
            }
        });
        Self { address, open }
    }

    fn cut(&self) {
        let streams = self.open.lock().unwrap().take();
        for stream in streams.into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Address::Tcp(at) = &self.address {
            let _ = TcpStream::connect(at);
        }
    }
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..len]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_loss_that_one_client_alone_sees_ends_that_client_alone() {
    let pair = Pair::start();
    let tunnel = Tunnel::to(&pair.servers[1]);
    let mut options = pair.options();
    let others = SoftNicFabric::join(&options).unwrap();
    options.servers[1] = tunnel.address.clone();
    let one = SoftNicFabric::join(&options).unwrap();
    let (endpoint, other) = (one.endpoint().unwrap(), others.endpoint().unwrap());
    assert!(ask(&endpoint, Peer::Control, calls::Activate).is_ok());
    assert!(ask(&endpoint, Peer::Volume(0), calls::RedoArea).is_ok());
    assert_eq!((read(&endpoint, 1), read(&other, 1)), (Ok(()), Ok(())));
    tunnel.cut();
    assert_eq!(read(&endpoint, 1), Err(FabricError::Disconnected { server: 1 }));
    assert_eq!(ask(&endpoint, Peer::Control, calls::Renew), Err(FabricError::Disconnected { server: 0 }));
    assert_eq!((read(&other, 0), read(&other, 1)), (Ok(()), Ok(())));
    drop((endpoint, one));
    let Ok(members) = ask(&other, Peer::Control, calls::Members) else { panic!() };
    assert_eq!(members.len(), 2, "its id is taken until a member has recovered it");
    assert!(SoftNicFabric::join(&pair.options()).is_ok(), "the server is present for all other clients");
}
