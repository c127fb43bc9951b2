//! Servers for the tests, and helpers.

use sherman_control::JoinOptions;
use sherman_control::path::DataPath;
use sherman_fabric::Request;
use sherman_layout::FormatOptions;
use sherman_shm::{ShmOptions, ShmPath};
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a server's memory.
pub const MEMORY: u64 = 1 << 20;
/// After the superblock and the tables, in a chunk that no client requests.
pub const SCRATCH: u64 = MEMORY / 2;

/// Options for a small memory.
pub fn options() -> ShmOptions {
    ShmOptions { memory_bytes: MEMORY, on_chip_bytes: 128, links: 64, patience: Duration::from_secs(1) }
}

/// Starts server `server` of `servers`, on a Unix socket of its own and on a TCP port.
pub fn serve(server: u16, servers: u16, options: &ShmOptions) -> RunningServer {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let socket = std::env::temp_dir().join(format!("sherman-shm-{}-{number}.sock", std::process::id()));
    let format = FormatOptions {
        server,
        servers,
        chunk_bytes: MEMORY / 16,
        redo_slot_bytes: 1 << 10,
        redo_area_bytes: 1 << 10,
        member_capacity: 8,
        catalog_capacity: 4,
        ..FormatOptions::default()
    };
    let (host, path) = ShmPath::format(options, &format).expect("a small memory");
    let path = Some(path as Arc<dyn DataPath>);
    let listen = vec![Listen::Unix(socket), Listen::Tcp("127.0.0.1:0".to_owned())];
    let options = ServerOptions { shards: 2, path, ..ServerOptions::new(host, listen) };
    SoftNicServer::start(options).expect("a server")
}

/// The options to join these servers.
pub fn join(servers: &[RunningServer]) -> JoinOptions {
    JoinOptions::new(servers.iter().map(|server| server.addresses()[0].clone().into()).collect())
}

/// Waits until `what` is true.
pub fn eventually(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The request that lists the members.
pub const MEMBERS: Request = Request::Members;
