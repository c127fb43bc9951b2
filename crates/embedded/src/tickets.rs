//! What an endpoint keeps between `post` and `poll`: completed lists by ticket, and a pool of empty ones.
//!
//! Both are bounded. A ticket is a slot and the slot's generation, so a ticket polled twice is told so and never gets
//! another's list. Nothing is allocated once the slots and the pool have grown to what the caller keeps in flight.

use sherman_fabric::{FabricError, Ticket, WorkList};

/// The most tickets that may be waiting to be polled.
pub(crate) const MAX_IN_FLIGHT: usize = 1 << 16;
/// The most lists that a pool keeps.
const POOL_LISTS: usize = 64;
/// The most bytes of a list that is kept: several of the largest nodes.
const POOL_LIST_BYTES: usize = 512 << 10;

/// The ticket of what found no slot.
const OVERFLOW: Ticket = Ticket(u64::MAX);
/// Ends the list of free slots.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Slot<T> {
    /// The next free slot.
    Free(u32),
    Full(T),
}

/// Things by ticket.
#[derive(Debug)]
pub(crate) struct Tickets<T> {
    slots: Vec<(u32, Slot<T>)>,
    free: u32,
}

impl<T> Tickets<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    /// Whether there is room for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.free != NONE || self.slots.len() < MAX_IN_FLIGHT
    }

    /// Keeps `thing`. Without room it is dropped, and its ticket will say so.
    #[inline]
    pub(crate) fn put(&mut self, thing: T) -> Ticket {
        if let Some((generation, slot)) = self.slots.get_mut(self.free as usize)
            && let Slot::Free(next) = *slot
        {
            let index = std::mem::replace(&mut self.free, next);
            *slot = Slot::Full(thing);
            return ticket(*generation, index);
        }
        self.put_new(thing)
    }

    #[cold]
    fn put_new(&mut self, thing: T) -> Ticket {
        if self.slots.len() >= MAX_IN_FLIGHT {
            return OVERFLOW;
        }
        self.slots.push((0, Slot::Full(thing)));
        ticket(0, self.slots.len() as u32 - 1)
    }

    /// Takes what was kept under `ticket`.
    #[inline]
    pub(crate) fn take(&mut self, ticket: Ticket) -> Result<T, FabricError> {
        let index = ticket.0 as u32;
        let slot = match self.slots.get_mut(index as usize) {
            Some((generation, slot @ Slot::Full(_))) if u64::from(*generation) == ticket.0 >> 32 => {
                *generation = generation.wrapping_add(1);
                slot
            }
            _ => return Err(unknown(ticket)),
        };
        match std::mem::replace(slot, Slot::Free(self.free)) {
            Slot::Full(thing) => {
                self.free = index;
                Ok(thing)
            }
            Slot::Free(_) => Err(unknown(ticket)),
        }
    }

    /// Looks at what was kept under `ticket`.
    #[inline]
    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Result<&mut T, FabricError> {
        match self.slots.get_mut(ticket.0 as u32 as usize) {
            Some((generation, Slot::Full(thing))) if u64::from(*generation) == ticket.0 >> 32 => Ok(thing),
            _ => Err(unknown(ticket)),
        }
    }
}

fn ticket(generation: u32, index: u32) -> Ticket {
    Ticket(u64::from(generation) << 32 | u64::from(index))
}

/// Why there is nothing under `ticket`.
#[cold]
fn unknown(ticket: Ticket) -> FabricError {
    if ticket == OVERFLOW {
        return FabricError::TooLarge { asked: MAX_IN_FLIGHT as u64 + 1, limit: MAX_IN_FLIGHT as u64 };
    }
    FabricError::Unsupported { what: "answer a ticket that is not in flight" }
}

/// Empty lists that kept their buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<WorkList>);

impl Pool {
    #[inline]
    pub(crate) fn take(&mut self, server: u16) -> WorkList {
        match self.0.pop() {
            Some(mut list) => {
                list.reset(server);
                list
            }
            None => WorkList::new(server),
        }
    }

    #[inline]
    pub(crate) fn give(&mut self, list: WorkList) {
        if self.0.len() < POOL_LISTS && list.capacity() <= POOL_LIST_BYTES {
            self.0.push(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once() {
        let mut tickets = Tickets::new();
        let (a, b) = (tickets.put("a"), tickets.put("b"));
        assert_eq!(tickets.take(a), Ok("a"));
        let c = tickets.put("c");
        assert!(tickets.take(a).is_err() && tickets.get_mut(a).is_err());
        assert_eq!((tickets.take(b), tickets.take(c)), (Ok("b"), Ok("c")));
        assert!(tickets.take(c).is_err());
        assert!(tickets.take(Ticket(77)).is_err());
    }

    #[test]
    fn slots_are_reused_and_bounded() {
        let mut tickets = Tickets::new();
        for round in 0..100 {
            let ticket = tickets.put(round);
            assert_eq!(tickets.take(ticket), Ok(round));
        }
        assert_eq!(tickets.slots.len(), 1);
        if cfg!(miri) {
            return;
        }
        let all: Vec<_> = (0..MAX_IN_FLIGHT).map(|i| tickets.put(i)).collect();
        assert!(!tickets.has_room());
        let lost = tickets.put(1);
        assert!(matches!(tickets.take(lost), Err(FabricError::TooLarge { .. })));
        assert_eq!(tickets.take(all[7]), Ok(7));
        assert!(tickets.has_room());
    }

    #[test]
    fn a_pool_keeps_buffers_but_not_without_end() {
        let mut pool = Pool::default();
        let mut list = WorkList::new(0);
        list.read(sherman_fabric::Space::Host, 0, 4096);
        pool.give(list);
        let again = pool.take(3);
        assert_eq!((again.server(), again.len(), again.capacity()), (3, 0, 4096));
        for _ in 0..2 * POOL_LISTS {
            pool.give(WorkList::new(0));
        }
        assert_eq!(pool.0.len(), POOL_LISTS);
        let mut large = WorkList::new(0);
        large.read(sherman_fabric::Space::Host, 0, POOL_LIST_BYTES as u32 + 1);
        let mut pool = Pool::default();
        pool.give(large);
        assert!(pool.0.is_empty());
    }
}
