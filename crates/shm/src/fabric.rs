//! One compute server's identity in a cluster whose memory it maps.

use crate::endpoint::ShmEndpoint;
use crate::error::JoinShmError;
use crate::hold::Hand;
use crate::segment::Segment;
use crate::watch::Watch;
use crate::words::{Ask, Reply};
use sherman_embedded::shared::Shared;
use sherman_fabric::control::Span;
use sherman_fabric::{Caps, ClientId, Fabric, FabricError};
use sherman_memory_server::{SUPERBLOCK_BYTES, Superblock};
use sherman_soft_nic::client::Attachment;
use sherman_soft_nic::{JoinOptions, SoftNicFabric};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;
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
    /// By server; none of a server that is declared lost.
    pub(crate) maps: Vec<Option<Map>>,
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
    /// Where its chunks lie; `None` if its superblock makes no sense to us.
    chunks: Option<sherman_memory_server::Geometry>,
    /// The chunks whose huge pages were asked for.
    gathered: Mutex<BTreeSet<u32>>,
}

/// An endpoint's link to one server.
#[derive(Debug)]
pub(crate) struct Bond {
    /// The link; or why nothing can be done there, ever.
    pub(crate) grip: Result<Grip, FabricError>,
}

/// A link that was made.
#[derive(Debug)]
pub(crate) struct Grip {
    pub(crate) memory: Arc<Shared>,
    /// What may be done there.
    pub(crate) hand: Hand,
    /// Its end is the link's.
    _attachment: Attachment,
}

impl Drop for Grip {
    fn drop(&mut self) {
        // Before the connection ends, so that the server finds the slot free.
        self.hand.slot().finish();
    }
}

impl ShmFabric {
    /// Joins the cluster as a new compute server, which leaves when the last of its handles is dropped. Its lease must be
    /// renewed meanwhile. The servers are named by their Unix sockets.
    pub fn join(options: &JoinOptions) -> Result<Self, JoinShmError> {
        let control = SoftNicFabric::join(options)?;
        let (mut maps, mut anchors) = (Vec::new(), Vec::new());
        for server in 0..control.servers() {
            if control.is_lost(server) {
                maps.push(None);
                continue;
            }
            let attached = control.attach(server, &Ask::Memory.encode());
            let mut anchor = attached.map_err(|error| JoinShmError::Refused { server, error })?;
            let map = Map::new(&mut anchor, control.caps().max_transfer);
            maps.push(Some(map.map_err(|error| JoinShmError::Map { server, error })?));
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
                .map(|(server, map)| self.inner.bind(server, map.as_ref()))
                .collect::<Result<_, _>>()?,
        };
        Ok(ShmEndpoint::new(Arc::clone(&self.inner), control, bonds))
    }

    /// The id of the cluster, as [`SoftNicFabric::cluster_id`].
    pub fn cluster_id(&self) -> u64 {
        self.inner.control.cluster_id()
    }

    /// The identity has ended, as [`SoftNicFabric::end`].
    pub fn end(&self) {
        self.inner.control.end();
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
        let words = segment.host().ok_or_else(nothing)?;
        let image = words.iter().take(SUPERBLOCK_BYTES / 8).flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let superblock = Superblock::decode(&image.collect::<Vec<_>>());
        let chunks = superblock.ok().map(|superblock| superblock.geometry);
        Ok(Self { segment, memory: Arc::new(memory), chunks, gathered: Mutex::default() })
    }

    /// Has the huge pages of the chunks made in which `spans` lie, once for each chunk: a client that gets one span soon gets the next.
    pub(crate) fn gather(&self, spans: &[Span]) {
        let Some(geometry) = &self.chunks else { return };
        for chunk in spans.iter().filter_map(|span| geometry.chunk_at(span.offset)) {
            let first = self.gathered.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk);
            if first {
                self.segment.gather(geometry.chunk_offset(chunk), geometry.chunk_bytes);
            }
        }
    }
}

impl Inner {
    /// A link to `server`. A server that is declared lost or has fenced us is no error here: everything posted there ends in
    /// that error.
    fn bind(&self, server: u16, map: Option<&Map>) -> Result<Bond, FabricError> {
        let Some(map) = map else { return Ok(Bond { grip: Err(FabricError::ServerLost { server }) }) };
        let attachment = match self.control.attach(server, &Ask::Slot.encode()) {
            Ok(attachment) => attachment,
            Err(fenced @ FabricError::Fenced { .. }) => return Ok(Bond { grip: Err(fenced) }),
            Err(error) => return Err(error),
        };
        let slot = Reply::decode(attachment.reply()).map_or(0, |reply| reply.slot);
        let hand = Hand::new(&map.segment, slot, PATIENCE);
        let hand = hand.ok_or(FabricError::Unsupported { what: "understand the server's answer" })?;
        Ok(Bond { grip: Ok(Grip { memory: Arc::clone(&map.memory), hand, _attachment: attachment }) })
    }

    /// The links of an endpoint that is gone.
    pub(crate) fn give_back(&self, bonds: Vec<Bond>) {
        let fit = |bond: &Bond| match &bond.grip {
            Ok(grip) => grip.hand.slot().flag().is_none(),
            Err(error) => matches!(error, FabricError::ServerLost { .. }),
        };
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
