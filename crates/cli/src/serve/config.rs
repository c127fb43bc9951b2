//! The settings of a memory server, on the command line and in a TOML file: the same settings under the same
//! names. The command line overrides the file.
//!
//! ```toml
//! listen = ["tcp://0.0.0.0:7000", "unix:/run/sherman.sock"]
//! memory = "8GiB"
//! id = 0
//! servers = 3
//! secret-file = "secret"      # beside this file, unless it begins with /
//! ```

use crate::failure::Failure;
use crate::serve::log::LogLevel;
use crate::serve::options::Listen;
use clap::Args;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The longest settings file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = sherman_layout::units::parse_bytes(text).map(Self);
        bytes.ok_or_else(|| "write a size, as in 512MiB or 8GiB".to_owned())
    }
}

/// Exact, in the largest unit without a fraction, in the syntax of the command line.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(bits, _)| self.0 > 0 && self.0.trailing_zeros() >= *bits) {
            Some((bits, unit)) => write!(f, "{}{unit}", self.0 >> bits),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sherman_layout::units::parse_time(text)
            .map(Self)
            .ok_or_else(|| "write a time, as in 500ms or 3s".to_owned())
    }
}

/// In the largest unit without a fraction, in the syntax of the command line.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        match units.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", nanos / unit),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// The settings of a memory server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServeSettings {
    /// Listen on this address: tcp://0.0.0.0:7000, unix:/path, or shm:/path to share the memory itself; may
    /// be given several times. With port 0 the system chooses a port. Or listen only on
    /// verbs://10.0.0.1:7000, to serve the memory through an RDMA NIC
    #[arg(long, value_name = "ADDRESS")]
    #[serde(deserialize_with = "one_or_several")]
    pub listen: Vec<Listen>,

    /// Serve this much memory [default: 1GiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "written")]
    pub memory: Option<Bytes>,

    /// Use this much extra memory for locks [default: 256KiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "written")]
    pub on_chip: Option<Bytes>,

    /// Set the number of this server, from 0, in the order of the cluster's URL [default: 0]
    #[arg(long, value_name = "N")]
    pub id: Option<u16>,

    /// Set the number of servers of the cluster [default: 1]
    #[arg(long, value_name = "N")]
    pub servers: Option<u16>,

    /// Name the cluster; all its servers need the same name [default: sherman]
    #[arg(long, value_name = "NAME")]
    pub cluster_name: Option<String>,

    /// Admit only clients that know the secret in this file
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,

    /// Listen on the network without a secret
    #[arg(long)]
    pub insecure: bool,

    /// Serve metrics at this address, as in 127.0.0.1:9100 [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    /// Keep the memory in this file: it survives the death of the process and a restart, but not a power
    /// loss. With --new-cluster or --join it is a folder
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Serve with this many threads, 1 to 256 [default: half the number of cores, at most 8]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Hand out memory in chunks of this size [default: 8MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "written")]
    pub chunk: Option<Bytes>,

    /// Declare a client dead when it has not renewed its lease for this time, 100ms to 1h; it renews three
    /// times in this time [default: 3s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "written")]
    pub lease: Option<Time>,

    /// Log to stderr only warnings for the operator (warn), or also which clients join, leave and die (info)
    /// [default: info]
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub log: Option<LogLevel>,

    /// Copy the lines of READs in random order, with pauses in between, for tests
    #[arg(long)]
    pub tear_reads: bool,

    /// Create a replicated cluster, and be its first host
    #[arg(long)]
    pub new_cluster: bool,

    /// Join the replicated cluster of these hosts, as in tcp://a:7000,b:7000
    #[arg(long, value_name = "URL")]
    pub join: Option<String>,

    /// Keep this many copies of every volume, 1 or 2; with --new-cluster [default: 2, or 1
    /// for a cluster of one host]
    #[arg(long, value_name = "N")]
    pub replicas: Option<u8>,

    /// Place the volumes when this many hosts have joined; with --new-cluster [default: --replicas,
    /// or 1]
    #[arg(long, value_name = "N")]
    pub hosts: Option<u16>,

    /// Divide the memory of the cluster into this many volumes; with --new-cluster [default: 12, or the next
    /// multiple of --hosts; fewer if the memory is small]
    #[arg(long, value_name = "N")]
    pub volumes: Option<u16>,

    /// Give each copy of a volume this much memory; with --new-cluster [default: what fits into --memory]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "written")]
    pub volume_memory: Option<Bytes>,

    /// Name this address to clients and other hosts; with --new-cluster or --join [default: the first
    /// --listen]
    #[arg(long, value_name = "ADDRESS")]
    pub advertise: Option<String>,

    /// Declare another host lost when it is silent for this time, the same for all hosts; with --new-cluster
    /// or --join [default: half a lease, at least 300ms]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "written")]
    pub detect: Option<Time>,
}

impl ServeSettings {
    /// Returns these settings. Settings that are missing here come from `others`.
    pub fn over(self, others: Self) -> Self {
        Self {
            listen: if self.listen.is_empty() { others.listen } else { self.listen },
            memory: self.memory.or(others.memory),
            on_chip: self.on_chip.or(others.on_chip),
            id: self.id.or(others.id),
            servers: self.servers.or(others.servers),
            cluster_name: self.cluster_name.or(others.cluster_name),
            secret_file: self.secret_file.or(others.secret_file),
            insecure: self.insecure || others.insecure,
            metrics: self.metrics.or(others.metrics),
            file: self.file.or(others.file),
            threads: self.threads.or(others.threads),
            chunk: self.chunk.or(others.chunk),
            lease: self.lease.or(others.lease),
            log: self.log.or(others.log),
            tear_reads: self.tear_reads || others.tear_reads,
            new_cluster: self.new_cluster || others.new_cluster,
            join: self.join.or(others.join),
            replicas: self.replicas.or(others.replicas),
            hosts: self.hosts.or(others.hosts),
            volumes: self.volumes.or(others.volumes),
            volume_memory: self.volume_memory.or(others.volume_memory),
            advertise: self.advertise.or(others.advertise),
            detect: self.detect.or(others.detect),
        }
    }

    /// Reads the settings in a file. Relative paths start at the directory of the file.
    pub fn from_file(path: &Path) -> Result<Self, Failure> {
        let failed = |reason: String| Failure::option("config", format!("{}: {reason}", path.display()));
        let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
        if size > MAX_FILE {
            return Err(failed(format!("the file has more than {MAX_FILE} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let settings = Self::from_toml(&text).map_err(failed)?;
        Ok(settings.beside(path.parent().unwrap_or(Path::new(""))))
    }

    /// Parses settings. Returns an error on one line.
    fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let said = error.message().lines().collect::<Vec<_>>().join(" ");
            let before = error.span().and_then(|span| text.get(..span.start));
            let Some(number) = before.map(|before| before.matches('\n').count()) else { return said };
            let line = text.lines().nth(number).unwrap_or_default().trim();
            format!("line {} ({line}): {said}", number + 1)
        })
    }

    fn beside(mut self, folder: &Path) -> Self {
        for path in [&mut self.secret_file, &mut self.file].into_iter().flatten() {
            *path = folder.join(&path);
        }
        for listen in &mut self.listen {
            if let Listen::Unix(path) | Listen::Shm(path) = listen {
                *path = folder.join(&path);
            }
        }
        self
    }
}

/// Reads a value in the syntax of the command line, or a number.
fn written<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(from: D) -> Result<Option<T>, D::Error> {
    struct Written<T>(PhantomData<T>);

    impl<T: FromStr<Err = String>> Visitor<'_> for Written<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a number, or the syntax of the command line in quotes")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }

    from.deserialize_any(Written(PhantomData)).map(Some)
}

/// Reads one address or a list of them.
fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Listen>, D::Error> {
    struct Several;

    impl<'de> Visitor<'de> for Several {
        type Value = Vec<Listen>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an address in quotes, or a list of them")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<Listen>, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Listen>, A::Error> {
            let mut several = Vec::new();
            while let Some(text) = list.next_element::<String>()? {
                several.push(text.parse().map_err(A::Error::custom)?);
            }
            Ok(several)
        }
    }

    from.deserialize_any(Several)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"
        listen = ["tcp://0.0.0.0:7000", "unix:/run/s.sock"]
        memory = "8GiB"
        on-chip = 65536
        id = 1
        servers = 3
        cluster-name = "orders"
        secret-file = "secret"
        insecure = false
        metrics = "127.0.0.1:9100"
        file = "/var/memory"
        threads = 4
        chunk = "1MiB"
        lease = "500ms"
        log = "warn"
        tear-reads = true
        new-cluster = true
        join = "tcp://a:7000"
        replicas = 1
        hosts = 5
        volumes = 6
        volume-memory = "1GiB"
        advertise = "tcp://b:7000"
        detect = "400ms"
    "#;

    fn all() -> ServeSettings {
        ServeSettings {
            listen: vec![
                "tcp://0.0.0.0:7000".parse().expect("one"),
                "unix:/run/s.sock".parse().expect("one"),
            ],
            memory: Some(Bytes(8 << 30)),
            on_chip: Some(Bytes(65_536)),
            id: Some(1),
            servers: Some(3),
            cluster_name: Some("orders".to_owned()),
            secret_file: Some("secret".into()),
            insecure: false,
            metrics: Some("127.0.0.1:9100".parse().expect("an address")),
            file: Some("/var/memory".into()),
            threads: Some(4),
            chunk: Some(Bytes(1 << 20)),
            lease: Some(Time(Duration::from_millis(500))),
            log: Some(LogLevel::Warn),
            tear_reads: true,
            new_cluster: true,
            join: Some("tcp://a:7000".to_owned()),
            replicas: Some(1),
            hosts: Some(5),
            volumes: Some(6),
            volume_memory: Some(Bytes(1 << 30)),
            advertise: Some("tcp://b:7000".to_owned()),
            detect: Some(Time(Duration::from_millis(400))),
        }
    }

    #[test]
    fn a_file_says_all_that_the_command_line_can() {
        assert_eq!(ServeSettings::from_toml(ALL), Ok(all()));
        assert_eq!(ServeSettings::from_toml(""), Ok(ServeSettings::default()));
        let one = ServeSettings::from_toml("listen = 'unix:/x'").expect("one address");
        assert_eq!(one.listen, [Listen::Unix("/x".into())]);
        // Every option has a line in the text above.
        let command = ServeSettings::augment_args(clap::Command::new("serve"));
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(ALL.contains(&format!("{option} = ")), "{option}");
        }
    }

    #[test]
    fn an_error_in_a_file_names_its_line_and_key() {
        for (text, words) in [
            ("id = 0\nmemry = '1GiB'", &["line 2 (memry = '1GiB')", "unknown field `memry`", "`memory`"][..]),
            ("on_chip = 1", &["unknown field `on_chip`", "`on-chip`"]),
            ("memory = 'lots'", &["line 1 (memory = 'lots')", "512MiB"]),
            ("memory = -1", &["memory", "size"]),
            ("memory = [1]", &["memory", "in quotes"]),
            ("lease = 3", &["lease", "500ms or 3s"]),
            ("listen = 7000", &["listen", "list of them"]),
            ("listen = ['7000']", &["listen", "tcp://0.0.0.0:7000"]),
            ("id = 65536", &["line 1 (id = 65536)"]),
            ("id = 0\nid = 1", &["line 2", "duplicate key"]),
            ("metrics = 'here'", &["metrics", "socket address"]),
            ("id = ", &["line 1"]),
            ("[server]\nid = 1", &["unknown field `server`"]),
        ] {
            let said = ServeSettings::from_toml(text).expect_err(text);
            assert!(!said.contains('\n') && words.iter().all(|word| said.contains(word)), "{text:?}: {said}");
        }
    }

    #[test]
    fn sizes_and_times_are_printed_as_the_command_line_takes_them() {
        for text in ["8GiB", "1536MiB", "256KiB", "100", "0"] {
            let bytes: Bytes = text.parse().expect("a size");
            assert_eq!(bytes.to_string(), text);
        }
        for text in ["3s", "500ms", "100us"] {
            let time: Time = text.parse().expect("a time");
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    #[test]
    fn the_command_line_wins_setting_by_setting() {
        let line = ServeSettings {
            listen: vec![Listen::Unix("/mine".into())],
            memory: Some(Bytes(1)),
            insecure: true,
            ..ServeSettings::default()
        };
        let both = line.clone().over(all());
        assert_eq!(both, ServeSettings { listen: line.listen, memory: line.memory, insecure: true, ..all() });
        assert_eq!(ServeSettings::default().over(all()), all());
        assert_eq!(all().over(ServeSettings { id: Some(9), ..ServeSettings::default() }), all());
    }

    #[test]
    fn relative_paths_begin_beside_the_file() {
        let settings = ServeSettings { listen: vec![Listen::Unix("s.sock".into())], ..all() }
            .beside(Path::new("/etc/s"));
        assert_eq!(settings.secret_file, Some("/etc/s/secret".into()));
        assert_eq!(settings.file, Some("/var/memory".into()));
        assert_eq!(settings.listen, [Listen::Unix("/etc/s/s.sock".into())]);
    }
}
