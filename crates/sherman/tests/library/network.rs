//! The suites that every backend runs, on memory servers that are threads of this process behind sockets, and
//! on servers that share their memory.

use sherman::{Cluster, ClusterOptions, Error, OpenError};
use sherman_conformance::trees::Failure;
use sherman_control::path::DataPath;
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_layout::FormatOptions;
use sherman_shm::{ShmOptions, ShmPath};
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How clients reach the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Shm,
}

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Shm];

/// Memory servers behind sockets, and the URL that opens them.
pub struct Servers {
    pub running: Vec<RunningServer>,
    pub url: String,
}

impl Servers {
    pub fn start(transport: Transport, count: u16) -> Result<Self, Failure> {
        Self::start_leasing(transport, count, Duration::from_secs(3))
    }

    pub fn start_leasing(transport: Transport, count: u16, lease: Duration) -> Result<Self, Failure> {
        let mut running = Vec::new();
        for server in 0..count {
            let lease_nanos = lease.as_nanos() as u64;
            let format = FormatOptions {
                server,
                servers: count,
                chunk_bytes: 1 << 20,
                lease_nanos,
                ..FormatOptions::default()
            };
            running.push(SoftNicServer::start(Self::options(transport, &format)?)?);
        }
        let addresses = running.iter().map(|server| match &server.addresses()[0] {
            Listen::Tcp(address) => address.clone(),
            Listen::Unix(path) => path.display().to_string(),
        });
        let addresses = addresses.collect::<Vec<_>>().join(",");
        let url = match transport {
            Transport::Tcp => format!("tcp://{addresses}"),
            Transport::Shm => format!("shm:{addresses}"),
        };
        Ok(Self { url, running })
    }

    fn options(transport: Transport, format: &FormatOptions) -> Result<ServerOptions, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if transport == Transport::Shm {
            let memory = ShmOptions { memory_bytes: 64 << 20, ..ShmOptions::default() };
            let (host, path) = ShmPath::format(&memory, format)?;
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let socket =
                std::env::temp_dir().join(format!("sherman-library-{}-{number}.sock", std::process::id()));
            let path = Some(path as Arc<dyn DataPath>);
            return Ok(ServerOptions { path, ..ServerOptions::new(host, vec![Listen::Unix(socket)]) });
        }
        let region =
            Region::new(64 << 20, 256 << 10, Atomicity::Line, CopyPath::fastest()).ok_or("memory")?;
        let host = Arc::new(Host::format(region, format)?);
        Ok(ServerOptions::new(host, vec![Listen::Tcp("127.0.0.1:0".to_owned())]))
    }

    pub fn open(&self) -> Result<Cluster, Failure> {
        Ok(Cluster::open(&self.url)?)
    }
}

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 3)?;
        sherman_conformance::trees::model(&servers.open()?, "model", 0, 4_000)?;
    }
    Ok(())
}

#[test]
fn a_tree_does_not_open_with_other_types() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 2)?;
        crate::types::other_types_are_refused(&servers.open()?, &servers.open()?);
    }
    Ok(())
}

#[test]
fn threads_of_many_compute_servers_lose_nothing() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 2)?;
        let done = sherman_conformance::trees::stress(
            &|| servers.open(),
            "stress",
            1,
            3,
            2,
            Duration::from_secs(2),
        )?;
        println!("{transport:?}: {done:?}");
        assert!(done.operations > 1_000 && done.increments > 10, "{done:?}");
    }
    Ok(())
}

#[test]
fn ranges_miss_nothing_that_is_there_throughout() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 2)?;
        let read =
            sherman_conformance::trees::ranges(&|| servers.open(), "ranges", 1, 2, Duration::from_secs(2))?;
        println!("{transport:?}: {read}");
        assert!(read > 10, "{read}");
    }
    Ok(())
}

#[test]
fn a_client_that_was_fenced_goes_on_as_another() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 2)?;
        let cluster = servers.open()?;
        let broken = Cluster::open_with(&servers.url, ClusterOptions::new().rejoin(false))?;
        let client = broken.tree::<u64, u64>("orders")?.client()?;
        client.insert(7, 700)?;
        cluster.fence(broken.id())?;
        let fenced = client.get(7);
        assert!(matches!(fenced, Err(Error::Fenced { .. })), "{transport:?}: {fenced:?}");
        let again = broken.join()?;
        assert_eq!(again.tree::<u64, u64>("orders")?.client()?.get(7)?, Some(700));
        assert_eq!(cluster.members()?.len(), 2);
    }
    Ok(())
}

#[test]
fn a_wrong_list_of_servers_is_reported() -> Result<(), Failure> {
    let (servers, shared) = (Servers::start(Transport::Tcp, 2)?, Servers::start(Transport::Shm, 2)?);
    let (first, second) = servers.url["tcp://".len()..].split_once(',').ok_or("two servers")?;
    let (mapped, other) = shared.url["shm:".len()..].split_once(',').ok_or("two servers")?;
    for (url, word) in [
        (format!("tcp://{second},{first}"), "order"),
        (format!("tcp://{first}"), "list all"),
        ("tcp://127.0.0.1:1".to_owned(), "127.0.0.1:1"),
        (format!("shm:{other},{mapped}"), "order"),
        (format!("shm:{mapped}"), "list all"),
        ("shm:/nowhere/at/all".to_owned(), "/nowhere/at/all"),
    ] {
        let refused = Cluster::open(&url).map(drop);
        assert!(
            matches!(&refused, Err(OpenError::Join(error)) if error.to_string().contains(word)),
            "{url}: {refused:?}"
        );
    }
    drop(servers.running);
    Ok(())
}
