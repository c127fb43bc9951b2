//! Killed processes: clients at random moments of their writes, and servers that keep their memory in a file.
//!
//! The test kills 42 clients, with three at work at a time. `SHERMAN_KILLS=200` kills 280, as `.ci/run` does.

use crate::common::servers::{Servers, Transport};
use crate::common::writers::{Writer, run_writer, settle, verify};
use rustix::process::Signal;
use sherman::Cluster;
use sherman_conformance::trees::{Failure, Ledger};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Not a test: the main function of a writer process.
#[test]
#[ignore = "run as a process of its own by the tests beside it"]
fn writer() {
    run_writer();
}

fn kills() -> u64 {
    std::env::var("SHERMAN_KILLS").map_or(20, |text| text.parse().expect("a number of kills"))
}

#[test]
fn clients_that_are_killed_lose_no_acknowledged_change() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    // The test kills writers on mapped memory most often, because such a writer may die between any two
    // stores.
    let all = [
        (Transport::Tcp, kills().div_ceil(5)),
        (Transport::Unix, kills().div_ceil(5)),
        (Transport::Shm, kills()),
    ];
    for (transport, kills) in all {
        // Every client takes its own chunks, and its recoverer keeps them. So the servers need much memory,
        // but touch little of it.
        let servers =
            Servers::start(transport, 2, &["--memory", "1GiB", "--chunk", "1MiB", "--lease", "500ms"]);
        let url = servers.url();
        let ledgers: Vec<_> = (0..3).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
        let mut random = fastrand::Rng::with_seed(7);
        let mut writers: Vec<Writer> =
            ledgers.iter().zip(0..).map(|(ledger, slot)| Writer::start(&url, slot, slot, ledger)).collect();
        for kill in 0..kills {
            std::thread::sleep(Duration::from_millis(random.u64(30..90)));
            let slot = random.usize(..writers.len());
            writers[slot].kill();
            writers[slot] = Writer::start(&url, slot as u64, 1_000 + kill, &ledgers[slot]);
        }
        writers.clear();
        let cluster = Cluster::open(&url)?;
        settle(&cluster, Duration::from_secs(20))?;
        let (acknowledged, uncertain) = verify(&cluster, &ledgers)?;
        println!(
            "{transport:?}: {kills} killed, {acknowledged} changes acknowledged, {uncertain} keys of unknown \
             outcome"
        );
        assert!(acknowledged > kills, "{acknowledged}");
    }
    Ok(())
}

/// A client that is stopped for longer than its lease is taken for dead, and goes on as another client. On
/// mapped memory it may be stopped in the middle of a change. Then it cannot be fenced until it continues,
/// but nothing else goes wrong.
#[test]
fn clients_that_are_stopped_and_go_on_lose_nothing() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    for transport in [Transport::Unix, Transport::Shm] {
        let servers =
            Servers::start(transport, 2, &["--memory", "1GiB", "--chunk", "1MiB", "--lease", "300ms"]);
        let url = servers.url();
        let ledgers: Vec<_> = (0..3).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
        let mut random = fastrand::Rng::with_seed(9);
        let writers: Vec<Writer> =
            ledgers.iter().zip(0..).map(|(ledger, slot)| Writer::start(&url, slot, slot, ledger)).collect();
        for _ in 0..kills().div_ceil(8).min(8) {
            std::thread::sleep(Duration::from_millis(random.u64(100..300)));
            let writer = random.choice(&writers).ok_or("writers")?;
            writer.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(random.u64(50..900)));
            writer.signal(Signal::CONT);
        }
        drop(writers);
        let cluster = Cluster::open(&url)?;
        settle(&cluster, Duration::from_secs(20))?;
        let (acknowledged, uncertain) = verify(&cluster, &ledgers)?;
        println!("{transport:?}: {acknowledged} changes acknowledged, {uncertain} keys of unknown outcome");
        assert!(acknowledged > 100, "{acknowledged}");
    }
    Ok(())
}

#[test]
fn a_server_that_is_killed_comes_back_with_what_its_file_holds() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let more = ["--memory", "64MiB", "--chunk", "1MiB", "--lease", "300ms", "--file", "{dir}/{id}.mem"];
    for transport in [Transport::Tcp, Transport::Unix] {
        let mut servers = Servers::start(transport, 2, &more);
        let ledgers: Vec<_> = (0..2).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
        for round in 0..6 {
            let url = servers.url();
            let writers: Vec<Writer> = ledgers
                .iter()
                .zip(0..)
                .map(|(ledger, slot)| Writer::start(&url, slot, 100 * round + slot, ledger))
                .collect();
            std::thread::sleep(Duration::from_millis(400 + 37 * round));
            let victim = (round % 2) as usize;
            servers.servers[victim].kill();
            // To the killed server, all connected clients are dead. They notice that or are killed here, and
            // the next client that joins recovers them.
            drop(writers);
            servers.servers[victim].restart();
            let cluster = Cluster::open(&servers.url())?;
            settle(&cluster, Duration::from_secs(20))?;
            let (acknowledged, uncertain) = verify(&cluster, &ledgers)?;
            println!(
                "{transport:?}, server {victim} killed: {acknowledged} acknowledged, {uncertain} of unknown \
                 outcome"
            );
        }
    }
    Ok(())
}
