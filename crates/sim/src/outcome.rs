//! Planned faults, and how runs end.

use crate::world::group::HostCut;
use sherman_fabric::Verb;
use std::fmt;

/// A fault at a given step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A compute server dies: none of its tasks runs again. Its posted verbs still execute, or are cut at any
    /// unit, as the adversary chooses (F7), until another compute server fences it (F6).
    Kill {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
    },
    /// None of a compute server's tasks runs for the time that this many events take. Its posted verbs still
    /// execute. If its lease expires meanwhile, it is a zombie.
    Sleep {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// Number of events.
        steps: u64,
    },
    /// Like [`Sleep`](Self::Sleep), but in the middle of a change: a compute server that tries to fence it
    /// meanwhile gets [`OwnerStalled`](sherman_fabric::FabricError::OwnerStalled), as on shared memory.
    Stall {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// Number of events.
        steps: u64,
    },
    /// Queue pairs of a compute server break. The lists in flight there end in `Disconnected` after the
    /// prefix that was executed, even if that is all of it. Everything posted there later ends in the same
    /// way. Other compute servers are not affected.
    Disconnect {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// Index of the endpoint, in order of creation, or `None` for all its endpoints.
        endpoint: Option<u32>,
        /// The memory server at the other end.
        server: u16,
    },
    /// A compute server permanently loses its connection to a memory server. This is a
    /// [`Disconnect`](Self::Disconnect) of all its endpoints, including those it makes later. Other compute
    /// servers are not affected.
    CutOff {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// The memory server at the other end.
        server: u16,
    },
    /// A memory server's process ends and starts again on the same memory, as a server with a file does.
    /// Every existing compute server permanently loses its connections there, and the server's CPU opens the
    /// tables again. Compute servers that join later are served.
    Restart {
        /// Its index.
        server: u16,
    },
    /// A memory server's process ends and starts again without its memory. This is like
    /// [`Restart`](Self::Restart), but the memory is formatted again. The cluster accepts no new members any
    /// more.
    Wipe {
        /// Its index.
        server: u16,
    },
    /// The cluster declares a memory server lost. Everything in flight there ends in `ServerLost`, and so
    /// does everything later.
    Lose {
        /// Its index.
        server: u16,
    },
    /// A host dies with all copies on it. Every connection to it breaks, and no client can join until the
    /// control state has declared it [lost](Self::HostLost).
    HostDown {
        /// Its number.
        host: u16,
    },
    /// The control state declares a host lost, and makes a new table without its copies. The host may be
    /// alive: then it serves the clients that have the old table.
    HostLost {
        /// Its number.
        host: u16,
    },
    /// The process of a host ends, if it still runs, and the next one goes on with its memory (I4). If the
    /// host was declared lost, nothing happens.
    HostReturns {
        /// Its number.
        host: u16,
    },
    /// The process of a host ends, and the next one goes on with its memory and its log (I4). Needs a control
    /// group.
    HostRestarts {
        /// Its number. `u16::MAX` for the host that leads then.
        host: u16,
        /// How many events later the next process starts.
        steps: u64,
    },
    /// A new host registers. It has room for a copy of every volume.
    HostJoins,
    /// A host's process stands still. It finds everything that arrived meanwhile when it goes on. Its memory
    /// serves verbs all the time. Needs a control group.
    HostStands {
        /// Its number. `u16::MAX` for the host that leads then.
        host: u16,
        /// How many events it lasts.
        steps: u64,
    },
    /// A host is cut off from other hosts, from clients, or from both. Needs a control group.
    HostCut {
        /// From whom, and for how long.
        cut: HostCut,
    },
    /// The leader gives up the pause in which copies are made (J6), if there is one.
    AbortMaking,
    /// An operator lets a host leave, or stay after all (J10). Refused if the others cannot take its copies.
    Drain {
        /// Its number.
        host: u16,
        /// Whether it stays.
        cancel: bool,
    },
    /// An operator has copies spread evenly (J9).
    Spread,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill { compute_server } => write!(f, "cs{compute_server} dies"),
            Self::Sleep { compute_server, steps } => {
                write!(f, "cs{compute_server} sleeps for {steps} events")
            }
            Self::Stall { compute_server, steps } => {
                write!(f, "cs{compute_server} is stalled for {steps} events")
            }
            Self::Disconnect { compute_server, endpoint, server } => match endpoint {
                Some(nth) => {
                    write!(f, "endpoint {nth} of cs{compute_server} loses its connection to server {server}")
                }
                None => write!(f, "cs{compute_server} loses its connections to server {server}"),
            },
            Self::CutOff { compute_server, server } => {
                write!(f, "cs{compute_server} is cut off from server {server}")
            }
            Self::Restart { server } => write!(f, "server {server} restarts"),
            Self::Wipe { server } => write!(f, "server {server} restarts empty"),
            Self::Lose { server } => write!(f, "server {server} is lost"),
            Self::HostDown { host } => write!(f, "host {host} goes down"),
            Self::HostLost { host } => write!(f, "host {host} is declared lost"),
            Self::HostStands { host, steps } => write!(f, "host {host} stands still for {steps} events"),
            Self::HostCut { cut } => write!(f, "{cut:?}"),
            Self::HostReturns { host } => write!(f, "host {host} comes back with its memory"),
            Self::HostRestarts { host, steps } => {
                write!(f, "the process of host {host} ends, and the next one starts {steps} events later")
            }
            Self::HostJoins => write!(f, "a host joins"),
            Self::AbortMaking => write!(f, "the leader gives up the pause for copies"),
            Self::Drain { host, cancel: false } => write!(f, "host {host} shall leave"),
            Self::Drain { host, cancel: true } => write!(f, "host {host} shall stay after all"),
            Self::Spread => write!(f, "copies shall be spread evenly"),
        }
    }
}

/// A task that waits in a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The task's number.
    pub task: u32,
    /// Its name.
    pub name: String,
    /// Server and first verb of the list it posted last. That list has completed, otherwise this would not be
    /// a deadlock.
    pub last: Option<(u16, Verb)>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits", self.name)?;
        match &self.last {
            Some((server, verb)) => write!(f, "; its last list on server {server} began with {verb:?}"),
            None => write!(f, "; it has posted nothing"),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every task has finished and nothing is in flight.
    Done,
    /// No event is possible any more, and these tasks wait.
    Deadlock {
        /// The waiting tasks.
        waiting: Vec<Waiting>,
    },
    /// [`Limits::steps`](crate::Limits::steps) was reached.
    StepLimit,
    /// A task reached [`Limits::lists_per_task`](crate::Limits::lists_per_task).
    ListLimit,
    /// The scheduler has already seen this state.
    Pruned,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a run may have ended in a deadlock"]
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// Number of events.
    pub steps: u64,
    /// Number of verbs executed.
    pub verbs: u64,
    /// The hash of all events in order. Equal schedules have equal hashes.
    pub trace_hash: u64,
    /// Virtual time at the end.
    pub now: u64,
}

impl Run {
    /// Whether every task finished.
    pub fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }
}

/// A future that waits for an event that will never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the future waits although nothing is in flight and no timer is set")
    }
}

impl std::error::Error for Stuck {}
