//! The identity of memory, as programs see it: URLs that mix clusters, losses that only one client sees,
//! operators.

use crate::network::{Servers, Transport};
use sherman::{Admin, Cluster, ClusterOptions, Error, OpenError, Standing};
use sherman_conformance::trees::Failure;
use sherman_soft_nic::server::Listen;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub fn address(servers: &Servers, server: usize) -> String {
    match &servers.running[server].addresses()[0] {
        Listen::Tcp(address) => address.clone(),
        Listen::Unix(path) => path.display().to_string(),
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// All entries of a tree.
fn entries(cluster: &Cluster) -> Result<Vec<(u64, u64)>, Failure> {
    Ok(cluster.tree::<u64, u64>("t")?.client()?.range(..).collect::<Result<_, Error>>()?)
}

#[test]
fn a_url_that_mixes_two_clusters_opens_nothing_and_changes_neither() -> Result<(), Failure> {
    for transport in [Transport::Tcp, Transport::Shm] {
        let (one, other) = (Servers::start(transport, 2)?, Servers::start(transport, 2)?);
        let clusters = [Cluster::open(&one.url)?, Cluster::open(&other.url)?];
        for (cluster, value) in clusters.iter().zip([1, 2]) {
            let client = cluster.tree::<u64, u64>("t")?.client()?;
            for key in 0..20_000 {
                client.insert(key, value)?;
            }
        }
        let mixed = one.url.replace(&address(&one, 1), &address(&other, 1));
        let refused = Cluster::open(&mixed).expect_err("two clusters");
        assert!(matches!(refused, OpenError::Join(_)), "{refused:?}");
        assert!(refused.to_string().contains("belongs to another cluster"), "{refused}");
        for (cluster, value) in clusters.iter().zip([1, 2]) {
            assert_eq!(entries(cluster)?, (0..20_000).map(|key| (key, value)).collect::<Vec<_>>());
            assert_eq!(cluster.members()?.len(), 1, "no id was issued");
            assert!(
                cluster.raw_tree("t", &sherman::TreeOptions::new().sizes(8, 8))?.check()?.entries == 20_000
            );
        }
    }
    Ok(())
}

/// A tunnel to a server, for one client, that the test can cut.
pub struct Tunnel {
    pub address: String,
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Tunnel {
    pub fn to(target: String) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let streams = Arc::clone(&open);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut streams = streams.lock().expect("whole");
                // After the cut it refuses all connections, because the listener ends with this thread.
                let (Ok(client), Some(streams)) = (client, streams.as_mut()) else { return };
                let Ok(server) = TcpStream::connect(&target) else { return };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    std::thread::spawn(move || pass(&mut from, &mut to));
                }
                streams.extend([client, server]);
            }
        });
        Ok(Self { address, open })
    }

    pub fn cut(&self) {
        let streams = self.open.lock().expect("whole").take();
        for stream in streams.into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(&self.address);
    }
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    let mut bytes = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_loss_that_one_client_alone_sees_ends_that_client_and_is_recovered() -> Result<(), Failure> {
    let servers = Servers::start(Transport::Tcp, 2)?;
    let tunnel = Tunnel::to(address(&servers, 1))?;
    let survivor = Cluster::open(&servers.url)?;
    let theirs = survivor.tree::<u64, u64>("t")?.client()?;
    for key in 0..20_000 {
        theirs.insert(key * 2, key)?;
    }
    let options = ClusterOptions::new().timeout(Duration::from_secs(5)).rejoin(false);
    let one = Cluster::open_with(&servers.url.replace(&address(&servers, 1), &tunnel.address), options)?;
    let ours = one.tree::<u64, u64>("t")?.client()?;
    // The client writes all over the tree, on both servers, when its tunnel to server 1 breaks.
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            tunnel.cut();
        });
        (0..).map(|step: u64| ours.insert(step * 7_919 % 40_000, 1)).find_map(Result::err)
    });
    assert!(!matches!(error, Some(Error::ServerLost { .. })), "{error:?}");
    assert!(one.is_fenced(), "{error:?}");
    assert!(matches!(ours.get(2), Err(Error::Fenced { .. } | Error::Fabric(_))));
    let id = one.id();
    drop((ours, one));
    assert!(
        survivor.members()?.iter().any(|member| member.id == id),
        "its id is taken until it is recovered"
    );
    wait_until("the survivor recovers it", || survivor.members().is_ok_and(|members| members.len() == 1));
    assert_eq!(survivor.participation().recoveries, 1);
    for key in 0..20_000 {
        theirs.insert(key * 2, key)?;
    }
    survivor.tree::<u64, u64>("t")?.check()?;
    let late = Cluster::open(&servers.url)?;
    assert_eq!(late.tree::<u64, u64>("t")?.client()?.get(2)?, Some(1));
    Ok(())
}

#[test]
fn an_operator_sees_members_servers_and_trees_and_needs_no_membership() -> Result<(), Failure> {
    let servers = Servers::start(Transport::Shm, 2)?;
    let cluster = Cluster::open_with(&servers.url, ClusterOptions::new().rejoin(false))?;
    cluster.tree::<u64, u64>("t")?;
    let admin = Admin::open(&servers.url)?;
    assert_eq!(admin.members()?.iter().map(|member| member.id).collect::<Vec<_>>(), [cluster.id()]);
    let found = admin.servers()?;
    assert!(found.iter().all(|server| server.is_intact() && server.problem().is_none()), "{found:?}");
    assert_eq!(admin.trees()?[0].name, "t");
    let usage: Vec<_> = admin.usage()?.into_iter().collect::<Result<_, _>>()?;
    assert!(usage.iter().all(|usage| usage.chunks_used > 0), "{usage:?}");
    assert_eq!(admin.stats()?.into_iter().filter_map(Result::ok).count(), 2);
    admin.fence(cluster.id())?;
    assert_eq!(admin.members()?[0].standing, Standing::Dead);
    wait_until("it is fenced", || cluster.is_fenced());
    for bad in [admin.fence(sherman::ComputeId(99)), admin.declare_lost(0), admin.declare_lost(2)] {
        assert!(matches!(bad, Err(OpenError::Cluster(Error::Refused(_)))), "{bad:?}");
    }
    assert!(Admin::open("embedded:").expect_err("private").to_string().contains("private"));
    Ok(())
}
