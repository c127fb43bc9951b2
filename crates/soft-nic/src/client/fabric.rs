//! One compute server's identity in a cluster of memory servers that are elsewhere.
//!
//! **Joining.** The client first looks which memory every server has, and to which cluster that belongs. It tells server 0 what it
//! saw; server 0 refuses it, changing nothing, or gives the id and its incarnation with its `Welcome`. Every other server is
//! then introduced to them, and at last server 0 is asked to renew. Only if it does is the cluster joined: a compute server
//! that was so slow that it has been taken for dead, fenced and retired meanwhile, on servers that had not heard of it then,
//! finds out before its first verb. A cluster of one server needs no look: the client and the server meet only each other.
//!
//! **Leaving.** Who asks server 0 for [`Request::Leave`] or [`Request::Depart`] is gone: nothing is posted any more. If
//! nobody did, the last handle to go says goodbye to every server, server 0 last. An identity that lost a connection neither
//! renews nor leaves: it may have left a lane behind, which only recovery can free (I40).
//!
//! **Connections.** A fabric keeps a connection to every server for its whole life, in an endpoint or between two. When the last one to
//! server 0 ends, server 0 ends the lease of this identity at once, and its recovery need not wait.

use super::attach::Attachment;
use super::bell::Bell;
use super::connect::{ConnectError, Connected, connect};
use super::endpoint::SoftNicEndpoint;
use super::error::JoinError;
use super::line::Line;
use super::options::JoinOptions;
use super::peers::{Known, Peers};
use super::station::Station;
use crate::wire::{Goodbye, GoodbyeCode, MAX_SERVERS, Role, Welcome};
use sherman_fabric::{Caps, ClientId, Fabric, FabricError, Refusal, Request, Response, Seen};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Sets of connections kept for the next endpoint.
const SPARES: usize = 4;

/// One compute server's way into the cluster. Clones and endpoints share its identity; the last to go leaves.
#[derive(Clone, Debug)]
pub struct SoftNicFabric {
    membership: Arc<Membership>,
}

impl SoftNicFabric {
    /// Joins the cluster as a new compute server, which leaves when the last of its handles is dropped. Its lease must be
    /// renewed meanwhile.
    pub fn join(options: &JoinOptions) -> Result<Self, JoinError> {
        check_servers(options)?;
        // Before anybody knows us: without it there would be no endpoint.
        let bell = Bell::new().map_err(JoinError::System)?;
        drop(bell);
        let mut view = View::look(options)?;
        let first = introduce(options, 0, Role::Join { seen: view.seen() });
        let first = first.map_err(|error| view.blame(error))?;
        let welcome = first.welcome.clone();
        let known = view.known(&welcome);
        let peers = Peers::new(options.clone(), welcome.client, welcome.incarnation, welcome.cluster, known);
        let mut station = Station::new(vec![Line::new(first)]);
        let mut caps = welcome.caps.clone();
        match Self::complete(&peers, &mut station, &welcome, &mut caps) {
            Ok(()) => {
                let (spares, held) = (Mutex::new(vec![station]), Mutex::new(None));
                let (gone, abandoned) = (AtomicBool::new(false), AtomicBool::new(false));
                let ended = AtomicBool::new(false);
                Ok(Self { membership: Arc::new(Membership { peers, caps, gone, abandoned, ended, spares, held }) })
            }
            Err(error) => {
                // Nothing but the id is ours yet. If it cannot be given back, its lease will run out.
                let _ = station.ask(0, &Request::Leave, &peers);
                Err(error)
            }
        }
    }

    /// Introduces the new member to every other server, and sees that it is one still.
    fn complete(peers: &Peers, station: &mut Station, welcome: &Welcome, caps: &mut Caps) -> Result<(), JoinError> {
        check(&peers.options, 0, welcome)?;
        for server in 1..peers.servers() {
            if peers.is_lost(server) {
                station.add(Line::ended(FabricError::ServerLost { server }));
                continue;
            }
            let connected = introduce(&peers.options, server, peers.role(server))?;
            check(&peers.options, server, &connected.welcome)?;
            restrict(caps, &connected.welcome.caps);
            station.add(Line::new(connected));
        }
        match station.ask(0, &Request::Renew, peers) {
            Ok(Response::Renewed { .. }) => Ok(()),
            Ok(_) => Err(JoinError::Renew(FabricError::Unsupported { what: "understand server 0's answer" })),
            Err(error) => Err(JoinError::Renew(error)),
        }
    }

    /// Its identity.
    pub fn client(&self) -> ClientId {
        self.membership.peers.client
    }

    /// The id of the cluster: the identity of server 0's memory. After a restart without its file server 0 has another.
    pub fn cluster_id(&self) -> u64 {
        self.membership.peers.cluster
    }

    /// How many memory servers there are.
    pub fn servers(&self) -> u16 {
        self.membership.peers.servers()
    }

    /// What every server of the cluster can do.
    pub fn caps(&self) -> &Caps {
        &self.membership.caps
    }

    /// A new endpoint, for the calling thread: connects to every server, unless an endpoint that is gone left its
    /// connections.
    ///
    /// # Errors
    /// [`FabricError::Fenced`] if it has left or was abandoned; [`FabricError::Disconnected`] if a server that the cluster counts
    /// as present cannot be reached, which is the end of this identity; [`FabricError::Unsupported`] if there can be no more
    /// connections. A server that is declared lost is no error here, but of what is posted there.
    pub fn endpoint(&self) -> Result<SoftNicEndpoint, FabricError> {
        let membership = &self.membership;
        if membership.is_over() {
            return Err(membership.peers.fenced());
        }
        let bell = Bell::new();
        let bell =
            bell.map_err(|_| FabricError::Unsupported { what: "open one more endpoint: too many files are open" })?;
        let station = membership.station()?;
        Ok(SoftNicEndpoint::new(Arc::clone(membership), station, bell))
    }

    /// Opens a link of another data path to `server`: one more connection, attached with `body`, which are that path's words.
    ///
    /// # Errors
    /// What the server refuses with; else as [`endpoint`](Self::endpoint), and [`FabricError::ServerLost`] if it is.
    pub fn attach(&self, server: u16, body: &[u8]) -> Result<Attachment, FabricError> {
        if self.is_over() {
            return Err(self.membership.peers.fenced());
        }
        if server >= self.servers() {
            return Err(FabricError::NoSuchServer { server });
        }
        Attachment::open(&self.membership.peers, server, body)
    }

    /// Why something went wrong with a server on another data path: asks it, for a moment, whether it has fenced us. If not, that
    /// is [`FabricError::Disconnected`] and the end of this identity (I40).
    pub fn explain_break(&self, server: u16) -> FabricError {
        self.membership.peers.explain_break(server)
    }

    /// Whether the cluster has declared `server` lost.
    #[inline]
    pub fn is_lost(&self, server: u16) -> bool {
        self.membership.peers.is_lost(server)
    }

    /// Whether `server` could not be reached: nothing may be posted there any more.
    #[inline]
    pub fn is_cut(&self, server: u16) -> bool {
        self.membership.peers.is_cut(server)
    }

    /// Whether nothing may be posted any more: it has left, or was abandoned.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.membership.is_over()
    }

    /// The identity has ended. What is in flight goes on, but endpoints that are dropped no longer wait for it: recovery frees the lanes
    /// that it would have released.
    pub fn end(&self) {
        self.membership.ended.store(true, Ordering::Release);
    }

    /// Gives the identity up without leaving, as one must that may have left something behind: its lease runs out, and others
    /// recover it. Nothing is posted any more; connections are closed when their endpoints are dropped, without waiting for
    /// what is in flight.
    pub fn abandon(&self) {
        self.membership.abandoned.store(true, Ordering::Release);
        self.membership.spares().clear();
        *self.membership.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Fabric for SoftNicFabric {
    type Endpoint = SoftNicEndpoint;

    fn endpoint(&self) -> Result<SoftNicEndpoint, FabricError> {
        SoftNicFabric::endpoint(self)
    }
}

/// Keeps a member in the cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) peers: Peers,
    pub(crate) caps: Caps,
    /// Server 0 was told that we go.
    gone: AtomicBool,
    abandoned: AtomicBool,
    /// Whether endpoints that are dropped need not wait for what is in flight.
    ended: AtomicBool,
    spares: Mutex<Vec<Station>>,
    /// Connections that wait for answers that nobody wants any more. They may be the only ones.
    held: Mutex<Option<Station>>,
}

impl Membership {
    /// Whether nothing may be posted any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether an endpoint that is dropped waits for what it has in flight.
    pub(crate) fn waits_for_lists(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire) && !self.ended.load(Ordering::Acquire) && !self.peers.is_broken()
    }

    /// Whether a request may be sent. Who leaves is gone from then on.
    pub(crate) fn allow(&self, server: u16, request: &Request) -> Result<(), FabricError> {
        if self.is_over() {
            return Err(self.peers.fenced());
        }
        let about_us = matches!(request, Request::Renew | Request::Leave | Request::Depart);
        if about_us && self.peers.is_broken() {
            return Err(FabricError::Disconnected { server });
        }
        if server == 0 && matches!(request, Request::Leave | Request::Depart) {
            self.gone.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Connections for an endpoint.
    fn station(&self) -> Result<Station, FabricError> {
        let spare = self.spares().pop();
        if let Some(station) = spare {
            return Ok(station);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(station) = &mut *held {
            station.drive(&self.peers);
        }
        let answered = held.take_if(|station| station.is_fit());
        drop(held);
        answered.map_or_else(|| Station::connect(&self.peers), Ok)
    }

    /// The connections of an endpoint that is gone. Some are kept, always: server 0 ends the lease of a client that has no connection to
    /// it left.
    pub(crate) fn give_back(&self, station: Station) {
        if self.is_over() {
            return;
        }
        if station.is_fit() {
            let mut spares = self.spares();
            if spares.len() < SPARES {
                spares.push(station);
            }
        } else if !station.is_idle() {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(station);
        }
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Station>> {
        // Nothing panics while it is locked, so what a poisoned lock guards is still right.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells every server that we leave; server 0 last, since then the id may be issued again. Ends where it is refused: then
    /// the rest belongs to whoever recovers us.
    fn say_goodbye(&self) -> Result<(), FabricError> {
        let mut station = self.station()?;
        for server in (0..self.peers.servers()).rev() {
            match station.ask(server, &Request::Leave, &self.peers) {
                Ok(_) => {}
                Err(FabricError::ServerLost { .. }) if server != 0 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.is_over() && !self.peers.is_broken() {
            // Refused only if it is dead or gone already: then others see to what it leaves.
            let _ = self.say_goodbye();
        }
    }
}

/// What a client that wants to join finds at the servers.
#[derive(Debug)]
struct View<'o> {
    options: &'o JoinOptions,
    /// By server: its boot, and what was seen there.
    found: Vec<Option<(u64, Seen)>>,
    /// Why nothing was seen. Server 0 says whether that matters.
    failures: BTreeMap<u16, JoinError>,
}

impl<'o> View<'o> {
    /// Looks at every server. Server 0 is asked first: servers that it has declared lost are not looked for.
    fn look(options: &'o JoinOptions) -> Result<Self, JoinError> {
        let servers = options.servers.len() as u16;
        let mut view = Self { options, found: vec![None; usize::from(servers)], failures: BTreeMap::new() };
        if servers == 1 {
            return Ok(view);
        }
        let first = introduce(options, 0, Role::Newcomer)?.welcome;
        check(options, 0, &first)?;
        for server in (1..servers).filter(|server| !first.lost.contains(server)) {
            let seen = introduce(options, server, Role::Newcomer).and_then(|connected| {
                check(options, server, &connected.welcome)?;
                Ok(connected.welcome)
            });
            match seen {
                Ok(Welcome { boot, memory, cluster, .. }) => {
                    view.found[usize::from(server)] = Some((boot, Seen { memory, cluster }));
                }
                Err(error) => _ = view.failures.insert(server, error),
            }
        }
        Ok(view)
    }

    /// What to tell server 0.
    fn seen(&self) -> Vec<Option<Seen>> {
        self.found.iter().map(|found| found.map(|(_, seen)| seen)).collect()
    }

    /// What is known of each server, once server 0 has welcomed us.
    fn known(&self, first: &Welcome) -> Vec<Known> {
        let known = |(found, server): (&Option<(u64, Seen)>, u16)| {
            let (boot, memory) = match found {
                _ if server == 0 => (first.boot, first.memory),
                Some((boot, seen)) => (*boot, seen.memory),
                None => (0, 0),
            };
            Known { boot, memory, lost: first.lost.contains(&server) }
        };
        self.found.iter().zip(0u16..).map(known).collect()
    }

    /// Why server 0 refused us, in terms of the server that is to blame.
    fn blame(&mut self, refused: JoinError) -> JoinError {
        let JoinError::Connect { error: ConnectError::Goodbye(Goodbye { error: Some(error), .. }), .. } = &refused
        else {
            return refused;
        };
        let FabricError::Refused(refusal) = error else { return refused };
        match *refusal {
            Refusal::Unreachable { server } => self.failures.remove(&server).unwrap_or(refused),
            Refusal::OtherCluster { server } => other_cluster(self.options, server),
            Refusal::OtherMemory { server } => other_memory(self.options, server),
            Refusal::OtherCount { servers } => {
                let (address, listed) = (self.options.servers[0].clone(), self.options.servers.len() as u16);
                JoinError::WrongCount { address, listed, found: servers }
            }
            _ => refused,
        }
    }
}

fn other_cluster(options: &JoinOptions, server: u16) -> JoinError {
    let address = |server: u16| options.servers.get(usize::from(server)).unwrap_or(&options.servers[0]).clone();
    JoinError::OtherCluster { server, address: address(server), first: address(0) }
}

fn other_memory(options: &JoinOptions, server: u16) -> JoinError {
    let address = options.servers.get(usize::from(server)).unwrap_or(&options.servers[0]).clone();
    JoinError::OtherMemory { server, address }
}

/// Whether a cluster can have so many servers.
pub(crate) fn check_servers(options: &JoinOptions) -> Result<(), JoinError> {
    match options.servers.len() {
        0 => Err(JoinError::NoServers),
        asked if asked > MAX_SERVERS => Err(JoinError::TooManyServers { asked }),
        _ => Ok(()),
    }
}

/// Connects to `server` for the first time.
pub(crate) fn introduce(options: &JoinOptions, server: u16, role: Role) -> Result<Connected, JoinError> {
    let address = &options.servers[usize::from(server)];
    let deadline = Instant::now() + options.connect_timeout;
    let connected = connect(address, options.secret.as_ref(), role, deadline);
    connected.map_err(|error| {
        let address = address.clone();
        match error {
            ConnectError::Goodbye(Goodbye { error: Some(FabricError::Refused(Refusal::NotHere)), .. }) => {
                JoinError::NotTheFirst { address }
            }
            ConnectError::Goodbye(Goodbye { code: GoodbyeCode::OtherCluster, .. }) => other_cluster(options, server),
            ConnectError::Goodbye(Goodbye { code: GoodbyeCode::OtherMemory, .. }) => other_memory(options, server),
            error => JoinError::Connect { server, address, error },
        }
    })
}

/// Whether it is the server that was meant.
pub(crate) fn check(options: &JoinOptions, server: u16, welcome: &Welcome) -> Result<(), JoinError> {
    let address = options.servers[usize::from(server)].clone();
    let listed = options.servers.len() as u16;
    if welcome.servers != listed {
        return Err(JoinError::WrongCount { address, listed, found: welcome.servers });
    }
    if server == 0 && welcome.server != 0 {
        return Err(JoinError::NotTheFirst { address });
    }
    if welcome.server != server {
        return Err(JoinError::WrongServer { address, expected: server, found: welcome.server });
    }
    Ok(())
}

/// What both can do.
fn restrict(caps: &mut Caps, other: &Caps) {
    caps.atomic_unit = caps.atomic_unit.min(other.atomic_unit);
    caps.crash_unit = caps.crash_unit.min(other.crash_unit);
    caps.verb_atomic &= other.verb_atomic;
    caps.masked_cas &= other.masked_cas;
    caps.write_releases &= other.write_releases;
    caps.lock_read &= other.lock_read;
    caps.on_chip_bytes = caps.on_chip_bytes.min(other.on_chip_bytes);
    caps.shortest_write_nanos = caps.shortest_write_nanos.min(other.shortest_write_nanos);
    caps.max_verbs = caps.max_verbs.min(other.max_verbs);
    caps.max_transfer = caps.max_transfer.min(other.max_transfer);
}
