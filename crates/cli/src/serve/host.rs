//! `sherman serve --new-cluster` and `--join`: a host of a replicated cluster.

use super::watch;
use crate::failure::Failure;
use crate::output::print;
use crate::serve::config::{Bytes, ServeSettings, Time};
use crate::serve::group_text::group_text;
use crate::serve::host_file;
use crate::serve::log::LogLevel;
use crate::serve::options::{Listen, ServeOptions, check_lease};
use crate::serve::start::address;
use crate::serve::verbs::Nic;
use serde_json::json;
use sherman::Hosts;
use sherman_control::Address;
use sherman_control::auth::Secret;
use sherman_host::{ClusterSettings, Ended, HostCluster, HostError, HostOptions, RunningHost, parse_address};
use sherman_host::{CopyMaker, PrivateMemory, ServedMemory};
use sherman_layout::FormatOptions;
use sherman_metrics::{MetricsListener, server_text};
use sherman_shm::{ShmOptions, ShmPath};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

/// The shortest silence after which a host is declared lost.
const SHORTEST_DETECT: Duration = Duration::from_millis(50);
/// How many volumes a cluster has by default. One, two, three, four or six hosts share them evenly. More
/// would cost clients more: see `docs/DEVIATIONS.md`.
const USUAL_VOLUMES: u16 = 12;
/// By default a volume has room for so many chunks.
const LEAST_CHUNKS: u64 = 8;
/// Memory is divided into parts of whole pages.
const PAGE: u64 = 4096;

/// Which cluster the host belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// A new one.
    New(ClusterSettings),
    /// The one of these hosts.
    Join(Vec<Address>),
    /// The one of the host in the folder.
    Kept,
}

/// The options of a host that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostServeOptions {
    /// The addresses; at least one.
    pub listen: Vec<Listen>,
    /// The address that others use.
    pub advertise: Option<String>,
    /// Bytes of memory.
    pub memory: u64,
    /// The folder that keeps the memory.
    pub file: Option<PathBuf>,
    /// The cluster.
    pub cluster: Cluster,
    /// The file with the cluster's secret.
    pub secret_file: Option<PathBuf>,
    /// Whether clients may connect without a secret.
    pub insecure: bool,
    /// The address that serves metrics.
    pub metrics: Option<SocketAddr>,
    /// The number of threads; `None` lets the host choose.
    pub threads: Option<usize>,
    /// How long a host may be silent.
    pub detect: Option<Duration>,
    /// Which events go to stderr.
    pub log: LogLevel,
}

/// Copies that clients reach through a NIC.
#[derive(Debug)]
struct NicCopies(Nic);

impl CopyMaker for NicCopies {
    fn make(&self, settings: &ClusterSettings, cluster: u64, volume: u16) -> Result<ServedMemory, String> {
        let ServedMemory { host, .. } = PrivateMemory.make(settings, cluster, volume)?;
        let path = self.0.serve(Arc::clone(&host)).map_err(|error| error.to_string())?;
        Ok(ServedMemory { host, path: Some(path) })
    }
}

/// Copies whose memory clients on this machine map.
#[derive(Debug)]
struct SharedCopies {
    /// How long a client may be stopped in the middle of a change before fences of it are refused. Another
    /// host waits for such a fence, but not for as long as a host may be silent.
    patience: Duration,
}

impl CopyMaker for SharedCopies {
    fn make(&self, settings: &ClusterSettings, cluster: u64, volume: u16) -> Result<ServedMemory, String> {
        let (memory_bytes, on_chip_bytes) = (settings.volume_bytes, settings.on_chip_bytes);
        let patience = self.patience;
        let options = ShmOptions { memory_bytes, on_chip_bytes, patience, ..ShmOptions::default() };
        let format = settings.volume_format(cluster, volume);
        let made = ShmPath::format_volume(&options, &format, cluster);
        let (host, path) = made.map_err(|error| error.to_string())?;
        Ok(ServedMemory { host, path: Some(path) })
    }
}

impl HostServeOptions {
    /// The NIC through which clients reach the memory.
    fn nic(&self) -> Result<Option<Nic>, Failure> {
        let mut listen = self.listen.iter();
        listen
            .find_map(|listen| if let Listen::Verbs(verbs) = listen { Some(verbs) } else { None })
            .map(Nic::open)
            .transpose()
    }

    /// Whether clients map the memory.
    fn shares_memory(&self) -> bool {
        self.listen.iter().any(|listen| matches!(listen, Listen::Shm(_)))
    }

    /// Checks the settings. Returns the options of a host, or `None` if they are those of a plain server.
    pub fn new(settings: &ServeSettings) -> Result<Option<Self>, Failure> {
        let kept = host_file::find(settings)?;
        let seeds = match (settings.new_cluster, &settings.join) {
            (true, Some(_)) => {
                return Err(Failure::option("join", "it contradicts --new-cluster: give only one of them"));
            }
            (false, None) if kept.is_none() => return refuse_of_hosts(settings).map(|()| None),
            (_, None) => None,
            (false, Some(url)) => Some(seeds(url).map_err(|why| Failure::option("join", why))?),
        };
        refuse_of_servers(settings)?;
        let memory = settings.memory.or(kept.as_ref().map(|kept| Bytes(kept.memory_bytes)));
        if memory.is_none() {
            return Err(Failure::option("memory", "say how much memory this host offers, as in 8GiB"));
        }
        let plain = plain(&ServeSettings { memory, ..settings.clone() })?;
        let detect = settings.detect.map(|detect| detect.0);
        if detect.is_some_and(|detect| detect < SHORTEST_DETECT) {
            return Err(Failure::option("detect", "write 50ms or more: healthy hosts pause, too"));
        }
        if let Some(advertise) = &settings.advertise
            && parse_address(advertise).is_none()
        {
            return Err(Failure::option("advertise", "write tcp://host:port or unix:/path"));
        }
        let cluster = match (seeds, &kept) {
            (Some(seeds), _) => {
                refuse_of_new_clusters(settings)?;
                Cluster::Join(seeds)
            }
            (None, Some(kept)) => {
                host_file::check(settings, kept)?;
                Cluster::Kept
            }
            (None, None) => Cluster::New(new_cluster(settings, &plain)?),
        };
        Ok(Some(Self {
            listen: plain.listen,
            advertise: settings.advertise.clone(),
            memory: plain.memory,
            file: settings.file.clone(),
            cluster,
            secret_file: plain.secret_file,
            insecure: plain.insecure,
            metrics: plain.metrics,
            threads: plain.threads,
            detect,
            log: plain.log,
        }))
    }
}

/// Checks the settings that hosts and plain servers have in common.
fn plain(settings: &ServeSettings) -> Result<ServeOptions, Failure> {
    ServeOptions::new(ServeSettings {
        listen: settings.listen.clone(),
        secret_file: settings.secret_file.clone(),
        insecure: settings.insecure,
        memory: settings.memory,
        on_chip: settings.on_chip,
        chunk: settings.chunk,
        lease: settings.lease,
        cluster_name: settings.cluster_name.clone(),
        threads: settings.threads,
        metrics: settings.metrics,
        log: settings.log,
        ..ServeSettings::default()
    })
}

/// Refuses the first of these options that is given.
fn refuse(given: &[(&str, bool)], reason: &str) -> Result<(), Failure> {
    let first = given.iter().find(|(_, given)| *given);
    first.map_or(Ok(()), |(option, _)| Err(Failure::option(option, reason)))
}

/// Refuses options that only hosts have.
fn refuse_of_hosts(settings: &ServeSettings) -> Result<(), Failure> {
    let given = [
        ("replicas", settings.replicas.is_some()),
        ("hosts", settings.hosts.is_some()),
        ("volumes", settings.volumes.is_some()),
        ("volume-memory", settings.volume_memory.is_some()),
    ];
    refuse(&given, "only a new replicated cluster has it: give --new-cluster, too")?;
    let given = [("advertise", settings.advertise.is_some()), ("detect", settings.detect.is_some())];
    refuse(&given, "only a host of a replicated cluster has it: give --new-cluster or --join, too")
}

/// Refuses options that only plain servers have.
fn refuse_of_servers(settings: &ServeSettings) -> Result<(), Failure> {
    let given = [
        ("id", settings.id.is_some()),
        ("servers", settings.servers.is_some()),
        ("tear-reads", settings.tear_reads),
    ];
    refuse(&given, "a host of a replicated cluster does not have it: the cluster numbers its hosts itself")?;
    let shares = |listen: &Listen| matches!(listen, Listen::Shm(_));
    let first = settings.listen.first().is_some_and(shares);
    if settings.listen.iter().any(shares) && !first && settings.advertise.is_none() {
        let reason = "give the address shm: first: it is the one at which clients look for shared memory";
        return Err(Failure::option("listen", reason));
    }
    let verbs = |listen: &Listen| matches!(listen, Listen::Verbs(_));
    if settings.file.is_some() && settings.listen.iter().any(|listen| shares(listen) || verbs(listen)) {
        let reason = "memory that clients map (shm:) or reach through a NIC (verbs://) cannot lie in files: \
                      clients would go on writing to it after this process has ended. Leave --file out: the \
                      other hosts have the second copies";
        return Err(Failure::option("file", reason));
    }
    Ok(())
}

/// Refuses options that are fixed when a cluster is made.
fn refuse_of_new_clusters(settings: &ServeSettings) -> Result<(), Failure> {
    let given = [
        ("replicas", settings.replicas.is_some()),
        ("hosts", settings.hosts.is_some()),
        ("volumes", settings.volumes.is_some()),
        ("volume-memory", settings.volume_memory.is_some()),
        ("on-chip", settings.on_chip.is_some()),
        ("chunk", settings.chunk.is_some()),
        ("lease", settings.lease.is_some()),
        ("cluster-name", settings.cluster_name.is_some()),
    ];
    refuse(&given, "it was fixed when the cluster was made: leave it out with --join")
}

/// The settings of a new cluster.
fn new_cluster(settings: &ServeSettings, plain: &ServeOptions) -> Result<ClusterSettings, Failure> {
    if let Some(Time(lease)) = settings.lease {
        check_lease(lease)?;
    }
    let hosts = settings.hosts.or(settings.replicas.map(u16::from)).unwrap_or(1);
    // A single host has nowhere to put a second copy. The cluster may ask for one all the same: the second
    // host gets it.
    let replicas = settings.replicas.unwrap_or(if hosts == 1 { 1 } else { 2 });
    if !(1..=2).contains(&replicas) {
        return Err(Failure::option("replicas", "a volume has 1 or 2 copies"));
    }
    if !(1..=sherman_host::MOST_HOSTS).contains(&hosts) {
        let most = sherman_host::MOST_HOSTS;
        return Err(Failure::option("hosts", format!("write a number from 1 to {most}")));
    }
    if settings.volumes == Some(0) {
        return Err(Failure::option("volumes", "there must be at least one"));
    }
    let FormatOptions { memory_id, server, servers, .. } = FormatOptions::default();
    let format = FormatOptions { memory_id, server, servers, ..plain.format() };
    let on_chip_bytes = plain.on_chip;
    let mut cluster =
        ClusterSettings { replicas, volumes: hosts, hosts, volume_bytes: 0, on_chip_bytes, format };
    cluster.volumes = settings.volumes.unwrap_or_else(|| usual_volumes(cluster, settings, plain.memory));
    let copies = u64::from(cluster.copies_per_host()).max(1);
    cluster.volume_bytes = memory_of_volume(&cluster, settings, plain.memory);
    let Bytes(needed) = Bytes(cluster.bytes_per_host());
    if needed > plain.memory {
        let reason = format!(
            "{} are too few: this host gets {copies} copies of {}",
            Bytes(plain.memory),
            Bytes(cluster.volume_bytes)
        );
        return Err(Failure::option("memory", reason));
    }
    let planned = cluster.volume_format(1, 0).plan(cluster.volume_bytes, cluster.on_chip_bytes);
    let option = if settings.volume_memory.is_some() { "volume-memory" } else { "memory" };
    planned.map(|_| cluster).map_err(|error| Failure::option(option, format!("a volume: {error}")))
}

/// The memory of each volume, if a host has this memory.
fn memory_of_volume(cluster: &ClusterSettings, settings: &ServeSettings, memory: u64) -> u64 {
    let copies = u64::from(cluster.copies_per_host()).max(1);
    settings.volume_memory.map_or(memory / copies / PAGE * PAGE, |Bytes(bytes)| bytes)
}

/// How many volumes a cluster has by default: [`USUAL_VOLUMES`] or the next multiple of the hosts, but no
/// more than have room for some chunks each.
fn usual_volumes(cluster: ClusterSettings, settings: &ServeSettings, memory: u64) -> u16 {
    let hosts = cluster.hosts;
    let fits = |each: &u16| {
        let cluster = ClusterSettings { volumes: each * hosts, ..cluster };
        let bytes = memory_of_volume(&cluster, settings, memory);
        bytes >= LEAST_CHUNKS * cluster.format.chunk_bytes
            && bytes.saturating_mul(u64::from(cluster.copies_per_host())) <= memory
    };
    let most = USUAL_VOLUMES.div_ceil(hosts);
    (1..=most).rev().find(fits).unwrap_or(1) * hosts
}

/// The hosts that a URL names.
fn seeds(url: &str) -> Result<Vec<Address>, String> {
    let bad = || "write the addresses of hosts, as in tcp://a:7000,b:7000 or unix:/path".to_owned();
    // Hosts reach each other through the sockets, also where their clients map the memory.
    let schemes = [("tcp://", "tcp://"), ("unix:", "unix:"), ("shm:", "unix:"), ("verbs://", "tcp://")];
    let known = schemes.into_iter().find_map(|(given, scheme)| Some((scheme, url.strip_prefix(given)?)));
    let (scheme, list) = known.ok_or_else(bad)?;
    if list.contains('?') {
        return Err("write parameters as options, as in --secret-file".to_owned());
    }
    list.split(',').map(|place| parse_address(&format!("{scheme}{place}")).ok_or_else(bad)).collect()
}

/// Runs a host until `end`, or until it cannot go on. A host with a folder that was declared lost starts
/// again as a new one.
pub fn serve(
    options: &HostServeOptions,
    as_json: bool,
    tell: SyncSender<()>,
    end: &Receiver<()>,
) -> Result<(), Failure> {
    let mut options = options.clone();
    let mut is_first = true;
    loop {
        let host = start(&options)?;
        let metrics = serve_metrics(&options, &host)?;
        let handle = host.handle();
        watch(move || drop(handle.wait()), tell.clone())?;
        if std::mem::take(&mut is_first) {
            let metrics = metrics.as_ref().map(MetricsListener::address);
            print(&announcement(&options, &host, metrics, as_json))?;
        }
        // The next life listens where this one did.
        let actual = host.addresses().iter().map(|address| address.to_string().parse());
        options.listen = actual.collect::<Result<_, _>>().unwrap_or(options.listen);
        // The host also stops if all senders are gone.
        let _ = end.recv();
        host.stop();
        drop(metrics);
        match host.join() {
            Ok(Ended::Stopped | Ended::Left { .. }) => return Ok(()),
            Ok(why @ Ended::Lost { .. }) if options.file.is_some() => {
                tracing::warn!("{why}. Starting again, without the copies that it had");
            }
            Ok(why) => return Err(Failure::Runtime(why.to_string())),
            Err(error) => return Err(Failure::Runtime(error.to_string())),
        }
    }
}

fn serve_metrics(options: &HostServeOptions, host: &RunningHost) -> Result<Option<MetricsListener>, Failure> {
    let (stats, number) = (host.handle(), host.number());
    let all = move || {
        let hosts = stats.info().and_then(|info| Hosts::try_from(info).ok());
        let of_group = hosts.map(|hosts| group_text(&hosts, number));
        server_text(&stats.stats()) + &of_group.unwrap_or_default()
    };
    let listen = |address| MetricsListener::start(address, all);
    let metrics = options.metrics.map(listen).transpose();
    metrics.map_err(|error| Failure::Runtime(format!("--metrics: {error}")))
}

fn start(options: &HostServeOptions) -> Result<RunningHost, Failure> {
    let secret = options.secret_file.as_deref().map(Secret::from_file).transpose();
    let secret = secret.map_err(|error| Failure::option("secret-file", error))?;
    let nic = options.nic()?;
    let cluster = match &options.cluster {
        Cluster::New(settings) => {
            let mut settings = *settings;
            if let Some(nic) = &nic {
                settings.format.locks.width = nic.lane_width(settings.on_chip_bytes);
            }
            HostCluster::New(settings)
        }
        Cluster::Join(seeds) => HostCluster::Join { seeds: seeds.clone(), cluster: 0 },
        Cluster::Kept => HostCluster::Kept,
    };
    let listen = options.listen.iter().map(address).collect();
    let mut host = HostOptions::new(listen, options.memory, cluster);
    host.advertise = options.advertise.clone();
    (host.secret, host.insecure) = (secret, options.insecure);
    (host.shards, host.detect) = (options.threads, options.detect);
    host.file.clone_from(&options.file);
    if options.shares_memory() {
        let ShmOptions { patience, .. } = ShmOptions::default();
        let patience = options.detect.map_or(patience, |detect| patience.min(detect / 4));
        host.maker = Arc::new(SharedCopies { patience });
    }
    if let Some(nic) = nic {
        host.maker = Arc::new(NicCopies(nic));
    }
    RunningHost::start(host).map_err(|error| match error {
        HostError::Unspecified { .. } => Failure::option("advertise", error),
        HostError::Serve(error) => Failure::Runtime(format!("--listen: {error}")),
        HostError::Folder { .. } | HostError::NothingKept { .. } => {
            Failure::Runtime(format!("--file: {error}"))
        }
        HostError::AddressTaken { .. } => Failure::Runtime(format!("--advertise: {error}")),
        HostError::TooLittleMemory { .. } => Failure::Runtime(format!("--memory: {error}")),
        error if matches!(options.cluster, Cluster::Join(_)) => Failure::Runtime(format!("--join: {error}")),
        error => Failure::Runtime(error.to_string()),
    })
}

/// Describes the host and its addresses: one line of JSON, or text with one line per address.
fn announcement(
    options: &HostServeOptions,
    host: &RunningHost,
    metrics: Option<SocketAddr>,
    as_json: bool,
) -> String {
    let shown = |(asked, got): (&Listen, &sherman_host::Listen)| match asked {
        Listen::Shm(_) => asked.to_string(),
        Listen::Verbs(_) => got.to_string().replacen("tcp://", "verbs://", 1),
        _ => got.to_string(),
    };
    let addresses: Vec<String> = options.listen.iter().zip(host.addresses()).map(shown).collect();
    let (number, cluster, memory) = (host.number(), format!("{:016x}", host.cluster()), options.memory);
    if as_json {
        let pid = std::process::id();
        let said = json!({
            "host": number,
            "cluster": cluster,
            "listen": addresses,
            "metrics": metrics,
            "memory": memory,
            "pid": pid,
        });
        return format!("{said}\n");
    }
    let file = options.file.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
    let warning = if options.insecure {
        ", without a secret: every client that reaches it can change all data"
    } else {
        ""
    };
    let lacks = |settings: &ClusterSettings| u16::from(settings.replicas) > settings.hosts;
    let copies = match &options.cluster {
        Cluster::New(settings) if lacks(settings) => ", one copy of each volume until another host joins",
        _ => "",
    };
    let listening: String = addresses.iter().map(|address| format!("listening on {address}\n")).collect();
    let metrics =
        metrics.map_or_else(String::new, |address| format!("metrics at http://{address}/metrics\n"));
    format!("host {number} of cluster {cluster}: {memory} bytes{file}{copies}{warning}\n{metrics}{listening}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> ServeSettings {
        ServeSettings {
            listen: vec![Listen::Unix("/x".into())],
            memory: Some(Bytes(1 << 30)),
            new_cluster: true,
            ..ServeSettings::default()
        }
    }

    fn join() -> ServeSettings {
        ServeSettings { new_cluster: false, join: Some("tcp://a:7000,b:7000".to_owned()), ..new() }
    }

    fn host(settings: &ServeSettings) -> HostServeOptions {
        HostServeOptions::new(settings).expect("options").expect("a host")
    }

    #[test]
    fn a_new_cluster_is_a_host_alone_or_has_two_copies_on_hosts_that_fill_their_memory() {
        let Cluster::New(settings) = host(&new()).cluster else { panic!("a new cluster") };
        assert_eq!((settings.replicas, settings.hosts, settings.volumes), (1, 1, 12));
        assert!(settings.volume_bytes <= (1 << 30) / 12 && settings.volume_bytes > (1 << 30) / 12 - PAGE);
        assert_eq!(settings.on_chip_bytes, 256 << 10);
        let two = ServeSettings { replicas: Some(2), ..new() };
        let Cluster::New(settings) = host(&two).cluster else { panic!("a new cluster") };
        assert_eq!((settings.replicas, settings.hosts, settings.volumes), (2, 2, 12));
        assert!(settings.volume_bytes <= (1 << 30) / 12);
        let first = ServeSettings { hosts: Some(1), ..two };
        let Cluster::New(settings) = host(&first).cluster else { panic!("a new cluster") };
        assert_eq!((settings.replicas, settings.hosts), (2, 1));
        let three = ServeSettings { hosts: Some(3), volumes: Some(4), ..new() };
        let Cluster::New(settings) = host(&three).cluster else { panic!("a new cluster") };
        assert_eq!((settings.hosts, settings.volumes, settings.copies_per_host()), (3, 4, 4));
        assert!(settings.bytes_per_host() <= 1 << 30);
        let small = ServeSettings { volume_memory: Some(Bytes(64 << 20)), ..new() };
        let Cluster::New(settings) = host(&small).cluster else { panic!("a new cluster") };
        assert_eq!(settings.volume_bytes, 64 << 20);
    }

    #[test]
    fn hosts_share_the_usual_volumes_evenly_and_small_ones_have_fewer() {
        let volumes = |hosts, memory| {
            let settings = ServeSettings { hosts: Some(hosts), memory: Some(Bytes(memory)), ..new() };
            let settings = ServeSettings { replicas: Some(1), ..settings };
            let Cluster::New(settings) = host(&settings).cluster else { panic!("a new cluster") };
            assert!(settings.volumes.is_multiple_of(hosts) && settings.bytes_per_host() <= memory);
            settings.volumes
        };
        let large: Vec<u16> = (1..=7).map(|hosts| volumes(hosts, 64 << 30)).collect();
        assert_eq!(large, [12, 12, 12, 12, 15, 12, 14]);
        assert_eq!([1, 2, 3].map(|hosts| volumes(hosts, 256 << 20)), [4, 8, 12]);
        assert_eq!([1, 2, 3].map(|hosts| volumes(hosts, 64 << 20)), [1, 2, 3]);
    }

    #[test]
    fn a_host_joins_at_any_of_several_addresses() {
        let Cluster::Join(seeds) = host(&join()).cluster else { panic!("a cluster to join") };
        assert_eq!(seeds, ["a:7000", "b:7000"].map(|place| Address::Tcp(place.to_owned())));
        let unix = ServeSettings { join: Some("unix:/a,/b".to_owned()), ..join() };
        let Cluster::Join(seeds) = host(&unix).cluster else { panic!("a cluster to join") };
        assert_eq!(seeds, ["/a", "/b"].map(|path| Address::Unix(path.into())));
        let shm = ServeSettings { join: Some("shm:/a".to_owned()), ..join() };
        let Cluster::Join(seeds) = host(&shm).cluster else { panic!("a cluster to join") };
        assert_eq!(seeds, [Address::Unix("/a".into())]);
        let listen = vec![Listen::Shm("/x".into()), Listen::Unix("/y".into())];
        assert!(host(&ServeSettings { listen, ..join() }).shares_memory() && !host(&join()).shares_memory());
    }

    #[test]
    fn a_plain_server_is_no_host() {
        let plain = ServeSettings { new_cluster: false, ..new() };
        assert_eq!(HostServeOptions::new(&plain), Ok(None));
    }

    #[test]
    fn what_does_not_fit_a_host_is_refused_by_its_option() {
        let plain = || ServeSettings { new_cluster: false, ..new() };
        let verbs: Listen = "verbs://127.0.0.1:7000".parse().expect("an address");
        let late = vec![Listen::Unix("/y".into()), Listen::Shm("/x".into())];
        for (settings, option) in [
            (ServeSettings { join: Some("tcp://a:1".into()), ..new() }, "join"),
            (ServeSettings { id: Some(0), ..new() }, "id"),
            (ServeSettings { servers: Some(1), ..join() }, "servers"),
            (
                ServeSettings { listen: vec![Listen::Shm("/y".into())], file: Some("f".into()), ..new() },
                "file",
            ),
            (ServeSettings { listen: vec![verbs, Listen::Unix("/y".into())], ..new() }, "listen"),
            (ServeSettings { listen: late, ..new() }, "listen"),
            (ServeSettings { listen: Vec::new(), ..join() }, "listen"),
            (ServeSettings { memory: None, ..join() }, "memory"),
            (ServeSettings { memory: Some(Bytes(1 << 20)), ..new() }, "memory"),
            (ServeSettings { volumes: Some(512), ..new() }, "memory"),
            (ServeSettings { volume_memory: Some(Bytes(2 << 30)), ..new() }, "memory"),
            (ServeSettings { volume_memory: Some(Bytes(100)), ..new() }, "volume-memory"),
            (ServeSettings { replicas: Some(3), ..new() }, "replicas"),
            (ServeSettings { hosts: Some(0), ..new() }, "hosts"),
            (ServeSettings { hosts: Some(11), ..new() }, "hosts"),
            (ServeSettings { volumes: Some(0), ..new() }, "volumes"),
            (ServeSettings { lease: Some(Time(Duration::ZERO)), ..new() }, "lease"),
            (ServeSettings { detect: Some(Time(Duration::ZERO)), ..new() }, "detect"),
            (ServeSettings { advertise: Some("here".into()), ..new() }, "advertise"),
            (ServeSettings { replicas: Some(2), ..join() }, "replicas"),
            (ServeSettings { lease: Some(Time(Duration::from_secs(3))), ..join() }, "lease"),
            (ServeSettings { join: Some("a:7000".into()), ..join() }, "join"),
            (ServeSettings { join: Some("tcp://a:7000?secret-file=s".into()), ..join() }, "join"),
            (ServeSettings { hosts: Some(3), ..plain() }, "hosts"),
            (ServeSettings { detect: Some(Time(Duration::from_secs(1))), ..plain() }, "detect"),
        ] {
            let said = HostServeOptions::new(&settings).expect_err(option).to_string();
            assert!(said.starts_with(&format!("error: --{option}: ")), "{said}");
        }
    }
}
