//! A volume: formats a memory, opens it again, and answers requests about it.
//!
//! The state kept here is a copy of the state in memory, indexed for speed. The volume stores every change in
//! memory before it answers. It handles one request at a time: the backend serialises them.
//!
//! A volume does not know the members. It accepts requests of any id in range that is not fenced there. A
//! client that leaves releases its memory on every volume, and then the control state frees its id. A
//! recoverer retires a dead member on every volume before it frees the id. If it dies half-way, the next
//! recoverer fences again, also where the fence was lifted already, finds nothing there, and continues. So a
//! volume accepts a fence of any id at any time.

use crate::bytes::zero;
use crate::chunks::ChunkTable;
use crate::clients::ClientTable;
use crate::server::OpenError;
use crate::spans::SpanTable;
use sherman_fabric::control::{Extent, MOST_FREED, Span, Usage};
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response, Space};
use sherman_layout::geometry::{CLUSTER_OFFSET, STATE_OFFSET};
use sherman_layout::superblock::MAGIC;
use sherman_layout::{
    ChunkEntry, ClientWord, FormatError, FormatOptions, Geometry, SUPERBLOCK_BYTES, Superblock,
};

/// The CPU of one volume. It holds no memory: the caller passes the same memory to every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    superblock: Superblock,
    pub(crate) chunks: ChunkTable,
    pub(crate) spans: SpanTable,
    clients: ClientTable,
    /// The cluster that this memory belongs to, or 0.
    cluster: u64,
}

impl Volume {
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
        if options.server == 0 {
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
        let cluster = memory.load_u64(Space::Host, CLUSTER_OFFSET);
        if superblock.server == 0 && cluster != superblock.memory_id {
            let what = "names another cluster than volume 0's own memory";
            return Err(OpenError::Corrupt { table: "state line", entry: 0, what });
        }
        Ok(Self { superblock, chunks, spans, clients, cluster })
    }

    /// Opens the memory of a copy that becomes the primary of its volume. Clients and the former primary's
    /// CPU wrote hints of spans in different orders here, so a hint may be missing: all are set.
    pub fn promote(memory: &dyn Memory) -> Result<Self, OpenError> {
        let volume = Self::open(memory)?;
        volume.spans.hint_all(memory, volume.geometry());
        Ok(volume)
    }

    /// The decoded superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where everything lies.
    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// The cluster that this memory belongs to: the identity of its volume 0's memory. 0 if it belongs to
    /// none yet.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// Adds this memory to `cluster`, if it belongs to none yet. Returns whether it belongs to `cluster` now.
    pub fn adopt(&mut self, memory: &dyn Memory, cluster: u64) -> bool {
        if self.cluster == 0 && cluster != 0 {
            memory.store_u64(Space::Host, CLUSTER_OFFSET, cluster);
            self.cluster = cluster;
        }
        self.cluster == cluster
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

    /// The spans that `client` owns, at most the first few thousand.
    pub fn spans_owned(&self, client: ComputeId) -> Vec<Span> {
        self.spans.of(self.geometry(), &self.chunks, client, 0)
    }

    /// What the chunk table says about chunk `index`; `None` if there is no such chunk.
    pub fn chunk(&self, index: u32) -> Option<ChunkEntry> {
        self.chunks.get(index)
    }

    /// Answers one request of `from`. Refuses requests to control with [`Refusal::NotHere`].
    ///
    /// A [`Request::Fence`] is marked here, so that [`Volume::is_fenced`] returns true from now on. The
    /// backend sends the answer only when every endpoint of that client has stopped on this volume.
    pub fn handle(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
    ) -> Result<Response, Refusal> {
        if request.is_for_control() {
            return Err(Refusal::NotHere);
        }
        if *request == Request::Stats {
            return Err(Refusal::BadRequest { what: "this server keeps no statistics" });
        }
        self.admit(from)?;
        let geometry = &self.superblock.geometry;
        match request {
            Request::Release => self.release(memory, from),
            Request::AllocSpans { class, count } => {
                let spare = self.clients.spare_chunks(geometry);
                let whose = (from, *class);
                let spans = self.spans.alloc(memory, geometry, &mut self.chunks, whose, *count, spare)?;
                return Ok(Response::Spans(spans));
            }
            Request::FreeSpans { spans } if spans.len() > MOST_FREED => {
                return Err(Refusal::BadRequest { what: "a request gives back too many spans" });
            }
            Request::FreeSpans { spans } => {
                self.spans.free(memory, geometry, &self.chunks, from, spans)?;
            }
            Request::RedoArea => {
                let offset = self.clients.redo_area(memory, geometry, &mut self.chunks, from)?;
                return Ok(Response::RedoArea(Extent { offset, bytes: geometry.redo_area_bytes }));
            }
            Request::Fence { client } if !geometry.is_client(*client) => {
                return Err(Refusal::NotAMember { client: *client });
            }
            Request::Fence { client } => self.clients.fence(memory, geometry, *client),
            Request::SpansOf { client, from: offset } => {
                self.expect_fenced(*client)?;
                return Ok(Response::Spans(self.spans.of(geometry, &self.chunks, *client, *offset)));
            }
            Request::Retire { client } => self.retire(memory, *client)?,
            Request::Usage => return Ok(self.usage(memory)),
            _ => return Err(Refusal::BadRequest { what: "this server does not know the request" }),
        }
        Ok(Response::Done)
    }

    /// Refuses a client that may not ask.
    fn admit(&self, from: ComputeId) -> Result<(), Refusal> {
        if self.is_fenced(from) {
            return Err(Refusal::Fenced { client: from });
        }
        if self.geometry().is_client(from) { Ok(()) } else { Err(Refusal::NotAMember { client: from }) }
    }

    /// Releases everything that the client has here. It may repeat this.
    fn release(&mut self, memory: &dyn Memory, from: ComputeId) {
        let geometry = &self.superblock.geometry;
        self.spans.disown(memory, geometry, &self.chunks, from);
        self.clients.release(memory, geometry, from);
    }

    /// Forgets `client`. Its spans become unowned, as if it had left. The recoverer frees the id only after
    /// every volume has lifted its fence. If it dies in between, the member is still dead and must be fenced
    /// again. In the other order, the control state could issue an id that is fenced.
    fn retire(&mut self, memory: &dyn Memory, client: ComputeId) -> Result<(), Refusal> {
        self.expect_fenced(client)?;
        let geometry = &self.superblock.geometry;
        self.spans.disown(memory, geometry, &self.chunks, client);
        self.clients.retire(memory, geometry, client);
        Ok(())
    }

    fn expect_fenced(&self, client: ComputeId) -> Result<(), Refusal> {
        if self.is_fenced(client) {
            return Ok(());
        }
        Err(Refusal::BadRequest { what: "the client to recover is not fenced on this server" })
    }

    /// Reports the memory in use, and the clients with a redo area that are not fenced.
    pub(crate) fn usage(&self, memory: &dyn Memory) -> Response {
        let members = self.clients.active().collect();
        let Geometry { chunks, chunk_bytes, .. } = *self.geometry();
        let (bytes_owned, bytes_free) = self.spans.usage(memory, self.geometry(), &self.chunks);
        let (chunks, chunks_used) = (u64::from(chunks), self.chunks.used());
        Response::Usage(Usage { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free, members })
    }
}
