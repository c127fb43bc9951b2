//! One enum over the real backends, so that users of a cluster need not name its backend.
//!
//! It costs one match per verb list: every call below is inlined into the backend's call.

mod endpoint;

pub use endpoint::AnyEndpoint;

use crate::builder::Place;
use crate::error::OpenError;
use crate::url;
#[cfg(target_os = "linux")]
use sherman_control::{CopyPlan, JoinError, JoinOptions};
use sherman_core::{ComputeServer, Error};
use sherman_embedded::{EmbeddedCluster, EmbeddedFabric, ReplicatedCluster, ReplicatedFabric};
use sherman_fabric::{Fabric, FabricError};
use sherman_replica::VolumeTable;
#[cfg(target_os = "linux")]
use sherman_replica::{LaneTable, ReplicatedEndpoint};
#[cfg(target_os = "linux")]
use sherman_shm::ShmFabric;
use sherman_soft_nic::SoftNicFabric;
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::{VerbsFabric, VerbsOptions};
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

/// The pause before another attempt to join hosts, one of which cannot be reached.
#[cfg(target_os = "linux")]
const JOIN_PAUSE: Duration = Duration::from_millis(50);

/// One compute server's access to a cluster, below the tree. It is for tools that post verbs themselves.
/// Clones share the identity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyFabric {
    /// Memory servers in this process.
    Embedded(EmbeddedFabric),
    /// Hosts in this process, which keep volumes in two copies.
    Replicated(ReplicatedFabric),
    /// Memory servers in other processes, and the options to join them again under another identity.
    #[cfg(target_os = "linux")]
    SoftNic(SoftNicFabric, Box<JoinOptions>),
    /// Hosts, the table of volumes that this identity uses until it ends (rule E), and the options to join
    /// again.
    #[cfg(target_os = "linux")]
    Hosts(SoftNicFabric, Arc<VolumeTable>, Box<JoinOptions>),
    /// Memory servers in other processes of this host. The client maps their memory.
    #[cfg(target_os = "linux")]
    Shm(ShmFabric, Box<JoinOptions>),
    /// Hosts of this machine, whose copies the client maps. Otherwise as `Hosts`.
    #[cfg(target_os = "linux")]
    ShmHosts(ShmFabric, Arc<VolumeTable>, Box<JoinOptions>),
    /// Memory servers whose memory is reached through a NIC, and the options to join them again.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(VerbsFabric, Box<JoinOptions>, Box<VerbsOptions>),
    /// Hosts whose copies are reached through a NIC. Otherwise as `Hosts`.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    VerbsHosts(VerbsFabric, Arc<VolumeTable>, Box<JoinOptions>, Box<VerbsOptions>),
}

impl AnyFabric {
    /// Joins the cluster at `url` as a compute server without a keeper thread. The caller renews the lease
    /// itself, or does without (`Request::Renew`).
    pub fn open(url: &str) -> Result<Self, OpenError> {
        Self::join(url::parse(url)?)
    }

    /// Joins the cluster at `place`.
    pub(crate) fn join(place: Place) -> Result<Self, OpenError> {
        match place {
            Place::Embedded(options) => {
                let cluster = EmbeddedCluster::new(options)?;
                Ok(Self::Embedded(cluster.join().map_err(Error::from)?))
            }
            Place::Replicated(options) => {
                let cluster = ReplicatedCluster::new(options)?;
                Ok(Self::Replicated(cluster.join().map_err(Error::from)?))
            }
            #[cfg(target_os = "linux")]
            Place::SoftNic(options) => Self::join_soft_nic(options, true),
            #[cfg(target_os = "linux")]
            Place::Shm(options) => Self::join_shm(options, true),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Place::Verbs(options, verbs) => Self::join_verbs(options, verbs, true),
        }
    }

    /// As `join_soft_nic`, and maps the memory.
    #[cfg(target_os = "linux")]
    fn join_shm(options: Box<JoinOptions>, first: bool) -> Result<Self, OpenError> {
        if !ShmFabric::is_group(&options)? {
            return Ok(Self::Shm(ShmFabric::join(&options)?, options));
        }
        until_it_passes(&options, first, || Self::join_shm_hosts(options.clone()))
    }

    /// Joins plain memory servers, or hosts. The first time it waits for hosts that are about to lose one of
    /// them; a keeper tries again by itself.
    #[cfg(target_os = "linux")]
    fn join_soft_nic(options: Box<JoinOptions>, first: bool) -> Result<Self, OpenError> {
        if !SoftNicFabric::is_group(&options)? {
            return Ok(Self::SoftNic(SoftNicFabric::join(&options)?, options));
        }
        until_it_passes(&options, first, || Self::join_hosts(options.clone()))
    }

    #[cfg(all(feature = "verbs", target_os = "linux"))]
    fn join_verbs(
        options: Box<JoinOptions>,
        verbs: Box<VerbsOptions>,
        first: bool,
    ) -> Result<Self, OpenError> {
        if !VerbsFabric::is_group(&options)? {
            return Ok(Self::Verbs(VerbsFabric::join(&options, &verbs)?, options, verbs));
        }
        let join = || Self::join_verbs_hosts(options.clone(), verbs.clone());
        until_it_passes(&options, first, join)
    }

    #[cfg(all(feature = "verbs", target_os = "linux"))]
    fn join_verbs_hosts(options: Box<JoinOptions>, verbs: Box<VerbsOptions>) -> Result<Self, OpenError> {
        let fabric = VerbsFabric::join_group(&options, &verbs, plan)?;
        let table = table_of(fabric.table())?;
        Ok(Self::VerbsHosts(fabric, table, options, verbs))
    }

    #[cfg(target_os = "linux")]
    fn join_hosts(options: Box<JoinOptions>) -> Result<Self, OpenError> {
        let fabric = SoftNicFabric::join_group(&options, plan)?;
        let table = table_of(fabric.table())?;
        Ok(Self::Hosts(fabric, table, options))
    }

    #[cfg(target_os = "linux")]
    fn join_shm_hosts(options: Box<JoinOptions>) -> Result<Self, OpenError> {
        let fabric = ShmFabric::join_group(&options, plan)?;
        let table = table_of(fabric.table())?;
        Ok(Self::ShmHosts(fabric, table, options))
    }

    /// The table of volumes that this identity uses; `None` without replication.
    pub(crate) fn table(&self) -> Option<&Arc<VolumeTable>> {
        match self {
            Self::Replicated(fabric) => Some(fabric.table()),
            #[cfg(target_os = "linux")]
            Self::Hosts(_, table, _) | Self::ShmHosts(_, table, _) => Some(table),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::VerbsHosts(_, table, ..) => Some(table),
            _ => None,
        }
    }

    /// The incarnation of this identity's id, if its cluster has a table of volumes.
    pub(crate) fn incarnation(&self) -> Option<u32> {
        match self {
            Self::Replicated(fabric) => Some(fabric.incarnation()),
            #[cfg(target_os = "linux")]
            Self::Hosts(fabric, ..) => Some(fabric.incarnation()),
            #[cfg(target_os = "linux")]
            Self::ShmHosts(fabric, ..) => Some(fabric.incarnation()),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::VerbsHosts(fabric, ..) => Some(fabric.incarnation()),
            _ => None,
        }
    }

    /// Ends the identity of `compute` as soon as its cluster has a newer table (E1). Other clusters tell the
    /// keeper when it renews the lease.
    pub(crate) fn end_with_epoch(&self, compute: &Arc<ComputeServer>) {
        if let Self::Replicated(fabric) = self {
            let (client, compute) = (fabric.client(), Arc::downgrade(compute));
            fabric.on_epoch_end(move || {
                if let Some(compute) = compute.upgrade() {
                    compute.note_failure(&FabricError::EpochEnded { client });
                }
            });
        }
    }

    /// Joins the same memory servers under another identity.
    pub fn join_again(&self) -> Result<Self, OpenError> {
        match self {
            Self::Embedded(fabric) => Ok(Self::Embedded(fabric.cluster().join().map_err(Error::from)?)),
            Self::Replicated(fabric) => Ok(Self::Replicated(fabric.cluster().join().map_err(Error::from)?)),
            #[cfg(target_os = "linux")]
            Self::SoftNic(_, options) => Self::join_soft_nic(options.clone(), false),
            #[cfg(target_os = "linux")]
            Self::Hosts(fabric, _, options) => {
                // Hosts that joined since are as good to ask as those that the caller named.
                let servers = fabric.seeds();
                Self::join_hosts(Box::new(JoinOptions { servers, ..(**options).clone() }))
            }
            #[cfg(target_os = "linux")]
            Self::Shm(_, options) => Self::join_shm(options.clone(), false),
            #[cfg(target_os = "linux")]
            Self::ShmHosts(fabric, _, options) => {
                let servers = fabric.seeds();
                Self::join_shm_hosts(Box::new(JoinOptions { servers, ..(**options).clone() }))
            }
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(_, options, verbs) => Self::join_verbs(options.clone(), verbs.clone(), false),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::VerbsHosts(fabric, _, options, verbs) => {
                let servers = fabric.seeds();
                let options = JoinOptions { servers, ..(**options).clone() };
                Self::join_verbs_hosts(Box::new(options), verbs.clone())
            }
        }
    }

    /// Refuses `other`, which joined the same addresses, if it joined another cluster. A server 0 that was
    /// restarted empty is another cluster.
    pub(crate) fn expect_same_cluster(&self, other: &Self) -> Result<(), OpenError> {
        match (self, other) {
            #[cfg(target_os = "linux")]
            (Self::SoftNic(ours, options), Self::SoftNic(theirs, _)) => {
                same_cluster(ours.cluster_id(), theirs.cluster_id(), options)
            }
            #[cfg(target_os = "linux")]
            (Self::Hosts(ours, _, options), Self::Hosts(theirs, ..)) => {
                same_cluster(ours.cluster_id(), theirs.cluster_id(), options)
            }
            #[cfg(target_os = "linux")]
            (Self::Shm(ours, options), Self::Shm(theirs, _))
            | (Self::ShmHosts(ours, _, options), Self::ShmHosts(theirs, ..)) => {
                same_cluster(ours.cluster_id(), theirs.cluster_id(), options)
            }
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            (Self::Verbs(ours, options, _), Self::Verbs(theirs, ..))
            | (Self::VerbsHosts(ours, _, options, _), Self::VerbsHosts(theirs, ..)) => {
                same_cluster(ours.cluster_id(), theirs.cluster_id(), options)
            }
            _ => Ok(()),
        }
    }

    /// Gives up the copies that the table of `next` does not name. Lists in flight to them would end only
    /// when a silent host is given up, long after other clients have gone on.
    pub(crate) fn drop_copies(&self, next: &Self) {
        let (Some(former), Some(table)) = (self.table(), next.table()) else { return };
        let dropped = |copy: &u16| former.of_copy(*copy).is_some() && table.of_copy(*copy).is_none();
        for copy in (0..former.sites().len() as u16).filter(dropped) {
            match self {
                #[cfg(target_os = "linux")]
                Self::Hosts(fabric, ..) => fabric.drop_copy(copy),
                #[cfg(target_os = "linux")]
                Self::ShmHosts(fabric, ..) => fabric.drop_copy(copy),
                #[cfg(all(feature = "verbs", target_os = "linux"))]
                Self::VerbsHosts(fabric, ..) => fabric.drop_copy(copy),
                _ => {}
            }
        }
    }

    /// Marks the identity as ended. Endpoints dropped from now on do not wait for their lists in flight.
    pub(crate) fn end(&self) {
        match self {
            Self::Embedded(_) | Self::Replicated(_) => {}
            #[cfg(target_os = "linux")]
            Self::SoftNic(fabric, _) | Self::Hosts(fabric, ..) => fabric.end(),
            #[cfg(target_os = "linux")]
            Self::Shm(fabric, _) | Self::ShmHosts(fabric, ..) => fabric.end(),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(fabric, ..) | Self::VerbsHosts(fabric, ..) => fabric.end(),
        }
    }

    /// A new endpoint, for the calling thread.
    pub fn endpoint(&self) -> Result<AnyEndpoint, FabricError> {
        match self {
            Self::Embedded(fabric) => Ok(AnyEndpoint::Embedded(fabric.endpoint())),
            Self::Replicated(fabric) => Ok(AnyEndpoint::Replicated(Box::new(fabric.endpoint()?))),
            #[cfg(target_os = "linux")]
            Self::SoftNic(fabric, _) => Ok(AnyEndpoint::SoftNic(fabric.endpoint()?)),
            #[cfg(target_os = "linux")]
            Self::Hosts(fabric, table, _) => {
                let endpoint = fabric.endpoint()?;
                let volumes = ReplicatedEndpoint::new(endpoint, Arc::clone(table), LaneTable::OnChip)?;
                Ok(AnyEndpoint::Hosts(Box::new(volumes)))
            }
            #[cfg(target_os = "linux")]
            Self::Shm(fabric, _) => Ok(AnyEndpoint::Shm(fabric.endpoint()?)),
            #[cfg(target_os = "linux")]
            Self::ShmHosts(fabric, table, _) => {
                let endpoint = fabric.endpoint()?;
                let volumes = ReplicatedEndpoint::new(endpoint, Arc::clone(table), LaneTable::OnChip)?;
                Ok(AnyEndpoint::ShmHosts(Box::new(volumes)))
            }
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(fabric, ..) => Ok(AnyEndpoint::Verbs(Box::new(fabric.endpoint()?))),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::VerbsHosts(fabric, table, ..) => {
                let endpoint = fabric.endpoint()?;
                let volumes = ReplicatedEndpoint::new(endpoint, Arc::clone(table), LaneTable::OnChip)?;
                Ok(AnyEndpoint::VerbsHosts(Box::new(volumes)))
            }
        }
    }

    /// Disconnects without leaving in order. The compute server may still hold lanes, so its id must not be
    /// free before another client has recovered it.
    pub(crate) fn abandon(&self) {
        match self {
            Self::Embedded(fabric) => fabric.halt(0),
            Self::Replicated(fabric) => fabric.halt(0),
            #[cfg(target_os = "linux")]
            Self::SoftNic(fabric, _) | Self::Hosts(fabric, ..) => fabric.abandon(),
            #[cfg(target_os = "linux")]
            Self::Shm(fabric, _) | Self::ShmHosts(fabric, ..) => fabric.abandon(),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(fabric, ..) | Self::VerbsHosts(fabric, ..) => fabric.abandon(),
        }
    }
}

/// Joins hosts, and the first time waits while one of them cannot be reached.
#[cfg(target_os = "linux")]
fn until_it_passes(
    options: &JoinOptions,
    first: bool,
    join: impl Fn() -> Result<AnyFabric, OpenError>,
) -> Result<AnyFabric, OpenError> {
    let until = Instant::now() + options.connect_timeout;
    loop {
        let began = Instant::now();
        match join() {
            // An attempt that took long, because nobody leads, would take as long again.
            Err(error) if first && error.may_pass() && Instant::now() + began.elapsed() < until => {
                std::thread::sleep(JOIN_PAUSE);
            }
            joined => return joined,
        }
    }
}

/// The hosts of the copies that a table names.
#[cfg(target_os = "linux")]
fn plan(bytes: &[u8]) -> Option<CopyPlan> {
    let table = VolumeTable::decode(bytes).ok()?;
    let hosts = (0..).zip(table.sites());
    let copies = hosts.map(|(copy, site)| table.of_copy(copy).map(|_| site.host)).collect();
    Some(CopyPlan { epoch: table.epoch(), copies })
}

#[cfg(target_os = "linux")]
fn table_of(bytes: Option<&[u8]>) -> Result<Arc<VolumeTable>, OpenError> {
    let table = bytes.and_then(|bytes| VolumeTable::decode(bytes).ok());
    Ok(Arc::new(table.ok_or(Error::UnexpectedReply { request: "Join" })?))
}

#[cfg(target_os = "linux")]
fn same_cluster(ours: u64, theirs: u64, options: &JoinOptions) -> Result<(), OpenError> {
    match options.servers.first() {
        Some(first) if ours != theirs => {
            Err(JoinError::OtherMemory { server: 0, address: first.clone() }.into())
        }
        _ => Ok(()),
    }
}

impl Fabric for AnyFabric {
    type Endpoint = AnyEndpoint;

    fn endpoint(&self) -> Result<AnyEndpoint, FabricError> {
        AnyFabric::endpoint(self)
    }
}
