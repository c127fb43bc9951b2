//! One compute server's identity in a cluster of memory servers that are elsewhere.
//!
//! **Joining.** Server 0 gives the id and its incarnation with its `Welcome`; every other server is then introduced to them,
//! which is when their boots are learned; and at last server 0 is asked to renew. Only if it does is the cluster joined: a
//! compute server that was so slow that it has been taken for dead, fenced and retired meanwhile, on servers that had not
//! heard of it then, finds out before its first verb.
//!
//! **Leaving.** Who asks server 0 for [`Request::Leave`] or [`Request::Depart`] is gone: nothing is posted any more. If
//! nobody did, the last handle to go says goodbye to every server, server 0 last. An identity that lost a connection neither
//! renews nor leaves: it may have left a lane behind, which only recovery can free (I40).

use super::attach::Attachment;
use super::bell::Bell;
use super::connect::{ConnectError, Connected, connect};
use super::endpoint::SoftNicEndpoint;
use super::error::JoinError;
use super::line::Line;
use super::options::JoinOptions;
use super::peers::Peers;
use super::station::Station;
use crate::wire::{Goodbye, Role, Welcome};
use sherman_fabric::{Caps, ClientId, Fabric, FabricError, Refusal, Request, Response};
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
        let servers = options.servers.len();
        if servers == 0 {
            return Err(JoinError::NoServers);
        }
        if u16::try_from(servers).is_err() {
            return Err(JoinError::TooManyServers { asked: servers });
        }
        // Before anybody knows us: without it there would be no endpoint.
        let bell = Bell::new().map_err(JoinError::System)?;
        drop(bell);
        let first = introduce(options, 0, Role::Join)?;
        let welcome = first.welcome.clone();
        let mut peers = Peers::new(options.clone(), welcome.client, welcome.incarnation);
        let mut station = Station::new(vec![Line::new(first)]);
        let mut caps = welcome.caps.clone();
        match Self::complete(&mut peers, &mut station, &welcome, &mut caps) {
            Ok(()) => {
                let spares = Mutex::new(vec![station]);
                let (gone, abandoned) = (AtomicBool::new(false), AtomicBool::new(false));
                Ok(Self { membership: Arc::new(Membership { peers, caps, gone, abandoned, spares }) })
            }
            Err(error) => {
                // Nothing but the id is ours yet. If it cannot be given back, its lease will run out.
                let _ = station.ask(0, &Request::Leave, &peers);
                Err(error)
            }
        }
    }

    /// Introduces the new member to every other server, and sees that it is one still.
    fn complete(peers: &mut Peers, station: &mut Station, welcome: &Welcome, caps: &mut Caps) -> Result<(), JoinError> {
        check(&peers.options, 0, welcome)?;
        peers.boots[0] = welcome.boot;
        let (client, incarnation) = (peers.client, peers.incarnation);
        for server in 1..peers.servers() {
            let connected = introduce(&peers.options, server, Role::Member { client, incarnation, boot: 0 })?;
            check(&peers.options, server, &connected.welcome)?;
            peers.boots[usize::from(server)] = connected.welcome.boot;
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
    /// [`FabricError::Fenced`] if it has left or was abandoned; [`FabricError::Disconnected`] if a server does not answer;
    /// [`FabricError::Unsupported`] if there can be no more connections. A server that is lost is no error here, but of what
    /// is posted there.
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

    /// What became of a server with which something went wrong on another data path: asks it again, for a moment. Fenced, lost
    /// or disconnected; the latter two are remembered, and disconnected is the end of this identity (I40).
    pub fn explain_break(&self, server: u16) -> FabricError {
        self.membership.peers.explain_break(server)
    }

    /// Whether `server` is known to be lost.
    #[inline]
    pub fn is_lost(&self, server: u16) -> bool {
        self.membership.peers.is_lost(server)
    }

    /// Whether nothing may be posted any more: it has left, or was abandoned.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.membership.is_over()
    }

    /// Gives the identity up without leaving, as one must that may have left something behind: its lease runs out, and others
    /// recover it. Nothing is posted any more; connections are closed when their endpoints are dropped, without waiting for
    /// what is in flight.
    pub fn abandon(&self) {
        self.membership.abandoned.store(true, Ordering::Release);
        self.membership.spares().clear();
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
    spares: Mutex<Vec<Station>>,
}

impl Membership {
    /// Whether nothing may be posted any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
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
        spare.map_or_else(|| Station::connect(&self.peers), Ok)
    }

    /// The connections of an endpoint that is gone.
    pub(crate) fn give_back(&self, station: Station) {
        let mut spares = self.spares();
        if station.is_fit() && spares.len() < SPARES && !self.is_over() {
            spares.push(station);
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

/// Connects to `server` for the first time.
fn introduce(options: &JoinOptions, server: u16, role: Role) -> Result<Connected, JoinError> {
    let address = &options.servers[usize::from(server)];
    let deadline = Instant::now() + options.connect_timeout;
    let connected = connect(address, options.secret.as_ref(), role, deadline);
    connected.map_err(|error| {
        let address = address.clone();
        match error {
            ConnectError::Goodbye(Goodbye { error: Some(FabricError::Refused(Refusal::NotHere)), .. }) => {
                JoinError::NotTheFirst { address }
            }
            error => JoinError::Connect { server, address, error },
        }
    })
}

/// Whether it is the server that was meant.
fn check(options: &JoinOptions, server: u16, welcome: &Welcome) -> Result<(), JoinError> {
    let address = options.servers[usize::from(server)].clone();
    let listed = options.servers.len() as u16;
    if welcome.servers != listed {
        return Err(JoinError::WrongCount { address, listed, found: welcome.servers });
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
