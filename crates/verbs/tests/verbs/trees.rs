//! Trees on memory behind a NIC: what they do, and that it costs what it costs in one process.

use crate::common::{has_device, serve_as};
use sherman::Cluster;
use sherman_memory_server::{FormatOptions, LaneWidth, LockOptions};
use sherman_soft_nic::server::{Listen, RunningServer};
use sherman_suites::Failure;
use sherman_verbs::VerbsOptions;
use std::time::Duration;

const MEMORY: usize = 48 << 20;

/// Two servers, and their URL. Leases are long: an emulated machine is slow, not dead.
fn cluster() -> (Vec<RunningServer>, String) {
    let servers: Vec<RunningServer> = (0..2)
        .map(|server| {
            let format = FormatOptions {
                server,
                servers: 2,
                chunk_bytes: 1 << 20,
                lease_nanos: 20_000_000_000,
                locks: LockOptions { width: LaneWidth::Bits64, ..LockOptions::default() },
                ..FormatOptions::default()
            };
            serve_as(&format, MEMORY, 256 << 10, &VerbsOptions::default())
        })
        .collect();
    let hosts = servers.iter().map(|server| match &server.addresses()[0] {
        Listen::Tcp(host) => host.clone(),
        Listen::Unix(path) => panic!("{}", path.display()),
    });
    let url = format!("verbs://{}", hosts.collect::<Vec<_>>().join(","));
    (servers, url)
}

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let (_servers, url) = cluster();
    sherman_suites::model(&Cluster::open(&url)?, "model", 1, 1_200)
}

#[test]
fn operations_cost_what_they_cost_in_one_process() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let (_servers, url) = cluster();
    let nic = sherman_suites::costs(&Cluster::open(&url)?, "costs")?;
    let embedded = Cluster::open("embedded:?servers=2&memory=48MiB&chunk=1MiB&lane-bits=64")?;
    let same = sherman_suites::costs(&embedded, "costs")?;
    assert_eq!(nic, same);
    Ok(())
}

#[test]
fn threads_of_two_compute_servers_lose_nothing() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let (_servers, url) = cluster();
    let done = sherman_suites::stress(&|| Ok(Cluster::open(&url)?), "stress", 1, 2, 2, Duration::from_secs(5))?;
    println!("{done:?}");
    assert!(done.operations > 100 && done.increments > 2, "{done:?}");
    Ok(())
}

#[test]
fn ranges_miss_nothing_that_is_there_throughout() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let (_servers, url) = cluster();
    let read = sherman_suites::ranges(&|| Ok(Cluster::open(&url)?), "ranges", 1, 2, Duration::from_secs(4))?;
    println!("{read} ranges");
    assert!(read > 2, "{read}");
    Ok(())
}
