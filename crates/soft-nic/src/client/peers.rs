//! Who we are to whom: an identity and the servers it is known to.
//!
//! **Broken or lost?** When a connection breaks, the server is asked once more, for at most [`PROBE`]. If nobody listens
//! there, or it was started anew (its *boot* is another), what it knew of us is gone: it is lost, for this identity for ever.
//! If it still is who it was, only the connection broke. If it does not answer, nothing is known, and that is taken for a
//! broken connection too: a server that may live must not be declared lost, since others may still see it.

use super::connect::{ConnectError, Connected, connect};
use super::options::JoinOptions;
use crate::wire::Role;
use sherman_fabric::{ClientId, FabricError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a server is asked again whose connection broke.
const PROBE: Duration = Duration::from_millis(250);
/// Between two attempts of that: one may meet a process that is just about to die.
const PROBE_PAUSE: Duration = Duration::from_millis(5);

/// An identity and its servers.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) options: JoinOptions,
    pub(crate) client: ClientId,
    pub(crate) incarnation: u32,
    /// By server: which start of it knows us; 0 if none yet.
    pub(crate) boots: Vec<u64>,
    /// By server: whether it is lost.
    lost: Vec<AtomicBool>,
    /// Whether a connection of ours broke: what was in flight on it may have left a lane held (I40).
    broken: AtomicBool,
    /// When [`Peers::now`] was 0, for every endpoint.
    epoch: Instant,
}

impl Peers {
    pub(crate) fn new(options: JoinOptions, client: ClientId, incarnation: u32) -> Self {
        let servers = options.servers.len();
        let lost = (0..servers).map(|_| AtomicBool::new(false)).collect();
        let (broken, epoch) = (AtomicBool::new(false), Instant::now());
        Self { options, client, incarnation, boots: vec![0; servers], lost, broken, epoch }
    }

    /// Nanoseconds since the cluster was joined.
    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub(crate) fn servers(&self) -> u16 {
        self.options.servers.len() as u16
    }

    pub(crate) fn fenced(&self) -> FabricError {
        FabricError::Fenced { client: self.client }
    }

    /// Whether a connection broke.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// A new connection to `server`, which must be the one it was.
    pub(crate) fn connect(&self, server: u16, deadline: Instant) -> Result<Connected, ConnectError> {
        let index = usize::from(server);
        let (Some(address), Some(&boot)) = (self.options.servers.get(index), self.boots.get(index)) else {
            return Err(ConnectError::Confused { what: "there is no such server" });
        };
        let role = Role::Member { client: self.client, incarnation: self.incarnation, boot };
        let connected = connect(address, self.options.secret.as_ref(), role, deadline)?;
        let welcome = &connected.welcome;
        if (welcome.client, welcome.incarnation) != (self.client, self.incarnation) {
            return Err(ConnectError::Confused { what: "it takes us for another" });
        }
        if boot != 0 && welcome.boot != boot {
            return Err(ConnectError::Restarted);
        }
        if boot != 0 && welcome.server != server {
            return Err(ConnectError::Confused { what: "it has another number" });
        }
        Ok(connected)
    }

    /// What an endpoint says of `server` from now on if it cannot be connected to. `None` if it is no use to go on: then the
    /// endpoint cannot be made.
    pub(crate) fn verdict(&self, server: u16, error: &ConnectError) -> Option<FabricError> {
        if error.means_lost() {
            self.lose(server);
            return Some(FabricError::ServerLost { server });
        }
        error.means_fenced().then(|| self.fenced())
    }

    /// Why a connection to `server` that broke did: what everything in flight on it ends in.
    pub(crate) fn explain_break(&self, server: u16) -> FabricError {
        let deadline = Instant::now() + PROBE;
        while !self.is_lost(server) {
            match self.connect(server, deadline) {
                Ok(_) => return self.break_off(server),
                Err(error) => {
                    if let Some(verdict) = self.verdict(server, &error) {
                        return verdict;
                    }
                }
            }
            if Instant::now() + PROBE_PAUSE >= deadline {
                return self.break_off(server);
            }
            std::thread::sleep(PROBE_PAUSE);
        }
        FabricError::ServerLost { server }
    }

    /// A connection of this identity broke, and its server lives, as far as is known.
    fn break_off(&self, server: u16) -> FabricError {
        self.broken.store(true, Ordering::Release);
        FabricError::Disconnected { server }
    }

    /// Whether `server` is known to be lost.
    pub(crate) fn is_lost(&self, server: u16) -> bool {
        self.lost.get(usize::from(server)).is_some_and(|lost| lost.load(Ordering::Acquire))
    }

    fn lose(&self, server: u16) {
        if let Some(lost) = self.lost.get(usize::from(server)) {
            lost.store(true, Ordering::Release);
        }
    }
}
