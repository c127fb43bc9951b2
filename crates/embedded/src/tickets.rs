//! What an endpoint keeps between `post` and `poll`: completed lists by ticket, and a pool of empty ones.
//!
//! Both are bounded. A ticket is a slot and the slot's generation, so a ticket polled twice is told so and never gets
//! another's list. Nothing is allocated once the slots and the pool have grown to what the caller keeps in flight.

use sherman_fabric::{FabricError, Ticket, WorkList};

/// The most tickets that may be waiting to be polled.
pub const MAX_IN_FLIGHT: usize = 1 << 16;
/// The most lists that a pool keeps.
const POOL_LISTS: usize = 64;
/// The most bytes of a list that is kept: several of the largest nodes.
const POOL_LIST_BYTES: usize = 512 << 10;

/// The ticket of what found no slot.
pub const NO_ROOM: Ticket = Ticket(u64::MAX);
/// Ends the list of free slots.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Slot<T> {
    /// The next free slot.
    Free(u32),
    Full(T),
}

/// Which of an endpoint's two kinds of thing a ticket names. Completed lists are kept apart from everything else: a
/// slot that holds nothing else is moved in and out as one piece, which halves the cost of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A list that completed.
    Done = 0,
    /// An error, or a call.
    Other = 1 << 31,
}

/// The kind that `ticket` names.
#[inline]
pub fn kind(ticket: Ticket) -> Kind {
    if ticket.0 as u32 & Kind::Other as u32 == 0 { Kind::Done } else { Kind::Other }
}

/// Things of one kind, by ticket.
#[derive(Debug)]
pub struct Tickets<T> {
    kind: Kind,
    slots: Vec<(u32, Slot<T>)>,
    free: u32,
}

impl<T> Tickets<T> {
    /// None yet.
    pub fn new(kind: Kind) -> Self {
        Self { kind, slots: Vec::new(), free: NONE }
    }

    /// Whether there is room for one more.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.free != NONE || self.slots.len() < MAX_IN_FLIGHT
    }

    /// Keeps `thing`. Without room it is dropped, and its ticket will say so.
    #[inline]
    pub fn put(&mut self, thing: T) -> Ticket {
        let index = self.free;
        match self.slots.get_mut(index as usize) {
            Some((generation, slot @ Slot::Free(_))) => {
                if let Slot::Free(next) = *slot {
                    self.free = next;
                }
                *slot = Slot::Full(thing);
                ticket(*generation, self.kind, index)
            }
            _ => self.put_new(thing),
        }
    }

    #[cold]
    fn put_new(&mut self, thing: T) -> Ticket {
        if self.slots.len() >= MAX_IN_FLIGHT {
            return NO_ROOM;
        }
        self.slots.push((0, Slot::Full(thing)));
        ticket(0, self.kind, self.slots.len() as u32 - 1)
    }

    /// The slot of `ticket`, if it still names one.
    #[inline]
    fn slot(&mut self, ticket: Ticket) -> Option<&mut (u32, Slot<T>)> {
        let index = ticket.0 as u32 ^ self.kind as u32;
        self.slots.get_mut(index as usize).filter(|(generation, _)| u64::from(*generation) == ticket.0 >> 32)
    }

    /// Takes what was kept under `ticket`.
    #[inline]
    pub fn take(&mut self, ticket: Ticket) -> Option<T> {
        let free = self.free;
        match self.slot(ticket) {
            Some((generation, slot @ Slot::Full(_))) => {
                *generation = generation.wrapping_add(1);
                let was = std::mem::replace(slot, Slot::Free(free));
                self.free = ticket.0 as u32 ^ self.kind as u32;
                match was {
                    Slot::Full(thing) => Some(thing),
                    Slot::Free(_) => None,
                }
            }
            _ => None,
        }
    }

    /// Looks at what was kept under `ticket`.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        match self.slot(ticket) {
            Some((_, Slot::Full(thing))) => Some(thing),
            _ => None,
        }
    }
}

fn ticket(generation: u32, kind: Kind, index: u32) -> Ticket {
    Ticket(u64::from(generation) << 32 | u64::from(index | kind as u32))
}

/// Why there is nothing under `ticket`.
#[cold]
pub fn unknown(ticket: Ticket) -> FabricError {
    if ticket == NO_ROOM {
        return FabricError::TooLarge { asked: MAX_IN_FLIGHT as u64 + 1, limit: MAX_IN_FLIGHT as u64 };
    }
    FabricError::Unsupported { what: "answer a ticket that is not in flight" }
}

/// Empty lists that kept their buffers.
#[derive(Debug, Default)]
pub struct Pool(Vec<WorkList>);

impl Pool {
    /// An empty list for `server`.
    #[inline]
    pub fn take(&mut self, server: u16) -> WorkList {
        match self.0.pop() {
            Some(mut list) => {
                list.reset(server);
                list
            }
            None => WorkList::new(server),
        }
    }

    /// Keeps a list's buffers, unless they are too many or too large.
    #[inline]
    pub fn give(&mut self, list: WorkList) {
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
        for kind in [Kind::Done, Kind::Other] {
            let mut tickets = Tickets::new(kind);
            let (a, b) = (tickets.put("a"), tickets.put("b"));
            assert_eq!((super::kind(a), super::kind(b)), (kind, kind));
            assert_eq!(tickets.take(a), Some("a"));
            assert_eq!(tickets.take(a), None);
            let c = tickets.put("c");
            assert!(tickets.take(a).is_none() && tickets.get_mut(a).is_none());
            assert_eq!(tickets.get_mut(c), Some(&mut "c"));
            assert_eq!((tickets.take(b), tickets.take(c)), (Some("b"), Some("c")));
            assert_eq!((tickets.take(c), tickets.take(Ticket(77))), (None, None));
            assert_eq!(tickets.take(Ticket(c.0 ^ (1 << 31))), None);
        }
    }

    #[test]
    fn slots_are_reused_and_bounded() {
        let mut tickets = Tickets::new(Kind::Done);
        for round in 0..100 {
            let ticket = tickets.put(round);
            assert_eq!(tickets.take(ticket), Some(round));
        }
        assert_eq!(tickets.slots.len(), 1);
        if cfg!(miri) {
            return;
        }
        let all: Vec<_> = (0..MAX_IN_FLIGHT).map(|i| tickets.put(i)).collect();
        assert!(!tickets.has_room());
        let lost = tickets.put(1);
        assert_eq!((tickets.take(lost), kind(lost)), (None, Kind::Other));
        assert!(matches!(unknown(lost), FabricError::TooLarge { .. }));
        assert_eq!(tickets.take(all[7]), Some(7));
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
        if cfg!(miri) {
            return;
        }
        let mut large = WorkList::new(0);
        large.read(sherman_fabric::Space::Host, 0, POOL_LIST_BYTES as u32 + 1);
        let mut pool = Pool::default();
        pool.give(large);
        assert!(pool.0.is_empty());
    }
}
