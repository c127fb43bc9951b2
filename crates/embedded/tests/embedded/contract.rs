//! The fabric contract F1–F7, on threads, once per atomicity.

use sherman_conformance::contract::{
    Breach, Harness, Participant, Patience, Report, Scratch, on_threads_of, suite,
};
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_layout::FormatOptions;

const MEMORY: u64 = 1 << 20;
/// An offset well behind the superblock and the tables, in a chunk that no client allocates.
const SCRATCH: u64 = MEMORY / 2;

struct Embedded {
    atomicity: Atomicity,
}

impl Harness for Embedded {
    type Endpoint = EmbeddedEndpoint;

    fn scratch(&self) -> Scratch {
        let host = SCRATCH..SCRATCH + 64 * Scratch::HOST_UNITS;
        Scratch { servers: 2, host_bytes: MEMORY, host, on_chip: 0..Scratch::ON_CHIP_BYTES }
    }

    fn rounds(&self) -> u32 {
        1_000
    }

    fn runs(&self) -> u32 {
        4
    }

    /// Long, because sanitizers and busy machines are slow, not broken.
    fn patience(&self) -> Patience {
        Patience { nanos: 300_000_000_000, polls: u64::MAX }
    }

    fn run(&self, _: u64, participants: Vec<Participant<EmbeddedEndpoint>>) -> Result<(), Breach> {
        let format = FormatOptions {
            chunk_bytes: MEMORY / 16,
            redo_slot_bytes: 1 << 10,
            redo_area_bytes: 1 << 10,
            member_capacity: 8,
            catalog_capacity: 4,
            ..FormatOptions::default()
        };
        let options = EmbeddedOptions {
            servers: 2,
            memory_bytes: MEMORY,
            on_chip_bytes: 128,
            format,
            atomicity: self.atomicity,
        };
        let cluster = EmbeddedCluster::new(options).expect("a small cluster");
        on_threads_of(participants, || cluster.join())
    }
}

fn passes(atomicity: Atomicity) {
    let report: Report = suite(&Embedded { atomicity });
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped().count(), 0, "{report}");
}

#[test]
#[cfg_attr(miri, ignore = "takes hours there; the other tests race the same code")]
fn lines_are_all_that_the_contract_needs() {
    passes(Atomicity::Line);
}

#[test]
#[cfg_attr(miri, ignore = "takes hours there; the other tests race the same code")]
fn whole_verbs_keep_the_contract_too() {
    passes(Atomicity::Verb);
}
