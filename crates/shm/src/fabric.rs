//! One compute server's identity in a cluster whose memory it maps.

use crate::endpoint::ShmEndpoint;
use crate::error::JoinShmError;
use crate::hold::Hand;
use crate::segment::Segment;
use crate::watch::Watch;
use crate::words::{Ask, Reply};
use sherman_embedded::shared::Shared;
use sherman_fabric::{Caps, ClientId, Fabric, FabricError};
use sherman_soft_nic::client::Attachment;
use sherman_soft_nic::{JoinOptions, SoftNicFabric};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sets of links kept for the next endpoint.
const SPARES: usize = 4;
/// How long a living client may stand still with a line that others need.
const PATIENCE: Duration = Duration::from_secs(1);

/// One compute server's way into the cluster. Clones and endpoints share its identity; the last to go leaves.
///
/// A process that forks must not use it in the child: both would act through the same slots.
#[derive(Clone, Debug)]
pub struct ShmFabric {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) maps: Vec<Map>,
    /// Before the control plane, as links say goodbye before it does.
    spares: Mutex<Vec<Vec<Bond>>>,
    _watch: Watch,
    pub(crate) control: SoftNicFabric,
}

/// A server's memory, mapped.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) segment: Arc<Segment>,
    pub(crate) memory: Arc<Shared>,
}

/// An endpoint's link to one server.
#[derive(Debug)]
pub(crate) struct Bond {
    pub(crate) memory: Arc<Shared>,
    /// What may be done there; or why nothing can, ever.
    pub(crate) hand: Result<Hand, FabricError>,
    /// Its end is the link's.
    _attachment: Option<Attachment>,
}

impl Drop for Bond {
    fn drop(&mut self) {
        // Before the connection ends, so that the server finds the slot free.
        if let Ok(hand) = &self.hand {
            hand.slot().finish();
        }
    }
}

impl ShmFabric {
    /// Joins the cluster as a new compute server, which leaves when the last of its handles is dropped. Its lease must be
    /// renewed meanwhile. The servers are named by their Unix sockets.
    pub fn join(options: &JoinOptions) -> Result<Self, JoinShmError> {
        let control = SoftNicFabric::join(options)?;
        let (mut maps, mut anchors) = (Vec::new(), Vec::new());
        for server in 0..control.servers() {
            let attached = control.attach(server, &Ask::Memory.encode());
            let mut anchor = attached.map_err(|error| JoinShmError::Refused { server, error })?;
            maps.push(
                Map::new(&mut anchor, control.caps().max_transfer)
                    .map_err(|error| JoinShmError::Map { server, error })?,
            );
            anchors.push((server, anchor));
        }
        let watch = Watch::start(control.clone(), anchors).map_err(JoinShmError::System)?;
        let spares = Mutex::new(Vec::new());
        Ok(Self { inner: Arc::new(Inner { maps, spares, _watch: watch, control }) })
    }

    /// Its identity.
    pub fn client(&self) -> ClientId {
        self.inner.control.client()
    }

    /// How many memory servers there are.
    pub fn servers(&self) -> u16 {
        self.inner.control.servers()
    }

    /// What every server of the cluster can do.
    pub fn caps(&self) -> &Caps {
        self.inner.control.caps()
    }

    /// A new endpoint, for the calling thread.
    ///
    /// # Errors
    /// As [`SoftNicFabric::endpoint`]; [`FabricError::TooLarge`] if a server has no slot left.
    pub fn endpoint(&self) -> Result<ShmEndpoint, FabricError> {
        let control = self.inner.control.endpoint()?;
        let spare = self.inner.spares().pop();
        let bonds = match spare {
            Some(bonds) => bonds,
            None => (0u16..)
                .zip(&self.inner.maps)
                .map(|(server, map)| self.inner.bind(server, map))
                .collect::<Result<_, _>>()?,
        };
        Ok(ShmEndpoint::new(Arc::clone(&self.inner), control, bonds))
    }

    /// Gives the identity up without leaving, as one must that may have left something behind: its lease runs out, and others
    /// recover it. Nothing is posted any more.
    pub fn abandon(&self) {
        self.inner.control.abandon();
        self.inner.spares().clear();
    }
}

impl Fabric for ShmFabric {
    type Endpoint = ShmEndpoint;

    fn endpoint(&self) -> Result<ShmEndpoint, FabricError> {
        ShmFabric::endpoint(self)
    }
}

impl Map {
    /// Maps what came with `anchor`.
    fn new(anchor: &mut Attachment, longest: u32) -> io::Result<Self> {
        let nothing = || io::Error::new(io::ErrorKind::InvalidData, "the server sent none");
        let reply = Reply::decode(anchor.reply()).ok_or_else(nothing)?;
        let file = anchor.take_file().ok_or_else(nothing)?.into();
        let segment = Arc::new(Segment::open(&file, reply.geometry)?);
        let memory = segment.parts().and_then(|parts| parts.map(longest)).ok_or_else(nothing)?;
        Ok(Self { segment, memory: Arc::new(memory) })
    }
}

impl Inner {
    /// A link to `server`. One that is lost or has fenced us is no error here: everything posted there will say so.
    fn bind(&self, server: u16, map: &Map) -> Result<Bond, FabricError> {
        let memory = Arc::clone(&map.memory);
        let attachment = match self.control.attach(server, &Ask::Slot.encode()) {
            Ok(attachment) => attachment,
            Err(error @ (FabricError::ServerLost { .. } | FabricError::Fenced { .. })) => {
                return Ok(Bond { memory, hand: Err(error), _attachment: None });
            }
            Err(error) => return Err(error),
        };
        let slot = Reply::decode(attachment.reply()).map_or(0, |reply| reply.slot);
        let hand = Hand::new(&map.segment, slot, PATIENCE);
        let hand = hand.ok_or(FabricError::Unsupported { what: "understand the server's answer" })?;
        Ok(Bond { memory, hand: Ok(hand), _attachment: Some(attachment) })
    }

    /// The links of an endpoint that is gone.
    pub(crate) fn give_back(&self, bonds: Vec<Bond>) {
        let fit = |bond: &Bond| bond.hand.as_ref().is_ok_and(|hand| hand.slot().flag().is_none());
        let mut spares = self.spares();
        if spares.len() < SPARES && !self.control.is_over() && bonds.iter().all(fit) {
            spares.push(bonds);
        }
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Vec<Bond>>> {
        // Nothing panics while it is locked, so what a poisoned lock guards is still right.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
