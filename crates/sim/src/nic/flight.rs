//! Lists and calls between post and poll.

use sherman_fabric::{FabricError, Request, Response, Ticket, WorkList};

/// Nobody waits for it: it was posted outside of virtual time.
pub(super) const NO_TASK: u32 = u32::MAX;

/// A list or a call.
#[derive(Debug, Default)]
pub(super) struct Flight {
    generation: u32,
    pub open: bool,
    /// Its result waits to be polled.
    pub done: bool,
    /// Nobody will poll it.
    pub forgotten: bool,
    pub list: WorkList,
    /// Who posted it.
    pub task: u32,
    pub endpoint: u32,
    pub server: u16,
    /// When each verb reaches the receiver's NIC.
    pub arrivals: Vec<u64>,
    /// The verb that is next to be admitted.
    pub cursor: u16,
    /// Verbs that have not taken effect.
    pub left: u16,
    /// When the answers that are under way will have reached the sender's NIC.
    pub returned: u64,
    /// Bytes of these.
    pub reply: u64,
    pub error: Option<FabricError>,
    pub request: Option<Request>,
    pub response: Option<Response>,
}

/// All of them, by slot. Slots are reused, tickets are not.
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
        Ticket(u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot))
    }

    /// The slot of a ticket that is still open.
    pub(super) fn find(&self, ticket: Ticket) -> Option<u32> {
        let (slot, generation) = (ticket.0 as u32, (ticket.0 >> 32) as u32);
        let flight = self.slots.get(slot as usize)?;
        (flight.generation == generation && flight.open).then_some(slot)
    }

    pub(super) fn get(&self, slot: u32) -> &Flight {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Flight {
        &mut self.slots[slot as usize]
    }
}
