//! Where a cluster is, and how to reach it: typed builders. A cluster URL is a text form of them.

use crate::any::AnyFabric;
use crate::cluster::{Cluster, ClusterOptions};
use crate::error::OpenError;
#[cfg(target_os = "linux")]
use sherman_control::{Address, JoinOptions, Secret};
use sherman_embedded::replicated::{ClusterSettings, MOST_HOSTS};
use sherman_embedded::{Atomicity, EmbeddedOptions, ReplicatedOptions};
use sherman_fabric::Space;
use sherman_layout::format::{LONGEST_LEASE, SHORTEST_LEASE};
use sherman_layout::{LaneWidth, ReleaseMode};
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::VerbsOptions;
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Memory of a volume is a whole number of lines.
const LINE: u64 = 64;
/// On-chip memory is a whole number of words.
const WORD: u64 = 8;

/// A place of memory servers whose description was checked.
#[derive(Debug)]
pub(crate) enum Place {
    /// Memory servers to create in this process.
    Embedded(EmbeddedOptions),
    /// Hosts to create in this process, which keep volumes in two copies.
    Replicated(ReplicatedOptions),
    /// Memory servers that listen at addresses.
    #[cfg(target_os = "linux")]
    SoftNic(Box<JoinOptions>),
    /// Memory servers of this host, whose memory the client will map.
    #[cfg(target_os = "linux")]
    Shm(Box<JoinOptions>),
    /// Memory servers that listen at addresses, with memory that is reached through a NIC.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(Box<JoinOptions>, Box<VerbsOptions>),
}

/// # Builders
///
/// They say in types what the URL of [`Cluster::open`] says in words, and are checked by the same code.
impl Cluster {
    /// Memory servers inside this process, as `embedded:`.
    ///
    /// ```
    /// let cluster = sherman::Cluster::embedded().servers(2).memory(64 << 20).open()?;
    /// assert_eq!(cluster.usage()?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn embedded() -> EmbeddedBuilder {
        EmbeddedBuilder::new()
    }

    /// Memory servers that listen at these TCP addresses, in the order of their numbers, as `tcp://`.
    ///
    /// ```no_run
    /// let servers = ["10.0.0.1:7000", "10.0.0.2:7000"];
    /// let cluster = sherman::Cluster::tcp(servers).secret_file("/etc/sherman/secret").open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(target_os = "linux")]
    pub fn tcp(servers: impl IntoIterator<Item = impl Into<String>>) -> ServersBuilder {
        ServersBuilder::tcp(servers)
    }

    /// Memory servers of this host that listen at these sockets, in the order of their numbers, as `unix:`.
    #[cfg(target_os = "linux")]
    pub fn unix(servers: impl IntoIterator<Item = impl Into<PathBuf>>) -> ServersBuilder {
        ServersBuilder::unix(servers)
    }

    /// Memory servers of this host whose memory the client maps, as `shm:`.
    #[cfg(target_os = "linux")]
    pub fn shm(servers: impl IntoIterator<Item = impl Into<PathBuf>>) -> ServersBuilder {
        ServersBuilder::shm(servers)
    }
}

/// Describes memory servers inside this process, made by [`Cluster::embedded`].
#[derive(Clone, Debug)]
#[must_use = "it describes a cluster; `open` creates it"]
pub struct EmbeddedBuilder {
    options: EmbeddedOptions,
    lease: Duration,
    replicas: u8,
    volumes: Option<u16>,
    volume_memory: Option<u64>,
}

impl EmbeddedBuilder {
    pub(crate) fn new() -> Self {
        let options = EmbeddedOptions::default();
        let lease = Duration::from_nanos(options.format.lease_nanos);
        Self { lease, options, replicas: 1, volumes: None, volume_memory: None }
    }

    /// Number of memory servers. The default is one.
    pub fn servers(mut self, servers: u16) -> Self {
        self.options.servers = servers;
        self
    }

    /// How many copies of all data the servers keep: 1 or 2. The default is 1. With 2, no data is lost when a
    /// server dies ([`Cluster::local_hosts`]).
    pub fn replicas(mut self, replicas: u8) -> Self {
        self.replicas = replicas;
        self
    }

    /// How many volumes the data is divided into, each of which has two copies. The default is the number of
    /// servers. Needs [`replicas`](Self::replicas).
    pub fn volumes(mut self, volumes: u16) -> Self {
        self.volumes = Some(volumes);
        self
    }

    /// Bytes of memory of each volume. By default the copies of volumes fill the memory of the servers. With
    /// less, servers have room for copies that were lost elsewhere. Needs [`replicas`](Self::replicas).
    pub fn volume_memory(mut self, bytes: u64) -> Self {
        self.volume_memory = Some(bytes);
        self
    }

    /// Bytes of memory per server. The default is 1 GiB. Pages that are never written cost nothing.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.memory_bytes = bytes;
        self
    }

    /// Bytes of on-chip memory per server. The default is 256 KiB.
    pub fn on_chip(mut self, bytes: u64) -> Self {
        self.options.on_chip_bytes = bytes;
        self
    }

    /// Bytes of a chunk. The default is 8 MiB.
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.options.format.chunk_bytes = bytes;
        self
    }

    /// How long a member may be silent, 100 ms to 1 h. The default is 3 s. A client renews its lease three
    /// times in this time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The width of lock lanes. The default is 16 bits.
    pub fn lanes(mut self, width: LaneWidth) -> Self {
        self.options.format.locks.width = width;
        self
    }

    /// Where the locks are. The default is on-chip memory.
    pub fn locks(mut self, space: Space) -> Self {
        self.options.format.locks.space = space;
        self
    }

    /// The verb that releases a lock. The default is WRITE.
    pub fn release(mut self, mode: ReleaseMode) -> Self {
        self.options.format.locks.release = mode;
        self
    }

    /// The unit in which READs and WRITEs are atomic. The default is a line of 64 bytes.
    pub fn atomicity(mut self, atomicity: Atomicity) -> Self {
        self.options.atomicity = atomicity;
        self
    }

    pub(crate) fn checked(mut self) -> Result<Place, String> {
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&self.lease) {
            return Err(format!(
                "a lease of {:?} is not allowed; write 100ms to 1h, for example 200ms or 3s. A client renews \
                 three times in this time",
                self.lease
            ));
        }
        self.options.format.lease_nanos = self.lease.as_nanos() as u64;
        match (self.replicas, self.volumes.is_some() || self.volume_memory.is_some()) {
            (1, false) => Ok(Place::Embedded(self.options)),
            (1, true) => Err("volumes and volume-memory need replicas=2".to_owned()),
            (2, _) => self.replicated().map(Place::Replicated),
            (other, _) => Err(format!("replicas={other} is not possible; write 1 or 2")),
        }
    }

    fn replicated(self) -> Result<ReplicatedOptions, String> {
        let Self { options, replicas, volumes, volume_memory, .. } = self;
        let EmbeddedOptions { servers: hosts, memory_bytes: host_bytes, atomicity, .. } = options;
        if !(u16::from(replicas)..=MOST_HOSTS as u16).contains(&hosts) {
            return Err(format!("replicas=2 needs 2 to {MOST_HOSTS} servers; write for example servers=3"));
        }
        let volumes = volumes.unwrap_or(hosts);
        if volumes == 0 {
            return Err("volumes=0 is not possible; there must be at least one".to_owned());
        }
        let on_chip_bytes = options.on_chip_bytes / WORD * WORD;
        let mut settings = ClusterSettings {
            replicas,
            volumes,
            hosts,
            volume_bytes: 0,
            on_chip_bytes,
            format: options.format,
        };
        let share = host_bytes / u64::from(settings.copies_per_host().max(1));
        settings.volume_bytes = volume_memory.unwrap_or(share) / LINE * LINE;
        Ok(ReplicatedOptions { settings, host_bytes, atomicity })
    }

    /// Creates the cluster, with default options.
    ///
    /// # Errors
    /// As [`Cluster::open`].
    pub fn open(self) -> Result<Cluster, OpenError> {
        self.open_with(ClusterOptions::default())
    }

    /// Creates the cluster.
    ///
    /// # Errors
    /// As [`Cluster::open`].
    pub fn open_with(self, options: ClusterOptions) -> Result<Cluster, OpenError> {
        let url = "embedded:".to_owned();
        let place = self.checked().map_err(|reason| OpenError::BadUrl { url, reason })?;
        Cluster::take_part(AnyFabric::join(place)?, options)
    }
}

/// How to reach the memory of servers in other processes.
#[cfg(target_os = "linux")]
#[derive(Clone, Debug)]
enum Way {
    SoftNic,
    Shm,
    #[cfg(feature = "verbs")]
    Verbs(Box<VerbsOptions>),
}

/// Describes memory servers in other processes, made by [`Cluster::tcp`], [`Cluster::unix`] and
/// [`Cluster::shm`].
#[cfg(target_os = "linux")]
#[derive(Clone, Debug)]
#[must_use = "it describes a cluster; `open` joins it"]
pub struct ServersBuilder {
    way: Way,
    /// Without a secret, which `secret_file` names.
    options: JoinOptions,
    secret_file: Option<PathBuf>,
}

/// The environment variable that names the secret file if the caller names none.
#[cfg(target_os = "linux")]
const SECRET_FILE: &str = "SHERMAN_SECRET_FILE";

#[cfg(target_os = "linux")]
impl ServersBuilder {
    fn new(way: Way, servers: Vec<Address>) -> Self {
        Self { way, options: JoinOptions::new(servers), secret_file: None }
    }

    pub(crate) fn tcp(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Way::SoftNic, servers.into_iter().map(|server| Address::Tcp(server.into())).collect())
    }

    pub(crate) fn unix(servers: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self::new(Way::SoftNic, servers.into_iter().map(|path| Address::Unix(path.into())).collect())
    }

    pub(crate) fn shm(servers: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self { way: Way::Shm, ..Self::unix(servers) }
    }

    /// Reaches the memory through an RDMA device, as `verbs://`.
    #[cfg(feature = "verbs")]
    pub(crate) fn through(self, verbs: VerbsOptions) -> Self {
        Self { way: Way::Verbs(Box::new(verbs)), ..self }
    }

    /// The file with the secret that client and servers prove to each other. Without it the file that the
    /// environment variable `SHERMAN_SECRET_FILE` names, if any.
    pub fn secret_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.secret_file = Some(path.into());
        self
    }

    /// How long a server may be silent while this client has something in flight there. The default is 5 s.
    /// After it the connection counts as broken.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.options.patience = patience;
        self
    }

    /// How long a connection and its handshake may take. The default is 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    pub(crate) fn checked(self) -> Result<Place, String> {
        let Self { way, mut options, secret_file } = self;
        let scheme = if matches!(way, Way::Shm) { "shm" } else { "unix" };
        options.servers.iter().try_for_each(|address| check_address(address, scheme))?;
        for (name, time) in [("patience", options.patience), ("connect", options.connect_timeout)] {
            if time.is_zero() {
                return Err(format!("{name} is zero; write for example 200ms or 3s"));
            }
        }
        if let Some(path) = secret_file.or_else(|| std::env::var_os(SECRET_FILE).map(PathBuf::from)) {
            options.secret = Some(Secret::from_file(&path).map_err(|error| error.to_string())?);
        }
        let options = Box::new(options);
        Ok(match way {
            Way::SoftNic => Place::SoftNic(options),
            Way::Shm => Place::Shm(options),
            #[cfg(feature = "verbs")]
            Way::Verbs(verbs) => Place::Verbs(options, verbs),
        })
    }

    /// Joins the cluster, with default options.
    ///
    /// # Errors
    /// As [`Cluster::open`].
    pub fn open(self) -> Result<Cluster, OpenError> {
        self.open_with(ClusterOptions::default())
    }

    /// Joins the cluster.
    ///
    /// # Errors
    /// As [`Cluster::open`].
    pub fn open_with(self, options: ClusterOptions) -> Result<Cluster, OpenError> {
        let url = self.options.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let place = self.checked().map_err(|reason| OpenError::BadUrl { url, reason })?;
        Cluster::take_part(AnyFabric::join(place)?, options)
    }
}

/// Checks that an address is `host:port`, with an IPv6 address in brackets, or a path. `scheme` is the scheme
/// of paths.
#[cfg(target_os = "linux")]
fn check_address(address: &Address, scheme: &str) -> Result<(), String> {
    match address {
        Address::Tcp(text) => {
            let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            match port.map(|(_, port)| port.parse::<u16>()) {
                Some(Ok(port)) if port > 0 => Ok(()),
                _ => Err(format!("{text:?} is not a server; write for example 10.0.0.1:7000 or [::1]:7000")),
            }
        }
        Address::Unix(path) if path == Path::new("") => {
            Err(format!("a server's path is empty; write for example {scheme}:/run/sherman/0.sock"))
        }
        Address::Unix(_) => Ok(()),
    }
}
