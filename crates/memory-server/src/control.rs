//! The control state: members and leases, the catalog and the table of servers, which exist once in a
//! cluster.
//!
//! It is a deterministic state machine over a memory of its own, which no verb reaches. The answer and the
//! new bytes follow from the bytes, the sender, the request and the time alone. **Its bytes are its whole
//! state**: a copy of them is a snapshot ([`Control::snapshot`]). What is kept here is an index of them.
//!
//! **Time.** Leases use the time that the caller passes. After a restart the caller's clock may have started
//! again. [`Control::open`] therefore starts all leases again with the first request. A replica that follows
//! the requests of another one uses [`Control::resume`]. It leaves leases alone, and the leader starts them
//! again by [`Control::restart_leases`].

mod enlist;
mod membership;
mod snapshot;

use crate::bytes::zero;
use crate::catalog::{Catalog, NewTree};
use crate::members::MemberTable;
use crate::server::OpenError;
use crate::servers::ServerTable;
use sherman_fabric::control::{CatalogReply, TreeInfo};
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response, Space};
use sherman_layout::control::{CONTROL_BLOCK_BYTES, CONTROL_MAGIC, STATE_OFFSET};
use sherman_layout::{ControlBlock, ControlGeometry, FormatError, Geometry, MemberEntry, MemberState};

/// The control state of a cluster. It holds no memory: the caller passes the same memory to every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    block: ControlBlock,
    pub(crate) members: MemberTable,
    catalog: Catalog,
    servers: ServerTable,
    /// Volumes where new trees get no root word. The caller knows why.
    avoided: Vec<u16>,
    /// Members whose ids were freed without a request of their own or of a recoverer.
    reaped: Vec<ComputeId>,
}

impl Control {
    /// Formats `memory`, whatever was in it, for the cluster of volume 0, which has this identity and
    /// geometry. If formatting is cut short, the memory is not formatted.
    ///
    /// # Errors
    /// [`FormatError::TooSmall`] if the memory has fewer bytes than [`ControlGeometry::bytes`].
    pub fn format(memory: &dyn Memory, cluster: u64, volume: &Geometry) -> Result<Self, FormatError> {
        let geometry = ControlGeometry::plan(volume);
        let (found, minimum) = (memory.size(Space::Host), geometry.bytes());
        if found < minimum {
            return Err(FormatError::TooSmall { memory: found, minimum });
        }
        if cluster == 0 {
            return Err(FormatError::NoIdentity);
        }
        zero(memory, Space::Host, 0, CONTROL_BLOCK_BYTES as u64);
        zero(memory, Space::Host, STATE_OFFSET, minimum - STATE_OFFSET);
        Catalog::format(memory);
        ServerTable::format(memory, &geometry, cluster);
        let image = ControlBlock { cluster, geometry }.encode();
        let (magic, rest) = image.split_at(CONTROL_MAGIC.len());
        memory.store(Space::Host, CONTROL_MAGIC.len() as u64, rest);
        memory.store(Space::Host, 0, magic);
        Self::open(memory)
            .map_err(|_| FormatError::BadGeometry { what: "the memory does not read back as written" })
    }

    /// Opens a formatted memory after a restart: the first request starts all leases again.
    pub fn open(memory: &dyn Memory) -> Result<Self, OpenError> {
        let expect = |expected| {
            let (space, found) = (Space::Host, memory.size(Space::Host));
            if found < expected { Err(OpenError::Truncated { space, found, expected }) } else { Ok(()) }
        };
        expect(CONTROL_BLOCK_BYTES as u64)?;
        let mut image = [0; CONTROL_BLOCK_BYTES];
        memory.load(Space::Host, 0, &mut image);
        let block = ControlBlock::decode(&image)?;
        let geometry = &block.geometry;
        expect(geometry.bytes())?;
        let members = MemberTable::load(memory, geometry)?;
        let servers = ServerTable::load(memory, geometry, block.cluster)?;
        let catalog = Catalog::load(memory, geometry)?;
        Ok(Self { block, members, catalog, servers, avoided: Vec::new(), reaped: Vec::new() })
    }

    /// Opens a formatted memory whose leases use the time of the requests that follow.
    pub fn resume(memory: &dyn Memory) -> Result<Self, OpenError> {
        let mut control = Self::open(memory)?;
        control.members.begun = true;
        Ok(control)
    }

    /// Starts the leases of all live members again, at `now`.
    pub fn restart_leases(&mut self, memory: &dyn Memory, now: u64) {
        self.members.begun = false;
        self.members.begin(memory, &self.block.geometry, now);
    }

    /// Where everything lies.
    pub fn geometry(&self) -> &ControlGeometry {
        &self.block.geometry
    }

    /// The cluster: the identity of volume 0's memory.
    pub fn cluster(&self) -> u64 {
        self.block.cluster
    }

    /// What the member table says about `client`.
    pub fn member(&self, client: ComputeId) -> MemberEntry {
        self.members.get(client)
    }

    /// All trees, by name.
    pub fn trees(&self) -> Vec<TreeInfo> {
        self.catalog.list()
    }

    /// Answers one request of `from`, at the time `now` in nanoseconds. Refuses requests to volumes with
    /// [`Refusal::NotHere`].
    ///
    /// [`Request::Join`] ignores `from`: a client that joins has no id yet, or a fenced one. A dead or
    /// leaving member is refused like a fenced one.
    pub fn apply(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        if !request.is_for_control() {
            return Err(Refusal::NotHere);
        }
        self.members.begin(memory, &self.block.geometry, now);
        if *request == Request::Join {
            return self.join(memory, now).map(|client| Response::Joined { client });
        }
        self.admit(from)?;
        match request {
            Request::CreateTree { .. }
            | Request::OpenTree { .. }
            | Request::ListTrees
            | Request::DropTree { .. } => self.catalog_request(memory, request),
            Request::Servers => Ok(self.list_servers()),
            Request::DeclareLost { server } => self.declare_lost(memory, *server),
            request => self.membership_request(memory, from, request, now),
        }
    }

    /// Answers one request of an operator, who needs no membership.
    pub fn administer(
        &mut self,
        memory: &dyn Memory,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        self.members.begin(memory, &self.block.geometry, now);
        match request {
            Request::Members => Ok(Response::Members(self.members.infos(now))),
            Request::ListTrees => Ok(Response::Trees(self.trees())),
            Request::Condemn { client } => self.condemn(memory, *client).map(|()| Response::Done),
            Request::Servers => Ok(self.list_servers()),
            Request::DeclareLost { server } => self.declare_lost(memory, *server),
            _ => Err(Refusal::BadRequest { what: "an operator may not send this request" }),
        }
    }

    /// Refuses a client that may not ask.
    fn admit(&self, from: ComputeId) -> Result<(), Refusal> {
        match self.members.get(from).state {
            MemberState::Live => Ok(()),
            MemberState::Leaving | MemberState::Dead => Err(Refusal::Fenced { client: from }),
            MemberState::Free => Err(Refusal::NotAMember { client: from }),
        }
    }

    fn join(&mut self, memory: &dyn Memory, now: u64) -> Result<ComputeId, Refusal> {
        self.reap(memory, now);
        self.members.join(memory, &self.block.geometry, now)
    }

    /// Gives new trees no root word on these volumes. This is not kept in memory.
    pub(crate) fn avoid(&mut self, volumes: Vec<u16>) {
        self.avoided = volumes;
    }

    fn catalog_request(&mut self, memory: &dyn Memory, request: &Request) -> Result<Response, Refusal> {
        let (geometry, Self { catalog, servers, avoided, .. }) = (self.block.geometry, self);
        match request {
            Request::CreateTree { name, spec, types, .. } => {
                let new = NewTree { name, spec: *spec, types: *types };
                let is_lost = |server| servers.is_lost(server) || avoided.contains(&server);
                let (info, created) = catalog.create(memory, &geometry, new, is_lost)?;
                Ok(Response::Tree(CatalogReply { info, created }))
            }
            Request::OpenTree { name } => match catalog.open(name) {
                Some(info) => Ok(Response::Tree(CatalogReply { info: info.clone(), created: false })),
                None => Err(Refusal::NoSuchTree { name: name.clone() }),
            },
            Request::DropTree { name, id } => {
                catalog.drop_tree(memory, &geometry, name, *id)?;
                Ok(Response::Done)
            }
            _ => Ok(Response::Trees(catalog.list())),
        }
    }

    /// Copies from `other` the state that is not kept in memory.
    #[cfg(test)]
    pub(crate) fn with_clock_of(mut self, other: &Self) -> Self {
        self.reaped.clone_from(&other.reaped);
        self.members.begun = other.members.begun;
        self
    }
}
