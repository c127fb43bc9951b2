//! From options to a server at work: its memory, made or found in a file, and the threads that serve it.

use crate::failure::Failure;
use crate::serve_options::{Listen, ServeOptions};
use crate::serve_verbs::{Nic, VerbsListen};
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::file::FileOptions;
use sherman_embedded::host::{Host, HostError};
use sherman_embedded::memory::Region;
use sherman_memory_server::FormatOptions;
use sherman_shm::{ServeShmError, ShmOptions, ShmPath};
use sherman_soft_nic::auth::Secret;
use sherman_soft_nic::metrics::{MetricsListener, server_text};
use sherman_soft_nic::server::{self, DataPath, RunningServer, ServeError, ServerOptions, SoftNicServer};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// A server at work.
pub struct Server {
    running: RunningServer,
    /// Where it listens, with the ports it got.
    addresses: Vec<String>,
    metrics: Option<MetricsListener>,
}

impl Server {
    /// Starts it.
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
        let addresses = options.listen.iter().zip(running.addresses()).map(|(asked, got)| match (asked, got) {
            (Listen::Shm(_), _) => asked.to_string(),
            (Listen::Verbs(_), server::Listen::Tcp(host)) => format!("verbs://{host}"),
            _ => got.to_string(),
        });
        Ok(Self { addresses: addresses.collect(), running, metrics })
    }

    /// Where it listens, with the ports it got.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Where it tells its counters.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsListener::address)
    }

    /// Ends it in order.
    pub fn stop(self) -> Result<(), ServeError> {
        drop(self.metrics);
        self.running.stop();
        self.running.join()
    }
}

fn address(listen: &Listen) -> server::Listen {
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

/// Memory that goes with the process.
fn in_memory(options: &ServeOptions, format: &FormatOptions) -> Result<Host, Failure> {
    let (memory, on_chip) = (usize::try_from(options.memory).ok(), usize::try_from(options.on_chip).ok());
    let region = memory
        .zip(on_chip)
        .and_then(|(memory, on_chip)| Region::new(memory, on_chip, Atomicity::Line, CopyPath::fastest()));
    let region = region.ok_or_else(|| Failure::option("memory", "the system does not give so much"))?;
    Host::format(region, format).map_err(|error| Failure::option("memory", error))
}

/// Memory that goes with the process, and that a NIC moves.
fn behind_a_nic(options: &ServeOptions, verbs: &VerbsListen) -> Result<(Arc<Host>, Arc<dyn DataPath>), Failure> {
    let nic = Nic::open(verbs)?;
    let mut format = options.format();
    format.locks.width = nic.lane_width(options.on_chip);
    let host = Arc::new(in_memory(options, &format)?);
    let path = nic.serve(Arc::clone(&host))?;
    Ok((host, path))
}

/// Memory that goes with the processes that map it, and the way to it.
fn shared(options: &ServeOptions) -> Result<(Arc<Host>, Arc<ShmPath>), Failure> {
    let (memory_bytes, on_chip_bytes) = (options.memory, options.on_chip);
    let shared = ShmOptions { memory_bytes, on_chip_bytes, ..ShmOptions::default() };
    ShmPath::format(&shared, &options.format()).map_err(|error| match error {
        ServeShmError::Thread(_) => Failure::Runtime(error.to_string()),
        error => Failure::option("memory", error),
    })
}

/// Memory in a file: what is there, or made now.
fn in_file(options: &ServeOptions, path: &Path) -> Result<Host, Failure> {
    let file = FileOptions {
        path: path.to_owned(),
        host_bytes: options.memory,
        on_chip_bytes: options.on_chip,
        atomicity: Atomicity::Line,
        preallocate: true,
    };
    let (host, _) = Host::in_file(&file, &options.format()).map_err(|error| match error {
        // It names the file itself.
        HostError::File(error) => Failure::Runtime(format!("--file: {error}")),
        error => Failure::Runtime(format!("--file: {}: {error}", path.display())),
    })?;
    warn_if_exposed(path);
    let (found, asked) = (host.superblock().cluster_id, options.format().cluster_id);
    if found != asked {
        let reason = format!("{}: the file holds a server of another cluster", path.display());
        return Err(Failure::Runtime(format!("--cluster-name: {reason}")));
    }
    Ok(host)
}

/// Warns if other users of this host may read or write the file. The server makes its files with mode 0600.
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
