//! One compute server's identity in a cluster of remote memory servers.
//!
//! **Joining.** The client first asks every server which memory it has, and which cluster that memory belongs
//! to. It reports this to server 0. Server 0 refuses the client and changes nothing, or issues the id and its
//! incarnation in its `Welcome`. The client then introduces itself to every other server, and at last asks
//! server 0 to renew the lease. Only after that renewal has it joined.
//!
//! The renewal protects a slow client. Other clients may have taken it for dead, fenced it and retired it, on
//! servers that did not know it yet. It learns this before its first verb. A cluster of one server needs no
//! first step: client and server meet only each other.
//!
//! **Clusters of hosts.** There a leader admits clients, and a *server* of this module is a copy of a volume.
//! The module `group` says how such a client joins, and `link` how it reaches control.
//!
//! **Leaving.** A client that sends [`Request::Leave`] or [`Request::Depart`] to control has left, and posts
//! nothing any more. Otherwise the last handle says goodbye when it is dropped: to every volume, then to
//! control. An identity that lost a connection neither renews nor leaves: it may still hold a lane, which
//! only recovery can free (I40).
//!
//! **Connections.** A fabric keeps a connection to every server for its whole life, in an endpoint or between
//! two. When the last connection to server 0 ends, server 0 ends the lease of this identity at once. Its
//! recovery then need not wait.

use super::attach::Attachment;
use super::connect::{ConnectError, Connected, connect};
use super::connection::Connection;
use super::connections::{Connections, Line};
use super::endpoint::ControlEndpoint;
use super::error::JoinError;
use super::group::{self, CopyPlan, Probe, admit, await_table, connect_copies};
use super::inbox::Inbox;
use super::link::{ControlLink, Member};
use super::lists::{Lists, NoLists};
use super::notifier::Notifier;
use super::options::{Address, JoinOptions};
use super::peers::{Group, Known, Peers};
use super::places::Places;
use crate::wire::{Goodbye, GoodbyeCode, MAX_SERVERS, Role, Welcome};
use sherman_fabric::group::Admission;
use sherman_fabric::{Call, Caps, ComputeId, Fabric, FabricError, Peer, Refusal, Request, Seen, calls};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sets of connections that the fabric keeps for the next endpoint.
const SPARES: usize = 4;
/// How many tables of volumes a client that joins may miss before it gives up.
const MOST_EPOCHS: u32 = 4;
/// How long a client that could not join tries to give its id back.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// One compute server's access to the cluster. Clones and endpoints share its identity; dropping the last of
/// them leaves the cluster.
#[derive(Debug)]
pub struct ControlFabric<L: Lists = NoLists> {
    membership: Arc<Membership<L>>,
}

impl<L: Lists> Clone for ControlFabric<L> {
    fn clone(&self) -> Self {
        Self { membership: Arc::clone(&self.membership) }
    }
}

impl<L: Lists> ControlFabric<L> {
    /// Joins the cluster as a new compute server.
    ///
    /// The compute server must renew its lease. It leaves the cluster when its last handle is dropped.
    pub fn join(options: &JoinOptions) -> Result<Self, JoinError> {
        check_servers(options)?;
        // Tested before the servers know this client: without a notifier it could not make an endpoint.
        let notifier = Notifier::new().map_err(JoinError::System)?;
        drop(notifier);
        let mut view = View::look(options)?;
        let first = introduce(options, 0, Role::Join { seen: view.seen() });
        let first = first.map_err(|error| view.blame(error))?;
        let welcome = first.welcome.clone();
        let known = view.known(&welcome);
        let peers = Peers::new(options.clone(), welcome.client, welcome.incarnation, welcome.cluster, known);
        let mut connections = Connections::new(vec![Connection::new(first)]);
        let mut caps = welcome.caps.clone();
        match Self::complete(&peers, &mut connections, &welcome, &mut caps) {
            Ok(()) => Ok(Self::of(peers, caps, connections)),
            Err(error) => {
                // This client owns only its id so far. If the server does not take it back, its lease runs
                // out.
                let _ = connections.ask(Peer::Control, &Request::Leave, &peers);
                Err(error)
            }
        }
    }

    fn of(peers: Peers, caps: Caps, connections: Connections<L>) -> Self {
        let (spares, held) = (Mutex::new(vec![connections]), Mutex::new(None));
        let (gone, abandoned) = (AtomicBool::new(false), AtomicBool::new(false));
        let ended = AtomicBool::new(false);
        Self { membership: Arc::new(Membership { peers, caps, gone, abandoned, ended, spares, held }) }
    }

    /// Whether the servers are hosts of a replicated cluster, which a client joins by
    /// [`join_group`](Self::join_group). Asks the first one that answers.
    ///
    /// # Errors
    /// If none answers, the error of the first one.
    pub fn is_group(options: &JoinOptions) -> Result<bool, JoinError> {
        group::probe(options).map(|found| matches!(found, Probe::Host(_)))
    }

    /// Joins a cluster of hosts as a new compute server. `options` names some of the hosts, in any order.
    /// `decode` understands the bytes of the table of volumes.
    ///
    /// The servers of this fabric are the copies that the table names, each under its number. The compute
    /// server must renew its lease. It leaves the cluster when its last handle is dropped.
    pub fn join_group(
        options: &JoinOptions,
        decode: fn(&[u8]) -> Option<CopyPlan>,
    ) -> Result<Self, JoinError> {
        check_servers(options)?;
        let mut places = Places::new(&options.servers);
        for _ in 1..MOST_EPOCHS {
            let mut tried = None;
            let error = match Self::join_epoch(options, &mut places, decode, &mut tried) {
                Err(error) if error.is_of_older_epoch() || error.is_copy_out_of_reach() => error,
                joined => return joined,
            };
            tracing::debug!(%error, "waiting for a newer table of volumes");
            if let Some((epoch, lease)) = tried.filter(|_| error.is_copy_out_of_reach())
                && !await_table(options, &mut places, epoch, lease)
            {
                return Err(error);
            }
        }
        Self::join_epoch(options, &mut places, decode, &mut None)
    }

    /// Joins the cluster under its newest table, unless another one follows meanwhile. Notes the epoch of
    /// that table, and the lease.
    fn join_epoch(
        options: &JoinOptions,
        places: &mut Places,
        decode: fn(&[u8]) -> Option<CopyPlan>,
        tried: &mut Option<(u64, Duration)>,
    ) -> Result<Self, JoinError> {
        // Tested before the cluster knows this client: without a notifier it could not make an endpoint.
        let (notifier, inbox) = (Notifier::new(), Inbox::new().map_err(JoinError::System)?);
        drop(notifier.map_err(JoinError::System)?);
        let (leader, admission) = admit(options, places)?;
        let member = Member {
            options: options.clone(),
            client: admission.client,
            incarnation: admission.incarnation,
            cluster: admission.cluster,
            lease: Duration::from_nanos(admission.lease_nanos),
        };
        let lease = member.lease;
        let options = &options.within(lease);
        // Without the link this client cannot even leave. Its lease runs out.
        let link = ControlLink::start(member, places.clone()).map_err(JoinError::Thread)?;
        let plan = decode(&admission.table).ok_or(JoinError::BadTable { address: leader });
        *tried = plan.as_ref().ok().map(|plan| (plan.epoch, lease));
        let entered = plan.and_then(|plan| Ok((Self::enter(options, &admission, &link, &plan)?, plan)));
        let (copies, plan) = entered.inspect_err(|_| {
            // This client owns only its id so far. If control does not take it back, its lease runs out.
            let _ = link.ask(Request::Leave, LEAVE_PATIENCE.min(options.patience));
        })?;
        let Admission { client, incarnation, cluster, table, .. } = admission;
        let hosts = places.all().to_vec();
        let peers = Peers::new(options.clone(), client, incarnation, cluster, copies.known)
            .of_group(copies.addresses, Group { epoch: plan.epoch, table, hosts, link });
        let lost = (0u16..peers.servers()).filter(|server| peers.is_lost(*server));
        let ended = lost.map(|server| Line::ended(server, FabricError::ServerLost { server }));
        let lines =
            copies.lines.into_iter().map(|(connected, copies)| Line::new(Connection::new(connected), copies));
        let connections = Connections::of_group(ended.chain(lines).collect(), inbox);
        Ok(Self::of(peers, copies.caps, connections))
    }

    /// Introduces the new member to every copy, then checks that it is still a member.
    fn enter(
        options: &JoinOptions,
        admission: &Admission,
        link: &ControlLink,
        plan: &CopyPlan,
    ) -> Result<group::Copies, JoinError> {
        let copies = connect_copies(options, admission, plan)?;
        let renewed = link.ask(Request::Renew, options.patience).and_then(calls::Renew::expect);
        renewed.map(|_| copies).map_err(JoinError::Renew)
    }

    /// Introduces the new member to every other server, then checks that it is still a member.
    fn complete(
        peers: &Peers,
        connections: &mut Connections<L>,
        welcome: &Welcome,
        caps: &mut Caps,
    ) -> Result<(), JoinError> {
        check(&peers.options, 0, welcome)?;
        for server in 1..peers.servers() {
            if peers.is_lost(server) {
                connections.add(Connection::ended(FabricError::ServerLost { server }));
                continue;
            }
            let connected = introduce(&peers.options, server, peers.role(server))?;
            check(&peers.options, server, &connected.welcome)?;
            restrict(caps, &connected.welcome.caps);
            connections.add(Connection::new(connected));
        }
        let renewed = connections.ask(Peer::Control, &Request::Renew, peers).and_then(calls::Renew::expect);
        renewed.map(drop).map_err(JoinError::Renew)
    }

    /// The compute server's identity.
    pub fn client(&self) -> ComputeId {
        self.membership.peers.client
    }

    /// How often its id was issued.
    pub fn incarnation(&self) -> u32 {
        self.membership.peers.incarnation
    }

    /// The id of the cluster, which is the identity of server 0's memory. It changes if server 0 restarts
    /// without its file.
    pub fn cluster_id(&self) -> u64 {
        self.membership.peers.cluster
    }

    /// The bytes of the table of volumes that this identity uses (rule E). `None` without a group.
    pub fn table(&self) -> Option<&[u8]> {
        self.membership.peers.group().map(|group| group.table.as_slice())
    }

    /// The epoch of that table. `None` without a group.
    pub fn epoch(&self) -> Option<u64> {
        self.membership.peers.group().map(|group| group.epoch)
    }

    /// The addresses of the cluster's hosts that this client knows, the first ones as in its options. Empty
    /// without a group.
    pub fn hosts(&self) -> &[Address] {
        self.membership.peers.group().map_or(&[], |group| &group.hosts)
    }

    /// The hosts that the next identity of the process should ask, in this order: first the one that answered
    /// the last request to control. Others may be silent, and each of them would cost time.
    pub fn seeds(&self) -> Vec<Address> {
        let leader = self.membership.peers.group().and_then(|group| group.link.leader());
        let others = self.hosts().iter().filter(|host| leader.as_ref() != Some(host)).cloned();
        leader.iter().cloned().chain(others).collect()
    }

    /// How many memory servers there are. In a cluster of hosts: how many copies the table has numbers for.
    pub fn servers(&self) -> u16 {
        self.membership.peers.servers()
    }

    /// What every server of the cluster can do.
    pub fn caps(&self) -> &Caps {
        &self.membership.caps
    }

    /// Makes a new endpoint for the calling thread. Connects to every server, unless a dropped endpoint has
    /// left its connections.
    ///
    /// # Errors
    /// [`FabricError::Fenced`] if this identity has left or was abandoned. [`FabricError::Disconnected`] if a
    /// server that the cluster counts as present cannot be reached, which ends this identity.
    /// [`FabricError::Unsupported`] if no more connections are possible. A server that is declared lost is no
    /// error here, only for lists posted there.
    pub fn endpoint(&self) -> Result<ControlEndpoint<L>, FabricError> {
        let membership = &self.membership;
        if membership.is_over() {
            return Err(membership.peers.fenced());
        }
        let notifier = Notifier::new();
        let notifier = notifier.map_err(|_| FabricError::Unsupported {
            what: "open one more endpoint: too many files are open",
        })?;
        let connections = membership.connections()?;
        Ok(ControlEndpoint::new(Arc::clone(membership), connections, notifier))
    }

    /// Opens a link of another data path to `server`: one more connection, attached with `body`, a message
    /// that the path defines.
    ///
    /// # Errors
    /// The server's refusal; otherwise as [`endpoint`](Self::endpoint), and [`FabricError::ServerLost`] if
    /// the server is lost.
    pub fn attach(&self, server: u16, body: &[u8]) -> Result<Attachment, FabricError> {
        if self.is_over() {
            return Err(self.membership.peers.fenced());
        }
        if server >= self.servers() {
            return Err(FabricError::NoSuchServer { server });
        }
        Attachment::open(&self.membership.peers, server, body)
    }

    /// Explains a failure of another data path at `server`: asks the server, for a moment, whether it has
    /// fenced this client. If it has not, the result is [`FabricError::Disconnected`] and this identity ends
    /// (I40).
    pub fn explain_break(&self, server: u16) -> FabricError {
        self.membership.peers.explain_break(server)
    }

    /// Whether the cluster has declared `server` lost.
    #[inline]
    pub fn is_lost(&self, server: u16) -> bool {
        self.membership.peers.is_lost(server)
    }

    /// Whether `server` could not be reached. Nothing may be posted there any more.
    #[inline]
    pub fn is_cut(&self, server: u16) -> bool {
        self.membership.peers.is_cut(server)
    }

    /// Whether nothing may be posted any more, because this identity has left or was abandoned.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.membership.is_over()
    }

    /// Records that the cluster has a newer table without this copy. Lists in flight there end soon, as after
    /// a broken connection: nothing that they do counts any more.
    pub fn drop_copy(&self, copy: u16) {
        self.membership.peers.drop_copy(copy);
    }

    /// Records that the identity has ended. Lists in flight continue, but endpoints that are dropped no
    /// longer wait for them: recovery frees the lanes that these lists would have released.
    pub fn end(&self) {
        self.membership.ended.store(true, Ordering::Release);
    }

    /// Gives the identity up without leaving the cluster; nothing is posted any more. A client that may have
    /// left work unfinished must do this: its lease then runs out, and other clients recover it. Connections
    /// close when their endpoints are dropped, without waiting for lists in flight.
    pub fn abandon(&self) {
        self.membership.abandoned.store(true, Ordering::Release);
        if let Some(group) = self.membership.peers.group() {
            group.link.stop();
        }
        self.membership.spares().clear();
        *self.membership.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<L: Lists> Fabric for ControlFabric<L> {
    type Endpoint = ControlEndpoint<L>;

    fn endpoint(&self) -> Result<ControlEndpoint<L>, FabricError> {
        ControlFabric::endpoint(self)
    }
}

/// Keeps a member in the cluster.
#[derive(Debug)]
pub(crate) struct Membership<L: Lists> {
    pub(crate) peers: Peers,
    pub(crate) caps: Caps,
    /// Whether this client has told control that it leaves.
    gone: AtomicBool,
    abandoned: AtomicBool,
    /// Whether endpoints that are dropped need not wait for lists in flight.
    ended: AtomicBool,
    spares: Mutex<Vec<Connections<L>>>,
    /// Connections that still wait for answers to forgotten calls. They may be this client's only
    /// connections.
    held: Mutex<Option<Connections<L>>>,
}

impl<L: Lists> Membership<L> {
    /// Whether nothing may be posted any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether an endpoint that is dropped waits for what it has in flight.
    pub(crate) fn waits_for_lists(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire)
            && !self.ended.load(Ordering::Acquire)
            && !self.peers.is_broken()
    }

    /// Whether a request may be sent. A `Leave` or `Depart` to control marks this identity as gone.
    pub(crate) fn allow(&self, peer: Peer, request: &Request) -> Result<(), FabricError> {
        if self.is_over() {
            return Err(self.peers.fenced());
        }
        let about_us =
            matches!(request, Request::Renew | Request::Release | Request::Leave | Request::Depart);
        // E2: an identity that lost a copy goes on renewing its lease until there is a table without it.
        let may_renew = self.peers.group().is_some() && *request == Request::Renew;
        if about_us && self.peers.is_broken() && !may_renew {
            return Err(FabricError::Disconnected { server: peer.server() });
        }
        if peer == Peer::Control && matches!(request, Request::Leave | Request::Depart) {
            self.gone.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns connections for an endpoint.
    fn connections(&self) -> Result<Connections<L>, FabricError> {
        let spare = self.spares().pop();
        if let Some(connections) = spare {
            return Ok(connections);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = &mut *held {
            connections.drive(&self.peers);
        }
        let answered = held.take_if(|connections| connections.is_fit());
        drop(held);
        answered.map_or_else(|| Connections::connect(&self.peers), Ok)
    }

    /// Takes back the connections of an endpoint that was dropped. Some are always kept, because server 0
    /// ends the lease of a client that has no connection to it.
    pub(crate) fn give_back(&self, connections: Connections<L>) {
        if self.is_over() {
            return;
        }
        if connections.is_fit() {
            let mut spares = self.spares();
            if spares.len() < SPARES {
                spares.push(connections);
            }
        } else if !connections.is_idle() {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(connections);
        }
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Connections<L>>> {
        // Nothing panics while the lock is held, so the data behind a poisoned lock is still valid.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells every volume that this client leaves, and then control, which may issue the id again. In a
    /// cluster of hosts, every copy of every volume. Stops at the first refusal: the recoverer of this client
    /// then does the rest.
    fn say_goodbye(&self) -> Result<(), FabricError> {
        let mut connections = self.connections()?;
        for volume in (0..self.peers.servers()).rev() {
            match connections.ask(Peer::Volume(volume), &Request::Release, &self.peers) {
                Ok(_) | Err(FabricError::ServerLost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        connections.ask(Peer::Control, &Request::Leave, &self.peers).map(drop)
    }
}

impl<L: Lists> Drop for Membership<L> {
    fn drop(&mut self) {
        if !self.is_over() && !self.peers.is_broken() {
            // A server refuses only a client that is already dead or gone. Other clients then clean up after
            // it.
            let _ = self.say_goodbye();
        }
    }
}

/// A joining client's findings at the servers.
#[derive(Debug)]
struct View<'o> {
    options: &'o JoinOptions,
    /// Indexed by server: its boot number, memory and cluster.
    found: Vec<Option<(u64, Seen)>>,
    /// Why a server could not be examined. Server 0 decides whether that matters.
    failures: BTreeMap<u16, JoinError>,
}

impl<'o> View<'o> {
    /// Examines every server, server 0 first. Skips the servers that server 0 has declared lost.
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

    /// The findings to report to server 0.
    fn seen(&self) -> Vec<Option<Seen>> {
        self.found.iter().map(|found| found.map(|(_, seen)| seen)).collect()
    }

    /// The facts about each server, once server 0 has admitted this client.
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

    /// Explains a refusal by server 0 in terms of the server that caused it.
    fn blame(&mut self, refused: JoinError) -> JoinError {
        let JoinError::Connect { error: ConnectError::Goodbye(Goodbye { error: Some(error), .. }), .. } =
            &refused
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
    let address =
        |server: u16| options.servers.get(usize::from(server)).unwrap_or(&options.servers[0]).clone();
    JoinError::OtherCluster { server, address: address(server), first: address(0) }
}

fn other_memory(options: &JoinOptions, server: u16) -> JoinError {
    let address = options.servers.get(usize::from(server)).unwrap_or(&options.servers[0]).clone();
    JoinError::OtherMemory { server, address }
}

/// Checks that a cluster can have this many servers.
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
            ConnectError::Goodbye(Goodbye {
                error: Some(FabricError::Refused(Refusal::NotHere)), ..
            }) => JoinError::NotTheFirst { address },
            ConnectError::Goodbye(Goodbye { code: GoodbyeCode::OtherCluster, .. }) => {
                other_cluster(options, server)
            }
            ConnectError::Goodbye(Goodbye { code: GoodbyeCode::OtherMemory, .. }) => {
                other_memory(options, server)
            }
            error => JoinError::Connect { server, address, error },
        }
    })
}

/// Checks that the server is the expected one.
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

/// Reduces `caps` to the capabilities that both servers have.
pub(super) fn restrict(caps: &mut Caps, other: &Caps) {
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
