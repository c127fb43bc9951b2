//! One enum over the real backends, so that users of a cluster need not name its backend.
//!
//! It costs one match per verb list: every call below is inlined into the backend's call.

use crate::builder::Place;
use crate::error::OpenError;
use crate::url;
#[cfg(target_os = "linux")]
use sherman_control::{CopyPlan, JoinError, JoinOptions};
use sherman_core::{ComputeServer, Error};
use sherman_embedded::replicated::{CopiesEndpoint, ReplicatedCluster, ReplicatedFabric};
use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedFabric};
use sherman_executor::{Driver, Unpark};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, Fabric, FabricError, GlobalAddress, Peer, Request, Response,
    Tally, Ticket, WorkList,
};
#[cfg(target_os = "linux")]
use sherman_replica::LaneTable;
use sherman_replica::{ReplicatedEndpoint, VolumeTable};
#[cfg(target_os = "linux")]
use sherman_shm::{ShmEndpoint, ShmFabric};
use sherman_soft_nic::{SoftNicEndpoint, SoftNicFabric};
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::{VerbsEndpoint, VerbsFabric, VerbsOptions};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

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
    /// Memory servers whose memory is reached through a NIC, and the options to join them again.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(VerbsFabric, Box<JoinOptions>, Box<VerbsOptions>),
}

impl AnyFabric {
    /// Joins the cluster at `url` as a compute server without a keeper thread. The caller renews the lease
    /// itself, or does without ([`Request::Renew`]).
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
            Place::Shm(options) => Self::join_shm(options),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Place::Verbs(options, verbs) => Self::join_verbs(options, verbs),
        }
    }

    #[cfg(target_os = "linux")]
    fn join_shm(options: Box<JoinOptions>) -> Result<Self, OpenError> {
        Ok(Self::Shm(ShmFabric::join(&options)?, options))
    }

    /// Joins plain memory servers, or hosts. The first time it waits for hosts that are about to lose one of
    /// them; a keeper tries again by itself.
    #[cfg(target_os = "linux")]
    fn join_soft_nic(options: Box<JoinOptions>, first: bool) -> Result<Self, OpenError> {
        if !SoftNicFabric::is_group(&options)? {
            return Ok(Self::SoftNic(SoftNicFabric::join(&options)?, options));
        }
        let until = Instant::now() + options.connect_timeout;
        loop {
            match Self::join_hosts(options.clone()) {
                Err(error) if first && error.may_pass() && Instant::now() < until => {
                    std::thread::sleep(JOIN_PAUSE);
                }
                joined => return joined,
            }
        }
    }

    #[cfg(all(feature = "verbs", target_os = "linux"))]
    fn join_verbs(options: Box<JoinOptions>, verbs: Box<VerbsOptions>) -> Result<Self, OpenError> {
        Ok(Self::Verbs(VerbsFabric::join(&options, &verbs)?, options, verbs))
    }

    #[cfg(target_os = "linux")]
    fn join_hosts(options: Box<JoinOptions>) -> Result<Self, OpenError> {
        let plan = |bytes: &[u8]| {
            let table = VolumeTable::decode(bytes).ok()?;
            let hosts = (0..).zip(table.sites());
            let copies = hosts.map(|(copy, site)| table.of_copy(copy).map(|_| site.host)).collect();
            Some(CopyPlan { epoch: table.epoch(), copies })
        };
        let fabric = SoftNicFabric::join_group(&options, plan)?;
        let table = fabric.table().and_then(|bytes| VolumeTable::decode(bytes).ok());
        let table = table.ok_or(Error::UnexpectedReply { request: "Join" })?;
        Ok(Self::Hosts(fabric, Arc::new(table), options))
    }

    /// The table of volumes that this identity uses; `None` without replication.
    pub(crate) fn table(&self) -> Option<&Arc<VolumeTable>> {
        match self {
            Self::Replicated(fabric) => Some(fabric.table()),
            #[cfg(target_os = "linux")]
            Self::Hosts(_, table, _) => Some(table),
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
            Self::Shm(_, options) => Self::join_shm(options.clone()),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(_, options, verbs) => Self::join_verbs(options.clone(), verbs.clone()),
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
            (Self::Shm(ours, options), Self::Shm(theirs, _)) => {
                same_cluster(ours.cluster_id(), theirs.cluster_id(), options)
            }
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            (Self::Verbs(ours, options, _), Self::Verbs(theirs, ..)) => {
                same_cluster(ours.cluster_id(), theirs.cluster_id(), options)
            }
            _ => Ok(()),
        }
    }

    /// Gives up the copies that the table of `next` does not name. Lists in flight to them would end only
    /// when a silent host is given up, long after other clients have gone on.
    pub(crate) fn drop_copies(&self, next: &Self) {
        #[cfg(target_os = "linux")]
        if let (Self::Hosts(fabric, former, _), Self::Hosts(_, table, _)) = (self, next) {
            let dropped = |copy: &u16| former.of_copy(*copy).is_some() && table.of_copy(*copy).is_none();
            (0..former.sites().len() as u16).filter(dropped).for_each(|copy| fabric.drop_copy(copy));
        }
    }

    /// Marks the identity as ended. Endpoints dropped from now on do not wait for their lists in flight.
    pub(crate) fn end(&self) {
        match self {
            Self::Embedded(_) | Self::Replicated(_) => {}
            #[cfg(target_os = "linux")]
            Self::SoftNic(fabric, _) | Self::Hosts(fabric, ..) => fabric.end(),
            #[cfg(target_os = "linux")]
            Self::Shm(fabric, _) => fabric.end(),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(fabric, ..) => fabric.end(),
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
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(fabric, ..) => Ok(AnyEndpoint::Verbs(Box::new(fabric.endpoint()?))),
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
            Self::Shm(fabric, _) => fabric.abandon(),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(fabric, ..) => fabric.abandon(),
        }
    }
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

/// The endpoint behind clients and sessions.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyEndpoint {
    /// An endpoint to memory servers in this process.
    Embedded(EmbeddedEndpoint),
    /// An endpoint to volumes that hosts in this process keep in two copies.
    Replicated(Box<ReplicatedEndpoint<CopiesEndpoint>>),
    /// An endpoint to memory servers in other processes.
    #[cfg(target_os = "linux")]
    SoftNic(SoftNicEndpoint),
    /// An endpoint to volumes that hosts keep in several copies.
    #[cfg(target_os = "linux")]
    Hosts(Box<ReplicatedEndpoint<SoftNicEndpoint>>),
    /// An endpoint to memory servers whose memory is mapped.
    #[cfg(target_os = "linux")]
    Shm(ShmEndpoint),
    /// An endpoint to memory servers whose memory is reached through a NIC.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(Box<VerbsEndpoint>),
}

impl Fabric for AnyFabric {
    type Endpoint = AnyEndpoint;

    fn endpoint(&self) -> Result<AnyEndpoint, FabricError> {
        AnyFabric::endpoint(self)
    }
}

macro_rules! each {
    ($self:ident, $endpoint:ident => $call:expr) => {
        match $self {
            AnyEndpoint::Embedded($endpoint) => $call,
            AnyEndpoint::Replicated($endpoint) => $call,
            #[cfg(target_os = "linux")]
            AnyEndpoint::SoftNic($endpoint) => $call,
            #[cfg(target_os = "linux")]
            AnyEndpoint::Hosts($endpoint) => $call,
            #[cfg(target_os = "linux")]
            AnyEndpoint::Shm($endpoint) => $call,
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            AnyEndpoint::Verbs($endpoint) => $call,
        }
    };
}

impl Endpoint for AnyEndpoint {
    #[inline]
    fn caps(&self) -> &Caps {
        each!(self, endpoint => endpoint.caps())
    }

    #[inline]
    fn servers(&self) -> u16 {
        each!(self, endpoint => endpoint.servers())
    }

    #[inline]
    fn client(&self) -> ComputeId {
        each!(self, endpoint => endpoint.client())
    }

    #[inline]
    fn list(&self, server: u16) -> WorkList {
        each!(self, endpoint => endpoint.list(server))
    }

    #[inline]
    fn recycle(&self, list: WorkList) {
        each!(self, endpoint => endpoint.recycle(list));
    }

    #[inline]
    fn hint(&self, address: GlobalAddress, bytes: usize) {
        each!(self, endpoint => endpoint.hint(address, bytes));
    }

    #[inline]
    fn executes_inline(&self) -> bool {
        each!(self, endpoint => endpoint.executes_inline())
    }

    #[inline]
    fn cost(&self, list: &WorkList) -> Tally {
        each!(self, endpoint => endpoint.cost(list))
    }

    #[inline]
    fn post_now(&self, list: WorkList) -> Result<WorkList, Ticket> {
        each!(self, endpoint => endpoint.post_now(list))
    }

    #[inline]
    fn read_now(&self, address: GlobalAddress, into: &mut [u8]) -> bool {
        each!(self, endpoint => endpoint.read_now(address, into))
    }

    #[inline]
    fn post(&self, list: WorkList) -> Ticket {
        each!(self, endpoint => endpoint.post(list))
    }

    #[inline]
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        each!(self, endpoint => endpoint.poll(ticket, cx))
    }

    #[inline]
    fn refuses(&self, server: u16) -> bool {
        each!(self, endpoint => endpoint.refuses(server))
    }

    fn forget(&self, ticket: Ticket) {
        each!(self, endpoint => endpoint.forget(ticket));
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        each!(self, endpoint => endpoint.call(peer, request))
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        each!(self, endpoint => endpoint.poll_call(ticket, cx))
    }

    #[inline]
    fn counters(&self) -> &Counters {
        each!(self, endpoint => endpoint.counters())
    }
}

impl Clock for AnyEndpoint {
    #[inline]
    fn now(&self) -> u64 {
        each!(self, endpoint => endpoint.now())
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        each!(self, endpoint => endpoint.wake_at(at, waker));
    }
}

impl Driver for AnyEndpoint {
    #[inline]
    fn progress(&self) -> bool {
        each!(self, endpoint => endpoint.progress())
    }

    fn idle_for(&self) -> Option<Duration> {
        each!(self, endpoint => endpoint.idle_for())
    }

    #[inline]
    fn spins(&self, rounds: u32) -> bool {
        each!(self, endpoint => endpoint.spins(rounds))
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        each!(self, endpoint => endpoint.unparker())
    }

    fn park(&self, limit: Option<Duration>) {
        each!(self, endpoint => endpoint.park(limit));
    }
}
