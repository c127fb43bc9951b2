//! Servers in threads of this process. Clients reach their memory through the device.

use sherman_control::JoinOptions;
use sherman_control::path::DataPath;
use sherman_embedded::host::Host;
use sherman_embedded::{Atomicity, copy::CopyPath, memory::Region};
use sherman_executor::{Driver, block_on};
use sherman_fabric::{Counters, Endpoint, FabricError, Space, Ticket, WorkList, execute};
use sherman_layout::{FormatOptions, LaneWidth, LockOptions};
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use sherman_verbs::{Device, VerbsEndpoint, VerbsFabric, VerbsJoinError, VerbsOptions, VerbsPath};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(crate) const MEMORY: u64 = 1 << 20;
pub(crate) const ON_CHIP: usize = 128;
/// Memory well behind the superblock and the tables, in a chunk that no client allocates.
pub(crate) const SCRATCH: u64 = MEMORY / 2;

/// Whether there is a device for the tests.
pub(crate) fn has_device() -> bool {
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

/// Starts a small memory server.
pub(crate) fn serve(server: u16, servers: u16, verbs: &VerbsOptions) -> RunningServer {
    let format = FormatOptions {
        server,
        servers,
        chunk_bytes: MEMORY / 16,
        redo_slot_bytes: 1 << 10,
        redo_area_bytes: 1 << 10,
        member_capacity: 8,
        catalog_capacity: 4,
        locks: LockOptions { width: LaneWidth::Bits64, ..LockOptions::default() },
        ..FormatOptions::default()
    };
    serve_as(&format, MEMORY as usize, ON_CHIP, verbs)
}

/// Starts a memory server with these options and sizes.
pub(crate) fn serve_as(
    format: &FormatOptions,
    memory: usize,
    on_chip: usize,
    verbs: &VerbsOptions,
) -> RunningServer {
    let region = Region::new(memory, on_chip, Atomicity::Line, CopyPath::fastest()).expect("memory");
    let host = Arc::new(Host::format(region, format).expect("a server"));
    let device = Device::open(verbs, None).expect("a device");
    let path = VerbsPath::new(device, Arc::clone(&host)).expect("registered memory");
    let path: Arc<dyn DataPath> = Arc::new(path);
    let options = ServerOptions {
        shards: 1,
        path: Some(path),
        ..ServerOptions::new(host, vec![Listen::Tcp("127.0.0.1:0".to_owned())])
    };
    SoftNicServer::start(options).expect("a server")
}

/// Options to join these servers.
pub(crate) fn options(servers: &[RunningServer]) -> JoinOptions {
    JoinOptions::new(servers.iter().map(|server| server.addresses()[0].clone().into()).collect())
}

/// Joins these servers as a compute server.
pub(crate) fn join(servers: &[RunningServer], verbs: &VerbsOptions) -> Result<VerbsFabric, VerbsJoinError> {
    VerbsFabric::join(&options(servers), verbs)
}

/// Posts `list` and waits for it.
pub(crate) fn run(endpoint: &VerbsEndpoint, list: WorkList) -> Result<WorkList, FabricError> {
    block_on(endpoint, execute(endpoint, list, &Counters::default()))
}

/// WRITEs one word.
pub(crate) fn write(
    endpoint: &VerbsEndpoint,
    server: u16,
    offset: u64,
    word: u64,
) -> Result<(), FabricError> {
    let mut list = endpoint.list(server);
    list.write(Space::Host, offset, &word.to_le_bytes());
    run(endpoint, list).map(|list| endpoint.recycle(list))
}

/// READs one word.
pub(crate) fn read(endpoint: &VerbsEndpoint, server: u16, offset: u64) -> Result<u64, FabricError> {
    let mut list = endpoint.list(server);
    let read = list.read(Space::Host, offset, 8);
    let list = run(endpoint, list)?;
    let word = u64::from_le_bytes(list.bytes(read).try_into().expect("eight bytes"));
    endpoint.recycle(list);
    Ok(word)
}

/// The outcome of a list that was posted. Fails after 20 seconds without one, so that a lost outcome does not
/// hang the test.
pub(crate) fn outcome(endpoint: &VerbsEndpoint, ticket: Ticket) -> Result<WorkList, FabricError> {
    let end = Instant::now() + Duration::from_secs(20);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(outcome) = endpoint.poll(ticket, &mut cx) {
            return outcome;
        }
        assert!(Instant::now() < end, "a list has no outcome");
        endpoint.progress();
        std::thread::yield_now();
    }
}
