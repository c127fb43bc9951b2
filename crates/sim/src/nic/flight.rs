//! Lists and calls between post and poll.

use sherman_fabric::{FabricError, Request, Response, WorkList};

/// No task waits for it: it was posted outside of virtual time.
pub(super) const NO_TASK: u32 = u32::MAX;

/// A list or a call.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The result is ready to be polled.
    pub done: bool,
    /// No task will poll it.
    pub forgotten: bool,
    pub list: WorkList,
    /// The task that posted it.
    pub task: u32,
    pub endpoint: u32,
    pub server: u16,
    /// The sender's NIC has all of the list.
    pub complete: bool,
    /// The time when each verb reaches the receiver's NIC.
    pub arrivals: Vec<u64>,
    /// Index of the next verb to admit.
    pub cursor: u16,
    /// Number of verbs that have not taken effect.
    pub left: u16,
    /// The time when the answers sent so far will have reached the sender's NIC.
    pub returned: u64,
    /// Size of these answers in bytes.
    pub reply: u64,
    /// Number of these answers that have a payload.
    pub answers: u64,
    pub error: Option<FabricError>,
    pub request: Option<Request>,
    pub response: Option<Response>,
}

/// All lists and calls.
pub(super) type Flights = crate::flights::Flights<Flight>;

impl Flights {
    /// Returns a new slot, in flight.
    pub(super) fn begin(&mut self, endpoint: u32, server: u16, task: u32) -> u32 {
        let (slot, flight) = self.open();
        (flight.done, flight.forgotten, flight.complete) = (false, false, false);
        (flight.endpoint, flight.server, flight.task) = (endpoint, server, task);
        (flight.cursor, flight.left) = (0, 0);
        (flight.returned, flight.reply, flight.answers) = (0, 0, 0);
        flight.arrivals.clear();
        slot
    }

    /// Frees a slot and returns its list.
    pub(super) fn end(&mut self, slot: u32) -> WorkList {
        let flight = self.close(slot);
        (flight.error, flight.request, flight.response) = (None, None, None);
        std::mem::take(&mut flight.list)
    }
}
