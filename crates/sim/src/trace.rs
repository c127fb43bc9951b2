//! The trace: a running hash of every event, and on request a readable line for each.

use crate::choice::{Actor, Choice, Kind};
use crate::hash::mix;
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

/// One event of a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was chosen.
    pub choice: Choice,
    /// What it touched.
    pub place: Place,
    /// A hash of the bytes it moved, the word an atomic found, or the time for events that move nothing.
    pub data: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { choice, place, data } = self;
        let space = if place.space == Space::Host { "host" } else { "on-chip" };
        match choice.kind {
            Kind::Fetch | Kind::FetchStale | Kind::Land => {
                write!(f, "{choice}: {space} {}:{:#x}+{} #{:08x}", place.server, place.offset, place.len, *data as u32)
            }
            Kind::Atomic | Kind::AtomicLoad | Kind::AtomicStore => {
                write!(f, "{choice}: {space} {}:{:#x} found {data:#x}", place.server, place.offset)
            }
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
            self.events.push(Event { choice, place, data });
        }
    }
}
