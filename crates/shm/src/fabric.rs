//! One compute server's identity in a cluster whose memory it maps.

use crate::endpoint::ShmEndpoint;
use crate::error::JoinShmError;
use crate::hold::LineHolder;
use crate::segment::Segment;
use crate::watch::Watch;
use crate::words::{Ask, Reply};
use sherman_control::{Address, Attachment, ControlFabric, CopyPlan, JoinOptions, NoLists};
use sherman_embedded::shared::Shared;
use sherman_fabric::control::Span;
use sherman_fabric::{Caps, ComputeId, Fabric, FabricError};
use sherman_layout::{SUPERBLOCK_BYTES, Superblock};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sets of links that the fabric keeps for the next endpoint.
const SPARES: usize = 4;
/// How long a live client may make no progress while it holds a line that others need.
const PATIENCE: Duration = Duration::from_secs(1);

/// One compute server's access to the cluster. Clones and endpoints share its identity; dropping the last of
/// them leaves the cluster.
///
/// After a fork, the child process must not use it: parent and child would act through the same slots.
#[derive(Clone, Debug)]
pub struct ShmFabric {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// Indexed by server; `None` for a server that is declared lost, and for a copy that no volume names.
    pub(crate) maps: Vec<Option<Map>>,
    /// Declared before the control plane: links must say goodbye first.
    spares: Mutex<Vec<Vec<MappedServer>>>,
    _watch: Watch,
    pub(crate) control: ControlFabric,
}

/// A server's memory, mapped.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) segment: Arc<Segment>,
    pub(crate) memory: Arc<Shared>,
    /// Where its chunks lie; `None` if this client cannot decode the superblock.
    chunks: Option<sherman_layout::Geometry>,
    /// The chunks whose huge pages this client has already requested.
    gathered: Mutex<BTreeSet<u32>>,
}

/// An endpoint's link to one server.
#[derive(Debug)]
pub(crate) struct MappedServer {
    /// The link, or why this endpoint can never use the server.
    pub(crate) mapping: Result<Mapping, FabricError>,
}

/// A link that was made.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) memory: Arc<Shared>,
    /// Takes lines through the link's slot.
    pub(crate) holder: LineHolder,
    /// Closing this connection closes the link.
    _attachment: Attachment,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Runs before the connection closes, so that the server finds the slot free.
        self.holder.slot().finish();
    }
}

impl ShmFabric {
    /// Joins the cluster as a new compute server. The servers are named by their Unix sockets.
    ///
    /// The compute server must renew its lease. It leaves the cluster when its last handle is dropped.
    pub fn join(options: &JoinOptions) -> Result<Self, JoinShmError> {
        Self::over(ControlFabric::join(options)?)
    }

    /// Whether the servers are hosts of a replicated cluster, as [`ControlFabric::is_group`].
    ///
    /// # Errors
    /// If none answers, the error of the first one.
    pub fn is_group(options: &JoinOptions) -> Result<bool, JoinShmError> {
        Ok(ControlFabric::<NoLists>::is_group(options)?)
    }

    /// Joins a cluster of hosts on this machine as a new compute server, as [`ControlFabric::join_group`].
    /// The servers of this fabric are the copies that the table names, each under its number.
    pub fn join_group(
        options: &JoinOptions,
        decode: fn(&[u8]) -> Option<CopyPlan>,
    ) -> Result<Self, JoinShmError> {
        Self::over(ControlFabric::join_group(options, decode)?)
    }

    /// Maps the memory of every server.
    fn over(control: ControlFabric) -> Result<Self, JoinShmError> {
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

    /// The compute server's identity.
    pub fn client(&self) -> ComputeId {
        self.inner.control.client()
    }

    /// How often its id was issued.
    pub fn incarnation(&self) -> u32 {
        self.inner.control.incarnation()
    }

    /// How many memory servers there are.
    pub fn servers(&self) -> u16 {
        self.inner.control.servers()
    }

    /// What every server of the cluster can do.
    pub fn caps(&self) -> &Caps {
        self.inner.control.caps()
    }

    /// Makes a new endpoint for the calling thread.
    ///
    /// # Errors
    /// As [`ControlFabric::endpoint`]; [`FabricError::TooLarge`] if a server has no slot left.
    pub fn endpoint(&self) -> Result<ShmEndpoint, FabricError> {
        let control = self.inner.control.endpoint()?;
        let spare = self.inner.spares().pop();
        let mapped = match spare {
            Some(mapped) => mapped,
            None => (0u16..)
                .zip(&self.inner.maps)
                .map(|(server, map)| self.inner.bind(server, map.as_ref()))
                .collect::<Result<_, _>>()?,
        };
        Ok(ShmEndpoint::new(Arc::clone(&self.inner), control, mapped))
    }

    /// The bytes of the table of volumes, as [`ControlFabric::table`].
    pub fn table(&self) -> Option<&[u8]> {
        self.inner.control.table()
    }

    /// The hosts that the next identity should ask, as [`ControlFabric::seeds`].
    pub fn seeds(&self) -> Vec<Address> {
        self.inner.control.seeds()
    }

    /// Records that the cluster has a newer table without this copy, as [`ControlFabric::drop_copy`].
    pub fn drop_copy(&self, copy: u16) {
        self.inner.control.drop_copy(copy);
    }

    /// The id of the cluster, as [`ControlFabric::cluster_id`].
    pub fn cluster_id(&self) -> u64 {
        self.inner.control.cluster_id()
    }

    /// Records that the identity has ended, as [`ControlFabric::end`].
    pub fn end(&self) {
        self.inner.control.end();
    }

    /// Gives the identity up without leaving the cluster; nothing is posted any more. A client that may have
    /// left work unfinished must do this: its lease then runs out, and other clients recover it.
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
    /// Maps the file that came with `anchor`.
    fn new(anchor: &mut Attachment, longest: u32) -> io::Result<Self> {
        let nothing = || io::Error::new(io::ErrorKind::InvalidData, "the server sent no valid memory");
        let reply = Reply::decode(anchor.reply()).ok_or_else(nothing)?;
        let file = anchor.take_file().ok_or_else(nothing)?.into();
        let segment = Arc::new(Segment::open(&file, reply.geometry)?);
        let memory = segment.parts().and_then(|parts| parts.map(longest)).ok_or_else(nothing)?;
        let words = segment.host().ok_or_else(nothing)?;
        let image = words
            .iter()
            .take(SUPERBLOCK_BYTES / 8)
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let superblock = Superblock::decode(&image.collect::<Vec<_>>());
        let chunks = superblock.ok().map(|superblock| superblock.geometry);
        Ok(Self { segment, memory: Arc::new(memory), chunks, gathered: Mutex::default() })
    }

    /// Makes the huge pages of every chunk in which `spans` lie, once for each chunk. A client that gets one
    /// span of a chunk soon gets the next.
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
    /// Makes a link to `server`. If the server is declared lost, or has fenced this client, that is no error
    /// here: every list posted there ends in that error.
    fn bind(&self, server: u16, map: Option<&Map>) -> Result<MappedServer, FabricError> {
        let Some(map) = map else {
            return Ok(MappedServer { mapping: Err(FabricError::ServerLost { server }) });
        };
        let attachment = match self.control.attach(server, &Ask::Slot.encode()) {
            Ok(attachment) => attachment,
            Err(fenced @ FabricError::Fenced { .. }) => return Ok(MappedServer { mapping: Err(fenced) }),
            Err(error) => return Err(error),
        };
        let slot = Reply::decode(attachment.reply()).map_or(0, |reply| reply.slot);
        let holder = LineHolder::new(&map.segment, slot, PATIENCE);
        let holder = holder.ok_or(FabricError::Unsupported { what: "understand the server's answer" })?;
        Ok(MappedServer {
            mapping: Ok(Mapping { memory: Arc::clone(&map.memory), holder, _attachment: attachment }),
        })
    }

    /// Takes back the links of an endpoint that was dropped.
    pub(crate) fn give_back(&self, mapped: Vec<MappedServer>) {
        let fit = |server: &MappedServer| match &server.mapping {
            Ok(mapping) => mapping.holder.slot().flag().is_none(),
            Err(error) => matches!(error, FabricError::ServerLost { .. }),
        };
        let mut spares = self.spares();
        if spares.len() < SPARES && !self.control.is_over() && mapped.iter().all(fit) {
            spares.push(mapped);
        }
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Vec<MappedServer>>> {
        // Nothing panics while the lock is held, so the data behind a poisoned lock is still valid.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
