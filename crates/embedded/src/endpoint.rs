//! A client thread's endpoint. Verbs finish inside `post`, and `poll` only returns the list.
//!
//! The verb path takes no lock, reads no clock and, once its pool is warm, allocates nothing. A control call
//! locks the server that it goes to. Only a call that stops a member's lists may have to wait
//! ([`Request::Fence`], [`Request::Leave`], [`Request::Depart`]): it stays pending until the lists have
//! ended. All lists and calls of a halted member stay pending permanently (`halt`). Its lists detect the halt
//! on the cold path where a fenced member's lists are refused.

use crate::calls::Call;
use crate::gate::Gate;
use crate::halt::{Cut, Random, may_be_last};
use crate::membership::{Membership, Seat};
use crate::verbs;
use sherman_executor::{Driver, Timers};
use sherman_fabric::tickets::{NO_ROOM, NOT_A_CALL, NOT_A_LIST, Outcomes, TicketKind, kind, unknown};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, GlobalAddress, Peer, Request, Response, Space,
    Ticket, WorkList,
};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An endpoint to the memory servers of an [`EmbeddedCluster`](crate::EmbeddedCluster).
pub type EmbeddedEndpoint = InlineEndpoint<Membership>;

/// An endpoint, one per thread. A thread may send it to another thread, but not share it. `S` says which
/// memory servers there are, and what they answer.
#[derive(Debug)]
pub struct InlineEndpoint<S: Seat> {
    membership: Arc<S>,
    gate: Arc<Gate>,
    /// Borrowed only for one access at a time. The endpoint calls nothing else meanwhile.
    flight: RefCell<Outcomes<Other>>,
    timers: Timers,
    counters: Counters,
    /// The endpoint's number within its member.
    number: u64,
    /// Whether this endpoint of a halted member has done its last action.
    over: Cell<bool>,
}

/// The meaning of a ticket that names no completed list.
#[derive(Debug)]
enum Other {
    Failed(FabricError),
    Call(Call),
    /// A list of a halted member.
    Never,
}

impl<S: Seat> InlineEndpoint<S> {
    pub(crate) fn new(membership: Arc<S>) -> Self {
        let member = membership.member();
        let (gate, number) = (member.new_gate(), member.number_endpoint());
        let over = Cell::new(member.is_halted());
        let (timers, counters) = (Timers::new(), Counters::default());
        Self { membership, gate, flight: RefCell::default(), timers, counters, number, over }
    }

    fn fenced(&self) -> FabricError {
        FabricError::Fenced { client: self.membership.member().client }
    }

    #[inline]
    fn execute(&self, list: &mut WorkList) -> Result<(), FabricError> {
        let server = self.membership.server(list.server())?;
        let flag = self.membership.member().flag(list.server());
        let mut settled = true;
        if verbs::only_reads(list) {
            if flag.is_up() {
                return Err(self.fenced());
            }
            verbs::execute(server.memory(), list, &mut settled)?;
            return if flag.is_up() { Err(self.fenced()) } else { Ok(()) };
        }
        let Some(passed) = self.gate.enter(flag) else {
            return Err(self.fenced());
        };
        let done = verbs::execute(server.memory(), list, &mut settled);
        self.gate.leave(passed, settled);
        done
    }

    /// Keeps the outcome of a list that did not complete.
    #[cold]
    #[inline(never)]
    fn fail(&self, list: WorkList, error: FabricError) -> Ticket {
        if matches!(error, FabricError::Fenced { .. }) && self.membership.member().is_halted() {
            return self.fall_silent(list);
        }
        let flight = &mut *self.flight.borrow_mut();
        flight.pool.give(list);
        flight.others.put(Other::Failed(error))
    }

    /// Handles a list of a halted member. The first one after the halt executes in part. None completes.
    fn fall_silent(&self, mut list: WorkList) -> Ticket {
        if let (Some(mut random), Ok(server)) = (self.last_act(), self.membership.server(list.server())) {
            let cut = Cut::somewhere(&list, self.caps().verb_atomic, &mut random);
            if list.len() <= verbs::MAX_VERBS as usize
                && let Some(passed) = self.gate.enter_halted(self.membership.member().flag(list.server()))
            {
                // The member never learns of a bad verb.
                let _ = verbs::execute_until(server.memory(), &mut list, cut);
                self.gate.leave(passed, false);
            }
        }
        let flight = &mut *self.flight.borrow_mut();
        flight.pool.give(list);
        flight.others.put(Other::Never)
    }

    /// Handles a request of a halted member. If it is the first action after the halt, it may be sent. It is
    /// never answered.
    fn ask_in_vain(&self, peer: Peer, request: &Request) -> Call {
        if let Some(mut random) = self.last_act()
            && may_be_last(request)
            && random.below(2) == 0
        {
            drop(Call::begin(&*self.membership, peer, request));
        }
        Call::Never
    }

    /// The random generator for this endpoint's last action, or `None` if that is done.
    fn last_act(&self) -> Option<Random> {
        let first = !self.over.replace(true);
        first.then(|| Random::new(self.membership.member().seed(), self.number))
    }

    /// The outcome of a list that did not complete. Kept out of line with its whole result. Merged into
    /// `poll`, its error would make the compiler move every list in pieces through the union of both types,
    /// at three times the cost.
    #[cold]
    #[inline(never)]
    fn poll_other(&self, ticket: Ticket) -> Poll<Result<WorkList, FabricError>> {
        let others = &mut self.flight.borrow_mut().others;
        match (kind(ticket), others.get_mut(ticket)) {
            (TicketKind::Other, Some(Other::Call(_))) => return Poll::Ready(Err(NOT_A_LIST)),
            (TicketKind::Other, Some(Other::Never)) => return Poll::Pending,
            _ => {}
        }
        Poll::Ready(Err(match others.take(ticket) {
            Some(Other::Failed(error)) => error,
            _ => unknown(ticket),
        }))
    }

    /// Takes the call under `ticket`, or returns `None` if it cannot be answered yet.
    fn take_call(&self, ticket: Ticket) -> Result<Option<Call>, FabricError> {
        let Outcomes { done, others, .. } = &mut *self.flight.borrow_mut();
        if kind(ticket) == TicketKind::Done {
            return Err(if done.get_mut(ticket).is_some() { NOT_A_CALL } else { unknown(ticket) });
        }
        match others.get_mut(ticket) {
            Some(Other::Call(call)) => {
                if !call.is_ready() {
                    return Ok(None);
                }
            }
            Some(Other::Failed(_) | Other::Never) => return Err(NOT_A_CALL),
            None => return Err(unknown(ticket)),
        }
        match others.take(ticket) {
            Some(Other::Call(call)) => Ok(Some(call)),
            _ => Err(unknown(ticket)),
        }
    }
}

impl<S: Seat> Endpoint for InlineEndpoint<S> {
    fn caps(&self) -> &Caps {
        self.membership.caps()
    }

    fn servers(&self) -> u16 {
        self.membership.servers()
    }

    fn client(&self) -> ComputeId {
        self.membership.member().client
    }

    #[inline]
    fn list(&self, server: u16) -> WorkList {
        self.flight.borrow_mut().pool.take(server)
    }

    #[inline]
    fn recycle(&self, list: WorkList) {
        self.flight.borrow_mut().pool.give(list);
    }

    #[inline]
    fn hint(&self, address: GlobalAddress, bytes: usize) {
        if let Ok(server) = self.membership.server(address.server()) {
            server.memory().prefetch(Space::Host, address.offset(), bytes);
        }
    }

    #[inline]
    fn executes_inline(&self) -> bool {
        true
    }

    #[inline]
    fn post(&self, mut list: WorkList) -> Ticket {
        // A list whose outcome cannot be kept is not executed, so that its error is true.
        if !self.flight.borrow().has_room() {
            return NO_ROOM;
        }
        match self.execute(&mut list) {
            Ok(()) => self.flight.borrow_mut().done.put(list),
            Err(error) => self.fail(list, error),
        }
    }

    #[inline]
    fn post_now(&self, mut list: WorkList) -> Result<WorkList, Ticket> {
        if !self.flight.borrow().has_room() {
            return Err(NO_ROOM);
        }
        match self.execute(&mut list) {
            Ok(()) => Ok(list),
            Err(error) => Err(self.fail(list, error)),
        }
    }

    #[inline]
    fn read_now(&self, address: GlobalAddress, into: &mut [u8]) -> bool {
        let Ok(server) = self.membership.server(address.server()) else { return false };
        let flag = self.membership.member().flag(address.server());
        // As in `execute`: bytes that were written after a fence are discarded.
        !flag.is_up() && server.memory().read(Space::Host, address.offset(), into).is_ok() && !flag.is_up()
    }

    #[inline]
    fn poll(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        if let Some(list) = self.flight.borrow_mut().take_done(ticket) {
            return Poll::Ready(Ok(list));
        }
        self.poll_other(ticket)
    }

    fn forget(&self, ticket: Ticket) {
        self.flight.borrow_mut().forget(ticket);
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        // As for lists: without room the request is not sent.
        if !self.flight.borrow().has_room() {
            return NO_ROOM;
        }
        let call = if self.membership.member().is_halted() {
            self.ask_in_vain(peer, &request)
        } else {
            Call::begin(&*self.membership, peer, &request)
        };
        self.flight.borrow_mut().others.put(Other::Call(call))
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        if self.membership.member().is_halted() {
            return Poll::Pending;
        }
        let call = self.take_call(ticket)?;
        let Some(call) = call else {
            // No event wakes this task when those lists end. They are being executed, so look again soon.
            std::thread::yield_now();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        Poll::Ready(call.finish(&*self.membership))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl<S: Seat> Clock for InlineEndpoint<S> {
    fn now(&self) -> u64 {
        self.membership.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.timers.insert(at, waker);
    }
}

impl<S: Seat> Driver for InlineEndpoint<S> {
    fn progress(&self) -> bool {
        // Reads the clock only if a timer is set.
        !self.timers.is_empty() && self.timers.fire(self.now())
    }

    fn idle_for(&self) -> Option<Duration> {
        self.timers.next().map(|at| Duration::from_nanos(at.saturating_sub(self.now())))
    }
}
