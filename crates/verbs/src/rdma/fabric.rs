//! One compute server's identity in a cluster whose memory it reaches through a NIC.

use super::connections::Connections;
use super::device::Device;
use super::endpoint::VerbsEndpoint;
use super::link::LinkLimits;
use crate::VerbsError;
use crate::options::VerbsOptions;
use sherman_control::ControlFabric;
use sherman_control::client::resolve::resolve;
use sherman_control::{Address, JoinError, JoinOptions};
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
        let depth = device.facts.depth(options.servers.len() as u32).map_err(|lack| {
            VerbsJoinError::Verbs(VerbsError::Lacks { device: device.name().to_owned(), lack })
        })?;
        let control = ControlFabric::join(options).map_err(VerbsJoinError::Join)?;
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

/// The address of this host from which it reaches `server`. Asks the routing table; sends nothing.
fn from_here(server: &Address) -> Option<IpAddr> {
    let Address::Tcp(host) = server else { return None };
    let to = resolve(host, Instant::now() + LOOK_UP).ok()?.into_iter().next()?;
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip().to_canonical())
}
