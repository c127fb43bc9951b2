//! One identity: the copies that its table names, and its requests.

use super::ReplicatedCluster;
use super::state::{CopyMemory, State};
use crate::calls::Call;
use crate::endpoint::InlineEndpoint;
use crate::gate::{Flag, Member};
use crate::membership::Seat;
use crate::server::Server;
use sherman_fabric::group::Admission;
use sherman_fabric::{Caps, ComputeId, Fabric, FabricError, Peer, Request, Response, Role, Space};
use sherman_memory_server::cluster::Command;
use sherman_replica::{LaneTable, ReplicatedEndpoint, VolumeTable};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An endpoint whose servers are the copies of volumes.
pub type CopiesEndpoint = InlineEndpoint<CopiesMembership>;

/// Hears of the end of an epoch.
type Listener = Box<dyn Fn() + Send + Sync>;

/// Keeps a member in a [`ReplicatedCluster`].
pub struct CopiesMembership {
    cluster: Arc<ReplicatedCluster>,
    member: Arc<Member>,
    incarnation: u32,
    table: Arc<VolumeTable>,
    /// The copies that the table names, by number (I2).
    copies: Vec<Option<Arc<CopyMemory>>>,
    lanes: LaneTable,
    listener: Mutex<Heard>,
}

/// Who hears that the epoch has ended.
enum Heard {
    /// Nobody yet.
    Nobody,
    By(Listener),
    /// It has ended.
    Ended,
}

impl fmt::Debug for CopiesMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CopiesMembership");
        shown.field("member", &self.member).field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}

impl CopiesMembership {
    /// Enters a member that was just admitted.
    pub(super) fn new(
        cluster: &Arc<ReplicatedCluster>,
        state: &mut State,
        admission: &Admission,
        member: Member,
    ) -> Result<Arc<Self>, FabricError> {
        let table = Arc::clone(state.control().table());
        let copies: Vec<_> = (0..table.sites().len() as u16).map(|copy| state.copy(copy)).collect();
        let lost = FabricError::ServerLost { server: 0 };
        let first = copies.iter().flatten().next().ok_or(lost)?;
        let lock = first.server.look(|tables| tables.geometry().lock);
        let lanes = match lock.space {
            Space::OnChip => LaneTable::OnChip,
            Space::Host => LaneTable::Host { offset: lock.offset, bytes: lock.table_bytes() },
        };
        let member = Arc::new(member);
        let membership = Arc::new(Self {
            cluster: Arc::clone(cluster),
            member: Arc::clone(&member),
            incarnation: admission.incarnation,
            table,
            copies,
            lanes,
            listener: Mutex::new(Heard::Nobody),
        });
        state.enter(&member, Arc::downgrade(&membership));
        Ok(membership)
    }

    pub(super) fn client(&self) -> ComputeId {
        self.member.client
    }

    /// The epoch of its table.
    pub(super) fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    pub(super) fn member_at(&self, copy: u16) -> (&Member, &Flag) {
        (&self.member, self.member.flag(copy))
    }

    /// Says that the epoch has ended.
    pub(super) fn tell(&self) {
        let former = std::mem::replace(&mut *self.heard(), Heard::Ended);
        if let Heard::By(listener) = former {
            listener();
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_control(&self, request: &Request) -> Result<Response, FabricError> {
        let (client, incarnation) = (self.client(), self.incarnation);
        let request = request.clone();
        self.cluster.command(|now| Command::Ask { now, client, incarnation, request })
    }

    fn ask_copy(&self, copy: u16, request: &Request, leaves: bool) -> Result<Call, FabricError> {
        self.cluster.locked(|state| state.ask_copy(self, copy, request, leaves))
    }
}

impl Seat for CopiesMembership {
    #[inline]
    fn member(&self) -> &Member {
        &self.member
    }

    #[inline]
    fn server(&self, server: u16) -> Result<&Server, FabricError> {
        match self.copies.get(usize::from(server)) {
            Some(Some(copy)) if !copy.is_gone() => Ok(&copy.server),
            Some(_) => Err(FabricError::Disconnected { server }),
            None => Err(FabricError::NoSuchServer { server }),
        }
    }

    #[inline]
    fn servers(&self) -> u16 {
        self.copies.len() as u16
    }

    #[inline]
    fn caps(&self) -> &Caps {
        self.cluster.caps()
    }

    #[inline]
    fn now(&self) -> u64 {
        self.cluster.now()
    }

    fn admits(&self, peer: Peer) -> Result<(), FabricError> {
        match peer {
            // The control state knows every identity by its incarnation.
            Peer::Control => Ok(()),
            Peer::Volume(copy) => {
                self.server(copy)?;
                let over = self.member.flag(copy).is_over();
                if over { Err(FabricError::Fenced { client: self.client() }) } else { Ok(()) }
            }
        }
    }

    fn ask(&self, peer: Peer, request: &Request) -> Result<Call, FabricError> {
        match peer {
            Peer::Control => Ok(Call::Answered(self.ask_control(request))),
            Peer::Volume(copy) => self.ask_copy(copy, request, false),
        }
    }

    fn say_goodbye(&self) -> Result<Response, FabricError> {
        for entry in self.table.volumes().iter().rev() {
            if let Some(copy) = entry.copy(Role::Primary) {
                self.ask_copy(copy, &Request::Release, true)?;
            }
        }
        self.ask_control(&Request::Leave)
    }

    fn depart(&self) -> Result<Response, FabricError> {
        self.ask_control(&Request::Depart)
    }
}

impl Drop for CopiesMembership {
    fn drop(&mut self) {
        let (cluster, member) = (Arc::clone(&self.cluster), Arc::clone(&self.member));
        cluster.locked(|state| state.forget(&member));
        if member.may_go() {
            // Refused only if the member is dead, has left, or its epoch is over. Then others recover it.
            let _ = self.say_goodbye();
        }
    }
}

/// One compute server's access to a [`ReplicatedCluster`], under one table. Clones and endpoints share its
/// identity. Dropping the last of them leaves the cluster.
#[derive(Clone, Debug)]
pub struct ReplicatedFabric {
    membership: Arc<CopiesMembership>,
}

impl ReplicatedFabric {
    pub(super) fn new(membership: Arc<CopiesMembership>) -> Self {
        Self { membership }
    }

    /// The cluster of this compute server.
    pub fn cluster(&self) -> &Arc<ReplicatedCluster> {
        &self.membership.cluster
    }

    /// Its identity.
    pub fn client(&self) -> ComputeId {
        self.membership.client()
    }

    /// How often its id was issued.
    pub fn incarnation(&self) -> u32 {
        self.membership.incarnation
    }

    /// The table of volumes that this identity uses until it ends (rule E).
    pub fn table(&self) -> &Arc<VolumeTable> {
        &self.membership.table
    }

    /// A new endpoint for the calling thread, whose servers are volumes.
    ///
    /// # Errors
    /// None that a legal table allows.
    pub fn endpoint(&self) -> Result<ReplicatedEndpoint<CopiesEndpoint>, FabricError> {
        let table = Arc::clone(&self.membership.table);
        ReplicatedEndpoint::new(self.copies(), table, self.membership.lanes)
    }

    /// A new endpoint for the calling thread, whose servers are the copies.
    pub fn copies(&self) -> CopiesEndpoint {
        CopiesEndpoint::new(Arc::clone(&self.membership))
    }

    /// Calls `listener` once when the cluster has a newer table, so that this identity has ended. The call
    /// comes at once if it has ended already. Only one listener counts.
    pub fn on_epoch_end(&self, listener: impl Fn() + Send + Sync + 'static) {
        let mut heard = self.membership.heard();
        if matches!(*heard, Heard::Ended) {
            drop(heard);
            return listener();
        }
        *heard = Heard::By(Box::new(listener));
    }

    /// Halts the compute server, as if its machine had lost power. See
    /// [`EmbeddedFabric::halt`](crate::EmbeddedFabric::halt).
    pub fn halt(&self, seed: u64) {
        self.membership.member.halt(seed);
    }
}

impl Fabric for ReplicatedFabric {
    type Endpoint = ReplicatedEndpoint<CopiesEndpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        ReplicatedFabric::endpoint(self)
    }
}
