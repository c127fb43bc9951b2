//! Memory servers of a replicated cluster inside this process, which a test can let die.

use crate::any::AnyFabric;
use crate::cluster::Cluster;
use crate::error::OpenError;
use crate::hosts::Hosts;
use sherman_core::Error;
use sherman_embedded::ReplicatedCluster;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval of looks in [`LocalHosts::wait_until_whole`].
const LOOKS: Duration = Duration::from_millis(1);

/// The memory servers of a cluster that keeps its data twice in this process (`embedded:?replicas=2`). A test
/// can let one of them die, and see what its program does then.
///
/// The rules are those of servers in processes of their own. The others take over, and no acknowledged change
/// is lost. Operations wait meanwhile, for some milliseconds or as long as a lease. The data has one copy
/// then, until there is memory for a second one. If the last copy of some data is lost, operations fail.
///
/// ```
/// # use std::time::Duration;
/// let cluster = sherman::Cluster::open("embedded:?servers=3&replicas=2&memory=64MiB&lease=200ms")?;
/// let orders = cluster.tree::<u64, u64>("orders")?.client()?;
/// orders.insert(7, 700)?;
///
/// let servers = cluster.local_hosts().ok_or("not a replicated cluster in this process")?;
/// servers.lose(0)?;
/// assert_eq!(orders.get(7)?, Some(700));
///
/// servers.add()?;
/// assert!(servers.wait_until_whole(Duration::from_secs(10)));
/// servers.lose(1)?;
/// assert_eq!(orders.get(7)?, Some(700));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LocalHosts {
    cluster: Arc<ReplicatedCluster>,
}

impl Cluster {
    /// The memory servers of a replicated cluster inside this process. `None` for every other cluster.
    pub fn local_hosts(&self) -> Option<LocalHosts> {
        match &self.shared().current().fabric {
            AnyFabric::Replicated(fabric) => Some(LocalHosts { cluster: Arc::clone(fabric.cluster()) }),
            _ => None,
        }
    }
}

impl LocalHosts {
    /// Lets a memory server die: its memory is gone, and the others take over at once. Does nothing to a
    /// server that has died before.
    ///
    /// # Errors
    /// [`Error::Refused`] if there never was a server with this number.
    pub fn lose(&self, id: u16) -> Result<(), Error> {
        Ok(self.cluster.lose_host(id)?)
    }

    /// Adds an empty memory server, and returns its number. Data with one copy gets another one there, in the
    /// background. The number of a server that has died is not used again.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has no memory for it.
    pub fn add(&self) -> Result<u16, Error> {
        Ok(self.cluster.add_host()?)
    }

    /// The servers, dead ones too, and where the copies of each volume lie.
    ///
    /// # Errors
    /// None, as long as this program does not overwrite the memory of the servers.
    pub fn status(&self) -> Result<Hosts, OpenError> {
        Hosts::try_from(self.cluster.info())
    }

    /// Whether all data has two copies and can be used.
    pub fn is_whole(&self) -> bool {
        self.cluster.is_whole()
    }

    /// Waits until [`is_whole`](Self::is_whole), for this time at most. Returns whether it is.
    pub fn wait_until_whole(&self, limit: Duration) -> bool {
        let began = Instant::now();
        while !self.is_whole() && began.elapsed() < limit {
            std::thread::sleep(LOOKS);
        }
        self.is_whole()
    }
}
