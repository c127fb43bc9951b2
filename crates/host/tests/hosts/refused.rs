//! Hosts that get no place.

use crate::common::{Folder, cluster, join_at, options, settings};
use sherman_control::Address;
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_host::{HostCluster, HostError, Listen, RunningHost};
use sherman_soft_nic::server::{ServerOptions, SoftNicServer};
use std::sync::Arc;
use std::time::Duration;

fn start(folder: &Folder, cluster: HostCluster) -> Result<RunningHost, HostError> {
    let mut options = options(&folder.socket("new"), cluster);
    options.patience = Duration::from_millis(500);
    RunningHost::start(options)
}

#[test]
fn a_host_of_another_cluster_is_refused() {
    let (one, two) = (Folder::new(), Folder::new());
    let _first = cluster(&one, &["a"], settings(2, 2));
    let second = cluster(&two, &["a"], settings(2, 2));
    let meant = second[0].cluster();
    let seeds = vec![Address::Unix(one.socket("a"))];
    let refused = start(&one, HostCluster::Join { seeds, cluster: meant });
    assert!(matches!(refused, Err(HostError::OtherCluster { meant: named, .. }) if named == meant));
    let seeds = vec![Address::Unix("/nowhere".into()), Address::Unix(two.socket("a"))];
    let joined = start(&one, HostCluster::Join { seeds, cluster: meant });
    assert_eq!(joined.expect("a place").cluster(), meant);
}

#[test]
fn a_host_with_too_little_memory_is_refused() {
    let folder = Folder::new();
    let _first = cluster(&folder, &["a"], settings(2, 2));
    let mut little = options(&folder.socket("b"), join_at(&folder.socket("a")));
    little.memory_bytes = 1 << 20;
    let refused = RunningHost::start(little);
    assert!(matches!(refused, Err(HostError::TooLittleMemory { offered: 1_048_576 })));
    let mut little = options(&folder.socket("b"), HostCluster::New(settings(2, 2)));
    little.memory_bytes = 1 << 20;
    assert!(matches!(RunningHost::start(little), Err(HostError::TooLittleMemory { .. })));
}

#[test]
fn a_cluster_that_is_not_there_and_one_without_replication_are_told_apart() {
    let folder = Folder::new();
    let gone = start(&folder, join_at(&folder.socket("gone")));
    assert!(matches!(gone, Err(HostError::Unreachable { .. })), "{gone:?}");
    let none = start(&folder, HostCluster::Join { seeds: Vec::new(), cluster: 0 });
    assert!(matches!(none, Err(HostError::NoSeeds)));
    let region = Region::new(64 << 20, 256 << 10, Atomicity::Line, CopyPath::fastest()).expect("memory");
    let host = Arc::new(Host::format(region, &Default::default()).expect("a host"));
    let listen = vec![Listen::Unix(folder.socket("plain"))];
    let _plain = SoftNicServer::start(ServerOptions::new(host, listen)).expect("a server");
    let plain = start(&folder, join_at(&folder.socket("plain")));
    assert!(matches!(plain, Err(HostError::NotAHost { .. })), "{plain:?}");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = Folder::new();
    let three = sherman_host::ClusterSettings { replicas: 3, ..settings(3, 3) };
    assert!(matches!(start(&folder, HostCluster::New(three)), Err(HostError::Settings(_))));
    let mut large = settings(3, 3);
    large.format.member_capacity = 65_535;
    large.format.catalog_capacity = 65_536;
    assert!(matches!(start(&folder, HostCluster::New(large)), Err(HostError::Settings(_))));
    assert!(matches!(start(&folder, HostCluster::New(settings(11, 1))), Err(HostError::TooManyHosts { .. })));
    let mut everywhere = options(&folder.socket("new"), HostCluster::New(settings(2, 2)));
    everywhere.listen = vec![Listen::Tcp("0.0.0.0:7000".into())];
    assert!(matches!(RunningHost::start(everywhere), Err(HostError::Unspecified { .. })));
    assert!(!folder.path().join("new").exists());
}
