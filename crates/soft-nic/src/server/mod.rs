//! One memory server as a process: threads that take the place of a NIC (`docs/FABRIC.md`).
//!
//! A *plain* server serves one memory, whose CPU answers all requests. A *host* serves copies of volumes
//! (`docs/REPLICATION.md`), which its [`ControlPlane`] installs and removes. The plane also answers all
//! requests about members, leases and the catalog, and takes the messages of other hosts.
//!
//! | module | what |
//! |---|---|
//! | `limits` | how many connections and bytes clients may take |
//! | `listen` | TCP addresses and Unix sockets to listen on |
//! | `accept` | the thread that accepts connections and distributes them over the shards |
//! | `shard` | a thread with its connections and their events |
//! | `connection` | one connection: received bytes, bytes to send, how it ends |
//! | `input`, `out` | received bytes before decoding, assembled bytes before sending |
//! | `greet` | the handshake: which peers are admitted |
//! | `execute` | lists of verbs, executed as they arrive |
//! | `calls` | control requests |
//! | `asked` | the requests that the control plane is answering |
//! | `incarnations` | which incarnation of each client may be served (F6) |
//! | `served` | the memory of a plain server, or the copies of a host |
//! | `mailbox` | how other threads reach a shard |
//! | `shared` | what all threads share |
//! | `counters` | what is counted |
//! | `events` | log lines about members |
//! | `remote` | the peer at the other end of a connection |
//!
//! **Why the contract holds.** The memory is the embedded backend's, so F1, F2 and F4 hold between any two
//! threads. Each connection belongs to one shard, which executes its verbs one after the other in the order
//! of arrival: F3. Replies leave after the *turn* that executed their verbs has ended: F5. A fence raises a
//! flag that every turn checks, and is answered when all turns that did not see it are over: F6. A list stops
//! at its first bad verb, and a broken connection stops its list between two verbs: F7.
//!
//! **Copies.** Each copy of a host has its own memory, tables, fences and sessions, as if a process of its
//! own served it. A member has connections to each copy, and each connection belongs to one copy for its
//! whole life. When the newest table no longer names a copy, the host removes it. That fences every client
//! there, and closes its connections to the copy.
//!
//! **The control plane.** It answers on threads of its own. The server passes a request to it and goes on.
//! The answer goes to the mailbox of the shard, and from there to the connection, if that still waits. The
//! plane may have 64 requests of one connection, and may answer them in any order.
//!
//! **What bounds memory.** A connection holds at most one incomplete verb, or the bytes of one receive that
//! must wait. It also holds at most [`Limits::high_water`] bytes to send, plus one reply. Above that mark,
//! the server neither reads nor executes anything more of that client. All connections together hold at most
//! [`Limits::max_buffered`]: the server disconnects a connection that needs more. Requests that the plane has
//! not answered count too, for as long as their connection is open. A client that has not
//! introduced itself holds at most 21 KiB, for [`Limits::handshake_time`] at most.
//!
//! **Newcomers.** A connection is a newcomer until its handshake is done. Newcomers have their own budget,
//! [`Limits::max_newcomers`], and [`Limits::handshake_time`] each, so silent connections cannot take the
//! places of clients. When the budget is used up, a new connection closes the oldest newcomer. An honest
//! client needs one round trip, so it is served unless a whole budget of other connections arrives within
//! that time.
//!
//! **Ends.** A member's connection stays open for as long as the member keeps it, and so does that of another
//! host. A host draws no conclusion from the end of a connection. Of plain servers, server 0 ends the lease
//! of a member whose last connection has ended. A client keeps one for its whole life, so that client is dead
//! or its identity has ended (I40). The server closes the connections of a fenced member at once, and a
//! connection without a member after [`Limits::idle_time`] of silence. A server that restarts ends the leases
//! of all members. It refuses their connections, because they know it under another boot number.
//!
//! **What may go wrong.** If the system stops a thread in the middle of a turn, the fences that wait for that
//! turn are delayed. Nothing else waits for the thread, except readers of the line that it was writing. A
//! client that violates the protocol gets a goodbye and is disconnected. A server with few descriptors allows
//! fewer connections, and refuses further clients with a reason. Descriptors may still run out, because other
//! parts of the process or of the host use them. Then the server accepts no new connection until some are
//! free again.

mod accept;
mod asked;
mod calls;
mod connection;
mod counters;
mod ending;
mod error;
mod events;
mod execute;
mod greet;
mod incarnations;
mod input;
mod limits;
mod listen;
mod mailbox;
mod out;
mod remote;
mod served;
mod shard;
mod shared;

pub use error::ServeError;
pub use limits::Limits;
pub use listen::Listen;
pub use served::ServedMemory;

use accept::Acceptor;
use listen::Listener;
use mailbox::Mailbox;
use rustix::process::{Resource, getrlimit};
use served::{Copies, Served, Serves};
use shard::Shard;
use shared::Shared;
use sherman_control::auth::Secret;
use sherman_control::path::DataPath;
use sherman_control::plane::{ControlPlane, Mirror};
use sherman_embedded::host::Host;
use sherman_fabric::ServerStats;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The options of a server.
#[derive(Debug)]
pub struct ServerOptions {
    /// The memory and its tables, of a plain server.
    pub host: Option<Arc<Host>>,
    /// The host's part of the control state, of a server of copies. The server begins without copies.
    pub plane: Option<Arc<dyn ControlPlane>>,
    /// Where to listen; at least one address.
    pub listen: Vec<Listen>,
    /// How many threads serve connections.
    pub shards: usize,
    /// The secret that clients must prove; `None` for no secret.
    pub secret: Option<Secret>,
    /// Whether to listen where other hosts can reach the server, although there is no secret.
    pub insecure: bool,
    /// For tests: READs copy their lines in random order, with pauses in between. This exposes clients that
    /// rely on more than F1 and F2.
    pub tear_reads: bool,
    /// The limits for clients.
    pub limits: Limits,
    /// Another way to the memory of a plain server, for clients that request it.
    pub path: Option<Arc<dyn DataPath>>,
}

impl ServerOptions {
    /// Options for a plain server of `host` that listens there, without a secret, with a number of shards
    /// that suits this machine.
    pub fn new(host: Arc<Host>, listen: Vec<Listen>) -> Self {
        Self { host: Some(host), ..Self::without_memory(listen) }
    }

    /// The same, for a server of copies.
    pub fn with_plane(plane: Arc<dyn ControlPlane>, listen: Vec<Listen>) -> Self {
        Self { plane: Some(plane), ..Self::without_memory(listen) }
    }

    fn without_memory(listen: Vec<Listen>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            host: None,
            plane: None,
            listen,
            shards: cores.div_ceil(2).min(8),
            secret: None,
            insecure: false,
            tear_reads: false,
            limits: Limits::default(),
            path: None,
        }
    }
}

/// Starts memory servers.
#[derive(Debug)]
pub struct SoftNicServer;

impl SoftNicServer {
    /// Listens, and serves in threads of its own until it is stopped.
    pub fn start(options: ServerOptions) -> Result<RunningServer, ServeError> {
        let ServerOptions { host, plane, listen, shards, secret, insecure, tear_reads, limits, path } =
            options;
        let serves = match (host, plane) {
            (Some(host), None) => Serves::Memory(Arc::new(Served::plain(host, path))),
            (None, Some(_)) if path.is_some() => return Err(ServeError::PathToCopies),
            (None, Some(plane)) => Serves::Copies(Copies::new(plane)),
            (None, None) | (Some(_), Some(_)) => return Err(ServeError::NotOneThing),
        };
        if listen.is_empty() {
            return Err(ServeError::NoListeners);
        }
        let exposed = insecure || secret.is_some();
        let listeners = listen.iter().map(|listen| Listener::open(listen, exposed));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.at.clone()).collect();
        let mailboxes = (0..shards.max(1)).map(|_| Mailbox::new().map(Arc::new));
        let mailboxes = mailboxes.collect::<Result<Vec<_>, _>>().map_err(ServeError::System)?;
        let limits = limits.fit(getrlimit(Resource::Nofile).current);
        let shared = Arc::new(Shared::new(serves, secret, tear_reads, limits, mailboxes)?);
        shared.take_over_members();
        let mut server = RunningServer { shared, addresses, threads: Vec::new() };
        for index in 0..server.shared.mailboxes.len() {
            let shard = Shard::new(Arc::clone(&server.shared), index).map_err(ServeError::System)?;
            server.spawn(format!("sherman-shard-{index}"), move || shard.run())?;
        }
        let acceptor = Acceptor::new(Arc::clone(&server.shared), listeners);
        server.spawn("sherman-accept".to_owned(), move || acceptor.run())?;
        let boot = server.shared.boot;
        let at: Vec<_> = server.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(server = server.shared.serves.number(), boot, at = at.join(","), "serving");
        Ok(server)
    }
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct RunningServer {
    shared: Arc<Shared>,
    addresses: Vec<Listen>,
    threads: Vec<JoinHandle<()>>,
}

impl RunningServer {
    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), ServeError> {
        let thread = std::thread::Builder::new().name(name).spawn(run).map_err(ServeError::System)?;
        self.threads.push(thread);
        Ok(())
    }

    /// The addresses it listens on, with the actual ports, in the order of the options.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// The boot number, which identifies this start of the server.
    pub fn boot(&self) -> u64 {
        self.shared.boot
    }

    /// The memory that a plain server serves.
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.shared.plain().map(|served| &served.host)
    }

    /// As [`ServerHandle::install_copy`].
    pub fn install_copy(&self, copy: u16, memory: impl Into<ServedMemory>) {
        self.shared.install_copy(copy, memory.into());
    }

    /// As [`ServerHandle::remove_copy`].
    pub fn remove_copy(&self, copy: u16) {
        self.shared.remove_copy(copy);
    }

    /// Its counters.
    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }

    /// A handle for other threads. They can stop the server while one thread waits for its end, or read its
    /// statistics.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(Arc::clone(&self.shared))
    }

    /// Tells the server to stop, and does not wait. The server accepts no more connections, says goodbye to
    /// every client, and its threads end within a second.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits for the server to end. It ends when it is [stopped](Self::stop), or when one of its threads
    /// fails: the others then stop too.
    pub fn join(mut self) -> Result<(), ServeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ServeError> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                outcome = Err(ServeError::Panicked);
            }
        }
        outcome
    }
}

/// A handle to a server that runs or has run, for other threads.
#[derive(Clone, Debug)]
pub struct ServerHandle(Arc<Shared>);

impl ServerHandle {
    /// Serves `memory` as copy `copy` of the table of volumes, to clients whose table has the epoch of the
    /// control plane. Another memory that was served under this number is removed. If it is the same memory,
    /// nothing changes, and clients stay connected. Does nothing on a plain server.
    ///
    /// It takes the lock of a memory that it removes.
    pub fn install_copy(&self, copy: u16, memory: impl Into<ServedMemory>) {
        self.0.install_copy(copy, memory.into());
    }

    /// Takes bytes for copy `copy`, which is being made in `memory`. They come from the host of
    /// its primary. Nobody else reaches the copy until it is [installed](Self::install_copy). Another memory
    /// that was served under this number is removed. If it is the same memory, nothing changes. Does nothing
    /// on a plain server.
    pub fn install_filling(&self, copy: u16, memory: impl Into<ServedMemory>) {
        self.0.install_filling(copy, memory.into());
    }

    /// Sets the way from a copy that is a primary to the other copies of its volume (T5); `None` if there are
    /// none. Does nothing if the copy is not served.
    ///
    /// It takes the lock of the copy's memory.
    pub fn set_mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>) {
        self.0.set_mirror(copy, mirror);
    }

    /// Serves this copy no more. When this returns, every client of the copy is fenced there. A list that is
    /// being executed may still end, and the connections close soon after. Does nothing if the copy is not
    /// served.
    ///
    /// It takes the lock of the copy's memory.
    pub fn remove_copy(&self, copy: u16) {
        self.0.remove_copy(copy);
    }

    /// The memory of a copy, if it is served or being made here. Clients reach it through the server alone.
    pub fn copy(&self, copy: u16) -> Option<Arc<Host>> {
        self.0.copy(copy)
    }

    /// Its counters.
    pub fn stats(&self) -> ServerStats {
        self.0.stats()
    }

    /// Tells the server to stop, as [`RunningServer::stop`] does.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop();
        // The panic has already printed its own message.
        let _ = self.end();
    }
}
