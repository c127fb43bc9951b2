//! The trace: a running hash of every event, and on request a readable line for each.

use crate::choice::{Actor, Choice, Kind};
use crate::hash::mix;
use crate::world::flight::NO_TASK;
use sherman_fabric::Space;
use std::fmt;

/// Where an event touched memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The server, or `u16::MAX` for none.
    pub server: u16,
    /// The memory.
    pub space: Space,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; 0 if it touched none.
    pub len: u32,
}

impl Place {
    /// No memory.
    pub(crate) fn nowhere(server: u16) -> Self {
        Self { server, space: Space::Host, offset: 0, len: 0 }
    }
}

/// What else a recorded trace knows of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    #[default]
    None,
    /// The bytes that a READ fetched or a WRITE left.
    Bytes(Vec<u8>),
    /// What a CAS compared and stored, and under which mask.
    Cas {
        /// Compared with.
        compare: u64,
        /// Stored if equal.
        swap: u64,
        /// The bits concerned.
        mask: u64,
    },
    /// What an FAA added.
    Faa {
        /// Added.
        add: u64,
    },
    /// A control request and, once it is executed, its answer.
    Call(String),
    /// A fault, or what a task says of itself.
    Remark(String),
}

/// One event of a recorded trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was chosen.
    pub choice: Choice,
    /// What it touched.
    pub place: Place,
    /// A hash of the bytes it moved, the word an atomic found, or the time for events that move nothing.
    pub data: u64,
    /// The task that posted what happens here, by number; `None` if none did.
    pub task: Option<u32>,
    /// Virtual time.
    pub now: u64,
    /// What else is known.
    pub detail: Detail,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { choice, place, data, detail, .. } = self;
        let space = if place.space == Space::Host { "host" } else { "on-chip" };
        match choice.kind {
            Kind::Fetch | Kind::FetchStale | Kind::Land => {
                write!(f, "{choice}: {space} {}:{:#x}+{} #{:08x}", place.server, place.offset, place.len, *data as u32)
            }
            Kind::Atomic | Kind::AtomicLoad | Kind::AtomicStore => {
                write!(f, "{choice}: {space} {}:{:#x} found {data:#x}", place.server, place.offset)
            }
            Kind::Remark => match detail {
                Detail::Remark(text) => write!(f, "{text}"),
                _ => Ok(()),
            },
            _ => write!(f, "{choice} at {data} ns"),
        }
    }
}

/// Hash and, if asked for, events.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) hash: u64,
    events: Vec<Event>,
    recording: bool,
}

impl Log {
    /// Forgets everything but whether events are kept.
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
    pub(crate) fn event(&mut self, choice: Choice, place: Place, data: u64) {
        let actor = match choice.actor {
            Actor::Task(task) => u64::from(task) << 2,
            Actor::QueuePair { endpoint, .. } => u64::from(endpoint) << 2 | 1,
            Actor::Control(endpoint) => u64::from(endpoint) << 2 | 2,
            Actor::Clock => 3,
        };
        let what = choice.kind as u64 | u64::from(place.space == Space::OnChip) << 7 | u64::from(place.server) << 8;
        self.hash = mix(self.hash ^ what ^ actor << 24, place.offset ^ data.rotate_left(17));
        if self.recording {
            self.events.push(Event { choice, place, data, task: None, now: 0, detail: Detail::None });
        }
    }

    /// Whether events are kept.
    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.recording
    }

    /// Adds what else is known of the last event.
    pub(crate) fn detail(&mut self, task: u32, now: u64, detail: Detail) {
        if let Some(event) = self.events.last_mut() {
            event.task = (task != NO_TASK).then_some(task);
            (event.now, event.detail) = (now, detail);
        }
    }

    /// Tells of something that is no event.
    pub(crate) fn remark(&mut self, task: u32, now: u64, text: String) {
        if self.recording {
            let choice = Choice::of(Actor::Clock, Kind::Remark);
            self.events.push(Event {
                choice,
                place: Place::nowhere(u16::MAX),
                data: now,
                task: (task != NO_TASK).then_some(task),
                now,
                detail: Detail::Remark(text),
            });
        }
    }
}
