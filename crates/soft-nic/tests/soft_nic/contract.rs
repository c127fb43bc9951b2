//! The fabric contract F1–F7 over real connections to servers in threads of this process, with normal READs
//! and with READs torn on purpose.

use sherman_conformance::contract::{
    Breach, Harness, Participant, Patience, Report, Scratch, on_threads_of, suite,
};
use sherman_control::JoinOptions;
use sherman_control::auth::Secret;
use sherman_embedded::host::Host;
use sherman_embedded::{Atomicity, copy::CopyPath, memory::Region};
use sherman_layout::FormatOptions;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use sherman_soft_nic::{SoftNicEndpoint, SoftNicFabric};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SERVERS: u16 = 2;
const MEMORY: u64 = 1 << 20;
/// After the superblock and the tables, in a chunk that no client requests.
const SCRATCH: u64 = MEMORY / 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Unix,
}

struct SoftNic {
    transport: Transport,
    tear_reads: bool,
    secret: Option<Secret>,
}

impl SoftNic {
    fn listen(&self) -> Listen {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match self.transport {
            Transport::Tcp => Listen::Tcp("127.0.0.1:0".to_owned()),
            Transport::Unix => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                let name = format!("sherman-contract-{}-{number}.sock", std::process::id());
                Listen::Unix(std::env::temp_dir().join(name))
            }
        }
    }

    fn serve(&self, server: u16) -> RunningServer {
        let format = FormatOptions {
            server,
            servers: SERVERS,
            chunk_bytes: MEMORY / 16,
            redo_slot_bytes: 1 << 10,
            redo_area_bytes: 1 << 10,
            member_capacity: 8,
            catalog_capacity: 4,
            ..FormatOptions::default()
        };
        let region =
            Region::new(MEMORY as usize, 128, Atomicity::Line, CopyPath::fastest()).expect("a small region");
        let host = Arc::new(Host::format(region, &format).expect("a small server"));
        let options = ServerOptions {
            // F1 to F4 must hold across threads.
            shards: 2,
            tear_reads: self.tear_reads,
            secret: self.secret.clone(),
            ..ServerOptions::new(host, vec![self.listen()])
        };
        SoftNicServer::start(options).expect("a server")
    }
}

impl Harness for SoftNic {
    type Endpoint = SoftNicEndpoint;

    fn scratch(&self) -> Scratch {
        let host = SCRATCH..SCRATCH + 64 * Scratch::HOST_UNITS;
        Scratch { servers: SERVERS, host_bytes: MEMORY, host, on_chip: 0..Scratch::ON_CHIP_BYTES }
    }

    fn rounds(&self) -> u32 {
        400
    }

    fn runs(&self) -> u32 {
        4
    }

    /// A busy machine is slow, not broken.
    fn patience(&self) -> Patience {
        Patience { nanos: 120_000_000_000, polls: u64::MAX }
    }

    fn run(&self, _: u64, participants: Vec<Participant<SoftNicEndpoint>>) -> Result<(), Breach> {
        let servers: Vec<RunningServer> = (0..SERVERS).map(|server| self.serve(server)).collect();
        let addresses = servers.iter().map(|server| server.addresses()[0].clone().into()).collect();
        let options = JoinOptions { secret: self.secret.clone(), ..JoinOptions::new(addresses) };
        on_threads_of(participants, || SoftNicFabric::join(&options))
    }
}

fn passes(nic: SoftNic) {
    let report: Report = suite(&nic);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped().count(), 0, "{report}");
}

#[test]
fn tcp_keeps_the_contract() {
    let secret = Secret::new(b"a secret for the tests").expect("long enough");
    passes(SoftNic { transport: Transport::Tcp, tear_reads: false, secret: Some(secret) });
}

#[test]
fn unix_sockets_keep_the_contract() {
    passes(SoftNic { transport: Transport::Unix, tear_reads: false, secret: None });
}

#[test]
fn torn_reads_over_tcp_are_all_that_the_contract_needs() {
    passes(SoftNic { transport: Transport::Tcp, tear_reads: true, secret: None });
}

#[test]
fn torn_reads_over_unix_sockets_are_all_that_the_contract_needs() {
    passes(SoftNic { transport: Transport::Unix, tear_reads: true, secret: None });
}
