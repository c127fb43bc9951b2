//! The adversary's choices, described so that a schedule can be read.

use std::fmt;

/// Who moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Actor {
    /// A task, by number of spawning.
    Task(u32),
    /// An endpoint's queue pair to one server.
    QueuePair {
        /// The endpoint, by number of creation.
        endpoint: u32,
        /// The server.
        server: u16,
    },
    /// An endpoint's control calls.
    Control(u32),
    /// Virtual time.
    Clock,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A ready task runs until it blocks.
    Run,
    /// Something moves on a queue pair or among an endpoint's calls; what, is the next pick.
    Step,
    /// A READ fetches a unit.
    Fetch,
    /// A READ fetches what a unit held before its last overwrite ([`Breach::StaleRead`](crate::Breach::StaleRead)).
    FetchStale,
    /// A WRITE lands a unit.
    Land,
    /// A CAS or FAA executes.
    Atomic,
    /// A split atomic reads its word.
    AtomicLoad,
    /// A split atomic writes its word.
    AtomicStore,
    /// A finished list is delivered to whoever polls it.
    Complete,
    /// A list that will end in error ends now, as the prefix executed so far (F7).
    Fail,
    /// What a dead client still had in flight on this queue pair is lost (F7).
    Cut,
    /// A memory server answers a control call.
    Execute,
    /// The answer of a control call is delivered.
    Answer,
    /// Time jumps to the next timer.
    Advance,
    /// Not an event: something that a recorded trace tells besides, a fault or a task's remark.
    Remark,
}

/// One enabled event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Who moves.
    pub actor: Actor,
    /// What happens.
    pub kind: Kind,
    /// The list or call in flight, by slot; 0 where there is none.
    pub list: u32,
    /// The verb of that list; 0 where there is none.
    pub verb: u32,
    /// The unit of that verb, counted from its first; 0 where there is none.
    pub unit: u32,
}

impl Choice {
    /// A choice that names an actor only.
    pub const fn of(actor: Actor, kind: Kind) -> Self {
        Self { actor, kind, list: 0, verb: 0, unit: 0 }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(task) => write!(f, "task {task}"),
            Self::QueuePair { endpoint, server } => write!(f, "endpoint {endpoint} on server {server}"),
            Self::Control(endpoint) => write!(f, "calls of endpoint {endpoint}"),
            Self::Clock => write!(f, "clock"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Run | Kind::Step | Kind::Advance | Kind::Cut | Kind::Remark => {
                write!(f, "{}: {:?}", self.actor, self.kind)
            }
            Kind::Complete | Kind::Fail | Kind::Execute | Kind::Answer => {
                write!(f, "{}: {:?} list {}", self.actor, self.kind, self.list)
            }
            _ => write!(f, "{}: {:?} list {} verb {} unit {}", self.actor, self.kind, self.list, self.verb, self.unit),
        }
    }
}
