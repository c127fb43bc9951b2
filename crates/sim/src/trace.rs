//! The trace: a running hash of all events, and on request a readable line for each event.

use crate::choice::{Actor, Choice, ChoiceKind};
use crate::hash::mix;
use crate::world::flight::NO_TASK;
use sherman_fabric::Space;
use std::fmt;

/// The memory that an event touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The server, or `u16::MAX` for none.
    pub server: u16,
    /// The memory.
    pub space: Space,
    /// The first byte.
    pub offset: u64,
    /// Number of bytes, or 0 if it touched none.
    pub len: u32,
}

impl Extent {
    /// No memory.
    pub(crate) fn nowhere(server: u16) -> Self {
        Self { server, space: Space::Host, offset: 0, len: 0 }
    }
}

/// Additional details of an event in a recorded trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    #[default]
    None,
    /// The bytes that a READ fetched or a WRITE stored.
    Bytes(Vec<u8>),
    /// The operands of a CAS.
    Cas {
        /// The value compared with.
        compare: u64,
        /// The value stored if equal.
        swap: u64,
        /// The bits that take part.
        mask: u64,
    },
    /// The operand of an FAA.
    Faa {
        /// The number added.
        add: u64,
    },
    /// A control request and, once it is executed, its answer.
    Call(String),
    /// A fault, or a task's remark.
    Remark(String),
}

/// One event of a recorded trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The choice that was taken.
    pub choice: Choice,
    /// The memory that it touched.
    pub place: Extent,
    /// A hash of the bytes it moved, the word that an atomic found, or the time for events that move nothing.
    pub data: u64,
    /// Number of the task that posted the list or call, or `None` if no task did.
    pub task: Option<u32>,
    /// Virtual time.
    pub now: u64,
    /// Additional details.
    pub detail: Detail,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { choice, place, data, detail, .. } = self;
        let space = if place.space == Space::Host { "host" } else { "on-chip" };
        match choice.kind {
            ChoiceKind::Fetch | ChoiceKind::FetchStale | ChoiceKind::Land => {
                write!(
                    f,
                    "{choice}: {space} {}:{:#x}+{} #{:08x}",
                    place.server, place.offset, place.len, *data as u32
                )
            }
            ChoiceKind::Atomic | ChoiceKind::AtomicLoad | ChoiceKind::AtomicStore => {
                write!(f, "{choice}: {space} {}:{:#x} found {data:#x}", place.server, place.offset)
            }
            ChoiceKind::Remark => match detail {
                Detail::Remark(text) => write!(f, "{text}"),
                _ => Ok(()),
            },
            _ => write!(f, "{choice} at {data} ns"),
        }
    }
}

/// The hash and, if requested, the events.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) hash: u64,
    events: Vec<Event>,
    recording: bool,
}

impl Log {
    /// Clears everything except whether events are recorded.
    pub(crate) fn reset(&mut self) {
        self.hash = 0;
        self.events.clear();
    }

    pub(crate) fn record(&mut self, on: bool) {
        self.recording = on;
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    #[inline]
    pub(crate) fn event(&mut self, choice: Choice, place: Extent, data: u64) {
        let actor = match choice.actor {
            Actor::Task(task) => u64::from(task) << 2,
            Actor::QueuePair { endpoint, .. } => u64::from(endpoint) << 2 | 1,
            Actor::Control(endpoint) => u64::from(endpoint) << 2 | 2,
            Actor::Clock => 3,
        };
        let what =
            choice.kind as u64 | u64::from(place.space == Space::OnChip) << 7 | u64::from(place.server) << 8;
        self.hash = mix(self.hash ^ what ^ actor << 24, place.offset ^ data.rotate_left(17));
        if self.recording {
            self.events.push(Event { choice, place, data, task: None, now: 0, detail: Detail::None });
        }
    }

    /// Whether events are recorded.
    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.recording
    }

    /// Adds details to the last event.
    pub(crate) fn detail(&mut self, task: u32, now: u64, detail: Detail) {
        if let Some(event) = self.events.last_mut() {
            event.task = (task != NO_TASK).then_some(task);
            (event.now, event.detail) = (now, detail);
        }
    }

    /// Adds a remark that is not an event.
    pub(crate) fn remark(&mut self, task: u32, now: u64, text: String) {
        if self.recording {
            let choice = Choice::of(Actor::Clock, ChoiceKind::Remark);
            self.events.push(Event {
                choice,
                place: Extent::nowhere(u16::MAX),
                data: now,
                task: (task != NO_TASK).then_some(task),
                now,
                detail: Detail::Remark(text),
            });
        }
    }
}
