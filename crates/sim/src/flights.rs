//! Slots for lists and calls between post and poll.

use sherman_fabric::Ticket;

/// A list or a call, whose buffers the next one in its slot uses again.
#[derive(Debug, Default)]
struct FlightSlot<F> {
    generation: u32,
    open: bool,
    flight: F,
}

/// All lists and calls, by slot. Slots are reused, tickets are not.
#[derive(Debug, Default)]
pub(crate) struct Flights<F> {
    slots: Vec<FlightSlot<F>>,
    free: Vec<u32>,
}

impl<F: Default> Flights<F> {
    /// Opens a slot. Its flight is as the last one left it.
    pub(crate) fn open(&mut self) -> (u32, &mut F) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(FlightSlot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[number as usize];
        (slot.generation, slot.open) = (slot.generation.wrapping_add(1), true);
        (number, &mut slot.flight)
    }

    /// Frees a slot.
    pub(crate) fn close(&mut self, slot: u32) -> &mut F {
        self.free.push(slot);
        let slot = &mut self.slots[slot as usize];
        slot.open = false;
        &mut slot.flight
    }

    pub(crate) fn ticket(&self, slot: u32) -> Ticket {
        Ticket::new(self.slots[slot as usize].generation, slot)
    }

    /// Returns the slot of a ticket that is still open.
    pub(crate) fn find(&self, ticket: Ticket) -> Option<u32> {
        let slot = self.slots.get(ticket.slot() as usize)?;
        (slot.generation == ticket.generation() && slot.open).then_some(ticket.slot())
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &F {
        &self.slots[slot as usize].flight
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut F {
        &mut self.slots[slot as usize].flight
    }

    /// Returns all open slots, with their numbers.
    pub(crate) fn open_slots(&self) -> impl Iterator<Item = (u32, &F)> {
        (0u32..).zip(&self.slots).filter(|(_, slot)| slot.open).map(|(number, slot)| (number, &slot.flight))
    }
}
