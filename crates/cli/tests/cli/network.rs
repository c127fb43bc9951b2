//! The suites that every backend runs, on memory servers that are separate processes.

use crate::common::servers::{Servers, TRANSPORTS, Transport, wait_until};
use sherman::{BulkOptions, Cluster, ClusterOptions, Error};
use sherman_conformance::trees::Failure;
use sherman_fabric::FabricError;
use std::time::{Duration, Instant};

const SMALL: &[&str] = &["--memory", "64MiB", "--chunk", "1MiB"];

/// How long each transport is used: a second in a plain run, `full` seconds where kills are counted in full.
fn time(full: u64) -> Duration {
    Duration::from_secs(if std::env::var_os("SHERMAN_KILLS").is_some() { full } else { 1 })
}

fn open(url: &str) -> Result<Cluster, Failure> {
    Ok(Cluster::open(url)?)
}

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 3, SMALL);
        let cluster = open(&servers.url())?;
        (0..2).try_for_each(|seed| {
            sherman_conformance::trees::model(&cluster, &format!("model-{seed}"), seed, 4_000)
        })?;
    }
    Ok(())
}

#[test]
fn threads_of_many_compute_servers_lose_nothing() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 3, SMALL);
        let url = servers.url();
        let done = sherman_conformance::trees::stress(&|| open(&url), "stress", 1, 3, 2, time(3))?;
        println!("{transport:?}: {done:?}");
        assert!(done.operations > 1_000 && done.increments > 10, "{done:?}");
    }
    Ok(())
}

#[test]
fn ranges_miss_nothing_that_is_there_throughout() -> Result<(), Failure> {
    for transport in TRANSPORTS {
        let servers = Servers::start(transport, 2, SMALL);
        let url = servers.url();
        let read = sherman_conformance::trees::ranges(&|| open(&url), "ranges", 1, 2, time(2))?;
        println!("{transport:?}: {read} ranges");
        assert!(read > 10, "{read}");
    }
    Ok(())
}

#[test]
fn servers_that_tear_their_reads_fool_nobody() -> Result<(), Failure> {
    let servers =
        Servers::start(Transport::Unix, 2, &["--memory", "64MiB", "--chunk", "1MiB", "--tear-reads"]);
    let url = servers.url();
    sherman_conformance::trees::stress(&|| open(&url), "stress", 2, 2, 2, Duration::from_secs(2))?;
    sherman_conformance::trees::ranges(&|| open(&url), "ranges", 2, 2, Duration::from_secs(2))?;
    Ok(())
}

/// An operation takes the same number of round trips on a network as in one process.
#[test]
fn operations_cost_the_round_trips_they_cost_in_one_process() -> Result<(), Failure> {
    let embedded =
        sherman_conformance::trees::costs(&open("embedded:?servers=2&memory=64MiB&chunk=1MiB")?, "costs")?;
    for transport in [Transport::Unix, Transport::Shm] {
        let servers = Servers::start(transport, 2, SMALL);
        assert_eq!(
            sherman_conformance::trees::costs(&open(&servers.url())?, "costs")?,
            embedded,
            "{transport:?}"
        );
    }
    Ok(())
}

#[test]
fn a_server_that_is_gone_ends_its_clients_within_the_deadline() -> Result<(), Failure> {
    let all = [(Transport::Tcp, 1), (Transport::Unix, 0), (Transport::Shm, 0), (Transport::Shm, 1)];
    for (transport, victim) in all {
        let mut servers = Servers::start(transport, 2, SMALL);
        let cluster = Cluster::open_with(&servers.url(), ClusterOptions::new().rejoin(false))?;
        let tree = cluster.tree::<u64, u64>("orders")?;
        // More than one chunk holds, so that both servers have leaves.
        tree.bulk_load((0..100_000).map(|key| (key, key)), &BulkOptions::default())?;
        let client = tree.client()?;
        servers.servers[victim].kill();
        let begun = Instant::now();
        // Mapped memory stays usable until the client learns that its server is gone.
        let keys = (0..100_000).step_by(50).cycle().take_while(|_| begun.elapsed() < Duration::from_secs(10));
        let ended = keys.map(|key| client.get(key)).find_map(Result::err);
        let told = matches!(
            &ended,
            Some(Error::Fabric(FabricError::Disconnected { server })) if usize::from(*server) == victim
        );
        assert!(told, "{ended:?}");
        println!("{transport:?}: server {victim} was gone after {:?}", begun.elapsed());
        wait_until("the identity has ended", Duration::from_secs(10), || cluster.is_fenced());
        // A restarted server without its memory is not accepted in place of the old one.
        servers.servers[victim].restart();
        let ended = (0..100_000).step_by(50).map(|key| client.get(key)).find_map(Result::err);
        assert!(matches!(ended, Some(Error::Fenced { .. } | Error::Fabric(_))), "{ended:?}");
        let begun = Instant::now();
        let refused = Cluster::open(&servers.url()).expect_err("it lost its memory").to_string();
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        let words = if victim == 1 { "memory server 1 at" } else { "memory server 0 was restarted empty" };
        assert!(refused.contains(words), "{refused}");
    }
    Ok(())
}
