//! One memory server for many connections: the base of a server that offers verbs over a network.
//!
//! [`EmbeddedCluster`](crate::EmbeddedCluster) has its servers and their clients in one process. This module
//! is the server half, for clients in other processes. A [`Host`] is the memory with its line seqlocks (F1,
//! F4) and the server's CPU behind a lock. A [`Session`] is one incarnation of a client id on this host. A
//! [`Gate`] is one connection of that session.
//!
//! ```
//! use sherman_embedded::host::{Asker, Gate, Host, Session};
//! use sherman_embedded::{Atomicity, copy::CopyPath, memory::Region};
//! use sherman_fabric::{Call, Request, Space, calls};
//! use std::sync::Arc;
//!
//! let region = Region::new(64 << 20, 256 << 10, Atomicity::Line, CopyPath::fastest()).ok_or("no memory")?;
//! let host = Host::format(region, &Default::default())?;
//! let now = || host.now();
//! let session = host.handle(Asker::Nobody, &Request::Join, now, |tables, response| {
//!     let client = calls::Join::expect(response)?;
//!     let incarnation = tables.member(client).map_or(0, |entry| entry.incarnation);
//!     Session::new(client, incarnation)
//! })??;
//! let session = Arc::new(session);
//! let mut gate = Gate::new(Arc::clone(&session));
//! let mut turn = gate.enter(&host)?;
//! turn.write(Space::Host, 32 << 20, b"one line")?;
//! let mut bytes = [0; 8];
//! turn.read(Space::Host, 32 << 20, &mut bytes)?;
//! drop(turn);
//! assert_eq!(&bytes, b"one line");
//!
//! let mut drain = session.fence();
//! assert!(drain.is_over() && gate.enter(&host).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules
//!
//! 1. **Verbs go through a turn.** [`Gate::enter`] makes the gate's word odd, then loads the session's flag.
//!    A fencer raises the flag, then loads the words. At least one of the two loads sees the other side's
//!    store. Either the turn is refused, or the fencer's [`Drain`] waits for it (F6). A turn may span any
//!    bounded piece of work: a whole list, or the verbs of one receive. It must not wait for anything,
//!    because fencers wait for it. Never leak a turn.
//! 2. **Report a completion only after the turn has ended.** The end of the turn makes a change visible to
//!    every READ that any client posts later. Inside a turn, a READ sees the earlier changes of the same turn
//!    (F3).
//! 3. **One turn at a time per gate**, which `&mut` ensures. One gate per connection, because F3 orders only
//!    within one.
//! 4. **Work that depends on the order of answers happens in `then`**, under the lock. Examples: enter a
//!    session into the registry when an id is issued; look up and [`fence`](Session::fence) the session that
//!    a [`Request::Fence`] targets. So the id cannot pass to the next incarnation in between. A session may
//!    also arrive by itself, when a member connects to one more server. Enter it into the registry inside
//!    [`Host::look`], and only if the tables do not say that its id is fenced.
//! 5. **Answer a fence when its drain is over.** Ask a leave (as [`Asker::Leaver`]) when the drain of
//!    [`Session::leave`] is over. Poll the drain; do not block a thread on it. Inside `then` and `look`, ask
//!    the tables that are passed in. The host's own methods take the same lock and would deadlock.
//! 6. **A server frees ids by itself** ([`Host::on_reaped`]). The session of such a client ends under the
//!    lock, as after a fence.
//! 7. **Flags are never lowered.** The next incarnation of an id is another session.

mod error;
mod session;

pub use crate::gate::Drain;
pub use crate::mirror::{ranges, tables};
pub use crate::server::Made;
pub use error::HostError;
pub use session::{Gate, Session, Turn};

use crate::file::{Contents, FileOptions};
use crate::memory::Region;
use crate::mirror;
use crate::server::{self, Server};
use sherman_fabric::group::Store;
use sherman_fabric::{ComputeId, FabricError, Memory, Request, Response, Seen, Space};
use sherman_layout::{
    ClientWord, ControlGeometry, FormatError, FormatOptions, MemberEntry, MemberState, Superblock,
};
use sherman_memory_server::{Census, MemoryServer, OpenError};
use std::time::Instant;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'s> {
    /// A client that wants to join, or has no id.
    Nobody,
    /// A member. Refused with [`FabricError::Fenced`] once its session is over, even if another member has
    /// the id by then.
    Member(&'s Session),
    /// A member that leaves, after the drain of [`Session::leave`]. Accepted once, and never if it was
    /// fenced.
    Leaver(&'s Session),
}

impl<'s> Asker<'s> {
    fn on_server(self) -> Result<server::Asker<'s>, FabricError> {
        Ok(match self {
            Self::Nobody => server::Asker::Nobody,
            Self::Member(session) => server::Asker::Member(session.member(), session.flag()),
            Self::Leaver(session) if session.member().may_go() => {
                server::Asker::Leaver(session.member(), session.flag())
            }
            Self::Leaver(session) => return Err(FabricError::Fenced { client: session.client() }),
        })
    }
}

/// One memory server: its memory, and its CPU behind a lock.
#[derive(Debug)]
pub struct Host {
    server: Server,
    superblock: Superblock,
    /// The time at which [`Host::now`] was 0.
    epoch: Instant,
}

impl Host {
    /// Formats `region`, whatever it holds, under a random identity unless `options` name one.
    pub fn format(region: Region, options: &FormatOptions) -> Result<Self, FormatError> {
        Ok(Self::new(Server::format(region, options)?))
    }

    /// Formats `region`, whatever it holds, as one copy of a volume of `cluster`. It keeps neither members
    /// nor trees. `options` name the identity of the memory, which all copies of a volume share.
    ///
    /// # Errors
    /// As for [`format`](Self::format), and if `options` name volume 0 and an identity that is not `cluster`.
    pub fn format_volume(region: Region, options: &FormatOptions, cluster: u64) -> Result<Self, FormatError> {
        Ok(Self::new(Server::format_volume(region, options, cluster)?))
    }

    /// Makes a copy the primary of its volume (`docs/REPLICATION.md`): its lanes are free, its CPU opens its
    /// memory, and all unowned spans have their hints (T5). No client may take lanes here meanwhile.
    pub fn promote(&self) -> Result<(), OpenError> {
        self.server.promote()
    }

    /// Makes a primary another copy of its volume, which takes the stores of the new primary's CPU. Nobody
    /// may use it as the primary any more.
    pub fn demote(&self) {
        self.server.demote();
    }

    /// Opens a region in a file that was formatted before: tables, members and trees are as they were left.
    pub fn open(region: Region) -> Result<Self, OpenError> {
        Ok(Self::new(Server::open(region, None)?))
    }

    /// The host whose memory lies in a file ([`file`](mod@crate::file)). Opens the memory if it was
    /// formatted, or else formats it as `options` say. For an existing memory, only its server number and its
    /// cluster's server count are compared with `options`. All else stays as it was formatted.
    ///
    /// The host is a new incarnation of the server: it does not continue sessions of the former one.
    pub fn in_file(file: &FileOptions, options: &FormatOptions) -> Result<(Self, Contents), HostError> {
        let control_bytes = if options.server == 0 { ControlGeometry::bytes_of(options) } else { 0 };
        let file = FileOptions { control_bytes, ..file.clone() };
        let (region, contents) = Region::in_file(&file).map_err(HostError::File)?;
        let host = match contents {
            Contents::Fresh => Self::format(region, options).map_err(HostError::Format)?,
            Contents::Kept => Self::open(region).map_err(HostError::Open)?,
        };
        let Superblock { server, servers, .. } = *host.superblock();
        if (server, servers) != (options.server, options.servers) {
            let (asked, asked_servers) = (options.server, options.servers);
            return Err(HostError::OtherServer { server, servers, asked, asked_servers });
        }
        Ok((host, contents))
    }

    /// A copy of a volume of `cluster` in a file. Opens the memory if it was formatted, or else formats it.
    /// An existing memory must be the one that `options` name, of the same cluster. Its lanes are as they
    /// were.
    pub fn volume_in_file(
        file: &FileOptions,
        options: &FormatOptions,
        cluster: u64,
    ) -> Result<(Self, Contents), HostError> {
        let (region, contents) = Region::in_file(file).map_err(HostError::File)?;
        let server = match contents {
            Contents::Fresh => Server::format_volume(region, options, cluster).map_err(HostError::Format)?,
            Contents::Kept => Server::open_volume(region).map_err(HostError::Open)?,
        };
        let host = Self::new(server);
        let Superblock { server, servers, memory_id, .. } = *host.superblock();
        if (server, servers) != (options.server, options.servers) {
            let (asked, asked_servers) = (options.server, options.servers);
            return Err(HostError::OtherServer { server, servers, asked, asked_servers });
        }
        let found = host.look(MemoryServer::cluster);
        if (memory_id, found) != (options.memory_id, cluster) {
            return Err(HostError::OtherCluster { found, asked: cluster });
        }
        Ok((host, contents))
    }

    /// Notes that this copy was the primary of its volume before its process ended, and is it still. Unlike
    /// [`promote`](Self::promote), this leaves its lanes as they are.
    pub fn lead(&self) {
        self.server.lead();
    }

    /// The stores that give another copy the tables of this one, which is the primary. Its process ended:
    /// stores of its CPU that nobody was told of may not have reached the others (T5).
    pub fn tables(&self) -> Vec<Store> {
        self.server.look(|_| mirror::table_stores(self.memory(), &self.superblock.geometry))
    }

    fn new(server: Server) -> Self {
        let superblock = server.look(|tables| *tables.superblock());
        Self { server, superblock, epoch: Instant::now() }
    }

    /// The host's memory, which bypasses every protocol. Clients reach it through a [`Turn`].
    #[inline]
    pub fn memory(&self) -> &Region {
        self.server.memory()
    }

    /// The server's number, its cluster, and the layout of its memory.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Nanoseconds since the host was made. Leases use this time.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Lets the server's CPU answer `request`. `now` gives the time, and is called under the lock so that
    /// time does not run backwards. `then` gets the tables after the change and the answer, before the server
    /// looks at any other request. A refused request does not call `then`.
    pub fn handle<T>(
        &self,
        asker: Asker<'_>,
        request: &Request,
        now: impl FnOnce() -> u64,
        then: impl FnOnce(&MemoryServer, Response) -> T,
    ) -> Result<T, FabricError> {
        self.server.handle(asker.on_server()?, request, now, then)
    }

    /// As [`Host::handle`], for the primary of a volume with other copies. `then` also gets the stores that
    /// the CPU has made to host memory. The other copies must make them in the same order, and before the
    /// client gets the answer (T5).
    pub fn handle_recorded<T>(
        &self,
        asker: Asker<'_>,
        request: &Request,
        then: impl FnOnce(&MemoryServer, Response, Vec<Store>) -> T,
    ) -> Result<T, FabricError> {
        self.server.handle_recorded(asker.on_server()?, request, then)
    }

    /// Makes the stores of the CPU of the primary. `which` has the epoch of the sender's table, and the
    /// number of these stores under that table. They are made once, although the sender may repeat them.
    /// `then` is called under the lock, after the stores.
    ///
    /// # Errors
    /// [`FabricError::OutOfBounds`] if a store is outside the memory. Then none was made.
    pub fn make_stores<T>(
        &self,
        which: (u64, u64),
        stores: &[Store],
        then: impl FnOnce() -> T,
    ) -> Result<Made<T>, FabricError> {
        self.server.make_stores(which, stores, then)
    }

    /// The digests of host memory from `offset` on: of each block of
    /// [`DIGEST_BYTES`](sherman_fabric::control::DIGEST_BYTES), and of the rest. Every line is whole, but a
    /// block may change meanwhile (F1).
    ///
    /// # Errors
    /// If the bytes are not in the memory, or are too many for one answer.
    pub fn digests(&self, offset: u64, len: u32) -> Result<Vec<u64>, FabricError> {
        mirror::digests(self.memory(), offset, len)
    }

    /// Stores bytes of the primary in a copy that is being made, line by line (F1).
    ///
    /// # Errors
    /// If the bytes are not in the memory. Then nothing was stored.
    pub fn fill(&self, offset: u64, bytes: &[u8]) -> Result<(), FabricError> {
        mirror::fill(self.memory(), offset, bytes)
    }

    /// Whether the memory says that `client` is fenced here. Unlike the tables, it is up to date also where
    /// this copy is no primary.
    pub fn is_fenced_in_memory(&self, client: ComputeId) -> bool {
        let geometry = &self.superblock.geometry;
        let word = || self.memory().load_u64(Space::Host, geometry.client_entry(client));
        geometry.is_client(client) && ClientWord::from_bits(word()).is_none_or(|word| word.fenced)
    }

    /// Lets the server's CPU answer an operator. An operator needs no membership.
    pub fn administer(&self, request: &Request) -> Result<Response, FabricError> {
        self.server.administer(request, || self.now())
    }

    /// Issues an id to a client that found `seen` at the servers, indexed by server number. A refusal changes
    /// nothing. `then` is called as by [`Host::handle`].
    pub fn join<T>(
        &self,
        seen: &[Option<Seen>],
        then: impl FnOnce(&MemoryServer, ComputeId) -> T,
    ) -> Result<T, FabricError> {
        self.server.join(seen, || self.now(), then)
    }

    /// Registers `then` for every client whose id the server frees by itself, because its lease expired and
    /// it owned nothing. `then` runs under the lock, before the id is issued again, and must end that
    /// client's session. Only the last registration counts.
    pub fn on_reaped(&self, then: impl Fn(ComputeId) + Send + Sync + 'static) {
        self.server.on_reaped(Box::new(then));
    }

    /// Ends the lease of `session` after its last connection has ended, because it cannot come back. `still`
    /// is called under the lock, and only if the session has a lease. If it returns false, the lease stays.
    pub fn lose(&self, session: &Session, still: impl FnOnce(&MemoryServer) -> bool) {
        self.server.change(|tables, memories| {
            let holder = |entry: MemberEntry| (entry.state, entry.incarnation);
            let lives = (MemberState::Live, session.incarnation());
            let loses = !session.is_fenced()
                && tables.member(session.client()).map(holder) == Some(lives)
                && still(tables);
            if loses {
                tables.lose(memories, session.client());
            }
        });
    }

    /// Ends the lease of every member, because no earlier client can come back to a restarted server. Returns
    /// how many live members there were.
    pub fn lose_all(&self) -> usize {
        self.server.change(|tables, memories| {
            let live = |tables: &MemoryServer| {
                let ids = (1..=tables.geometry().member_capacity as u16).map(ComputeId);
                let members = ids.filter_map(|client| tables.member(client));
                members.filter(|entry| entry.state == MemberState::Live).count()
            };
            let before = live(tables);
            tables.lose_all(memories);
            before
        })
    }

    /// Assigns this memory to `cluster`, if it belongs to no cluster yet. Returns whether it belongs to
    /// `cluster` now.
    pub fn adopt(&self, cluster: u64) -> bool {
        self.server.change(|tables, memories| tables.adopt(memories, cluster))
    }

    /// Lets `look` see the tables while no request is being answered.
    pub fn look<T>(&self, look: impl FnOnce(&MemoryServer) -> T) -> T {
        self.server.look(look)
    }

    /// Counts members and memory.
    pub fn census(&self) -> Census {
        let now = self.now();
        self.server.look(|tables| tables.census(self.server.memories(), now))
    }

    /// Whether the tables say that `client` is fenced here.
    pub fn is_fenced(&self, client: ComputeId) -> bool {
        self.server.is_fenced(client)
    }

    /// The incarnation of the member with the id `client`, dead or alive. `None` if no member has the id, or
    /// on a server that keeps no members.
    pub fn member_incarnation(&self, client: ComputeId) -> Option<u32> {
        let entry = self.look(|tables| tables.member(client))?;
        (entry.state != MemberState::Free).then_some(entry.incarnation)
    }
}

#[cfg(test)]
mod tests;
