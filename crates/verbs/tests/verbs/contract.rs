//! Tests the fabric contract F1–F7, with servers in threads of this process.

use crate::common::{MEMORY, SCRATCH, has_device, join, serve};
use sherman_conformance::contract::{
    Breach, Harness, Participant, Patience, Report, Scratch, on_threads_of, suite,
};
use sherman_soft_nic::server::RunningServer;
use sherman_verbs::{VerbsEndpoint, VerbsOptions};

const SERVERS: u16 = 2;

struct Nic(VerbsOptions);

impl Harness for Nic {
    type Endpoint = VerbsEndpoint;

    fn scratch(&self) -> Scratch {
        let host = SCRATCH..SCRATCH + 64 * Scratch::HOST_UNITS;
        Scratch { servers: SERVERS, host_bytes: MEMORY, host, on_chip: 0..Scratch::ON_CHIP_BYTES }
    }

    fn rounds(&self) -> u32 {
        24
    }

    fn runs(&self) -> u32 {
        1
    }

    /// Long, because an emulated machine is slow.
    fn patience(&self) -> Patience {
        Patience { nanos: 60_000_000_000, polls: u64::MAX }
    }

    fn run(&self, _: u64, participants: Vec<Participant<VerbsEndpoint>>) -> Result<(), Breach> {
        let servers: Vec<RunningServer> =
            (0..SERVERS).map(|server| serve(server, SERVERS, &self.0)).collect();
        on_threads_of(participants, || join(&servers, &self.0))
    }
}

fn passes(options: VerbsOptions) {
    if !has_device() {
        return;
    }
    let report: Report = suite(&Nic(options));
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    // Without masked CAS, the tests of lanes within a word are skipped.
    assert!(report.skipped().count() <= 2, "{report}");
}

#[test]
fn a_nic_keeps_the_contract() {
    passes(VerbsOptions::default());
}

#[test]
fn a_nic_that_is_posted_to_by_calls_keeps_the_contract() {
    passes(VerbsOptions { extended: true, ..VerbsOptions::default() });
}
