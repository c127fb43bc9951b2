//! What an endpoint keeps between `post` and `poll`: lists and calls by ticket, and a pool of empty lists.
//!
//! All of it is bounded. A ticket is a slot and the slot's generation, so a ticket polled twice is told so and never gets
//! another's list. It travels as the tag of a frame and comes back with the answer. Nothing is allocated once slots and pool
//! have grown to what the caller keeps in flight.

use sherman_fabric::{FabricError, Response, Ticket, WorkList};
use std::task::{Context, Poll, Waker};

/// The most tickets that may be in flight or waiting to be polled.
pub const MAX_IN_FLIGHT: usize = 1 << 16;
/// The most lists that the pool keeps.
const POOL_LISTS: usize = 256;
/// The most bytes of a list that is kept: several of the largest nodes.
const POOL_LIST_BYTES: usize = 512 << 10;

/// The ticket of what found no slot.
pub const NO_ROOM: Ticket = Ticket(u64::MAX);

const NOT_A_CALL: FabricError = FabricError::Unsupported { what: "answer a list as a call" };
const NOT_A_LIST: FabricError = FabricError::Unsupported { what: "answer a call as a list" };
const NOT_IN_FLIGHT: FabricError = FabricError::Unsupported { what: "answer a ticket that is not in flight" };

/// What happens always is small, so that a slot is: errors and answers lie elsewhere.
#[derive(Debug)]
enum State {
    /// The next free slot, plus one; 0 if there is none.
    Free(u32),
    /// A list in flight, and who waits for it.
    List(WorkList, Option<Waker>),
    /// A list that completed.
    Done(WorkList),
    /// A list that failed.
    Failed(Box<FabricError>),
    /// A call in flight, and who waits for it.
    Call(Option<Waker>),
    /// A call that ended.
    Answered(Box<Result<Response, FabricError>>),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// Nobody will ask for the outcome.
    forgotten: bool,
    state: State,
}

const _: () = assert!(size_of::<Slot>() <= 40, "a slot is moved in and out of in every round trip");

/// Lists and calls by ticket.
#[derive(Debug, Default)]
pub struct Flight {
    slots: Vec<Slot>,
    /// The first free slot, plus one; 0 if there is none.
    free: u32,
    pool: Vec<WorkList>,
    /// Who is to be woken, when nothing is borrowed any more.
    woken: Vec<Waker>,
}

impl Flight {
    /// An empty list for `server`.
    #[inline]
    pub fn list(&mut self, server: u16) -> WorkList {
        match self.pool.pop() {
            Some(mut list) => {
                list.reset(server);
                list
            }
            None => WorkList::new(server),
        }
    }

    /// Keeps an empty list's buffers.
    #[inline]
    pub fn recycle(&mut self, list: WorkList) {
        if self.pool.len() < POOL_LISTS && list.capacity() <= POOL_LIST_BYTES {
            self.pool.push(list);
        }
    }

    /// A list that is posted.
    #[inline]
    pub fn begin_list(&mut self, list: WorkList) -> Ticket {
        self.put(State::List(list, None))
    }

    /// A list that was not worth posting.
    pub fn refuse_list(&mut self, list: WorkList, error: FabricError) -> Ticket {
        self.recycle(list);
        self.put(State::Failed(Box::new(error)))
    }

    /// A call that is sent.
    pub fn begin_call(&mut self) -> Ticket {
        self.put(State::Call(None))
    }

    /// A call that is answered without being sent.
    pub fn refuse_call(&mut self, error: FabricError) -> Ticket {
        self.put(State::Answered(Box::new(Err(error))))
    }

    /// The list in flight under `ticket`, for who encodes it.
    #[inline]
    pub fn list_mut(&mut self, ticket: Ticket) -> Option<&mut WorkList> {
        match self.slot(ticket) {
            Some(Slot { state: State::List(list, _), .. }) => Some(list),
            _ => None,
        }
    }

    /// The list under `ticket` ends as `outcome` says of it.
    #[inline]
    pub fn end_list<X>(
        &mut self,
        ticket: Ticket,
        outcome: impl FnOnce(&mut WorkList) -> Result<Result<(), FabricError>, X>,
    ) -> Result<(), X> {
        let Some(slot) = self.slot(ticket) else { return Ok(()) };
        let State::List(list, _) = &mut slot.state else { return Ok(()) };
        let outcome = outcome(list)?;
        let forgotten = slot.forgotten;
        // What stands here for a moment is of no account.
        let State::List(list, waker) = std::mem::replace(&mut slot.state, State::Call(None)) else { return Ok(()) };
        if forgotten {
            self.release(ticket);
            self.recycle(list);
            return Ok(());
        }
        match outcome {
            Ok(()) => slot.state = State::Done(list),
            Err(error) => {
                slot.state = State::Failed(Box::new(error));
                self.recycle(list);
            }
        }
        self.woken.extend(waker);
        Ok(())
    }

    /// The call under `ticket` is answered.
    pub fn end_call(&mut self, ticket: Ticket, answer: Result<Response, FabricError>) {
        let Some(slot) = self.slot(ticket) else { return };
        let State::Call(waker) = &mut slot.state else { return };
        let waker = waker.take();
        if slot.forgotten {
            self.release(ticket);
        } else {
            slot.state = State::Answered(Box::new(answer));
            self.woken.extend(waker);
        }
    }

    /// The outcome of a list.
    #[inline]
    pub fn poll_list(&mut self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        match self.slot(ticket) {
            Some(Slot { state: State::List(_, waker), .. }) => wait(waker, cx),
            Some(Slot { state: State::Done(_), .. }) => match self.release(ticket) {
                State::Done(list) => Poll::Ready(Ok(list)),
                _ => Poll::Ready(Err(NOT_IN_FLIGHT)),
            },
            _ => self.poll_failed(ticket),
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_failed(&mut self, ticket: Ticket) -> Poll<Result<WorkList, FabricError>> {
        Poll::Ready(Err(match self.slot(ticket) {
            Some(Slot { state: State::Failed(_), .. }) => match self.release(ticket) {
                State::Failed(error) => *error,
                _ => NOT_IN_FLIGHT,
            },
            Some(_) => NOT_A_LIST,
            None => unknown(ticket),
        }))
    }

    /// The outcome of a call.
    pub fn poll_call(&mut self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        match self.slot(ticket) {
            Some(Slot { state: State::Call(waker), .. }) => wait(waker, cx),
            Some(Slot { state: State::Answered(_), .. }) => match self.release(ticket) {
                State::Answered(answer) => Poll::Ready(*answer),
                _ => Poll::Ready(Err(NOT_IN_FLIGHT)),
            },
            Some(_) => Poll::Ready(Err(NOT_A_CALL)),
            None => Poll::Ready(Err(unknown(ticket))),
        }
    }

    /// Nobody will ask for the outcome of `ticket`.
    pub fn forget(&mut self, ticket: Ticket) {
        let Some(slot) = self.slot(ticket) else { return };
        match &mut slot.state {
            State::List(_, waker) | State::Call(waker) => {
                *waker = None;
                slot.forgotten = true;
            }
            State::Done(_) | State::Failed(_) | State::Answered(_) => {
                if let State::Done(list) = self.release(ticket) {
                    self.recycle(list);
                }
            }
            State::Free(_) => {}
        }
    }

    /// Whether somebody is to be woken.
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Those to be woken, to be given back when they are.
    #[inline]
    pub fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    /// Keeps the buffer of [`Flight::take_woken`].
    #[inline]
    pub fn give_woken(&mut self, woken: Vec<Waker>) {
        if self.woken.is_empty() {
            self.woken = woken;
        }
    }

    #[inline]
    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(ticket.0 as u32 as usize)?;
        let current = u64::from(slot.generation) == ticket.0 >> 32 && !matches!(slot.state, State::Free(_));
        current.then_some(slot)
    }

    #[inline]
    fn put(&mut self, state: State) -> Ticket {
        if let Some(index) = self.free.checked_sub(1)
            && let Some(slot) = self.slots.get_mut(index as usize)
            && let State::Free(next) = slot.state
        {
            self.free = next;
            (slot.state, slot.forgotten) = (state, false);
            return Ticket(u64::from(slot.generation) << 32 | u64::from(index));
        }
        if self.slots.len() >= MAX_IN_FLIGHT {
            return NO_ROOM;
        }
        self.slots.push(Slot { generation: 0, forgotten: false, state });
        Ticket(self.slots.len() as u64 - 1)
    }

    /// Frees the slot of `ticket`, which names one.
    #[inline]
    fn release(&mut self, ticket: Ticket) -> State {
        let (index, free) = (ticket.0 as u32, self.free);
        let Some(slot) = self.slot(ticket) else { return State::Free(0) };
        slot.generation = slot.generation.wrapping_add(1);
        let state = std::mem::replace(&mut slot.state, State::Free(free));
        self.free = index + 1;
        state
    }
}

#[inline]
fn wait<T>(waker: &mut Option<Waker>, cx: &mut Context<'_>) -> Poll<T> {
    match waker {
        Some(known) => known.clone_from(cx.waker()),
        None => *waker = Some(cx.waker().clone()),
    }
    Poll::Pending
}

/// Why there is nothing under `ticket`.
#[cold]
fn unknown(ticket: Ticket) -> FabricError {
    if ticket == NO_ROOM {
        return FabricError::TooLarge { asked: MAX_IN_FLIGHT as u64 + 1, limit: MAX_IN_FLIGHT as u64 };
    }
    NOT_IN_FLIGHT
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
