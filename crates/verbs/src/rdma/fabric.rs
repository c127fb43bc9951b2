//! One compute server's identity in a cluster whose memory is reached through a NIC.

use super::device::Device;
use super::endpoint::VerbsEndpoint;
use super::link::LinkLimits;
use super::station::Station;
use crate::VerbsError;
use crate::options::VerbsOptions;
use sherman_fabric::{Caps, ClientId, Fabric, FabricError};
use sherman_soft_nic::client::resolve::resolve;
use sherman_soft_nic::{Address, JoinError, JoinOptions, SoftNicFabric};
use std::fmt;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sets of links kept for the next endpoint.
const SPARES: usize = 4;
/// How long the look-up of a server's name may take.
const LOOK_UP: Duration = Duration::from_secs(5);
/// Bytes of registered memory of one endpoint: as much as its largest list needs.
const SLAB: u32 = 4 << 20;

/// Why a cluster cannot be joined through a NIC.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerbsJoinError {
    /// The cluster does not take us.
    Join(JoinError),
    /// There is no device to do it with.
    Verbs(VerbsError),
    /// A server is not reached through a NIC, or not from here.
    Attach(FabricError),
}

impl fmt::Display for VerbsJoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(error) => error.fmt(f),
            Self::Verbs(error) => error.fmt(f),
            Self::Attach(error) => write!(f, "a memory server's memory cannot be reached by RDMA: {error}"),
        }
    }
}

impl std::error::Error for VerbsJoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Join(error) => Some(error),
            Self::Verbs(error) => Some(error),
            Self::Attach(error) => Some(error),
        }
    }
}

/// One compute server's way into the cluster. Clones and endpoints share its identity; the last to go leaves.
#[derive(Clone, Debug)]
pub struct VerbsFabric {
    shared: Arc<Shared>,
}

impl VerbsFabric {
    /// Joins the cluster as a new compute server, which leaves when the last of its handles is dropped. Its lease must be
    /// renewed meanwhile.
    ///
    /// # Errors
    /// If there is no device, the cluster does not take us, or its servers are not reached by RDMA.
    pub fn join(options: &JoinOptions, verbs: &VerbsOptions) -> Result<Self, VerbsJoinError> {
        let near = options.servers.first().and_then(from_here);
        // Before anybody knows us: without it there would be no endpoint.
        let device = Device::open(verbs, near).map_err(VerbsJoinError::Verbs)?;
        let depth = device
            .facts
            .depth(options.servers.len() as u32)
            .map_err(|lack| VerbsJoinError::Verbs(VerbsError::Lacks { device: device.name().to_owned(), lack }))?;
        let control = SoftNicFabric::join(options).map_err(VerbsJoinError::Join)?;
        let mut caps = control.caps().clone();
        caps.masked_cas &= device.facts.masked_cas;
        let limits = LinkLimits { depth, slab: SLAB, masked_cas: caps.masked_cas, near };
        let patience = u64::try_from(options.patience.as_nanos()).unwrap_or(u64::MAX);
        let station = Station::connect(&device, &control, &limits).map_err(VerbsJoinError::Attach)?;
        let spares = Mutex::new(vec![station]);
        Ok(Self { shared: Arc::new(Shared { spares, control, device, caps, limits, patience }) })
    }

    /// Its identity.
    pub fn client(&self) -> ClientId {
        self.shared.control.client()
    }

    /// How many memory servers there are.
    pub fn servers(&self) -> u16 {
        self.shared.control.servers()
    }

    /// What every server of the cluster and this side can do.
    pub fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    /// The device it uses.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// A new endpoint, for the calling thread: a queue pair to every server, unless an endpoint that is gone left its own.
    ///
    /// # Errors
    /// As [`SoftNicFabric::endpoint`], and [`FabricError::Unsupported`] if the device has no room.
    pub fn endpoint(&self) -> Result<VerbsEndpoint, FabricError> {
        let control = self.shared.control.endpoint()?;
        let station = match self.shared.spares().pop() {
            Some(station) => station,
            None => Station::connect(&self.shared.device, &self.shared.control, &self.shared.limits)?,
        };
        Ok(VerbsEndpoint::new(Arc::clone(&self.shared), control, station))
    }

    /// The id of the cluster, as [`SoftNicFabric::cluster_id`].
    pub fn cluster_id(&self) -> u64 {
        self.shared.control.cluster_id()
    }

    /// The identity has ended, as [`SoftNicFabric::end`].
    pub fn end(&self) {
        self.shared.control.end();
    }

    /// Gives the identity up without leaving, as [`SoftNicFabric::abandon`].
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

/// What endpoints share.
#[derive(Debug)]
pub(super) struct Shared {
    /// First: their links end before the membership does.
    spares: Mutex<Vec<Station>>,
    pub(super) control: SoftNicFabric,
    pub(super) device: Device,
    pub(super) caps: Caps,
    limits: LinkLimits,
    /// How long a server may be silent that owes us something, in nanoseconds.
    pub(super) patience: u64,
}

impl Shared {
    fn spares(&self) -> MutexGuard<'_, Vec<Station>> {
        // Nothing panics while it is locked, so what a poisoned lock guards is still right.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The links of an endpoint that is gone.
    pub(super) fn give_back(&self, station: Station) {
        let mut spares = self.spares();
        if station.is_fit() && spares.len() < SPARES && !self.control.is_over() {
            spares.push(station);
        }
    }
}

/// The address of this host from which `server` is reached. Asks the routing table; nothing is sent.
fn from_here(server: &Address) -> Option<IpAddr> {
    let Address::Tcp(host) = server else { return None };
    let to = resolve(host, Instant::now() + LOOK_UP).ok()?.into_iter().next()?;
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip().to_canonical())
}
