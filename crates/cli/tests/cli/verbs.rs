//! Clusters of processes that reach memory through an RDMA device. Without a device these tests print a
//! message and pass; with `SHERMAN_VERBS_REQUIRED` set they fail. `scripts/verbs-test` runs them in a guest
//! with soft-RoCE.

use crate::common::servers::{Server, Servers, Transport};
use crate::common::writers::{Writer, await_changes, settle, verify};
use crate::common::{sherman, text};
use sherman::{Cluster, ClusterOptions, OpKind};
use sherman_conformance::trees::{Failure, Ledger};
use sherman_verbs::{Device, VerbsOptions};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Little memory, because all of it is locked. A long lease, so that a slow machine keeps it.
const SMALL: &[&str] = &["--memory", "64MiB", "--chunk", "1MiB", "--lease", "4s"];

fn has_device() -> bool {
    match Device::open(&VerbsOptions::default(), None) {
        Ok(_) => true,
        Err(error) if std::env::var_os("SHERMAN_VERBS_REQUIRED").is_some() => {
            panic!("a device is required: {error}")
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// Runs a command that must succeed and returns its output.
fn says(args: &[&str], url: &str) -> String {
    let output = sherman(&[args, &["--cluster", url]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn commands_work_through_a_device() {
    if !has_device() {
        return;
    }
    let servers = Servers::start(Transport::Verbs, 2, SMALL);
    let url = servers.url();
    assert_eq!(says(&["put", "7", "700", "--tree", "orders", "--create"], &url), "inserted\n");
    assert_eq!(says(&["put", "8", "800", "--tree", "orders"], &url), "inserted\n");
    assert_eq!(says(&["get", "7", "--tree", "orders"], &url).trim(), "700");
    let scanned = says(&["scan", "--tree", "orders"], &url);
    assert!(scanned.contains("700") && scanned.contains("800"), "{scanned}");
    // The error names a device that does not exist.
    let output = sherman(&["get", "7", "--tree", "orders", "--cluster", &format!("{url}?device=nowhere")]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("nowhere") && said.lines().count() == 1, "{said}");
    // The server refuses a client that sends lists in frames.
    let frames = url.replace("verbs://", "tcp://");
    let output = sherman(&["get", "7", "--tree", "orders", "--cluster", &frames]);
    assert!(
        !output.status.success() && text(&output.stderr).starts_with("error: "),
        "{}",
        text(&output.stderr)
    );
}

/// Runs each litmus program briefly. Other tests show that the programs report a device that breaks a rule.
#[test]
fn litmus_programs_find_nothing_on_a_device() {
    if !has_device() {
        return;
    }
    let output = sherman(&["litmus", "--device", "--seconds", "0.3"]);
    let said = text(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.starts_with("verbs://") && said.ends_with("no violation\n"), "{said}");
    let refused = sherman(&["litmus", "--device", "nowhere"]);
    assert!(text(&refused.stderr).contains("nowhere"), "{}", text(&refused.stderr));
}

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let servers = Servers::start(Transport::Verbs, 2, SMALL);
    sherman_conformance::trees::model(&Cluster::open(&servers.url())?, "model", 1, 1_500)
}

#[test]
fn operations_cost_the_round_trips_they_cost_in_one_process() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let servers = Servers::start(Transport::Verbs, 2, SMALL);
    // Without masked CAS, lanes have 64 bits.
    let embedded = Cluster::open("embedded:?servers=2&memory=64MiB&chunk=1MiB&lane-bits=64")?;
    let cluster = Cluster::open(&servers.url())?;
    assert_eq!(
        sherman_conformance::trees::costs(&cluster, "costs")?,
        sherman_conformance::trees::costs(&embedded, "costs")?
    );
    Ok(())
}

#[test]
fn threads_of_several_compute_servers_lose_nothing() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let servers = Servers::start(Transport::Verbs, 2, SMALL);
    let url = servers.url();
    let done = sherman_conformance::trees::stress(
        &|| Ok(Cluster::open(&url)?),
        "stress",
        1,
        2,
        2,
        Duration::from_secs(5),
    )?;
    println!("{done:?}");
    assert!(done.operations > 100 && done.increments > 2, "{done:?}");
    Ok(())
}

#[test]
fn ranges_miss_nothing_that_is_there_throughout() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let servers = Servers::start(Transport::Verbs, 2, SMALL);
    let url = servers.url();
    let read = sherman_conformance::trees::ranges(
        &|| Ok(Cluster::open(&url)?),
        "ranges",
        1,
        2,
        Duration::from_secs(4),
    )?;
    println!("{read} ranges");
    assert!(read > 2, "{read}");
    Ok(())
}

#[test]
fn clients_that_are_killed_lose_no_acknowledged_change() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    const KILLS: u64 = 4;
    // The test kills a writer after this many acknowledged changes of its keys. It counts changes, not time,
    // because a guest without hardware support has no known speed.
    const CHANGES: u64 = 25;
    let more = ["--memory", "96MiB", "--chunk", "1MiB", "--lease", "2s"];
    let servers = Servers::start(Transport::Verbs, 2, &more);
    let url = servers.url();
    let ledgers: Vec<_> = (0..2).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
    let start = |slot: usize, seed| Writer::start(&url, slot as u64, seed, &ledgers[slot]);
    let mut writers = vec![start(0, 1), start(1, 2)];
    for kill in 0..KILLS {
        let slot = kill as usize % 2;
        await_changes(&ledgers[slot], CHANGES, Duration::from_secs(40))?;
        std::thread::sleep(Duration::from_millis(130 * kill));
        writers[slot].kill();
        writers[slot] = start(slot, 1_000 + kill);
    }
    std::thread::sleep(Duration::from_secs(1));
    writers.clear();
    let cluster = Cluster::open(&url)?;
    settle(&cluster, Duration::from_secs(40))?;
    let (acknowledged, uncertain) = verify(&cluster, &ledgers)?;
    println!("{KILLS} killed, {acknowledged} changes acknowledged, {uncertain} keys of unknown outcome");
    assert!(acknowledged >= KILLS * CHANGES, "{acknowledged}");
    Ok(())
}

#[test]
fn a_server_that_is_killed_is_lost_soon() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let mut servers = Servers::start(Transport::Verbs, 1, SMALL);
    // With the automatic rejoin, the client would wait for the server until its deadline.
    let cluster = Cluster::open_with(&servers.url(), ClusterOptions::new().rejoin(false))?;
    let client = cluster.tree::<u64, u64>("t")?.client()?;
    client.insert(1, 1)?;
    servers.servers[0].kill();
    let began = Instant::now();
    let error = client.insert(2, 2).expect_err("nobody is there");
    println!("after {:?}: {error}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(error.to_string().contains('0'), "{error}");
    Ok(())
}

/// Starts three hosts behind the device.
fn hosts() -> Vec<Server> {
    let start = |how: &[&str]| {
        let always = ["--listen", "verbs://127.0.0.1:0", "--memory", "96MiB"];
        Server::start(how.iter().chain(&always).map(ToString::to_string).collect())
    };
    let new = ["--new-cluster", "--replicas", "2", "--hosts", "3", "--chunk", "1MiB", "--lease", "4s"];
    let first = start(&new);
    let seed = format!("verbs://{}", first.address);
    let others = [(); 2].map(|()| start(&["--join", &seed]));
    std::iter::once(first).chain(others).collect()
}

/// Opens the cluster as soon as it has volumes.
fn open_hosts(url: &str) -> Result<Cluster, Failure> {
    let began = Instant::now();
    loop {
        match Cluster::open_with(url, ClusterOptions::new().timeout(Duration::from_secs(60))) {
            Err(error) if error.may_pass() && began.elapsed() < Duration::from_secs(40) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            opened => return Ok(opened?),
        }
    }
}

#[test]
fn volumes_behind_a_device_survive_the_death_of_a_host() -> Result<(), Failure> {
    if !has_device() {
        return Ok(());
    }
    let mut hosts = hosts();
    let addresses: Vec<&str> = hosts.iter().map(|host| host.address.as_str()).collect();
    let cluster = open_hosts(&format!("verbs://{}", addresses.join(",")))?;
    let client = cluster.tree::<u64, u64>("t")?.client()?;
    // Leaves on every volume.
    for key in 0..600 {
        client.insert(key, key)?;
    }
    client.get(7)?;
    let before = client.stats();
    client.get(7)?;
    client.insert(7, 70)?;
    let after = client.stats();
    for (kind, trips) in [(OpKind::Get, 1), (OpKind::Update, 3)] {
        let count = |stats: &sherman::Stats| stats.kind(kind).round_trips().get(&trips).copied().unwrap_or(0);
        assert_eq!(count(&after), count(&before) + 1, "{kind:?}");
    }
    hosts[1].kill();
    let began = Instant::now();
    for key in 0..600 {
        let expected = if key == 7 { 70 } else { key };
        assert_eq!(client.get(key)?, Some(expected));
        client.insert(key, key + 1)?;
    }
    println!("600 gets and 600 updates took {:?} after the death", began.elapsed());
    // They may have needed no copy of that host. The next table ends the identity all the same.
    let mut value = 8;
    while cluster.rejoins() == 0 && began.elapsed() < Duration::from_secs(30) {
        assert_eq!(client.insert(7, value + 1)?, Some(value));
        value += 1;
    }
    assert!(cluster.rejoins() > 0);
    let check = client.check()?;
    assert!(check.is_clean(), "{check:?}");
    Ok(())
}
