//! What a backend supplies to be tested.

use super::actor::Actor;
use super::report::Breach;
use super::stage::Stage;
use crate::Endpoint;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// How a backend runs participants. See [`on_threads`](super::on_threads) for real threads.
pub trait Harness {
    /// The backend's endpoint.
    type Endpoint: Endpoint + 'static;

    /// The memory the suite may use, alike on every server.
    fn scratch(&self) -> Scratch;

    /// How many iterations a participant makes in one run: thousands on real threads, which expose little in each; a
    /// dozen in a simulator, which runs many seeds instead.
    fn rounds(&self) -> u32;

    /// How many times each scenario is run, each on a seed of its own.
    fn runs(&self) -> u32;

    /// How long a participant may take.
    fn patience(&self) -> Patience {
        Patience::default()
    }

    /// Runs the participants concurrently, each on an endpoint of its own, to the end of all of them; returns the first
    /// breach. Participants of one [`Participant::group`] share a [`ClientId`](crate::ClientId), those of different
    /// groups do not. Every run starts on scratch memory that is all zero, with no client fenced.
    ///
    /// `seed` differs from run to run: a simulator takes its schedule from it.
    fn run(&self, seed: u64, participants: Vec<Participant<Self::Endpoint>>) -> Result<(), Breach>;
}

/// Memory for the suite, at the same offsets of every server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// How many servers there are. With one, scenarios across servers are skipped.
    pub servers: u16,
    /// Bytes of a server's host memory in all: the first offset that is out of bounds.
    pub host_bytes: u64,
    /// Host memory for the suite: begins on a unit, holds at least [`Scratch::HOST_UNITS`] units.
    pub host: Range<u64>,
    /// On-chip memory for the suite: begins on a word, holds at least [`Scratch::ON_CHIP_BYTES`], or is empty.
    pub on_chip: Range<u64>,
}

impl Scratch {
    /// The units of host memory that the suite needs on every server.
    pub const HOST_UNITS: u64 = 32;
    /// The bytes of on-chip memory that the suite needs on every server.
    pub const ON_CHIP_BYTES: u64 = 64;
}

/// When a participant has taken too long. Either bound ends it, so a clock that stands still does not hang the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// By the endpoint's clock.
    pub nanos: u64,
    /// By how often it was polled.
    pub polls: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { nanos: 30_000_000_000, polls: 200_000_000 }
    }
}

/// The future of a participant. It is made and polled on one thread.
pub type Body = Pin<Box<dyn Future<Output = Result<(), Breach>>>>;

/// What a participant does, given its means.
pub(super) type Role<E> = Box<dyn FnOnce(Actor<E>) -> Body + Send>;

/// Someone a [`Harness`] has to run. It may be sent to a thread; its future may not.
#[must_use = "the other participants wait for this one"]
pub struct Participant<E> {
    pub(super) group: usize,
    pub(super) index: usize,
    pub(super) stage: Arc<Stage>,
    pub(super) role: Role<E>,
}

impl<E: Endpoint + 'static> Participant<E> {
    /// Which compute server it belongs to: participants of a group share a [`ClientId`](crate::ClientId).
    pub fn group(&self) -> usize {
        self.group
    }

    /// Starts it on `endpoint`, which stays the harness's to drive. Poll the future to its end on this thread.
    pub fn start(self, endpoint: Rc<E>) -> Body {
        let actor = Actor::new(Rc::clone(&endpoint), Arc::clone(&self.stage), self.index);
        let waiting = actor.waiting();
        Box::pin(super::actor::bounded(endpoint, self.stage, self.index, waiting, (self.role)(actor)))
    }

    /// Says that no endpoint could be had for it, and stops the others.
    pub fn could_not_start(self, why: &dyn std::fmt::Display) -> Breach {
        self.stage.stop();
        self.stage.breach(format!("participant {} got no endpoint: {why}", self.index))
    }
}
