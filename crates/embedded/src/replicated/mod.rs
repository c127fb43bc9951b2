//! Hosts of a replicated cluster inside the process: volumes in two copies, hosts that die, hosts that come.
//!
//! A program can test in milliseconds what it does when a memory server dies. Every part is the one that
//! hosts in processes of their own have (`docs/REPLICATION.md`): the control state
//! ([`ClusterState`]), the copies and the stores of their CPUs, the table of volumes, rule E. Only the ways
//! between the parts differ:
//!
//! - The control state is one object behind a lock, in place of a group. It never fails.
//! - A request to a volume, and what it stores in the other copies (T5), is one step under that lock.
//! - Nobody listens for signs of life: [`ReplicatedCluster::lose_host`] says which host dies, and when.
//! - A new table ends every identity at once ([`ReplicatedFabric::on_epoch_end`]), not at its next renewal.
//!
//! To an endpoint a copy is what one memory server is. `sherman-replica` makes an endpoint for volumes of it.
//!
//! | module | what |
//! |---|---|
//! | `state` | the control state, the copies, and what happens when the table changes |
//! | `member` | [`ReplicatedFabric`]: one identity, and the copies of its table |
//! | `copier` | makes lost copies again (J1-J6) |
//!
//! **What must hold.** A list checks that its host lives, then executes. A host may die in between. Then the
//! list is one that was executed just before the death: nothing reads the memory of a dead host afterwards,
//! but clients of the old table, whose leases protect them (R2).

mod copier;
mod member;
mod state;

pub use member::{CopiesEndpoint, ReplicatedFabric};
pub use sherman_memory_server::cluster::ClusterSettings;
pub use sherman_memory_server::cluster::hosts::MOST_HOSTS;

use crate::cluster::caps;
use crate::error::EmbeddedError;
use crate::line::Atomicity;
use member::CopiesMembership;
use sherman_fabric::group::{ClusterInfo, HostOffer};
use sherman_fabric::{Caps, FabricError, GlobalAddress, Refusal, Response};
use sherman_memory_server::cluster::{ClusterState, Command};
use state::State;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Instant;

/// The options of a replicated cluster in this process.
#[derive(Clone, Debug)]
pub struct ReplicatedOptions {
    /// How many hosts and volumes there are, how many copies of each volume, and how copies are formatted.
    pub settings: ClusterSettings,
    /// Bytes of memory that each host offers to copies. Pages that are never written cost nothing.
    pub host_bytes: u64,
    /// The unit of atomicity.
    pub atomicity: Atomicity,
}

/// A replicated cluster in this process. It lives until the last handle, fabric or endpoint is dropped.
#[derive(Debug)]
pub struct ReplicatedCluster {
    host_bytes: u64,
    caps: Caps,
    /// When [`Clock::now`](sherman_fabric::Clock::now) was 0, for every endpoint.
    epoch: Instant,
    state: Mutex<State>,
}

impl ReplicatedCluster {
    /// Makes the hosts, and the copies of all volumes.
    ///
    /// # Errors
    /// Why the settings are impossible, or that there is not enough memory.
    pub fn new(options: ReplicatedOptions) -> Result<Arc<Self>, EmbeddedError> {
        let ReplicatedOptions { settings, host_bytes, atomicity } = options;
        let limit = GlobalAddress::OFFSET_LIMIT;
        let sizes = [settings.volume_bytes, settings.on_chip_bytes];
        if let Some(bytes) = sizes.into_iter().find(|bytes| *bytes > limit) {
            return Err(EmbeddedError::TooMuchMemory { bytes, limit });
        }
        if settings.bytes_per_host() > host_bytes {
            let needed = settings.bytes_per_host();
            return Err(EmbeddedError::HostTooSmall { offered: host_bytes, needed });
        }
        let identity = getrandom::u64().unwrap_or(0);
        let control = ClusterState::new(identity, settings);
        let control = control.map_err(|error| EmbeddedError::Format { server: 0, error })?;
        let state = Mutex::new(State::new(control, atomicity));
        let caps = caps(settings.on_chip_bytes, atomicity);
        let cluster = Arc::new(Self { host_bytes, caps, epoch: Instant::now(), state });
        for host in 0..settings.hosts {
            cluster.add_host().map_err(|error| match error {
                FabricError::Refused(Refusal::OutOfMemory) => {
                    EmbeddedError::OutOfMemory { server: host, bytes: settings.bytes_per_host() }
                }
                error => EmbeddedError::Host { host, error },
            })?;
        }
        Ok(cluster)
    }

    /// Joins the cluster as a new compute server, under the newest table. The compute server leaves when the
    /// last of its handles is dropped.
    ///
    /// # Errors
    /// [`Refusal::Unreachable`] if a volume has lost all its copies.
    pub fn join(self: &Arc<Self>) -> Result<ReplicatedFabric, FabricError> {
        let membership = self.locked(|state| {
            let (admission, member) = state.join(self.now())?;
            CopiesMembership::new(self, state, &admission, member)
        })?;
        Ok(ReplicatedFabric::new(membership))
    }

    /// A host dies: its memory is out of reach from now on, and its cluster declares it lost. Lost hosts may
    /// be named again.
    ///
    /// # Errors
    /// If there never was a host with this number.
    pub fn lose_host(self: &Arc<Self>, host: u16) -> Result<(), FabricError> {
        self.locked(|state| {
            state.kill(host);
            state.declare_lost(self.now(), host)
        })
    }

    /// Declares a host lost that lives on. Clients that still have the old table read and write its copies,
    /// as on a host that is cut off from the others. For tests of the rules about leases.
    ///
    /// # Errors
    /// If there never was a host with this number.
    pub fn declare_lost(self: &Arc<Self>, host: u16) -> Result<(), FabricError> {
        self.locked(|state| state.declare_lost(self.now(), host))
    }

    /// Adds a host, and returns its number. Volumes that lack a copy get one there, in the background.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`] if the system has no memory for its copies. Then it was not added.
    pub fn add_host(self: &Arc<Self>) -> Result<u16, FabricError> {
        self.locked(|state| {
            let boot = state.hosts_made() + 1;
            let address = format!("embedded:{}", boot - 1);
            let offer = HostOffer { address, memory_bytes: self.host_bytes, boot, cluster: 0, keeps: false };
            state.register(self.now(), offer)
        })
    }

    /// The hosts, and the table of volumes.
    pub fn info(&self) -> ClusterInfo {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).info()
    }

    /// Whether every volume is open and has as many copies as it should, and nobody needs recovery that keeps
    /// volumes closed.
    pub fn is_whole(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_whole()
    }

    /// Lets a test look at the bytes of every copy that the table names: its volume, its number, and its host
    /// memory.
    #[doc(hidden)]
    pub fn look_at_copies(&self, look: impl FnMut(u16, u16, &crate::memory::Region)) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).look_at_copies(look);
    }

    /// What this backend can do.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Lets the control state execute a command.
    fn command(self: &Arc<Self>, command: impl FnOnce(u64) -> Command) -> Result<Response, FabricError> {
        // Under the lock, so that time does not run backwards.
        self.locked(|state| state.apply(&command(self.now())))
    }

    /// Lets `act` change the state. What follows from the change happens before the call returns: identities
    /// of older epochs end, and lost copies are made again.
    fn locked<T>(self: &Arc<Self>, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut state);
        state.tick(self.now());
        let ended = state.take_ended();
        let copies = state.wants_copier();
        drop(state);
        // Without the lock: a member that hears of its end may ask something, or drop a handle.
        ended.iter().for_each(|member| member.tell());
        if copies {
            let cluster = Arc::downgrade(self);
            let thread = Builder::new().name("sherman-copier".to_owned());
            if thread.spawn(move || copier::run(&cluster)).is_err() {
                // The next change tries again.
                self.state.lock().unwrap_or_else(PoisonError::into_inner).copier_ended();
            }
        }
        done
    }
}
