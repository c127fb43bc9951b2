//! An identity, and the servers that know it.
//!
//! **The cluster decides which servers are lost.** Server 0 reports them when a client joins. If it declares
//! a server lost later, that ends the identity of every member. So the set of lost servers never changes
//! during the life of an identity.
//!
//! **A server that cannot be reached is not lost.** It may run, and other clients may reach it. The reason
//! may be a refused connection, a missing socket, a restart of the server, another memory, or silence. In
//! every case this client cannot finish its work there. The error is [`FabricError::Disconnected`], and the
//! client's identity ends (I40).
//!
//! **In a cluster of hosts** a server is a copy of a volume: one host may serve many. The copies that the
//! table does not name count as lost (I2). A copy that cannot be reached ends the identity too, but the
//! identity goes on renewing its lease (E2).

use super::connect::{ConnectError, Connected, connect};
use super::link::ControlLink;
use super::options::{Address, JoinOptions};
use crate::wire::{Also, MAX_MEMORIES, Role, Welcome};
use sherman_fabric::{ComputeId, FabricError};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// After a connection broke: how long the server may take to say whether it has fenced this client.
const PROBE: Duration = Duration::from_millis(250);

/// The facts about one server since this client joined the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// The boot number under which the server knows this client.
    pub(crate) boot: u64,
    /// The identity of its memory.
    pub(crate) memory: u64,
    /// Whether the cluster has declared it lost.
    pub(crate) lost: bool,
}

/// An identity and its servers.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) options: JoinOptions,
    pub(crate) client: ComputeId,
    pub(crate) incarnation: u32,
    /// The cluster that this client joined.
    pub(crate) cluster: u64,
    /// Indexed by server; `None` for a copy that no volume names.
    addresses: Vec<Option<Address>>,
    /// Indexed by server.
    known: Vec<Known>,
    /// Indexed by server: whether it could not be reached. A list in flight there may have left a lane held
    /// (I40).
    cut: Vec<AtomicBool>,
    /// Whether any server is cut.
    broken: AtomicBool,
    /// Indexed by copy of a cluster of hosts: whether the cluster has a newer table without it. Lists in
    /// flight there have no effect on any copy that counts.
    dropped: Vec<AtomicBool>,
    /// The cluster of hosts, if this is one.
    group: Option<Group>,
}

/// What an identity knows about its cluster of hosts.
#[derive(Debug)]
pub(super) struct Group {
    /// The epoch to which the identity belongs (rule E).
    pub(super) epoch: u64,
    /// The bytes of the table of volumes.
    pub(super) table: Vec<u8>,
    /// The hosts that this client has learnt about.
    pub(super) hosts: Vec<Address>,
    /// The way to control.
    pub(super) link: ControlLink,
}

/// The moment at which [`Peers::now`] was 0. The whole process has only one, because times noted under one
/// identity are compared under the next.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Nanoseconds since the first call in this process.
pub(super) fn process_time() -> u64 {
    epoch().elapsed().as_nanos() as u64
}

impl Peers {
    pub(crate) fn new(
        options: JoinOptions,
        client: ComputeId,
        incarnation: u32,
        cluster: u64,
        known: Vec<Known>,
    ) -> Self {
        let cut = known.iter().map(|_| AtomicBool::new(false)).collect();
        let addresses = options.servers.iter().cloned().map(Some).collect();
        let broken = AtomicBool::new(false);
        let dropped = known.iter().map(|_| AtomicBool::new(false)).collect();
        Self { options, client, incarnation, cluster, addresses, known, cut, broken, dropped, group: None }
    }

    /// The same identity in a cluster of hosts, with copies at these addresses.
    pub(super) fn of_group(self, addresses: Vec<Option<Address>>, group: Group) -> Self {
        Self { addresses, group: Some(group), ..self }
    }

    /// The cluster of hosts, if this is one.
    pub(super) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Nanoseconds since the first call in this process.
    pub(crate) fn now(&self) -> u64 {
        process_time()
    }

    pub(crate) fn servers(&self) -> u16 {
        self.known.len() as u16
    }

    pub(crate) fn fenced(&self) -> FabricError {
        FabricError::Fenced { client: self.client }
    }

    /// Whether some server could not be reached, which ends this identity.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whether `server` could not be reached.
    #[inline]
    pub(crate) fn is_cut(&self, server: u16) -> bool {
        self.cut.get(usize::from(server)).is_some_and(|cut| cut.load(Ordering::Acquire))
    }

    /// Whether the cluster has declared `server` lost.
    pub(crate) fn is_lost(&self, server: u16) -> bool {
        self.known.get(usize::from(server)).is_some_and(|known| known.lost)
    }

    /// How this identity introduces itself to `server`.
    pub(crate) fn role(&self, server: u16) -> Role {
        let Known { boot, memory, .. } = self.known.get(usize::from(server)).copied().unwrap_or_default();
        let (client, incarnation, cluster) = (self.client, self.incarnation, self.cluster);
        match &self.group {
            Some(group) => Role::Copy { client, incarnation, cluster, copy: server, epoch: group.epoch },
            None => Role::Member { client, incarnation, boot, cluster, memory },
        }
    }

    /// Makes a new connection to `server`, which must be the same server, memory and boot as before.
    pub(crate) fn connect(&self, server: u16, deadline: Instant) -> Result<Connected, ConnectError> {
        let index = usize::from(server);
        let (Some(Some(address)), Some(known)) = (self.addresses.get(index), self.known.get(index)) else {
            return Err(ConnectError::Confused { what: "the list of servers has no such number" });
        };
        let connected = connect(address, self.options.secret.as_ref(), self.role(server), deadline)?;
        self.check(server, known, &connected.welcome)?;
        Ok(connected)
    }

    /// Makes a new connection that these servers share, which are copies on one host. Names the one that
    /// fails.
    pub(crate) fn connect_line(
        &self,
        servers: &[u16],
        deadline: Instant,
    ) -> Result<Connected, (u16, ConnectError)> {
        let Some((&first, others)) = servers.split_first() else {
            return Err((0, ConnectError::Confused { what: "a connection to no server" }));
        };
        let connected = self.connect(first, deadline).map_err(|error| (first, error))?;
        for &copy in others {
            let at = |error| (copy, error);
            let (Some(group), Some(known)) = (&self.group, self.known.get(usize::from(copy))) else {
                return Err(at(ConnectError::Confused { what: "several servers on one connection" }));
            };
            let welcome = connected.also(Also { copy, epoch: group.epoch }, deadline).map_err(at)?;
            self.check(copy, known, &welcome).map_err(at)?;
        }
        Ok(connected)
    }

    /// Which servers share a connection: the copies on one host. Without those that are lost.
    pub(crate) fn lines(&self) -> Vec<Vec<u16>> {
        let present = (0..self.servers()).filter(|server| !self.is_lost(*server));
        if self.group.is_none() {
            return present.map(|server| vec![server]).collect();
        }
        let mut hosts = BTreeMap::<_, Vec<u16>>::new();
        for server in present {
            hosts.entry(self.addresses.get(usize::from(server))).or_default().push(server);
        }
        hosts.values().flat_map(|servers| servers.chunks(MAX_MEMORIES).map(<[u16]>::to_vec)).collect()
    }

    /// Checks that a welcome comes from the same server, memory and boot as before.
    fn check(&self, server: u16, known: &Known, welcome: &Welcome) -> Result<(), ConnectError> {
        if (welcome.client, welcome.incarnation) != (self.client, self.incarnation) {
            return Err(ConnectError::Confused { what: "it takes this client for another one" });
        }
        if (welcome.server, welcome.memory, welcome.cluster) != (server, known.memory, self.cluster) {
            return Err(ConnectError::Confused { what: "it has another number, memory or cluster" });
        }
        if welcome.boot != known.boot {
            return Err(ConnectError::Restarted);
        }
        Ok(())
    }

    /// Explains why `server` cannot be connected to: it has fenced this client, it has no room for one more
    /// connection, or this identity ends.
    pub(crate) fn explain(&self, server: u16, error: &ConnectError) -> FabricError {
        if error.means_fenced() {
            return self.fenced();
        }
        match error.as_fabric_error(server) {
            FabricError::Disconnected { .. } => {
                tracing::warn!(server, %error, "cannot reach a memory server; this client's identity ends");
                self.break_off(server)
            }
            other => other,
        }
    }

    /// Explains why a connection to `server` broke; everything in flight on it ends in the returned error. If
    /// the server does not say that it has fenced this client, this identity ends, whatever happened to the
    /// server.
    pub(crate) fn explain_break(&self, server: u16) -> FabricError {
        if !self.is_cut(server)
            && let Err(error) = self.connect(server, Instant::now() + PROBE)
            && error.means_fenced()
        {
            return self.fenced();
        }
        self.break_off(server)
    }

    /// Explains why a connection broke that these servers share, as [`explain_break`](Self::explain_break).
    pub(crate) fn explain_break_of(&self, servers: &[u16]) -> FabricError {
        let Some((&first, others)) = servers.split_first() else { return self.fenced() };
        let error = self.explain_break(first);
        if matches!(error, FabricError::Disconnected { .. }) {
            others.iter().for_each(|server| _ = self.break_off(*server));
        }
        error
    }

    /// Notes that the cluster has a newer table without this copy.
    pub(crate) fn drop_copy(&self, copy: u16) {
        self.break_off(copy);
        if let Some(dropped) = self.dropped.get(usize::from(copy)) {
            dropped.store(true, Ordering::Release);
        }
    }

    /// Whether the cluster has a newer table without this copy.
    pub(crate) fn is_dropped(&self, copy: u16) -> bool {
        self.dropped.get(usize::from(copy)).is_some_and(|dropped| dropped.load(Ordering::Acquire))
    }

    /// Ends this identity because of `server`.
    fn break_off(&self, server: u16) -> FabricError {
        if let Some(cut) = self.cut.get(usize::from(server)) {
            cut.store(true, Ordering::Release);
        }
        self.broken.store(true, Ordering::Release);
        FabricError::Disconnected { server }
    }
}
