//! Starts a server from its options: creates its memory or opens its file, and starts the threads that serve
//! it.

use crate::failure::Failure;
use crate::serve::options::{Listen, ServeOptions};
use crate::serve::verbs::{Nic, VerbsListen};
use sherman_control::auth::Secret;
use sherman_control::path::DataPath;
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::file::FileOptions;
use sherman_embedded::host::{Host, HostError};
use sherman_embedded::memory::Region;
use sherman_layout::FormatOptions;
use sherman_metrics::{MetricsListener, server_text};
use sherman_shm::{ServeShmError, ShmOptions, ShmPath};
use sherman_soft_nic::server::{self, RunningServer, ServeError, ServerOptions, SoftNicServer};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// A running server.
pub struct Server {
    running: RunningServer,
    /// The addresses, with the actual ports.
    addresses: Vec<String>,
    metrics: Option<MetricsListener>,
}

impl Server {
    /// Starts the server.
    pub fn start(options: &ServeOptions) -> Result<Self, Failure> {
        let secret = options.secret_file.as_deref().map(Secret::from_file).transpose();
        let secret = secret.map_err(|error| Failure::option("secret-file", error))?;
        let (host, path) = match (&options.file, options.verbs()) {
            (Some(path), _) => (Arc::new(in_file(options, path)?), None),
            (None, Some(verbs)) => {
                let (host, path) = behind_a_nic(options, verbs)?;
                (host, Some(path))
            }
            (None, None) if options.shares_memory() => {
                let (host, path) = shared(options)?;
                (host, Some(path as Arc<dyn DataPath>))
            }
            (None, None) => (Arc::new(in_memory(options, &options.format())?), None),
        };
        let listen = options.listen.iter().map(address).collect();
        let mut server = ServerOptions { path, ..ServerOptions::new(host, listen) };
        (server.secret, server.insecure, server.tear_reads) = (secret, options.insecure, options.tear_reads);
        server.shards = options.threads.unwrap_or(server.shards);
        let running = SoftNicServer::start(server).map_err(|error| match error {
            ServeError::Bind { .. } | ServeError::InUse { .. } | ServeError::NotASocket { .. } => {
                Failure::Runtime(format!("--listen: {error}"))
            }
            ServeError::Exposed { .. } => Failure::option("listen", error),
            other => Failure::Runtime(other.to_string()),
        })?;
        let handle = running.handle();
        let listen = |address| MetricsListener::start(address, move || server_text(&handle.stats()));
        let metrics = options.metrics.map(listen).transpose();
        let metrics = metrics.map_err(|error| Failure::Runtime(format!("--metrics: {error}")))?;
        let addresses =
            options.listen.iter().zip(running.addresses()).map(|(asked, got)| match (asked, got) {
                (Listen::Shm(_), _) => asked.to_string(),
                (Listen::Verbs(_), server::Listen::Tcp(host)) => format!("verbs://{host}"),
                _ => got.to_string(),
            });
        Ok(Self { addresses: addresses.collect(), running, metrics })
    }

    /// Returns the addresses, with the actual ports.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the address that serves metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsListener::address)
    }

    /// Stops the server in order.
    pub fn stop(self) -> Result<(), ServeError> {
        drop(self.metrics);
        self.running.stop();
        self.running.join()
    }
}

pub fn address(listen: &Listen) -> server::Listen {
    match listen {
        Listen::Tcp { host, port } | Listen::Verbs(VerbsListen { host, port, .. }) if host.contains(':') => {
            server::Listen::Tcp(format!("[{host}]:{port}"))
        }
        Listen::Tcp { host, port } | Listen::Verbs(VerbsListen { host, port, .. }) => {
            server::Listen::Tcp(format!("{host}:{port}"))
        }
        Listen::Unix(path) | Listen::Shm(path) => server::Listen::Unix(path.clone()),
    }
}

/// Creates memory that ends with the process.
fn in_memory(options: &ServeOptions, format: &FormatOptions) -> Result<Host, Failure> {
    let (memory, on_chip) = (usize::try_from(options.memory).ok(), usize::try_from(options.on_chip).ok());
    let region = memory
        .zip(on_chip)
        .and_then(|(memory, on_chip)| Region::new(memory, on_chip, Atomicity::Line, CopyPath::fastest()));
    let region =
        region.ok_or_else(|| Failure::option("memory", "the system does not provide this much memory"))?;
    Host::format(region, format).map_err(|error| Failure::option("memory", error))
}

/// Creates memory that ends with the process, and that a NIC reads and writes.
fn behind_a_nic(
    options: &ServeOptions,
    verbs: &VerbsListen,
) -> Result<(Arc<Host>, Arc<dyn DataPath>), Failure> {
    let nic = Nic::open(verbs)?;
    let mut format = options.format();
    format.locks.width = nic.lane_width(options.on_chip);
    let host = Arc::new(in_memory(options, &format)?);
    let path = nic.serve(Arc::clone(&host))?;
    Ok((host, path))
}

/// Creates memory that lives as long as a process maps it, and the data path to it.
fn shared(options: &ServeOptions) -> Result<(Arc<Host>, Arc<ShmPath>), Failure> {
    let (memory_bytes, on_chip_bytes) = (options.memory, options.on_chip);
    let shared = ShmOptions { memory_bytes, on_chip_bytes, ..ShmOptions::default() };
    ShmPath::format(&shared, &options.format()).map_err(|error| match error {
        ServeShmError::Thread(_) => Failure::Runtime(error.to_string()),
        error => Failure::option("memory", error),
    })
}

/// Opens the memory in a file, or creates the file.
fn in_file(options: &ServeOptions, path: &Path) -> Result<Host, Failure> {
    let file = FileOptions {
        path: path.to_owned(),
        host_bytes: options.memory,
        on_chip_bytes: options.on_chip,
        // The host computes the size.
        control_bytes: 0,
        atomicity: Atomicity::Line,
        preallocate: true,
    };
    let (host, _) = Host::in_file(&file, &options.format()).map_err(|error| match error {
        // The error already names the file.
        HostError::File(error) => Failure::Runtime(format!("--file: {error}")),
        error => Failure::Runtime(format!("--file: {}: {error}", path.display())),
    })?;
    warn_if_exposed(path);
    let (found, asked) = (host.superblock().cluster_id, options.format().cluster_id);
    if found != asked {
        let reason = format!("{} holds a memory server of another cluster", path.display());
        return Err(Failure::Runtime(format!("--cluster-name: {reason}")));
    }
    Ok(host)
}

/// Warns if other users of this host may read or write the file. The server creates its files with mode 0600.
fn warn_if_exposed(path: &Path) {
    let Ok(found) = path.metadata() else { return };
    let mode = found.permissions().mode() & 0o7777;
    let others = match mode & 0o006 {
        0 => return,
        0o004 => "other users of this host may read all data",
        _ => "other users of this host may change all data",
    };
    let path = path.display();
    tracing::warn!("--file {path} has mode {mode:04o}: {others}. Run: chmod 600 {path}");
}
