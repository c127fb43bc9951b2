//! One memory server for many connections: what a server of verbs over a network is built on.
//!
//! [`EmbeddedCluster`](crate::EmbeddedCluster) has its servers and their clients in one process; here is the half that
//! remains when clients are elsewhere. A [`Host`] is the memory with its line seqlocks (F1, F4) and the server's CPU behind
//! a lock, a [`Session`] one incarnation of a client id on this host, a [`Gate`] one connection of that session.
//!
//! ```
//! use sherman_embedded::host::{Asker, Gate, Host, Session};
//! use sherman_embedded::{Atomicity, copy::CopyPath, memory::Region};
//! use sherman_fabric::{Request, Response, Space};
//! use std::sync::Arc;
//!
//! let region = Region::new(64 << 20, 256 << 10, Atomicity::Line, CopyPath::fastest()).ok_or("no memory")?;
//! let host = Host::format(region, &Default::default())?;
//! let session = host.handle(Asker::Nobody, &Request::Join, || host.now(), |tables, response| match response {
//!     Response::Joined { client } => {
//!         let incarnation = tables.member(client).map_or(0, |entry| entry.incarnation);
//!         Session::new(client, incarnation)
//!     }
//!     other => panic!("{other:?}"),
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
//! 1. **Verbs go through a turn.** [`Gate::enter`] makes the gate's word odd, then looks at the session's flag; who fences
//!    raises the flag, then looks at the words. Of the two looks at least one sees the other's store: either the turn is
//!    refused, or the fencer's [`Drain`] waits for it (F6). A turn may span any bounded piece of work, a whole list or the
//!    verbs of one receive, but must not wait for anything: fencers wait for it. Never leak one.
//! 2. **A completion is told only after the turn has ended.** Its end is what makes a change visible to every READ posted
//!    later by anybody. In a turn, a READ sees what the same turn changed before it (F3).
//! 3. **One turn at a time per gate**, which `&mut` sees to; one gate per connection, since F3 orders only within one.
//! 4. **Whatever depends on an answer's place among others is done in `then`**, behind the lock: to enter a session into
//!    the book when an id is issued, to look up and [`fence`](Session::fence) the session that a [`Request::Fence`] is
//!    meant for. So the id cannot have passed to the next incarnation in between. A session that arrives by itself (a member that
//!    connects to one more server) is entered into the book inside [`Host::look`], and only if the tables do not say that its id
//!    is fenced.
//! 5. **A fence is answered when its drain is over**, a leave is asked (as [`Asker::Leaver`]) when the drain of
//!    [`Session::leave`] is over. Poll the drain; block nobody. Inside `then` and `look`, ask the tables that are passed in:
//!    the host's own methods take the same lock and would wait for ever.
//! 6. **A server frees ids by itself** ([`Host::on_reaped`]): the session of such a client ends behind the lock, as after a fence.
//! 7. **Flags are never lowered.** The next incarnation of an id is another session.

mod error;
mod session;

pub use crate::gate::Drain;
pub use error::HostError;
pub use session::{Gate, Session, Turn};

use crate::file::{Contents, FileOptions};
use crate::memory::Region;
use crate::server::{self, Server};
use sherman_fabric::{ClientId, FabricError, Request, Response, Seen};
use sherman_memory_server::{
    FormatError, FormatOptions, MemberEntry, MemberState, MemoryServer, OpenError, Superblock,
};
use std::time::Instant;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'s> {
    /// Somebody who wants to join, or has no name.
    Nobody,
    /// A member. Refused with [`FabricError::Fenced`] once its session is over, though the id may be another's by then.
    Member(&'s Session),
    /// A member that goes, after the drain of [`Session::leave`]. Let through once, and never if it was fenced.
    Leaver(&'s Session),
}

/// One memory server: its memory, and its CPU behind a lock.
#[derive(Debug)]
pub struct Host {
    server: Server,
    superblock: Superblock,
    /// When [`Host::now`] was 0.
    epoch: Instant,
}

impl Host {
    /// Formats `region`, whatever was in it, under a random identity unless `options` name one.
    pub fn format(region: Region, options: &FormatOptions) -> Result<Self, FormatError> {
        Ok(Self::new(Server::format(region, options)?))
    }

    /// Opens a region that was formatted before: tables, members and trees are as they were left.
    pub fn open(region: Region) -> Result<Self, OpenError> {
        Ok(Self::new(Server::open(region)?))
    }

    /// The host whose memory lies in a file ([`file`](mod@crate::file)): opened if one was formatted there, else formatted as
    /// `options` say. Of a host that was there, only its number and how many servers its cluster has are compared with
    /// `options`; all else stays as it was formatted.
    ///
    /// It is a new incarnation of the server: sessions of the former one are not carried on.
    pub fn in_file(file: &FileOptions, options: &FormatOptions) -> Result<(Self, Contents), HostError> {
        let (region, contents) = Region::in_file(file).map_err(HostError::File)?;
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

    fn new(server: Server) -> Self {
        let superblock = server.look(|tables| *tables.superblock());
        Self { server, superblock, epoch: Instant::now() }
    }

    /// Its memory, past every protocol: clients reach it through a [`Turn`].
    #[inline]
    pub fn memory(&self) -> &Region {
        self.server.memory()
    }

    /// Which server of which cluster it is, and where everything lies.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Nanoseconds since it was made: the time of its leases.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Lets the server's CPU answer at the time that `now` tells, which is asked behind the lock so that time does not run
    /// back. `then` is called with the tables after the change and the answer, before any other request is looked at; not
    /// if the request is refused.
    pub fn handle<T>(
        &self,
        asker: Asker<'_>,
        request: &Request,
        now: impl FnOnce() -> u64,
        then: impl FnOnce(&MemoryServer, Response) -> T,
    ) -> Result<T, FabricError> {
        let asker = match asker {
            Asker::Nobody => server::Asker::Nobody,
            Asker::Member(session) => server::Asker::Member(session.member(), session.flag()),
            Asker::Leaver(session) if session.member().may_go() => {
                server::Asker::Leaver(session.member(), session.flag())
            }
            Asker::Leaver(session) => return Err(FabricError::Fenced { client: session.client() }),
        };
        self.server.handle(asker, request, now, then)
    }

    /// Lets the server's CPU answer an operator, who needs no membership.
    pub fn administer(&self, request: &Request) -> Result<Response, FabricError> {
        self.server.administer(request, || self.now())
    }

    /// Issues an id to a client that found `seen` at the servers, by number. A refusal changes nothing. `then` is called as by
    /// [`Host::handle`].
    pub fn join<T>(
        &self,
        seen: &[Option<Seen>],
        then: impl FnOnce(&MemoryServer, Response) -> T,
    ) -> Result<T, FabricError> {
        self.server.join(seen, || self.now(), then)
    }

    /// From now on, `then` is called with every client whose id the server frees by itself, since its lease was at its end and it owned
    /// nothing. It is called behind the lock, before the id is issued again, and must end that client's session. Only the last call
    /// counts.
    pub fn on_reaped(&self, then: impl Fn(ClientId) + Send + Sync + 'static) {
        self.server.on_reaped(Box::new(then));
    }

    /// Ends the lease of `session`, whose last connection has ended: it cannot come back. `still` is asked behind the lock, and
    /// only if the session has a lease.
    pub fn lose(&self, session: &Session, still: impl FnOnce(&MemoryServer) -> bool) {
        self.server.change(|tables, memory| {
            let holder = |entry: MemberEntry| (entry.state, entry.incarnation);
            let lives = (MemberState::Live, session.incarnation());
            let loses =
                !session.is_fenced() && tables.member(session.client()).map(holder) == Some(lives) && still(tables);
            if loses {
                tables.lose(memory, session.client());
            }
        });
    }

    /// Ends the lease of every member: no client of before can come back to a server that has started anew. How many there were.
    pub fn lose_all(&self) -> usize {
        self.server.change(|tables, memory| {
            let live = |tables: &MemoryServer| {
                let ids = (1..=tables.geometry().member_capacity as u16).map(ClientId);
                let members = ids.filter_map(|client| tables.member(client));
                members.filter(|entry| entry.state == MemberState::Live).count()
            };
            let before = live(tables);
            tables.lose_all(memory);
            before
        })
    }

    /// Makes this memory `cluster`'s, if it is nobody's yet. Whether it is `cluster`'s now.
    pub fn adopt(&self, cluster: u64) -> bool {
        self.server.change(|tables, memory| tables.adopt(memory, cluster))
    }

    /// Lets `look` see the tables while no request is being answered.
    pub fn look<T>(&self, look: impl FnOnce(&MemoryServer) -> T) -> T {
        self.server.look(look)
    }

    /// Whether the tables say that `client` is fenced here.
    pub fn is_fenced(&self, client: ClientId) -> bool {
        self.server.is_fenced(client)
    }

    /// The incarnation of whoever has the id `client`, dead or alive; `None` if nobody has, or on a server that keeps no
    /// members.
    pub fn member_incarnation(&self, client: ClientId) -> Option<u32> {
        let entry = self.look(|tables| tables.member(client))?;
        (entry.state != MemberState::Free).then_some(entry.incarnation)
    }
}

#[cfg(test)]
mod tests;
