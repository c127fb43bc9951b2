//! The fabric contract F1–F7 on memory that clients map, and on the same memory through frames.

use crate::raw::{MEMORY, SCRATCH, join, options, serve};
use sherman_conformance::contract::{
    Breach, Harness, Participant, Patience, Report, Scratch, on_threads_of, suite,
};
use sherman_shm::{ShmEndpoint, ShmFabric};
use sherman_soft_nic::server::RunningServer;

const SERVERS: u16 = 2;

struct Shm;

impl Harness for Shm {
    type Endpoint = ShmEndpoint;

    fn scratch(&self) -> Scratch {
        let host = SCRATCH..SCRATCH + 64 * Scratch::HOST_UNITS;
        Scratch { servers: SERVERS, host_bytes: MEMORY, host, on_chip: 0..Scratch::ON_CHIP_BYTES }
    }

    fn rounds(&self) -> u32 {
        2_000
    }

    fn runs(&self) -> u32 {
        4
    }

    /// A busy machine is slow, not broken.
    fn patience(&self) -> Patience {
        Patience { nanos: 120_000_000_000, polls: u64::MAX }
    }

    fn run(&self, _: u64, participants: Vec<Participant<ShmEndpoint>>) -> Result<(), Breach> {
        let servers: Vec<RunningServer> =
            (0..SERVERS).map(|server| serve(server, SERVERS, &options())).collect();
        let options = join(&servers);
        on_threads_of(participants, || ShmFabric::join(&options))
    }
}

#[test]
fn shared_memory_keeps_the_contract() {
    let report: Report = suite(&Shm);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped().count(), 0, "{report}");
}
