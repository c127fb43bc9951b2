//! Trials of clusters of hosts, as a sceptical user makes them: processes over TCP that are killed, stopped
//! and cut off from the network while other processes write and read at full speed.
//!
//! Every worker records its operations with the machine's monotonic clock. After each round the histories of
//! all workers together must be linearizable, key by key, and end with what the tree holds.
//!
//! A plain run loses few hosts. `SHERMAN_TRIALS` gives the number of rounds, for a soak.
//!
//! | module | what |
//! |---|---|
//! | `rounds` | hosts are killed, or stopped for 10 s, and started again |
//! | `cuts` | hosts are cut off from clients, from other hosts, and one way only |
//! | `commands` | commands run while hosts are lost |
//! | `copies` | `sherman check` notices copies that differ |
//! | `fleet` | hosts as processes |
//! | `worker`, `record` | a process that works, and writes down what it did |
//! | `crew` | the workers, as the test sees them |
//! | `judge` | what must be true after a round, and at the end |

mod commands;
mod copies;
mod crew;
mod cuts;
mod fleet;
mod judge;
mod record;
mod rounds;
mod worker;

use sherman::{Cluster, ClusterOptions};
use sherman_conformance::trees::Failure;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The tree of all workers.
const TREE: &str = "trial";
/// Keys of a round.
const ROUND_KEYS: u64 = 200;
/// The distance between two keys of a round: the number of rounds that a trial may have, and more.
const STRIDE: u64 = 4096;
/// Entries between two keys of a round that are there from the beginning.
const BETWEEN: u64 = 100;
/// The longest that an operation may take with a lease of one second.
const LONGEST: Duration = Duration::from_secs(3);

/// Not a test: the main function of a worker.
#[test]
#[ignore = "run as a process of its own by the tests beside it"]
fn worker_process() {
    worker::main();
}

/// A key of a round. The keys of each round lie all over the tree.
fn key_of(round: u64, slot: u64) -> u64 {
    slot * STRIDE + round
}

/// Entries that no worker changes.
fn base() -> BTreeMap<u64, u64> {
    let between = |slot| (STRIDE - BETWEEN..STRIDE).map(move |at| slot * STRIDE + at);
    (0..ROUND_KEYS).flat_map(between).map(|key| (key, !key)).collect()
}

/// How many rounds a trial has: `plain` in a plain run.
fn rounds(plain: u64) -> u64 {
    std::env::var("SHERMAN_TRIALS").map_or(plain, |text| text.parse().expect("a number of rounds"))
}

/// Opens the cluster as soon as it has volumes.
fn open(url: &str) -> Result<Cluster, Failure> {
    let began = Instant::now();
    loop {
        match Cluster::open_with(url, ClusterOptions::new().timeout(Duration::from_secs(20))) {
            Err(error) if error.may_pass() && began.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return Ok(opened?),
        }
    }
}

/// The machine's load over the last minute, without which a pause says little.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}
