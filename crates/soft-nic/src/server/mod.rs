//! One memory server as a process: threads that take the place of a NIC (`docs/FABRIC.md`).
//!
//! | module | what |
//! |---|---|
//! | `listen` | TCP addresses and Unix sockets to listen on |
//! | `accept` | the thread that accepts connections and spreads them over the shards |
//! | `shard` | a thread with its connections and their events |
//! | `connection` | one connection: what was received, what is to be sent, how it ends |
//! | `input`, `out` | the bytes received and not yet understood, assembled and not yet sent |
//! | `greet` | the handshake: who may come in |
//! | `execute` | lists of verbs, executed as they arrive |
//! | `calls` | control requests |
//! | [`path`] | other ways to the memory than lists in frames |
//! | `book` | which incarnation of each client may be served (F6) |
//! | `shared` | what all threads share |
//! | `counters` | what is counted |
//! | `events` | log lines about members |
//! | `remote` | who is at the other end of a connection |
//!
//! **Why the contract holds.** The memory is the embedded backend's, so F1, F2 and F4 hold between any two threads. Each
//! connection belongs to one shard, which executes its verbs one after the other in the order they came: F3. Replies
//! leave after the *turn* in which their verbs were executed has ended: F5. A fence raises a flag that every turn looks at,
//! and is answered when the turns that did not see it are over: F6. A list stops at its first bad verb, and a connection
//! that breaks stops its list between two verbs: F7.
//!
//! **What bounds memory.** A connection holds at most one verb that is not complete, or what was received in one go and
//! must wait; and at most [`Limits::high_water`] bytes to be sent, plus one reply. Above the mark nothing more of that
//! client is read or executed. All connections together hold at most [`Limits::max_buffered`]: who would need more is
//! disconnected. A client that has not introduced itself holds at most 21 KiB, for [`Limits::handshake_time`] at most.
//!
//! **Newcomers.** A connection is a newcomer until its handshake is done. Newcomers have a budget of their own,
//! [`Limits::max_newcomers`], and [`Limits::handshake_time`] each: silent connections cannot take the places of clients. When
//! the budget is used up, a new connection closes the oldest newcomer. An honest client needs one round trip, so it is
//! served unless a whole budget of others connects within that time.
//!
//! **Ends.** A connection of a member stays open for as long as the member keeps it. Server 0 ends the lease of a member whose last connection
//! has ended: a client keeps one for its whole life, so the client is dead or its identity is at its end (I40). A connection of a member that is fenced
//! is closed at once, and one without a member after [`Limits::idle_time`] of silence. A server that starts anew ends the leases of all
//! members: it refuses their connections, since they know it under another boot.
//!
//! **What may go wrong.** A thread that is stopped by the system in the middle of a turn delays the fences that wait for
//! it; nothing else waits for it but the readers of the line it was writing. A client that sends what is not this protocol
//! is told so and disconnected. Descriptors may run out: then nobody new is accepted until some are free again.

mod accept;
mod book;
mod calls;
mod connection;
mod counters;
mod error;
mod events;
mod execute;
mod greet;
mod input;
mod listen;
mod out;
pub mod path;
mod remote;
mod shard;
mod shared;

pub use error::ServeError;
pub use listen::Listen;
pub use path::DataPath;

use crate::auth::Secret;
use accept::Acceptor;
use listen::Listener;
use shard::{Mailbox, Shard};
use shared::Shared;
use sherman_embedded::host::Host;
use sherman_fabric::ServerStats;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a server allows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at the same time whose handshake is done.
    pub max_connections: usize,
    /// Connections open at the same time whose handshake is not done, spread over the shards. One more closes the oldest of them,
    /// and never one whose handshake is done.
    pub max_newcomers: usize,
    /// How long a handshake may take.
    pub handshake_time: Duration,
    /// How long a connection of somebody who is no member may be silent: an operator, or a client that is about to join.
    pub idle_time: Duration,
    /// Bytes to be sent to one client above which nothing more of it is executed.
    pub high_water: usize,
    /// Bytes that all connections together may make the server hold.
    pub max_buffered: usize,
    /// How long data that was sent may stay unacknowledged before a TCP connection counts as broken.
    pub user_timeout: Duration,
    /// How long a TCP connection may be silent before its other end is asked whether it is still there.
    pub keepalive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_newcomers: 256,
            handshake_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(30),
            high_water: 256 << 10,
            max_buffered: 256 << 20,
            user_timeout: Duration::from_secs(20),
            keepalive: Duration::from_secs(15),
        }
    }
}

/// What a server is made of.
#[derive(Debug)]
pub struct ServerOptions {
    /// The memory and its tables.
    pub host: Arc<Host>,
    /// Where to listen: at least one.
    pub listen: Vec<Listen>,
    /// How many threads serve connections.
    pub shards: usize,
    /// What clients have to prove that they know.
    pub secret: Option<Secret>,
    /// Whether to listen where other hosts can reach it though there is no secret.
    pub insecure: bool,
    /// For tests: READs copy their lines in random order, with pauses in between, so that whoever relies on more than F1 and
    /// F2 is found out.
    pub tear_reads: bool,
    /// What clients are allowed.
    pub limits: Limits,
    /// Another way to the memory, for clients that ask for it.
    pub path: Option<Arc<dyn DataPath>>,
}

impl ServerOptions {
    /// A server of `host` that listens there, without a secret, with as many shards as suit this machine.
    pub fn new(host: Arc<Host>, listen: Vec<Listen>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            host,
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
        let ServerOptions { host, listen, shards, secret, insecure, tear_reads, limits, path } = options;
        if listen.is_empty() {
            return Err(ServeError::NoListeners);
        }
        let exposed = insecure || secret.is_some();
        let listeners = listen.iter().map(|listen| Listener::open(listen, exposed));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.at.clone()).collect();
        let mailboxes = (0..shards.max(1)).map(|_| Mailbox::new());
        let mailboxes = mailboxes.collect::<Result<Vec<_>, _>>().map_err(ServeError::System)?;
        let shared = Arc::new(Shared::new(host, secret, tear_reads, limits, path, mailboxes)?);
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
        tracing::info!(server = server.shared.host.superblock().server, boot, at = at.join(","), "serving");
        Ok(server)
    }
}

/// A server that runs. Dropping it stops it.
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

    /// Where it listens, with the ports it got, in the order they were given.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Which start of the server this is.
    pub fn boot(&self) -> u64 {
        self.shared.boot
    }

    /// The memory it serves.
    pub fn host(&self) -> &Arc<Host> {
        &self.shared.host
    }

    /// What it has counted.
    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }

    /// A handle for other threads: to stop it while one waits for its end, or to tell its statistics.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(Arc::clone(&self.shared))
    }

    /// Tells it to stop, and does not wait: nobody is accepted any more, every client is told goodbye, and the threads end
    /// within a second.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits for it to end, which it does when it is [stopped](Self::stop), or when a thread of it fails: the others are
    /// stopped then.
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

/// A server that runs, or has run, as other threads see it.
#[derive(Clone, Debug)]
pub struct ServerHandle(Arc<Shared>);

impl ServerHandle {
    /// What it has counted.
    pub fn stats(&self) -> ServerStats {
        self.0.stats()
    }

    /// Tells it to stop, as [`RunningServer::stop`] does.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop();
        // A panic was told by its own message.
        let _ = self.end();
    }
}
