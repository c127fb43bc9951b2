//! One compute server's identity in a cluster whose memory it reaches through a NIC.

use super::connections::Connections;
use super::device::Device;
use super::endpoint::VerbsEndpoint;
use super::link::LinkLimits;
use crate::VerbsError;
use crate::options::VerbsOptions;
use sherman_control::client::resolve::resolve;
use sherman_control::{Address, ControlFabric, CopyPlan, JoinError, JoinOptions, NoLists};
use sherman_fabric::{Caps, ComputeId, Fabric, FabricError};
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many sets of links are kept for later endpoints.
const SPARES: usize = 4;
/// How long the look-up of a server's name may take.
const LOOK_UP: Duration = Duration::from_secs(5);
/// Bytes of registered memory of one endpoint. A list that needs more is refused.
const SLAB: u32 = 4 << 20;

sherman_fabric::errors! {
    /// Why a cluster cannot be joined through a NIC.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum VerbsJoinError {
        /// The cluster does not admit this client.
        Join(error: JoinError) => "{error}" because error,
        /// There is no usable device.
        Verbs(error: VerbsError) => "{error}" because error,
        /// A server does not offer RDMA, or its NIC is not reachable from here.
        Attach(error: FabricError) => "cannot reach a memory server's memory by RDMA: {error}" because error,
    }
}

/// One compute server's access to the cluster. Clones and endpoints share its identity; dropping the last of
/// them leaves the cluster.
#[derive(Clone, Debug)]
pub struct VerbsFabric {
    shared: Arc<Shared>,
}

impl VerbsFabric {
    /// Joins the cluster as a new compute server. It leaves when the last of its handles is dropped. The
    /// caller must renew its lease meanwhile.
    ///
    /// # Errors
    /// If there is no device, the cluster does not admit this client, or its servers are not reachable by
    /// RDMA.
    pub fn join(options: &JoinOptions, verbs: &VerbsOptions) -> Result<Self, VerbsJoinError> {
        let near = options.servers.first().and_then(from_here);
        // Before joining: without a device there would be no endpoint.
        let device = Device::open(verbs, near).map_err(VerbsJoinError::Verbs)?;
        depth(&device, options.servers.len() as u32)?;
        let control = ControlFabric::join(options).map_err(VerbsJoinError::Join)?;
        Self::over(options, device, near, control)
    }

    /// Whether the servers are hosts of a replicated cluster, as [`ControlFabric::is_group`].
    ///
    /// # Errors
    /// If none answers, the error of the first one.
    pub fn is_group(options: &JoinOptions) -> Result<bool, VerbsJoinError> {
        ControlFabric::<NoLists>::is_group(options).map_err(VerbsJoinError::Join)
    }

    /// Joins a cluster of hosts as a new compute server, as [`ControlFabric::join_group`]. The servers of
    /// this fabric are the copies that the table names, each under its number.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_group(
        options: &JoinOptions,
        verbs: &VerbsOptions,
        decode: fn(&[u8]) -> Option<CopyPlan>,
    ) -> Result<Self, VerbsJoinError> {
        let near = options.servers.first().and_then(from_here);
        let device = Device::open(verbs, near).map_err(VerbsJoinError::Verbs)?;
        let control = ControlFabric::join_group(options, decode).map_err(VerbsJoinError::Join)?;
        Self::over(options, device, near, control)
    }

    /// Makes links to every server.
    fn over(
        options: &JoinOptions,
        device: Device,
        near: Option<IpAddr>,
        control: ControlFabric,
    ) -> Result<Self, VerbsJoinError> {
        let depth = depth(&device, control.servers().into())?;
        let mut caps = control.caps().clone();
        caps.masked_cas &= device.facts.masked_cas;
        let limits = LinkLimits { depth, slab: SLAB, masked_cas: caps.masked_cas, near };
        let patience = u64::try_from(options.patience.as_nanos()).unwrap_or(u64::MAX);
        let connections = Connections::connect(&device, &control, &limits).map_err(VerbsJoinError::Attach)?;
        let spares = Mutex::new(vec![connections]);
        Ok(Self { shared: Arc::new(Shared { spares, control, device, caps, limits, patience }) })
    }

    /// Its identity.
    pub fn client(&self) -> ComputeId {
        self.shared.control.client()
    }

    /// How often its id was issued.
    pub fn incarnation(&self) -> u32 {
        self.shared.control.incarnation()
    }

    /// How many memory servers there are.
    pub fn servers(&self) -> u16 {
        self.shared.control.servers()
    }

    /// The capabilities that every server of the cluster and this side support.
    pub fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    /// The device it uses.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Makes an endpoint for the calling thread. It has a queue pair to every server, or reuses the links of
    /// an endpoint that was dropped.
    ///
    /// # Errors
    /// As [`ControlFabric::endpoint`], and [`FabricError::Unsupported`] if the device has no room.
    pub fn endpoint(&self) -> Result<VerbsEndpoint, FabricError> {
        let control = self.shared.control.endpoint()?;
        let connections = match self.shared.spares().pop() {
            Some(connections) => connections,
            None => Connections::connect(&self.shared.device, &self.shared.control, &self.shared.limits)?,
        };
        Ok(VerbsEndpoint::new(Arc::clone(&self.shared), control, connections))
    }

    /// The id of the cluster, as [`ControlFabric::cluster_id`].
    pub fn cluster_id(&self) -> u64 {
        self.shared.control.cluster_id()
    }

    /// The bytes of the table of volumes, as [`ControlFabric::table`].
    pub fn table(&self) -> Option<&[u8]> {
        self.shared.control.table()
    }

    /// The hosts that the next identity should ask, as [`ControlFabric::seeds`].
    pub fn seeds(&self) -> Vec<Address> {
        self.shared.control.seeds()
    }

    /// Records that the cluster has a newer table without this copy, as [`ControlFabric::drop_copy`].
    pub fn drop_copy(&self, copy: u16) {
        self.shared.control.drop_copy(copy);
    }

    /// Marks the identity as ended, as [`ControlFabric::end`].
    pub fn end(&self) {
        self.shared.control.end();
    }

    /// Gives the identity up without leaving, as [`ControlFabric::abandon`].
    pub fn abandon(&self) {
        self.shared.control.abandon();
        self.shared.spares().clear();
    }
}

impl Fabric for VerbsFabric {
    type Endpoint = VerbsEndpoint;

    fn endpoint(&self) -> Result<VerbsEndpoint, FabricError> {
        VerbsFabric::endpoint(self)
    }
}

/// The state that endpoints share.
#[derive(Debug)]
pub(super) struct Shared {
    /// First field: the links end before the membership does.
    spares: Mutex<Vec<Connections>>,
    pub(super) control: ControlFabric,
    pub(super) device: Device,
    pub(super) caps: Caps,
    limits: LinkLimits,
    /// How long a server with lists in flight may be silent, in nanoseconds.
    pub(super) patience: u64,
}

impl Shared {
    fn spares(&self) -> MutexGuard<'_, Vec<Connections>> {
        // Nothing panics while it is locked, so a poisoned lock still guards a valid value.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the links of a dropped endpoint for a later one, if they are usable.
    pub(super) fn give_back(&self, connections: Connections) {
        let mut spares = self.spares();
        if connections.is_fit() && spares.len() < SPARES && !self.control.is_over() {
            spares.push(connections);
        }
    }
}

/// How many requests a queue to each of so many servers may hold.
fn depth(device: &Device, servers: u32) -> Result<u32, VerbsJoinError> {
    device
        .facts
        .depth(servers)
        .map_err(|lack| VerbsJoinError::Verbs(VerbsError::Lacks { device: device.name().to_owned(), lack }))
}

/// The address of this host from which it reaches `server`. Asks the routing table; sends nothing.
fn from_here(server: &Address) -> Option<IpAddr> {
    let Address::Tcp(host) = server else { return None };
    let to = resolve(host, Instant::now() + LOOK_UP).ok()?.into_iter().next()?;
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip().to_canonical())
}
