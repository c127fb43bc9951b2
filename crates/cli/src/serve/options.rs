//! The options of a memory server, complete and checked: plain values that fit together.

use crate::failure::Failure;
use crate::serve::config::{ServeSettings, Time};
use crate::serve::kept;
use crate::serve::log::LogLevel;
use crate::serve::verbs::VerbsListen;
use sherman_layout::format::{LONGEST_LEASE, SHORTEST_LEASE};
use sherman_layout::{FormatOptions, LaneWidth, LockOptions};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The most threads that a server may use.
pub const MAX_THREADS: usize = 256;
/// The longest path of a Unix socket that every system accepts, in bytes.
const MAX_SOCKET_PATH: usize = 103;
/// The longest name of a cluster, in bytes.
const MAX_NAME: usize = 128;

/// An address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP port; 0 lets the system choose.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// A Unix socket through which clients get the memory itself.
    Shm(PathBuf),
    /// A TCP port for everything except verbs, which go through a NIC.
    Verbs(VerbsListen),
}

impl Listen {
    /// Returns whether only this host can reach the address.
    fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Shm(_) => true,
            Self::Tcp { host, .. } | Self::Verbs(VerbsListen { host, .. }) => {
                host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            }
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Shm(path) => write!(f, "shm:{}", path.display()),
            Self::Verbs(verbs) => verbs.fmt(f),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sockets = [("unix:", Self::Unix as fn(PathBuf) -> Self), ("shm:", Self::Shm)];
        for (scheme, listen) in sockets {
            if let Some(path) = text.strip_prefix(scheme) {
                return match path.len() {
                    0 => Err(format!("write the path of a socket after {scheme}")),
                    1..=MAX_SOCKET_PATH => Ok(listen(PathBuf::from(path))),
                    _ => Err(format!("the path of a Unix socket has at most {MAX_SOCKET_PATH} bytes")),
                };
            }
        }
        if let Some(rest) = text.strip_prefix("verbs://") {
            return VerbsListen::read(rest).map(Self::Verbs);
        }
        let bad = || {
            "write tcp://0.0.0.0:7000, tcp://[::1]:7000, unix:/path, shm:/path or verbs://10.0.0.1:7000"
                .to_owned()
        };
        let (host, port) = text.strip_prefix("tcp://").and_then(host_and_port).ok_or_else(bad)?;
        Ok(Self::Tcp { host, port })
    }
}

/// Parses `host:port`. An IPv6 address is in brackets, which are removed.
pub fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
        Some(bracketed) => bracketed.filter(|host| host.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6())),
        None => Some(host).filter(|host| !host.is_empty() && !host.contains([':', '/', ','])),
    };
    Some((host?.to_owned(), port.parse().ok()?))
}

/// The options of a memory server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// The addresses; at least one.
    pub listen: Vec<Listen>,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory for locks.
    pub on_chip: u64,
    /// The number of this server in the cluster, from 0.
    pub id: u16,
    /// The number of servers of the cluster.
    pub servers: u16,
    /// The cluster's name.
    pub cluster_name: String,
    /// The file with the cluster's secret.
    pub secret_file: Option<PathBuf>,
    /// Whether clients may connect without a secret.
    pub insecure: bool,
    /// The address that serves metrics.
    pub metrics: Option<SocketAddr>,
    /// The file that holds the memory.
    pub file: Option<PathBuf>,
    /// The number of threads; `None` lets the server choose.
    pub threads: Option<usize>,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// How long a client counts as alive after it last renewed its lease.
    pub lease: Duration,
    /// Which events go to stderr.
    pub log: LogLevel,
    /// For tests: whether the server tears READs wherever the rules allow it.
    pub tear_reads: bool,
}

impl ServeOptions {
    /// Checks the settings and returns the options.
    pub fn new(settings: ServeSettings) -> Result<Self, Failure> {
        let defaults = FormatOptions::default();
        if let Some(Time(lease)) = settings.lease {
            check_lease(lease)?;
        }
        let settings = kept::complete(settings)?;
        let options = Self {
            listen: settings.listen,
            memory: settings.memory.map_or(1 << 30, |bytes| bytes.0),
            on_chip: settings.on_chip.map_or(256 << 10, |bytes| bytes.0),
            id: settings.id.unwrap_or(0),
            servers: settings.servers.unwrap_or(1),
            cluster_name: settings.cluster_name.unwrap_or_else(|| "sherman".to_owned()),
            secret_file: settings.secret_file,
            insecure: settings.insecure,
            metrics: settings.metrics,
            file: settings.file,
            threads: settings.threads,
            chunk: settings.chunk.map_or(defaults.chunk_bytes, |bytes| bytes.0),
            lease: settings.lease.map_or(Duration::from_nanos(defaults.lease_nanos), |lease| lease.0),
            log: settings.log.unwrap_or_default(),
            tear_reads: settings.tear_reads,
        };
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.listen.is_empty() {
            return Err(Failure::option(
                "listen",
                "no address is given: write --listen tcp://127.0.0.1:7000 or --listen unix:/path",
            ));
        }
        if let Some(twice) = self.listen.iter().enumerate().find(|(at, own)| self.listen[..*at].contains(own))
        {
            return Err(Failure::option("listen", format!("{} is given twice", twice.1)));
        }
        if self.shares_memory() && self.file.is_some() {
            return Err(Failure::option(
                "file",
                "shm: cannot share memory that is in a file. Leave --file out, or listen on unix:",
            ));
        }
        if let Some(verbs) = self.verbs() {
            verbs.check(self)?;
        }
        let open = self.listen.iter().find(|listen| !listen.is_local());
        if let (Some(open), None, false) = (open, &self.secret_file, self.insecure) {
            let reason = "without a secret, every host of the network could read and change all data. \
                          Give --secret-file, or --insecure";
            return Err(Failure::option("listen", format!("{open}: {reason}")));
        }
        if self.insecure && self.secret_file.is_some() {
            return Err(Failure::option("insecure", "it contradicts --secret-file: give only one of them"));
        }
        if self.servers == 0 {
            return Err(Failure::option("servers", "there must be at least one"));
        }
        if self.id >= self.servers {
            let reason =
                format!("the ids of this cluster are 0 to {}; --servers sets their number", self.servers - 1);
            return Err(Failure::option("id", reason));
        }
        if !(1..=MAX_NAME).contains(&self.cluster_name.len()) {
            return Err(Failure::option("cluster-name", format!("a name has 1 to {MAX_NAME} bytes")));
        }
        if self.threads.is_some_and(|threads| !(1..=MAX_THREADS).contains(&threads)) {
            return Err(Failure::option("threads", format!("write a number from 1 to {MAX_THREADS}")));
        }
        let planned = self.format().plan(self.memory, self.on_chip);
        planned.map(drop).map_err(|error| Failure::option("memory", error))
    }

    /// Returns whether clients map the memory.
    pub fn shares_memory(&self) -> bool {
        self.listen.iter().any(|listen| matches!(listen, Listen::Shm(_)))
    }

    /// Returns the address of the NIC, if clients reach the memory through one.
    pub fn verbs(&self) -> Option<&VerbsListen> {
        self.listen.iter().find_map(|listen| match listen {
            Listen::Verbs(verbs) => Some(verbs),
            _ => None,
        })
    }

    /// Returns the layout of the memory.
    pub fn format(&self) -> FormatOptions {
        let mut locks = LockOptions::default();
        if self.verbs().is_some() {
            // Lanes have 64 bits, unless the NIC turns out to support narrow ones.
            locks.width = LaneWidth::Bits64;
        }
        FormatOptions {
            locks,
            cluster_id: cluster_id(&self.cluster_name),
            server: self.id,
            servers: self.servers,
            chunk_bytes: self.chunk,
            lease_nanos: u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX),
            ..FormatOptions::default()
        }
    }
}

/// Refuses a lease that is too short for a client to renew, or too long to wait for.
pub fn check_lease(lease: Duration) -> Result<(), Failure> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(());
    }
    let reason = format!(
        "{} is not allowed: write 100ms to 1h. A client that cannot renew its lease in this time is \
         declared dead",
        Time(lease)
    );
    Err(Failure::option("lease", reason))
}

/// Returns FNV-1a of the cluster's name. All servers of a cluster get the same number, and another cluster
/// most likely gets a different one.
fn cluster_id(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::config::Bytes;

    fn settings() -> ServeSettings {
        ServeSettings { listen: vec![Listen::Unix("/x".into())], ..ServeSettings::default() }
    }

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in [
            "tcp://0.0.0.0:7000",
            "tcp://[::1]:7000",
            "tcp://memory-1:0",
            "unix:/run/a.sock",
            "unix:a",
            "shm:/a",
            "verbs://[::1]:7?mtu=1024",
        ] {
            assert_eq!(text.parse::<Listen>().expect(text).to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(MAX_SOCKET_PATH));
        for bad in [
            "",
            "7000",
            "0.0.0.0:7000",
            "tcp://",
            "tcp://:7000",
            "tcp://a",
            "tcp://a:70000",
            "tcp://::1:7000",
            "tcp://[a]:1",
            "tcp://a,b:1",
            "udp://a:1",
            "verbs://a",
            "verbs://a:1?speed=max",
            "verbs://a:1?mtu",
            "unix:",
            "shm:",
            "tcp://[::1:7000",
            "http://a:1",
            &long,
        ] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_defaults_are_a_cluster_of_one() {
        let options = ServeOptions::new(settings()).expect("options");
        assert_eq!(
            (options.id, options.servers, options.memory, options.on_chip),
            (0, 1, 1 << 30, 256 << 10)
        );
        assert_eq!((options.chunk, options.lease), (8 << 20, Duration::from_secs(3)));
        assert!(!options.insecure && options.threads.is_none() && options.file.is_none());
        let format = options.format();
        assert_eq!((format.server, format.servers, format.lease_nanos), (0, 1, 3_000_000_000));
        assert_ne!(format.cluster_id, cluster_id("another"));
    }

    #[test]
    fn without_a_secret_only_this_host_may_connect() {
        let listen = |text: &str| vec![text.parse().expect("an address")];
        let refused = |settings: ServeSettings| ServeOptions::new(settings).expect_err("refused").to_string();
        for local in [
            "tcp://127.0.0.1:1",
            "tcp://127.9.9.9:1",
            "tcp://[::1]:1",
            "tcp://localhost:1",
            "unix:/x",
            "shm:/x",
        ] {
            assert!(
                ServeOptions::new(ServeSettings { listen: listen(local), ..settings() }).is_ok(),
                "{local}"
            );
        }
        for open in
            ["tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tcp://memory-1:1", "tcp://localhost.a:1"]
        {
            let both = [listen(open), listen("unix:/x")].concat();
            let said = refused(ServeSettings { listen: both, ..settings() });
            assert!(
                said.contains("--listen") && said.contains(open) && said.contains("--insecure"),
                "{said}"
            );
            let insecure = ServeSettings { listen: listen(open), insecure: true, ..settings() };
            assert!(ServeOptions::new(insecure).is_ok());
            let secret = ServeSettings { listen: listen(open), secret_file: Some("s".into()), ..settings() };
            assert!(ServeOptions::new(secret).is_ok());
        }
        let both = ServeSettings { insecure: true, secret_file: Some("s".into()), ..settings() };
        assert!(refused(both).contains("--insecure"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused_by_its_option() {
        let twice = vec![Listen::Unix("/x".into()), Listen::Unix("/x".into())];
        let shm = ServeSettings { listen: vec![Listen::Shm("/x".into())], ..settings() };
        for (settings, option) in [
            (ServeSettings::default(), "listen"),
            (ServeSettings { listen: twice, ..settings() }, "listen"),
            (ServeSettings { file: Some("f".into()), ..shm }, "file"),
            (ServeSettings { id: Some(1), ..settings() }, "id"),
            (ServeSettings { servers: Some(0), ..settings() }, "servers"),
            (ServeSettings { id: Some(3), servers: Some(3), ..settings() }, "id"),
            (ServeSettings { cluster_name: Some(String::new()), ..settings() }, "cluster-name"),
            (ServeSettings { threads: Some(0), ..settings() }, "threads"),
            (ServeSettings { threads: Some(257), ..settings() }, "threads"),
            (ServeSettings { lease: Some(Time(Duration::ZERO)), ..settings() }, "lease"),
            (ServeSettings { lease: Some(Time(Duration::from_millis(99))), ..settings() }, "lease"),
            (ServeSettings { lease: Some(Time(Duration::from_secs(3601))), ..settings() }, "lease"),
            (ServeSettings { memory: Some(Bytes(1 << 20)), ..settings() }, "memory"),
            (ServeSettings { on_chip: Some(Bytes(0)), ..settings() }, "memory"),
            (ServeSettings { chunk: Some(Bytes(100)), ..settings() }, "memory"),
        ] {
            let said = ServeOptions::new(settings).expect_err(option).to_string();
            assert!(said.starts_with(&format!("error: --{option}: ")), "{said}");
        }
    }
}
