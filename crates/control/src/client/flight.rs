//! The state of an endpoint between `post` and `poll`: lists and calls by ticket, and a pool of empty lists.
//!
//! All of it is bounded. A ticket is a slot and the slot's generation. So a ticket that is polled twice gets
//! an error, never the list of another ticket. The ticket travels as the tag of a frame and comes back with
//! the answer. Once slots and pool have grown to the caller's number in flight, nothing is allocated.

use sherman_fabric::tickets::{NOT_A_CALL, NOT_A_LIST, NOT_IN_FLIGHT, Pool, TicketKind, Tickets, unknown};
use sherman_fabric::{FabricError, Response, Ticket, WorkList};
use std::task::{Context, Poll, Waker};

/// The most lists that the pool keeps.
const POOL_LISTS: usize = 256;

/// The state of a ticket. The frequent states are small, so that a slot is small; errors and answers are
/// boxed.
#[derive(Debug)]
enum State {
    /// A list in flight, and the task that waits for it.
    List(WorkList, Option<Waker>),
    /// A list in flight whose outcome the caller has given up.
    ForgottenList(WorkList),
    /// A list that completed.
    Done(WorkList),
    /// A list that failed.
    Failed(Box<FabricError>),
    /// A call in flight, and the task that waits for it.
    Call(Option<Waker>),
    /// A call in flight whose answer the caller has given up.
    ForgottenCall,
    /// A call that ended.
    Answered(Box<Result<Response, FabricError>>),
}

const _: () =
    assert!(Tickets::<State>::SLOT_BYTES <= 40, "a slot is moved in and out of in every round trip");

/// Lists and calls by ticket.
#[derive(Debug)]
pub struct Flight {
    tickets: Tickets<State>,
    pool: Pool,
    /// Tasks to wake when nothing is borrowed any more.
    woken: Vec<Waker>,
}

impl Default for Flight {
    fn default() -> Self {
        Self { tickets: Tickets::new(TicketKind::Done), pool: Pool::new(POOL_LISTS), woken: Vec::new() }
    }
}

impl Flight {
    /// Returns an empty list for `server`.
    #[inline]
    pub fn list(&mut self, server: u16) -> WorkList {
        self.pool.take(server)
    }

    /// Keeps an empty list's buffers.
    #[inline]
    pub fn recycle(&mut self, list: WorkList) {
        self.pool.give(list);
    }

    /// Takes a slot for a list that is posted.
    #[inline]
    pub fn begin_list(&mut self, list: WorkList) -> Ticket {
        self.tickets.put(State::List(list, None))
    }

    /// Takes a slot for a list that is refused without being posted.
    pub fn refuse_list(&mut self, list: WorkList, error: FabricError) -> Ticket {
        self.pool.give(list);
        self.tickets.put(State::Failed(Box::new(error)))
    }

    /// Takes a slot for a call that is sent.
    pub fn begin_call(&mut self) -> Ticket {
        self.tickets.put(State::Call(None))
    }

    /// Takes a slot for a call that is refused without being sent.
    pub fn refuse_call(&mut self, error: FabricError) -> Ticket {
        self.tickets.put(State::Answered(Box::new(Err(error))))
    }

    /// The list in flight under `ticket`, for encoding.
    #[inline]
    pub fn list_mut(&mut self, ticket: Ticket) -> Option<&mut WorkList> {
        match self.tickets.get_mut(ticket) {
            Some(State::List(list, _) | State::ForgottenList(list)) => Some(list),
            _ => None,
        }
    }

    /// Ends the list under `ticket` with the result of `outcome`.
    ///
    /// # Errors
    /// Those of `outcome`. The list then stays in flight.
    #[inline]
    pub fn end_list<X>(
        &mut self,
        ticket: Ticket,
        outcome: impl FnOnce(&mut WorkList) -> Result<Result<(), FabricError>, X>,
    ) -> Result<(), X> {
        let Some(state) = self.tickets.get_mut(ticket) else { return Ok(()) };
        let (State::List(list, _) | State::ForgottenList(list)) = &mut *state else { return Ok(()) };
        let outcome = outcome(list)?;
        // Placeholder, overwritten below.
        match std::mem::replace(state, State::ForgottenCall) {
            State::List(list, waker) => {
                match outcome {
                    Ok(()) => *state = State::Done(list),
                    Err(error) => {
                        *state = State::Failed(Box::new(error));
                        self.pool.give(list);
                    }
                }
                self.woken.extend(waker);
            }
            State::ForgottenList(list) => {
                self.pool.give(list);
                self.tickets.take(ticket);
            }
            other => *state = other,
        }
        Ok(())
    }

    /// Ends the call under `ticket` with `answer`.
    pub fn end_call(&mut self, ticket: Ticket, answer: Result<Response, FabricError>) {
        match self.tickets.get_mut(ticket) {
            Some(state @ State::Call(_)) => {
                let ended = State::Answered(Box::new(answer));
                if let State::Call(waker) = std::mem::replace(state, ended) {
                    self.woken.extend(waker);
                }
            }
            Some(State::ForgottenCall) => drop(self.tickets.take(ticket)),
            _ => {}
        }
    }

    /// Polls for the outcome of a list.
    #[inline]
    pub fn poll_list(&mut self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        match self.tickets.get_mut(ticket) {
            Some(State::List(_, waker)) => wait(waker, cx),
            Some(State::Done(_)) => match self.tickets.take(ticket) {
                Some(State::Done(list)) => Poll::Ready(Ok(list)),
                _ => Poll::Ready(Err(NOT_IN_FLIGHT)),
            },
            _ => self.poll_failed(ticket),
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_failed(&mut self, ticket: Ticket) -> Poll<Result<WorkList, FabricError>> {
        Poll::Ready(Err(match self.tickets.get_mut(ticket) {
            Some(State::Failed(_)) => match self.tickets.take(ticket) {
                Some(State::Failed(error)) => *error,
                _ => NOT_IN_FLIGHT,
            },
            Some(_) => NOT_A_LIST,
            None => unknown(ticket),
        }))
    }

    /// Polls for the outcome of a call.
    pub fn poll_call(&mut self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        match self.tickets.get_mut(ticket) {
            Some(State::Call(waker)) => wait(waker, cx),
            Some(State::Answered(_)) => match self.tickets.take(ticket) {
                Some(State::Answered(answer)) => Poll::Ready(*answer),
                _ => Poll::Ready(Err(NOT_IN_FLIGHT)),
            },
            Some(_) => Poll::Ready(Err(NOT_A_CALL)),
            None => Poll::Ready(Err(unknown(ticket))),
        }
    }

    /// Gives the outcome of `ticket` up.
    pub fn forget(&mut self, ticket: Ticket) {
        match self.tickets.get_mut(ticket) {
            Some(state @ State::List(..)) => {
                // Placeholder, overwritten at once.
                if let State::List(list, _) = std::mem::replace(state, State::ForgottenCall) {
                    *state = State::ForgottenList(list);
                }
            }
            Some(state @ State::Call(_)) => *state = State::ForgottenCall,
            Some(State::ForgottenList(_) | State::ForgottenCall) | None => {}
            Some(State::Done(_) | State::Failed(_) | State::Answered(_)) => {
                if let Some(State::Done(list)) = self.tickets.take(ticket) {
                    self.pool.give(list);
                }
            }
        }
    }

    /// Whether there are tasks to wake.
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Takes the tasks to wake. The caller gives the buffer back afterwards.
    #[inline]
    pub fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    /// Takes back the buffer of [`Flight::take_woken`].
    #[inline]
    pub fn give_woken(&mut self, woken: Vec<Waker>) {
        if self.woken.is_empty() {
            self.woken = woken;
        }
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

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
