//! An identity, and the servers it is known to.
//!
//! **The cluster decides which servers are lost.** Server 0 says so when a client joins, and a server that it declares lost
//! later ends the identity of every member. So what is lost never changes during the life of an identity.
//!
//! **A server that cannot be reached is not lost.** It may live, and others may reach it. Whatever the reason (a refused
//! connection, a missing socket, another start of the server, another memory, silence), the client has left something
//! unfinished there that it cannot finish. It is [`FabricError::Disconnected`], and the client's identity is at its end (I40).

use super::connect::{ConnectError, Connected, connect};
use super::options::JoinOptions;
use crate::wire::Role;
use sherman_fabric::{ClientId, FabricError};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take to say whether it has fenced us, once a connection to it broke.
const PROBE: Duration = Duration::from_millis(250);

/// What is known of one server since the cluster was joined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// Which start of it knows us.
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
    pub(crate) client: ClientId,
    pub(crate) incarnation: u32,
    /// The cluster we joined.
    pub(crate) cluster: u64,
    /// By server.
    known: Vec<Known>,
    /// By server: whether it could not be reached. What was in flight there may have left a lane held (I40).
    cut: Vec<AtomicBool>,
    /// Whether any is cut.
    broken: AtomicBool,
}

/// When [`Peers::now`] was 0. One moment for the whole process: a time that was noted under one identity is compared under the
/// next.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

impl Peers {
    pub(crate) fn new(
        options: JoinOptions,
        client: ClientId,
        incarnation: u32,
        cluster: u64,
        known: Vec<Known>,
    ) -> Self {
        let cut = known.iter().map(|_| AtomicBool::new(false)).collect();
        Self { options, client, incarnation, cluster, known, cut, broken: AtomicBool::new(false) }
    }

    /// Nanoseconds since this process first asked.
    pub(crate) fn now(&self) -> u64 {
        epoch().elapsed().as_nanos() as u64
    }

    pub(crate) fn servers(&self) -> u16 {
        self.options.servers.len() as u16
    }

    pub(crate) fn fenced(&self) -> FabricError {
        FabricError::Fenced { client: self.client }
    }

    /// Whether some server could not be reached: this identity is at its end.
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
        Role::Member { client, incarnation, boot, cluster, memory }
    }

    /// A new connection to `server`, which must be the one it was.
    pub(crate) fn connect(&self, server: u16, deadline: Instant) -> Result<Connected, ConnectError> {
        let index = usize::from(server);
        let (Some(address), Some(known)) = (self.options.servers.get(index), self.known.get(index)) else {
            return Err(ConnectError::Confused { what: "there is no such server" });
        };
        let connected = connect(address, self.options.secret.as_ref(), self.role(server), deadline)?;
        let welcome = &connected.welcome;
        if (welcome.client, welcome.incarnation) != (self.client, self.incarnation) {
            return Err(ConnectError::Confused { what: "it takes us for another" });
        }
        if (welcome.server, welcome.memory, welcome.cluster) != (server, known.memory, self.cluster) {
            return Err(ConnectError::Confused { what: "it is another server or has another memory" });
        }
        if welcome.boot != known.boot {
            return Err(ConnectError::Restarted);
        }
        Ok(connected)
    }

    /// What it means that `server` cannot be connected to: fenced, no room for one more connection, or the end of this identity.
    pub(crate) fn explain(&self, server: u16, error: &ConnectError) -> FabricError {
        if error.means_fenced() {
            return self.fenced();
        }
        match error.as_fabric_error(server) {
            FabricError::Disconnected { .. } => {
                tracing::warn!(server, %error, "a memory server cannot be reached; this client's identity ends");
                self.break_off(server)
            }
            other => other,
        }
    }

    /// Why a connection to `server` broke: what everything in flight on it ends in. The server may say that it has fenced us;
    /// otherwise this identity is at its end, whatever became of the server.
    pub(crate) fn explain_break(&self, server: u16) -> FabricError {
        if !self.is_cut(server)
            && let Err(error) = self.connect(server, Instant::now() + PROBE)
            && error.means_fenced()
        {
            return self.fenced();
        }
        self.break_off(server)
    }

    /// This identity is at its end, because of `server`.
    fn break_off(&self, server: u16) -> FabricError {
        if let Some(cut) = self.cut.get(usize::from(server)) {
            cut.store(true, Ordering::Release);
        }
        self.broken.store(true, Ordering::Release);
        FabricError::Disconnected { server }
    }
}
