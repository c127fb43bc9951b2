//! The adversary's choices, in a form that makes a schedule readable.

use std::fmt;

/// The actor of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Actor {
    /// A task, numbered in order of spawning.
    Task(u32),
    /// An endpoint's queue pair to one server.
    QueuePair {
        /// The endpoint, numbered in order of creation.
        endpoint: u32,
        /// The server.
        server: u16,
    },
    /// An endpoint's control calls.
    Control(u32),
    /// Virtual time.
    Clock,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChoiceKind {
    /// A ready task runs until it blocks.
    Run,
    /// An event on a queue pair or among an endpoint's calls. The next pick decides which.
    Step,
    /// A READ fetches a unit.
    Fetch,
    /// A READ fetches the contents that a unit had before its last overwrite
    /// ([`Breach::StaleRead`](crate::Breach::StaleRead)).
    FetchStale,
    /// A WRITE lands a unit.
    Land,
    /// A CAS or FAA executes.
    Atomic,
    /// A split atomic reads its word.
    AtomicLoad,
    /// A split atomic writes its word.
    AtomicStore,
    /// A finished list is delivered to the task that polls it.
    Complete,
    /// A list that will fail ends now, with only the verbs executed so far (F7).
    Fail,
    /// The lists that a dead client still had in flight on this queue pair are lost (F7).
    Cut,
    /// A memory server answers a control call.
    Execute,
    /// The answer of a control call is delivered.
    Answer,
    /// Time jumps to the next timer.
    Advance,
    /// Not an event: an extra entry of a recorded trace, for a fault or a task's remark.
    Remark,
}

/// One enabled event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The actor.
    pub actor: Actor,
    /// The kind of the event.
    pub kind: ChoiceKind,
    /// Slot of the list or call in flight, or 0 if there is none.
    pub list: u32,
    /// Index of the verb in that list, or 0 if there is none.
    pub verb: u32,
    /// Index of the unit in that verb, or 0 if there is none.
    pub unit: u32,
}

impl Choice {
    /// A choice with an actor and a kind, and zeros elsewhere.
    pub const fn of(actor: Actor, kind: ChoiceKind) -> Self {
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
            ChoiceKind::Run
            | ChoiceKind::Step
            | ChoiceKind::Advance
            | ChoiceKind::Cut
            | ChoiceKind::Remark => {
                write!(f, "{}: {:?}", self.actor, self.kind)
            }
            ChoiceKind::Complete | ChoiceKind::Fail | ChoiceKind::Execute | ChoiceKind::Answer => {
                write!(f, "{}: {:?} list {}", self.actor, self.kind, self.list)
            }
            _ => write!(
                f,
                "{}: {:?} list {} verb {} unit {}",
                self.actor, self.kind, self.list, self.verb, self.unit
            ),
        }
    }
}
