//! The interface that a backend implements to be tested.

use super::actor::Actor;
use super::report::Breach;
use super::stage::Stage;
use sherman_fabric::Endpoint;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// How a backend runs participants. See [`on_threads`](super::on_threads) for real threads.
pub trait Harness {
    /// The backend's endpoint.
    type Endpoint: Endpoint + 'static;

    /// The memory that the suite may use, the same on every server.
    fn scratch(&self) -> Scratch;

    /// Number of iterations of a participant in one run. Use thousands on real threads, where each exposes
    /// little. Use a dozen in a simulator, which runs many seeds instead.
    fn rounds(&self) -> u32;

    /// Number of runs of each scenario. Each run has its own seed.
    fn runs(&self) -> u32;

    /// The time limit of a participant.
    fn patience(&self) -> Patience {
        Patience::default()
    }

    /// Runs all participants concurrently until they end, each on its own endpoint. Returns the first breach.
    /// Participants of one [`Participant::group`] share a [`ComputeId`](sherman_fabric::ComputeId), and those
    /// of different groups do not. Every run starts on scratch memory that is all zero, with no client
    /// fenced.
    ///
    /// `seed` differs from run to run. A simulator takes its schedule from it.
    fn run(&self, seed: u64, participants: Vec<Participant<Self::Endpoint>>) -> Result<(), Breach>;
}

/// Memory for the suite, at the same offsets of every server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Number of servers. With one, scenarios across servers are skipped.
    pub servers: u16,
    /// Total bytes of a server's host memory: the first offset that is out of bounds.
    pub host_bytes: u64,
    /// Host memory for the suite: begins on a unit, holds at least [`Scratch::HOST_UNITS`] units.
    pub host: Range<u64>,
    /// On-chip memory for the suite: begins on a word, holds at least [`Scratch::ON_CHIP_BYTES`], or is
    /// empty.
    pub on_chip: Range<u64>,
}

impl Scratch {
    /// The units of host memory that the suite needs on every server.
    pub const HOST_UNITS: u64 = 32;
    /// The bytes of on-chip memory that the suite needs on every server.
    pub const ON_CHIP_BYTES: u64 = 64;
}

/// The time limit of a participant. Either bound ends it, so a stopped clock does not hang the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Nanoseconds by the endpoint's clock.
    pub nanos: u64,
    /// Number of polls.
    pub polls: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { nanos: 30_000_000_000, polls: 200_000_000 }
    }
}

/// The future of a participant. It is made and polled on one thread.
pub type Body = Pin<Box<dyn Future<Output = Result<(), Breach>>>>;

/// The work of a participant, given its [`Actor`].
pub(super) type Role<E> = Box<dyn FnOnce(Actor<E>) -> Body + Send>;

/// One participant for a [`Harness`] to run. It may be sent to a thread, but its future may not.
#[must_use = "the other participants wait for this one"]
pub struct Participant<E> {
    pub(super) group: usize,
    pub(super) index: usize,
    pub(super) stage: Arc<Stage>,
    pub(super) role: Role<E>,
}

impl<E: Endpoint + 'static> Participant<E> {
    /// The compute server it belongs to. Participants of a group share a
    /// [`ComputeId`](sherman_fabric::ComputeId).
    pub fn group(&self) -> usize {
        self.group
    }

    /// Starts the participant on `endpoint`. The harness still drives the endpoint. Poll the future until it
    /// ends, on this thread.
    pub fn start(self, endpoint: Rc<E>) -> Body {
        let actor = Actor::new(Rc::clone(&endpoint), Arc::clone(&self.stage), self.index);
        let waiting = actor.waiting();
        Box::pin(super::actor::bounded(endpoint, self.stage, self.index, waiting, (self.role)(actor)))
    }

    /// Reports that no endpoint was available for the participant, and stops the others.
    pub fn could_not_start(self, why: &dyn std::fmt::Display) -> Breach {
        self.stage.stop();
        self.stage.breach(format!("participant {} got no endpoint: {why}", self.index))
    }
}
