//! The fabric contract F1–F7 on memory servers that are separate processes. Every run starts new ones.

use crate::common::servers::{Servers, Transport};
use sherman_conformance::contract::{Breach, Harness, Participant, Patience, Scratch, on_threads_of, suite};
use sherman_control::JoinOptions;
use sherman_fabric::Fabric;
use sherman_shm::ShmFabric;
use sherman_soft_nic::SoftNicFabric;

const SERVERS: u16 = 2;
const MEMORY: u64 = 64 << 20;
/// Far behind the superblock and the tables, in a chunk that no client requests.
const SCRATCH: u64 = MEMORY / 2;

struct Processes<F> {
    transport: Transport,
    more: &'static [&'static str],
    join: fn(&JoinOptions) -> Result<F, String>,
}

impl<F: Fabric<Endpoint: 'static> + Send> Harness for Processes<F> {
    type Endpoint = F::Endpoint;

    fn scratch(&self) -> Scratch {
        let host = SCRATCH..SCRATCH + 64 * Scratch::HOST_UNITS;
        Scratch { servers: SERVERS, host_bytes: MEMORY, host, on_chip: 0..Scratch::ON_CHIP_BYTES }
    }

    fn rounds(&self) -> u32 {
        150
    }

    fn runs(&self) -> u32 {
        2
    }

    /// A machine with other work is slow, not broken.
    fn patience(&self) -> Patience {
        Patience { nanos: 120_000_000_000, polls: u64::MAX }
    }

    fn run(&self, _: u64, participants: Vec<Participant<F::Endpoint>>) -> Result<(), Breach> {
        let servers = Servers::start(self.transport, SERVERS, self.more);
        let options = JoinOptions::new(servers.servers.iter().map(|server| server.listen().into()).collect());
        on_threads_of(participants, || (self.join)(&options))
    }
}

fn passes<F: Fabric<Endpoint: 'static> + Send>(processes: Processes<F>) {
    let report = suite(&processes);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped().count(), 0, "{report}");
}

fn soft_nic(options: &JoinOptions) -> Result<SoftNicFabric, String> {
    SoftNicFabric::join(options).map_err(|error| error.to_string())
}

#[test]
fn processes_on_tcp_keep_the_contract() {
    let more = &["--memory", "64MiB", "--chunk", "1MiB", "--threads", "2"];
    passes(Processes { transport: Transport::Tcp, more, join: soft_nic });
}

#[test]
fn processes_on_unix_sockets_that_tear_their_reads_keep_the_contract() {
    let more = &["--memory", "64MiB", "--chunk", "1MiB", "--threads", "2", "--tear-reads"];
    passes(Processes { transport: Transport::Unix, more, join: soft_nic });
}

#[test]
fn processes_that_share_their_memory_keep_the_contract() {
    let more = &["--memory", "64MiB", "--chunk", "1MiB"];
    let join = |options: &JoinOptions| ShmFabric::join(options).map_err(|error| error.to_string());
    passes(Processes { transport: Transport::Shm, more, join });
}

/// The server executes lists in frames on the memory that other clients map.
#[test]
fn processes_that_share_their_memory_keep_the_contract_by_frames_too() {
    let more = &["--memory", "64MiB", "--chunk", "1MiB", "--threads", "2"];
    passes(Processes { transport: Transport::Shm, more, join: soft_nic });
}
