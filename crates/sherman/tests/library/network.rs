//! The suites that every backend runs, on memory servers that are threads of this process behind sockets.

use sherman::{Cluster, Error, OpenError};
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_memory_server::FormatOptions;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use sherman_suites::Failure;
use std::sync::Arc;
use std::time::Duration;

/// Memory servers behind sockets, and the URL that opens them.
struct Servers {
    running: Vec<RunningServer>,
    url: String,
}

impl Servers {
    fn start(count: u16) -> Result<Self, Failure> {
        let mut running = Vec::new();
        for server in 0..count {
            let region = Region::new(64 << 20, 256 << 10, Atomicity::Line, CopyPath::fastest()).ok_or("memory")?;
            let format = FormatOptions { server, servers: count, chunk_bytes: 1 << 20, ..FormatOptions::default() };
            let host = Arc::new(Host::format(region, &format)?);
            let listen = vec![Listen::Tcp("127.0.0.1:0".to_owned())];
            running.push(SoftNicServer::start(ServerOptions::new(host, listen))?);
        }
        let addresses = running.iter().map(|server| match &server.addresses()[0] {
            Listen::Tcp(address) => address.clone(),
            Listen::Unix(_) => unreachable!("none was asked for"),
        });
        let addresses: Vec<String> = addresses.collect();
        Ok(Self { url: format!("tcp://{}", addresses.join(",")), running })
    }

    fn open(&self) -> Result<Cluster, Failure> {
        Ok(Cluster::open(&self.url)?)
    }
}

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    let servers = Servers::start(3)?;
    sherman_suites::model(&servers.open()?, "model", 0, 4_000)
}

#[test]
fn threads_of_many_compute_servers_lose_nothing() -> Result<(), Failure> {
    let servers = Servers::start(2)?;
    let done = sherman_suites::stress(&|| servers.open(), "stress", 1, 3, 2, Duration::from_secs(2))?;
    println!("{done:?}");
    assert!(done.operations > 1_000 && done.increments > 10, "{done:?}");
    Ok(())
}

#[test]
fn ranges_miss_nothing_that_is_there_throughout() -> Result<(), Failure> {
    let servers = Servers::start(2)?;
    let read = sherman_suites::ranges(&|| servers.open(), "ranges", 1, 2, Duration::from_secs(2))?;
    println!("{read}");
    assert!(read > 10, "{read}");
    Ok(())
}

#[test]
fn who_was_fenced_goes_on_as_another() -> Result<(), Failure> {
    let servers = Servers::start(2)?;
    let (cluster, broken) = (servers.open()?, servers.open()?);
    let client = broken.tree::<u64, u64>("orders")?.client()?;
    client.insert(7, 700)?;
    cluster.fence(broken.id())?;
    let fenced = client.get(7);
    assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    let again = broken.join()?;
    assert_eq!(again.tree::<u64, u64>("orders")?.client()?.get(7)?, Some(700));
    assert_eq!(cluster.members()?.len(), 2);
    Ok(())
}

#[test]
fn a_list_of_servers_that_is_wrong_is_told_so() -> Result<(), Failure> {
    let servers = Servers::start(2)?;
    let (first, second) = servers.url["tcp://".len()..].split_once(',').ok_or("two servers")?;
    for (url, word) in [
        (format!("tcp://{second},{first}"), "order"),
        (format!("tcp://{first}"), "list all"),
        ("tcp://127.0.0.1:1".to_owned(), "127.0.0.1:1"),
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
