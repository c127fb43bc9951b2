//! Lists and calls between post and poll.

use sherman_fabric::{FabricError, Request, Response, WorkList};
use std::task::Waker;

/// No task: posted by [`Sim::block_on`](crate::Sim::block_on).
pub(crate) const NO_TASK: u32 = u32::MAX;

/// The progress of a list or call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The slot is free.
    #[default]
    Free,
    /// Posted. Some of it may have been executed.
    InFlight,
    /// All of it has been executed, but the result is not delivered yet.
    Finished,
    /// The result is ready to be polled.
    Delivered,
}

/// One slot: a list or a call.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) phase: Phase,
    pub(crate) list: WorkList,
    /// Number of verbs that are not done.
    pub(crate) left: u32,
    /// The error with which it ends, if any.
    pub(crate) error: Option<FabricError>,
    pub(crate) waker: Option<Waker>,
    /// No task will poll it.
    pub(crate) forgotten: bool,
    /// Queue pair of a list, endpoint of a call.
    pub(crate) route: u32,
    /// Sequence number of a list on its queue pair.
    pub(crate) order: u64,
    /// Server of a call.
    pub(crate) server: u16,
    /// The task that posted it.
    pub(crate) task: u32,
    /// A call that is on its way to the control group, or waits for a host: it cannot be executed now.
    pub(crate) sent: bool,
    /// When a call was made, by the clock of its compute server.
    pub(crate) asked: u64,
    pub(crate) request: Option<Request>,
    pub(crate) response: Option<Response>,
    /// Hash of the posted list or call. Only kept under exhaustive search.
    pub(crate) posted: u64,
    /// Hash of the results so far, independent of the order of units.
    pub(crate) fetched: u64,
}

/// All lists and calls.
pub(crate) type Flights = crate::flights::Flights<Flight>;

impl Flights {
    /// Returns a new slot, in flight.
    pub(crate) fn begin(&mut self, route: u32, server: u16, task: u32) -> u32 {
        let (slot, flight) = self.open();
        (flight.phase, flight.left) = (Phase::InFlight, 0);
        (flight.error, flight.forgotten) = (None, false);
        (flight.route, flight.server, flight.task) = (route, server, task);
        (flight.posted, flight.fetched) = (0, 0);
        (flight.sent, flight.asked) = (false, 0);
        slot
    }

    /// Frees a slot and returns its list's buffers.
    pub(crate) fn end(&mut self, slot: u32) -> WorkList {
        let flight = self.close(slot);
        flight.phase = Phase::Free;
        (flight.waker, flight.request, flight.response) = (None, None, None);
        std::mem::take(&mut flight.list)
    }
}
