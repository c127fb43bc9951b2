//! What goes wrong on purpose, and how runs end.

use sherman_fabric::Verb;
use std::fmt;

/// Something that goes wrong at a given step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A compute server dies: no task of it runs again. What it had posted still happens, or is cut at any unit, as the
    /// adversary has it (F7), until someone fences it (F6).
    Kill {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
    },
    /// None of a compute server's tasks runs for the time that this many events take. What it had posted still happens: a zombie, if its lease
    /// runs out meanwhile.
    Sleep {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// For how many events.
        steps: u64,
    },
    /// As [`Sleep`](Self::Sleep), in the middle of a change: whoever would fence it meanwhile is told
    /// [`OwnerStalled`](sherman_fabric::FabricError::OwnerStalled), as on shared memory.
    Stall {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// For how many events.
        steps: u64,
    },
    /// Queue pairs of a compute server break: what is in flight there ends in `Disconnected` as the prefix that was
    /// executed, even if that is all of it, and so does everything posted there later. Others are not concerned.
    Disconnect {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// Which of its endpoints, in order of creation; `None` for all it has.
        endpoint: Option<u32>,
        /// The memory server at the other end.
        server: u16,
    },
    /// A compute server cannot reach a memory server any more: as [`Disconnect`](Self::Disconnect) of all its endpoints, and of those
    /// that it makes later. Others are not concerned.
    CutOff {
        /// Its [number](crate::SimFabric::number).
        compute_server: u32,
        /// The memory server at the other end.
        server: u16,
    },
    /// A memory server's process ends and starts again on the same memory, as one with a file does: every compute server that there
    /// is loses its connections there for good, and its CPU opens the tables again. Compute servers that join later are served.
    Restart {
        /// Its index.
        server: u16,
    },
    /// A memory server's process ends and starts again without its memory: as [`Restart`](Self::Restart), but the memory is formatted
    /// anew. The cluster takes nobody in any more.
    Wipe {
        /// Its index.
        server: u16,
    },
    /// The cluster declares a memory server lost: everything in flight there ends in `ServerLost`, and so does everything later.
    Lose {
        /// Its index.
        server: u16,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill { compute_server } => write!(f, "cs{compute_server} dies"),
            Self::Sleep { compute_server, steps } => write!(f, "cs{compute_server} sleeps for {steps} events"),
            Self::Stall { compute_server, steps } => write!(f, "cs{compute_server} is stalled for {steps} events"),
            Self::Disconnect { compute_server, endpoint, server } => match endpoint {
                Some(nth) => write!(f, "endpoint {nth} of cs{compute_server} loses its connection to server {server}"),
                None => write!(f, "cs{compute_server} loses its connections to server {server}"),
            },
            Self::CutOff { compute_server, server } => write!(f, "cs{compute_server} is cut off from server {server}"),
            Self::Restart { server } => write!(f, "server {server} restarts"),
            Self::Wipe { server } => write!(f, "server {server} restarts empty"),
            Self::Lose { server } => write!(f, "server {server} is lost"),
        }
    }
}

/// A task that waits at a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The task's number.
    pub task: u32,
    /// Its name.
    pub name: String,
    /// Server and first verb of the list it posted last. That list has completed, or it would not be a deadlock.
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
    /// Nothing can happen any more and these tasks wait.
    Deadlock {
        /// Who.
        waiting: Vec<Waiting>,
    },
    /// [`Limits::steps`](crate::Limits::steps) was reached.
    StepLimit,
    /// A task reached [`Limits::lists_per_task`](crate::Limits::lists_per_task).
    ListLimit,
    /// The scheduler knows this state already.
    Pruned,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a run may have ended in a deadlock"]
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// Events.
    pub steps: u64,
    /// Verbs executed.
    pub verbs: u64,
    /// The hash of every event in order: equal for equal schedules.
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

/// A future that waits for something that will never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the future waits although nothing is in flight and no timer is set")
    }
}

impl std::error::Error for Stuck {}
