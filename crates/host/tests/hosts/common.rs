//! Clusters for tests.

use sherman_control::Address;
use sherman_control::client::PeerConnection;
use sherman_control::wire::Role;
use sherman_fabric::group::ClusterInfo;
use sherman_fabric::{Call, FabricError, calls};
use sherman_host::{ClusterSettings, HostCluster, HostError, HostOptions, Listen, RunningHost};
use sherman_layout::{FormatOptions, LockOptions};
use sherman_replica::VolumeTable;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a host of these tests may be silent.
pub(crate) const DETECT: Duration = Duration::from_millis(500);
/// How long these tests wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sherman-hosts-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The socket of a host.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn settings(hosts: u16, volumes: u16) -> ClusterSettings {
    let format = FormatOptions {
        chunk_bytes: 64 << 10,
        member_capacity: 64,
        catalog_capacity: 8,
        redo_area_bytes: 64 << 10,
        redo_slot_bytes: 4 << 10,
        lease_nanos: 400_000_000,
        locks: LockOptions { lanes: Some(1024), ..LockOptions::default() },
        ..FormatOptions::default()
    };
    ClusterSettings { replicas: 2, volumes, hosts, volume_bytes: 4 << 20, on_chip_bytes: 8 << 10, format }
}

pub(crate) fn options(socket: &Path, cluster: HostCluster) -> HostOptions {
    let mut options = HostOptions::new(vec![Listen::Unix(socket.to_owned())], 64 << 20, cluster);
    options.shards = Some(1);
    options.detect = Some(DETECT);
    options
}

pub(crate) fn join_at(socket: &Path) -> HostCluster {
    HostCluster::Join { seeds: vec![Address::Unix(socket.to_owned())], cluster: 0 }
}

/// Starts a host that joins at another one.
pub(crate) fn join(folder: &Folder, name: &str, seed: &str) -> Result<RunningHost, HostError> {
    RunningHost::start(options(&folder.socket(name), join_at(&folder.socket(seed))))
}

/// Starts a host that joins at another one, with this much memory for copies.
pub(crate) fn join_with(folder: &Folder, name: &str, seed: &str, bytes: u64) -> RunningHost {
    let options = options(&folder.socket(name), join_at(&folder.socket(seed)));
    RunningHost::start(HostOptions { memory_bytes: bytes, ..options }).expect("a new host")
}

/// Starts a cluster of `names`, the first of which makes it.
pub(crate) fn cluster(folder: &Folder, names: &[&str], settings: ClusterSettings) -> Vec<RunningHost> {
    cluster_with(folder, names, settings, 64 << 20)
}

/// The same, of hosts with this much memory for copies.
pub(crate) fn cluster_with(
    folder: &Folder,
    names: &[&str],
    settings: ClusterSettings,
    bytes: u64,
) -> Vec<RunningHost> {
    let options = options(&folder.socket(names[0]), HostCluster::New(settings));
    let first = RunningHost::start(HostOptions { memory_bytes: bytes, ..options }).expect("the first host");
    let others = names[1..].iter().map(|name| join_with(folder, name, names[0], bytes));
    std::iter::once(first).chain(others).collect()
}

/// Asks the host at `socket`.
pub(crate) fn ask<C: Call>(socket: &Path, role: Role, call: C) -> Result<C::Reply, FabricError> {
    let address = Address::Unix(socket.to_owned());
    let connection = PeerConnection::open(&address, None, role, ANSWER);
    let connection = connection.map_err(|_| FabricError::Disconnected { server: 0 })?;
    let answer = connection.ask(&call.request(), ANSWER);
    answer.map_err(|_| FabricError::Disconnected { server: 0 })?.and_then(C::expect)
}

/// What a host knows about its cluster.
pub(crate) fn info(folder: &Folder, name: &str) -> Option<ClusterInfo> {
    ask(&folder.socket(name), Role::Newcomer, calls::Cluster).ok()
}

pub(crate) fn table(info: &ClusterInfo) -> VolumeTable {
    VolumeTable::decode(&info.table).expect("a table")
}

/// Waits until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until every one of `names` knows a cluster of which `holds` is true, with the same leader.
pub(crate) fn agree(
    folder: &Folder,
    names: &[&str],
    what: &str,
    holds: impl Fn(&ClusterInfo) -> bool,
) -> ClusterInfo {
    wait_for(what, || {
        let infos: Option<Vec<ClusterInfo>> = names.iter().map(|name| info(folder, name)).collect();
        let infos = infos?;
        let leader = infos[0].leader.clone()?;
        let same = infos.iter().all(|info| info.leader.as_ref() == Some(&leader) && holds(info));
        same.then(|| infos[0].clone())
    })
}

/// The place in `names` of the host that leads.
pub(crate) fn leader_of(folder: &Folder, names: &[&str], info: &ClusterInfo) -> usize {
    let leader = info.leader.as_deref().expect("a leader");
    let is_it = |name: &&str| leader == format!("unix:{}", folder.socket(name).display());
    names.iter().position(is_it).expect("the leader is one of them")
}
