//! What a memory server is told, complete and checked: plain values that fit together.

use crate::failure::Failure;
use crate::serve_config::{ServeSettings, Time};
use crate::serve_kept;
use crate::serve_log::LogLevel;
use crate::serve_verbs::VerbsListen;
use sherman_memory_server::format::{LONGEST_LEASE, SHORTEST_LEASE};
use sherman_memory_server::{FormatOptions, LaneWidth, LockOptions};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The most threads a server serves with.
pub const MAX_THREADS: usize = 256;
/// Bytes of the longest path of a Unix socket, on every system.
const MAX_SOCKET_PATH: usize = 103;
/// Bytes of the longest name of a cluster.
const MAX_NAME: usize = 128;

/// Where a server listens.
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
    /// A Unix socket, through which clients get the memory itself.
    Shm(PathBuf),
    /// A TCP port for everything but verbs, which go through a NIC.
    Verbs(VerbsListen),
}

impl Listen {
    /// Whether nobody on another host can reach it.
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
                    0 => Err(format!("{scheme} is followed by the path of a socket")),
                    1..=MAX_SOCKET_PATH => Ok(listen(PathBuf::from(path))),
                    _ => Err(format!("the path of a Unix socket has at most {MAX_SOCKET_PATH} bytes")),
                };
            }
        }
        if let Some(rest) = text.strip_prefix("verbs://") {
            return VerbsListen::read(rest).map(Self::Verbs);
        }
        let bad =
            || "write tcp://0.0.0.0:7000, tcp://[::1]:7000, unix:/path, shm:/path or verbs://10.0.0.1:7000".to_owned();
        let (host, port) = text.strip_prefix("tcp://").and_then(host_and_port).ok_or_else(bad)?;
        Ok(Self::Tcp { host, port })
    }
}

/// Reads `host:port`; an address of IPv6 is in brackets, which are left out.
pub fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
        Some(bracketed) => bracketed.filter(|host| host.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6())),
        None => Some(host).filter(|host| !host.is_empty() && !host.contains([':', '/', ','])),
    };
    Some((host?.to_owned(), port.parse().ok()?))
}

/// A memory server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Where it listens; at least one.
    pub listen: Vec<Listen>,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory for locks.
    pub on_chip: u64,
    /// Which server of the cluster it is, from 0.
    pub id: u16,
    /// How many servers the cluster has.
    pub servers: u16,
    /// The cluster's name.
    pub cluster_name: String,
    /// Where the cluster's secret is.
    pub secret_file: Option<PathBuf>,
    /// Whether others may connect without a secret.
    pub insecure: bool,
    /// Where metrics are told.
    pub metrics: Option<SocketAddr>,
    /// The file the memory lies in.
    pub file: Option<PathBuf>,
    /// Threads that serve; the server knows how many suit this machine.
    pub threads: Option<usize>,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// How long a compute server is believed to be alive after it last said so.
    pub lease: Duration,
    /// What is told on stderr.
    pub log: LogLevel,
    /// For tests: whether READs are torn wherever they may be.
    pub tear_reads: bool,
}

impl ServeOptions {
    /// The options that settings come to.
    pub fn new(settings: ServeSettings) -> Result<Self, Failure> {
        let defaults = FormatOptions::default();
        if let Some(Time(lease)) = settings.lease {
            check_lease(lease)?;
        }
        let settings = serve_kept::complete(settings)?;
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
            return Err(Failure::option("listen", "where? write --listen tcp://127.0.0.1:7000 or --listen unix:/path"));
        }
        if let Some(twice) = self.listen.iter().enumerate().find(|(at, own)| self.listen[..*at].contains(own)) {
            return Err(Failure::option("listen", format!("{} comes twice", twice.1)));
        }
        if self.shares_memory() && self.file.is_some() {
            return Err(Failure::option(
                "file",
                "memory in a file cannot be shared: leave it away, or listen on unix:",
            ));
        }
        if let Some(verbs) = self.verbs() {
            verbs.check(self)?;
        }
        let open = self.listen.iter().find(|listen| !listen.is_local());
        if let (Some(open), None, false) = (open, &self.secret_file, self.insecure) {
            let reason =
                "anybody on the network could read and change everything: give a --secret-file, or say --insecure";
            return Err(Failure::option("listen", format!("{open}: {reason}")));
        }
        if self.insecure && self.secret_file.is_some() {
            return Err(Failure::option("insecure", "with a --secret-file it is not"));
        }
        if self.servers == 0 {
            return Err(Failure::option("servers", "there must be at least one"));
        }
        if self.id >= self.servers {
            let reason = format!("the servers of this cluster are 0 to {}; say --servers", self.servers - 1);
            return Err(Failure::option("id", reason));
        }
        if !(1..=MAX_NAME).contains(&self.cluster_name.len()) {
            return Err(Failure::option("cluster-name", format!("a name has 1 to {MAX_NAME} bytes")));
        }
        if self.threads.is_some_and(|threads| !(1..=MAX_THREADS).contains(&threads)) {
            return Err(Failure::option("threads", format!("allowed are 1 to {MAX_THREADS}")));
        }
        let planned = self.format().plan(self.memory, self.on_chip);
        planned.map(drop).map_err(|error| Failure::option("memory", error))
    }

    /// Whether clients map its memory.
    pub fn shares_memory(&self) -> bool {
        self.listen.iter().any(|listen| matches!(listen, Listen::Shm(_)))
    }

    /// The NIC through which its memory is reached, if that is so.
    pub fn verbs(&self) -> Option<&VerbsListen> {
        self.listen.iter().find_map(|listen| match listen {
            Listen::Verbs(verbs) => Some(verbs),
            _ => None,
        })
    }

    /// How its memory is laid out.
    pub fn format(&self) -> FormatOptions {
        let mut locks = LockOptions::default();
        if self.verbs().is_some() {
            // Unless the NIC turns out to have more.
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

/// Refuses a lease that no client can keep, or that nobody waits for.
pub fn check_lease(lease: Duration) -> Result<(), Failure> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(());
    }
    let reason = format!(
        "{} is not allowed; write 100ms to 1h. A client renews its lease three times in this time, and is taken for \
         dead if it cannot",
        Time(lease)
    );
    Err(Failure::option("lease", reason))
}

/// A number that is the same for all servers of a cluster, and most likely another for another cluster: FNV-1a of its name.
fn cluster_id(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve_config::Bytes;

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
        assert_eq!((options.id, options.servers, options.memory, options.on_chip), (0, 1, 1 << 30, 256 << 10));
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
        for local in
            ["tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://[::1]:1", "tcp://localhost:1", "unix:/x", "shm:/x"]
        {
            assert!(ServeOptions::new(ServeSettings { listen: listen(local), ..settings() }).is_ok(), "{local}");
        }
        for open in ["tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tcp://memory-1:1", "tcp://localhost.a:1"] {
            let both = [listen(open), listen("unix:/x")].concat();
            let said = refused(ServeSettings { listen: both, ..settings() });
            assert!(said.contains("--listen") && said.contains(open) && said.contains("--insecure"), "{said}");
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
