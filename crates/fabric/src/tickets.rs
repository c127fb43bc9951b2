//! The state of an endpoint between `post` and `poll`: anything by ticket, and a pool of empty lists.
//!
//! Every backend keeps its lists and calls in these tables. Both are bounded. A ticket is a slot and the
//! slot's generation. So polling a ticket twice gives an error and never another ticket's list. Nothing is
//! allocated once the slots and the pool have grown to what the caller keeps in flight.

use crate::{FabricError, Ticket, WorkList};

/// The maximum number of tickets that wait to be polled.
pub const MAX_IN_FLIGHT: usize = 1 << 16;
/// The maximum bytes of a list that a pool keeps: several of the largest nodes.
const POOL_LIST_BYTES: usize = 512 << 10;

/// The ticket of a list or call that found no slot.
pub const NO_ROOM: Ticket = Ticket(u64::MAX);
/// Ends the free list of slots.
const NONE: u32 = u32::MAX;

/// The error of a list that is polled as a call.
pub const NOT_A_CALL: FabricError = FabricError::Unsupported { what: "answer a list as a call" };
/// The error of a call that is polled as a list.
pub const NOT_A_LIST: FabricError = FabricError::Unsupported { what: "answer a call as a list" };
/// The error of a ticket that was polled before, or never issued.
pub const NOT_IN_FLIGHT: FabricError =
    FabricError::Unsupported { what: "answer a ticket that is not in flight" };

#[derive(Debug)]
enum TicketSlot<T> {
    /// The next free slot.
    Free(u32),
    Full(T),
}

/// Which of an endpoint's two kinds of thing a ticket names. Completed lists have their own table. A slot
/// that holds nothing else is moved in and out as one piece, which halves the cost of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TicketKind {
    /// A list that completed.
    Done = 0,
    /// An error, or a call.
    Other = 1 << 31,
}

/// The kind that `ticket` names.
#[inline]
pub fn kind(ticket: Ticket) -> TicketKind {
    if ticket.slot() & TicketKind::Other as u32 == 0 { TicketKind::Done } else { TicketKind::Other }
}

/// Things of one kind, by ticket.
#[derive(Debug)]
pub struct Tickets<T> {
    kind: TicketKind,
    slots: Vec<(u32, TicketSlot<T>)>,
    free: u32,
}

impl<T> Tickets<T> {
    /// The size of a slot, which is moved in and out of in every round trip.
    pub const SLOT_BYTES: usize = size_of::<(u32, TicketSlot<T>)>();

    /// An empty table.
    pub fn new(kind: TicketKind) -> Self {
        Self { kind, slots: Vec::new(), free: NONE }
    }

    /// Whether there is room for one more.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.free != NONE || self.slots.len() < MAX_IN_FLIGHT
    }

    /// Keeps `thing`. Without room it is dropped, and polling its ticket reports that.
    #[inline]
    pub fn put(&mut self, thing: T) -> Ticket {
        let index = self.free;
        match self.slots.get_mut(index as usize) {
            Some((generation, slot @ TicketSlot::Free(_))) => {
                if let TicketSlot::Free(next) = *slot {
                    self.free = next;
                }
                *slot = TicketSlot::Full(thing);
                Ticket::new(*generation, index | self.kind as u32)
            }
            _ => self.put_new(thing),
        }
    }

    #[cold]
    fn put_new(&mut self, thing: T) -> Ticket {
        if self.slots.len() >= MAX_IN_FLIGHT {
            return NO_ROOM;
        }
        self.slots.push((0, TicketSlot::Full(thing)));
        Ticket::new(0, (self.slots.len() as u32 - 1) | self.kind as u32)
    }

    /// The slot of `ticket`, if the ticket is still valid.
    #[inline]
    fn slot(&mut self, ticket: Ticket) -> Option<&mut (u32, TicketSlot<T>)> {
        let index = ticket.slot() ^ self.kind as u32;
        self.slots.get_mut(index as usize).filter(|(generation, _)| *generation == ticket.generation())
    }

    /// Takes the thing under `ticket`.
    #[inline]
    pub fn take(&mut self, ticket: Ticket) -> Option<T> {
        let free = self.free;
        match self.slot(ticket) {
            Some((generation, slot @ TicketSlot::Full(_))) => {
                *generation = generation.wrapping_add(1);
                let was = std::mem::replace(slot, TicketSlot::Free(free));
                self.free = ticket.slot() ^ self.kind as u32;
                match was {
                    TicketSlot::Full(thing) => Some(thing),
                    TicketSlot::Free(_) => None,
                }
            }
            _ => None,
        }
    }

    /// Looks at the thing under `ticket`.
    #[inline]
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        match self.slot(ticket) {
            Some((_, TicketSlot::Full(thing))) => Some(thing),
            _ => None,
        }
    }
}

/// The error for a `ticket` that names nothing.
#[cold]
pub fn unknown(ticket: Ticket) -> FabricError {
    if ticket == NO_ROOM {
        return FabricError::TooLarge { asked: MAX_IN_FLIGHT as u64 + 1, limit: MAX_IN_FLIGHT as u64 };
    }
    NOT_IN_FLIGHT
}

/// Empty lists that kept their buffers.
#[derive(Debug)]
pub struct Pool {
    lists: Vec<WorkList>,
    most: usize,
}

impl Pool {
    /// An empty pool that keeps at most `most` lists.
    pub fn new(most: usize) -> Self {
        Self { lists: Vec::new(), most }
    }

    /// An empty list for `server`.
    #[inline]
    pub fn take(&mut self, server: u16) -> WorkList {
        match self.lists.pop() {
            Some(mut list) => {
                list.reset(server);
                list
            }
            None => WorkList::new(server),
        }
    }

    /// Keeps a list's buffers, unless the pool is full or they are too large.
    #[inline]
    pub fn give(&mut self, list: WorkList) {
        if self.lists.len() < self.most && list.capacity() <= POOL_LIST_BYTES {
            self.lists.push(list);
        }
    }
}

/// The most empty lists that an endpoint keeps whose lists finish inside `post`.
const POOL_LISTS: usize = 64;

/// The outcomes of lists that finish inside `post`, until they are polled. `T` is what else a ticket may
/// name.
#[derive(Debug)]
pub struct Outcomes<T> {
    /// Lists that completed.
    pub done: Tickets<WorkList>,
    /// Everything else, such as errors.
    pub others: Tickets<T>,
    /// Empty lists.
    pub pool: Pool,
}

impl<T> Default for Outcomes<T> {
    fn default() -> Self {
        let (done, others) = (Tickets::new(TicketKind::Done), Tickets::new(TicketKind::Other));
        Self { done, others, pool: Pool::new(POOL_LISTS) }
    }
}

impl<T> Outcomes<T> {
    /// Whether the tables can keep one more outcome of either kind.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.done.has_room() && self.others.has_room()
    }

    /// Takes the completed list under `ticket`.
    #[inline]
    pub fn take_done(&mut self, ticket: Ticket) -> Option<WorkList> {
        if kind(ticket) == TicketKind::Done { self.done.take(ticket) } else { None }
    }

    /// Drops what `ticket` names.
    pub fn forget(&mut self, ticket: Ticket) {
        match kind(ticket) {
            TicketKind::Done => {
                if let Some(list) = self.done.take(ticket) {
                    self.pool.give(list);
                }
            }
            TicketKind::Other => drop(self.others.take(ticket)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once() {
        for kind in [TicketKind::Done, TicketKind::Other] {
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
        let mut tickets = Tickets::new(TicketKind::Done);
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
        assert_eq!((tickets.take(lost), kind(lost)), (None, TicketKind::Other));
        assert!(matches!(unknown(lost), FabricError::TooLarge { .. }));
        assert_eq!(tickets.take(all[7]), Some(7));
        assert!(tickets.has_room());
    }

    #[test]
    fn a_pool_keeps_buffers_but_not_without_end() {
        let mut pool = Pool::new(64);
        let mut list = WorkList::new(0);
        list.read(crate::Space::Host, 0, 4096);
        pool.give(list);
        let again = pool.take(3);
        assert_eq!((again.server(), again.len(), again.capacity()), (3, 0, 4096));
        for _ in 0..2 * 64 {
            pool.give(WorkList::new(0));
        }
        assert_eq!(pool.lists.len(), 64);
        if cfg!(miri) {
            return;
        }
        let mut large = WorkList::new(0);
        large.read(crate::Space::Host, 0, POOL_LIST_BYTES as u32 + 1);
        let mut pool = Pool::new(64);
        pool.give(large);
        assert!(pool.lists.is_empty());
    }
}
