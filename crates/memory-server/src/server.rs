//! The memory server: formats a memory, opens it again, answers requests.
//!
//! The state kept here is a copy of the state in memory, indexed for speed. The server stores every change in
//! memory before it answers. It handles one request at a time: the backend serialises them.
//!
//! Server 0 also keeps the control state: the members and the catalog. Volumes do not know the members: they
//! accept requests of any id in range that is not fenced there. A client that leaves therefore releases its
//! memory on every volume first. Then the control state makes the id free for another client. A recoverer
//! that retires a dead member does the same.

use crate::bytes::zero;
use crate::catalog::{Catalog, NewTree};
use crate::chunks::ChunkTable;
use crate::clients::ClientTable;
use crate::members::MemberTable;
use crate::servers::ServerTable;
use crate::spans::SpanTable;
use sherman_fabric::control::{CatalogReply, Extent, MOST_FREED, Span, TreeInfo, Usage};
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response, Space};
use sherman_layout::geometry::{CLUSTER_OFFSET, STATE_OFFSET};
use sherman_layout::superblock::MAGIC;
use sherman_layout::{
    ChunkEntry, ClientWord, FormatError, FormatOptions, Geometry, MemberEntry, MemberState, SUPERBLOCK_BYTES,
    Superblock, SuperblockError,
};

mod census;
mod enlist;
mod membership;

pub use census::Census;

#[cfg(test)]
mod enlist_tests;
#[cfg(test)]
mod membership_tests;
#[cfg(test)]
mod tests;

sherman_fabric::errors! {
    /// Why a memory cannot be opened. Nothing was written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum OpenError {
        /// There is no superblock that this build understands.
        Superblock(error: SuperblockError) => "{error}" because error,
        /// The memory is smaller than when it was formatted.
        Truncated {
            /// Which memory.
            space: Space,
            /// Bytes found.
            found: u64,
            /// Bytes needed.
            expected: u64,
        } => "{space:?} memory has {found} bytes; it was formatted with {expected}",
        /// A table is damaged.
        Corrupt {
            /// Which table.
            table: &'static str,
            /// Which of its entries.
            entry: u64,
            /// What is wrong with it.
            what: &'static str,
        } => "the {table} is corrupt: entry {entry} {what}",
    }
}

impl From<SuperblockError> for OpenError {
    fn from(error: SuperblockError) -> Self {
        Self::Superblock(error)
    }
}

/// The state that only server 0 keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Root {
    members: MemberTable,
    catalog: Catalog,
    servers: ServerTable,
}

/// The CPU of one memory server. It holds no memory: the caller passes the same memory to every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryServer {
    superblock: Superblock,
    chunks: ChunkTable,
    spans: SpanTable,
    clients: ClientTable,
    /// The cluster that this memory belongs to, or 0.
    cluster: u64,
    root: Option<Root>,
    /// Members whose ids were freed without a request of their own or of a recoverer.
    reaped: Vec<ComputeId>,
}

impl MemoryServer {
    /// Formats `memory`, whatever was in it, and opens it.
    ///
    /// Zeroes only the reserved area and the lock table, unless [`wipe_chunks`](FormatOptions::wipe_chunks)
    /// says otherwise. If formatting is cut short, the memory is not formatted: formatting clears the magic
    /// first and writes it last.
    pub fn format(memory: &dyn Memory, options: &FormatOptions) -> Result<Self, FormatError> {
        let geometry = options.plan(memory.size(Space::Host), memory.size(Space::OnChip))?;
        if options.memory_id == 0 {
            return Err(FormatError::NoIdentity);
        }
        let superblock = Superblock {
            features: 0,
            memory_id: options.memory_id,
            cluster_id: options.cluster_id,
            server: options.server,
            servers: options.servers,
            geometry,
        };
        let chunk_bytes = u64::from(geometry.chunks) * geometry.chunk_bytes;
        let end = geometry.chunks_offset + if options.wipe_chunks { chunk_bytes } else { 0 };
        zero(memory, Space::Host, 0, SUPERBLOCK_BYTES as u64);
        zero(memory, Space::Host, STATE_OFFSET, end - STATE_OFFSET);
        if geometry.lock.space == Space::OnChip {
            zero(memory, Space::OnChip, 0, geometry.lock.table_bytes());
        }
        Catalog::format(memory);
        if options.server == 0 {
            ServerTable::format(memory, &geometry, options.memory_id);
            memory.store_u64(Space::Host, CLUSTER_OFFSET, options.memory_id);
        }
        let image = superblock.encode();
        let (magic, rest) = image.split_at(MAGIC.len());
        memory.store(Space::Host, MAGIC.len() as u64, rest);
        memory.store(Space::Host, 0, magic);
        // This must open. If it does not, the memory does not keep what is stored in it.
        Self::open(memory)
            .map_err(|_| FormatError::BadGeometry { what: "the memory does not read back as written" })
    }

    /// Opens a formatted memory. The state is the same as when the memory was last used.
    pub fn open(memory: &dyn Memory) -> Result<Self, OpenError> {
        let expect = |space, expected| {
            let found = memory.size(space);
            if found < expected { Err(OpenError::Truncated { space, found, expected }) } else { Ok(()) }
        };
        expect(Space::Host, SUPERBLOCK_BYTES as u64)?;
        let mut image = [0; SUPERBLOCK_BYTES];
        memory.load(Space::Host, 0, &mut image);
        let superblock = Superblock::decode(&image)?;
        let geometry = &superblock.geometry;
        expect(Space::Host, geometry.memory_bytes)?;
        if geometry.lock.space == Space::OnChip {
            expect(Space::OnChip, geometry.lock.table_bytes())?;
        }
        let chunks = ChunkTable::load(memory, geometry)?;
        let spans = SpanTable::load(memory, geometry, &chunks)?;
        let clients = ClientTable::load(memory, geometry, &chunks)?;
        let root = if superblock.server == 0 {
            let members = MemberTable::load(memory, geometry)?;
            let servers = ServerTable::load(memory, geometry, superblock.memory_id)?;
            Some(Root { members, catalog: Catalog::load(memory, geometry)?, servers })
        } else {
            None
        };
        let cluster = memory.load_u64(Space::Host, CLUSTER_OFFSET);
        if superblock.server == 0 && cluster != superblock.memory_id {
            let what = "names another cluster than server 0's own memory";
            return Err(OpenError::Corrupt { table: "state line", entry: 0, what });
        }
        Ok(Self { superblock, chunks, spans, clients, cluster, root, reaped: Vec::new() })
    }

    /// Copies from `other` the state that is not kept in memory.
    #[cfg(test)]
    pub(crate) fn with_clock_of(mut self, other: &Self) -> Self {
        self.reaped.clone_from(&other.reaped);
        if let (Some(root), Some(other)) = (&mut self.root, &other.root) {
            root.members.begun = other.members.begun;
            root.members.short = other.members.short;
        }
        self
    }

    /// The decoded superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where everything lies.
    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// Whether `client` is fenced here. If so, the backend executes none of its verbs and accepts no more
    /// requests from it (F6).
    pub fn is_fenced(&self, client: ComputeId) -> bool {
        self.clients.get(client).fenced
    }

    /// What the client table says about `client`.
    pub fn client(&self, client: ComputeId) -> ClientWord {
        self.clients.get(client)
    }

    /// What the member table says about `client`; `None` where there is no member table.
    pub fn member(&self, client: ComputeId) -> Option<MemberEntry> {
        self.root.as_ref().map(|root| root.members.get(client))
    }

    /// The spans that `client` owns, at most the first few thousand.
    pub fn spans_owned(&self, client: ComputeId) -> Vec<Span> {
        self.spans.of(self.geometry(), &self.chunks, client, 0)
    }

    /// What the chunk table says about chunk `index`; `None` if there is no such chunk.
    pub fn chunk(&self, index: u32) -> Option<ChunkEntry> {
        self.chunks.get(index)
    }

    /// All trees, by name; none where there is no catalog.
    pub fn trees(&self) -> Vec<TreeInfo> {
        self.root.as_ref().map_or_else(Vec::new, |root| root.catalog.list())
    }

    /// Answers one request of `from`. `now` is the server's time in nanoseconds.
    ///
    /// [`Request::Join`] ignores `from`: a client that joins has no id yet, or a fenced one.
    ///
    /// The control state refuses a dead or leaving member like a fenced one. [`leases`](crate::leases) says
    /// how leases survive a restart.
    ///
    /// A [`Request::Fence`] is marked here, so that [`MemoryServer::is_fenced`] returns true from now on. The
    /// backend sends the answer only when every endpoint of that client has stopped on this server.
    pub fn handle(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        if let Some(root) = &mut self.root {
            root.members.begin(memory, &self.superblock.geometry, now);
        }
        match request {
            Request::Join => self.join(memory, now).map(|client| Response::Joined { client }),
            Request::Release => self.release(memory, from),
            Request::AllocSpans { .. } | Request::FreeSpans { .. } | Request::RedoArea => {
                self.memory_request(memory, from, request)
            }
            Request::CreateTree { .. }
            | Request::OpenTree { .. }
            | Request::ListTrees
            | Request::DropTree { .. } => self.catalog_request(memory, from, request),
            Request::Fence { client } => self.fence(memory, from, *client),
            Request::SpansOf { client, from: offset } => self.spans_of(from, *client, *offset),
            Request::Retire { client } => self.retire(memory, from, *client),
            Request::Activate
            | Request::Leave
            | Request::Relieve { .. }
            | Request::FreeId { .. }
            | Request::Renew
            | Request::Short
            | Request::Depart
            | Request::Suspect { .. }
            | Request::Succeed { .. }
            | Request::Condemn { .. }
            | Request::Members => self.membership_request(memory, from, request, now),
            Request::Servers | Request::DeclareLost { .. } => self.servers_request(memory, from, request),
            Request::Usage => self.usage(memory, from),
            Request::Stats => Err(Refusal::BadRequest { what: "this server keeps no statistics" }),
            _ => Err(Refusal::BadRequest { what: "this server does not know the request" }),
        }
    }

    /// Answers one request of an operator. An operator needs no membership. `now` is the server's time in
    /// nanoseconds.
    pub fn administer(
        &mut self,
        memory: &dyn Memory,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        if let Some(root) = &mut self.root {
            root.members.begin(memory, &self.superblock.geometry, now);
        }
        match request {
            Request::Usage => Ok(self.used(memory)),
            Request::Members => {
                let root = self.root.as_ref().ok_or(Refusal::NotHere)?;
                Ok(Response::Members(root.members.infos(now)))
            }
            Request::ListTrees if self.root.is_some() => Ok(Response::Trees(self.trees())),
            Request::Condemn { client } => self.condemn(memory, *client).map(|()| Response::Done),
            Request::Servers => self.servers(),
            Request::DeclareLost { server } => self.declare_lost(memory, *server),
            Request::ListTrees => Err(Refusal::NotHere),
            _ => Err(Refusal::BadRequest { what: "an operator may not send this request" }),
        }
    }

    /// Refuses a client that may not ask about memory.
    fn admit(&self, from: ComputeId) -> Result<(), Refusal> {
        if self.is_fenced(from) {
            return Err(Refusal::Fenced { client: from });
        }
        if self.geometry().is_client(from) { Ok(()) } else { Err(Refusal::NotAMember { client: from }) }
    }

    /// Refuses a client that may not ask about the control state.
    fn admit_member(&self, from: ComputeId) -> Result<(), Refusal> {
        let root = self.root.as_ref().ok_or(Refusal::NotHere)?;
        match root.members.get(from).state {
            MemberState::Live => Ok(()),
            MemberState::Leaving | MemberState::Dead => Err(Refusal::Fenced { client: from }),
            MemberState::Free => Err(Refusal::NotAMember { client: from }),
        }
    }

    fn join(&mut self, memory: &dyn Memory, now: u64) -> Result<ComputeId, Refusal> {
        self.reap(memory, now);
        let root = self.root.as_mut().ok_or(Refusal::NotHere)?;
        root.members.join(memory, &self.superblock.geometry, now)
    }

    /// Releases everything that the client has here. It may repeat this.
    fn release(&mut self, memory: &dyn Memory, from: ComputeId) -> Result<Response, Refusal> {
        self.admit(from)?;
        let geometry = &self.superblock.geometry;
        self.spans.disown(memory, geometry, &self.chunks, from);
        self.clients.release(memory, geometry, from);
        Ok(Response::Done)
    }

    fn memory_request(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
    ) -> Result<Response, Refusal> {
        self.admit(from)?;
        let geometry = &self.superblock.geometry;
        match request {
            Request::AllocSpans { class, count } => {
                let spare = self.clients.spare_chunks(geometry);
                let whose = (from, *class);
                let spans = self.spans.alloc(memory, geometry, &mut self.chunks, whose, *count, spare)?;
                Ok(Response::Spans(spans))
            }
            Request::FreeSpans { spans } if spans.len() > MOST_FREED => {
                Err(Refusal::BadRequest { what: "a request gives back too many spans" })
            }
            Request::FreeSpans { spans } => {
                self.spans.free(memory, geometry, &self.chunks, from, spans)?;
                Ok(Response::Done)
            }
            _ => {
                let offset = self.clients.redo_area(memory, geometry, &mut self.chunks, from)?;
                Ok(Response::RedoArea(Extent { offset, bytes: geometry.redo_area_bytes }))
            }
        }
    }

    fn catalog_request(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
    ) -> Result<Response, Refusal> {
        self.admit_member(from)?;
        let geometry = &self.superblock.geometry;
        let Root { catalog, servers, .. } = self.root.as_mut().ok_or(Refusal::NotHere)?;
        match request {
            Request::CreateTree { name, spec, types } => {
                let new = NewTree { name, spec: *spec, types: *types };
                let is_lost = |server| servers.is_lost(server);
                let (info, created) = catalog.create(memory, geometry, new, is_lost)?;
                Ok(Response::Tree(CatalogReply { info, created }))
            }
            Request::OpenTree { name } => match catalog.open(name) {
                Some(info) => Ok(Response::Tree(CatalogReply { info: info.clone(), created: false })),
                None => Err(Refusal::NoSuchTree { name: name.clone() }),
            },
            Request::DropTree { name, id } => {
                catalog.drop_tree(memory, geometry, name, *id)?;
                Ok(Response::Done)
            }
            _ => Ok(Response::Trees(catalog.list())),
        }
    }

    /// Reports the memory in use, and the clients with a redo area that are not fenced.
    fn usage(&self, memory: &dyn Memory, from: ComputeId) -> Result<Response, Refusal> {
        self.admit(from)?;
        Ok(self.used(memory))
    }

    fn used(&self, memory: &dyn Memory) -> Response {
        let members = self.clients.active().collect();
        let Geometry { chunks, chunk_bytes, .. } = *self.geometry();
        let (bytes_owned, bytes_free) = self.spans.usage(memory, self.geometry(), &self.chunks);
        let (chunks, chunks_used) = (u64::from(chunks), self.chunks.used());
        Response::Usage(Usage { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free, members })
    }
}
