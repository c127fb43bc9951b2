//! Lists and calls between post and poll.

use sherman_fabric::{FabricError, Request, Response, Ticket, WorkList};
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
    generation: u32,
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
    pub(crate) request: Option<Request>,
    pub(crate) response: Option<Response>,
    /// Hash of the posted list or call. Only kept under exhaustive search.
    pub(crate) posted: u64,
    /// Hash of the results so far, independent of the order of units.
    pub(crate) fetched: u64,
}

/// All lists and calls, by slot. Slots are reused, tickets are not.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    slots: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    /// Returns a new slot, in flight.
    pub(crate) fn open(&mut self, route: u32, server: u16, task: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Flight::default());
            self.slots.len() as u32 - 1
        });
        let flight = &mut self.slots[slot as usize];
        flight.generation = flight.generation.wrapping_add(1);
        flight.phase = Phase::InFlight;
        flight.left = 0;
        flight.error = None;
        flight.forgotten = false;
        (flight.route, flight.server, flight.task) = (route, server, task);
        (flight.posted, flight.fetched) = (0, 0);
        slot
    }

    /// Frees a slot and returns its list's buffers.
    pub(crate) fn close(&mut self, slot: u32) -> WorkList {
        let flight = &mut self.slots[slot as usize];
        flight.phase = Phase::Free;
        (flight.waker, flight.request, flight.response) = (None, None, None);
        self.free.push(slot);
        std::mem::take(&mut flight.list)
    }

    pub(crate) fn ticket(&self, slot: u32) -> Ticket {
        Ticket::new(self.slots[slot as usize].generation, slot)
    }

    /// Returns the slot of a ticket that is still open.
    pub(crate) fn find(&self, ticket: Ticket) -> Option<u32> {
        let slot = ticket.slot();
        let flight = self.slots.get(slot as usize)?;
        (flight.generation == ticket.generation() && flight.phase != Phase::Free).then_some(slot)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Flight {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Flight {
        &mut self.slots[slot as usize]
    }

    /// Returns all slots that are not free, with their numbers.
    pub(crate) fn open_slots(&self) -> impl Iterator<Item = (u32, &Flight)> {
        (0u32..).zip(&self.slots).filter(|(_, flight)| flight.phase != Phase::Free)
    }
}
