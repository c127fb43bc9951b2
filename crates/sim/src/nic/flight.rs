//! Lists and calls between post and poll.

use sherman_fabric::{FabricError, Request, Response, Ticket, WorkList};

/// No task waits for it: it was posted outside of virtual time.
pub(super) const NO_TASK: u32 = u32::MAX;

/// A list or a call.
#[derive(Debug, Default)]
pub(super) struct Flight {
    generation: u32,
    pub open: bool,
    /// The result is ready to be polled.
    pub done: bool,
    /// No task will poll it.
    pub forgotten: bool,
    pub list: WorkList,
    /// The task that posted it.
    pub task: u32,
    pub endpoint: u32,
    pub server: u16,
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
    pub error: Option<FabricError>,
    pub request: Option<Request>,
    pub response: Option<Response>,
}

/// All lists and calls, by slot. Slots are reused, tickets are not.
#[derive(Debug, Default)]
pub(super) struct Flights {
    slots: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    pub(super) fn open(&mut self, endpoint: u32, server: u16, task: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Flight::default());
            self.slots.len() as u32 - 1
        });
        let flight = &mut self.slots[slot as usize];
        flight.generation = flight.generation.wrapping_add(1);
        (flight.open, flight.done, flight.forgotten) = (true, false, false);
        (flight.endpoint, flight.server, flight.task) = (endpoint, server, task);
        (flight.cursor, flight.left, flight.returned, flight.reply) = (0, 0, 0, 0);
        flight.arrivals.clear();
        slot
    }

    /// Frees a slot and returns its list.
    pub(super) fn close(&mut self, slot: u32) -> WorkList {
        let flight = &mut self.slots[slot as usize];
        flight.open = false;
        (flight.error, flight.request, flight.response) = (None, None, None);
        self.free.push(slot);
        std::mem::take(&mut flight.list)
    }

    pub(super) fn ticket(&self, slot: u32) -> Ticket {
        Ticket::new(self.slots[slot as usize].generation, slot)
    }

    /// Returns the slot of a ticket that is still open.
    pub(super) fn find(&self, ticket: Ticket) -> Option<u32> {
        let slot = ticket.slot();
        let flight = self.slots.get(slot as usize)?;
        (flight.generation == ticket.generation() && flight.open).then_some(slot)
    }

    pub(super) fn get(&self, slot: u32) -> &Flight {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Flight {
        &mut self.slots[slot as usize]
    }
}
