//! The options of a host.

use crate::memory::{CopyMaker, PrivateMemory};
use sherman_control::{Address, Secret};
pub use sherman_group::MOST_HOSTS;
use sherman_memory_server::cluster::ClusterSettings;
use sherman_soft_nic::server::{Limits, Listen};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The shortest silence after which the leader declares a host lost, unless the options say otherwise.
const SHORTEST_DETECT: Duration = Duration::from_millis(300);

/// Which cluster a host belongs to.
#[derive(Clone, Debug)]
pub enum HostCluster {
    /// A new one, of which it is the first host.
    New(ClusterSettings),
    /// An existing one.
    Join {
        /// The addresses of some of its hosts.
        seeds: Vec<Address>,
        /// The identity of the cluster that is meant; 0 for any.
        cluster: u64,
    },
    /// The one of the host in the folder.
    Kept,
}

/// The options of a host.
#[derive(Debug)]
pub struct HostOptions {
    /// Where to listen; at least one address.
    pub listen: Vec<Listen>,
    /// Where clients and other hosts reach it. `None`: at the first address that it listens on.
    pub advertise: Option<String>,
    /// The secret that clients and hosts must prove; `None` for no secret.
    pub secret: Option<Secret>,
    /// Whether to listen where other machines can reach it, although there is no secret.
    pub insecure: bool,
    /// How many threads serve connections; `None`: as suits this machine.
    pub shards: Option<usize>,
    /// Bytes of memory that it offers to copies of volumes.
    pub memory_bytes: u64,
    /// The cluster.
    pub cluster: HostCluster,
    /// The folder with its memory and its part of the group, so that they outlive the process. If it has a
    /// host, this process goes on as that one, whatever `cluster` says. `None`: they end with the process.
    pub file: Option<PathBuf>,
    /// How long a host may be silent before the leader declares it lost. `None`: half a lease, but at least
    /// 300 ms. All hosts of a cluster should have the same.
    pub detect: Option<Duration>,
    /// How long the host tries to reach its cluster, when it starts.
    pub patience: Duration,
    /// The limits for clients.
    pub limits: Limits,
    /// Makes the memory of copies.
    pub maker: Arc<dyn CopyMaker>,
}

impl HostOptions {
    /// Options for a host that listens there, without a secret.
    pub fn new(listen: Vec<Listen>, memory_bytes: u64, cluster: HostCluster) -> Self {
        Self {
            listen,
            advertise: None,
            secret: None,
            insecure: false,
            shards: None,
            memory_bytes,
            cluster,
            file: None,
            detect: None,
            patience: Duration::from_secs(10),
            limits: Limits::default(),
            maker: Arc::new(PrivateMemory),
        }
    }

    /// How long a host may be silent in a cluster with such leases.
    pub(crate) fn detect(&self, lease_nanos: u64) -> Duration {
        self.detect.unwrap_or_else(|| Duration::from_nanos(lease_nanos / 2).max(SHORTEST_DETECT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_be_silent_for_half_a_lease() {
        let cluster = HostCluster::Join { seeds: Vec::new(), cluster: 0 };
        let mut options = HostOptions::new(Vec::new(), 0, cluster);
        assert_eq!(options.detect(3_000_000_000), Duration::from_millis(1500));
        assert_eq!(options.detect(100_000_000), SHORTEST_DETECT);
        options.detect = Some(Duration::from_millis(20));
        assert_eq!(options.detect(3_000_000_000), Duration::from_millis(20));
    }
}
