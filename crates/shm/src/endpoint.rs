//! A client thread's endpoint. Verbs finish inside `post`, on memory that this process maps; requests go to the servers'
//! processes.

use crate::fabric::{Bond, Grip, Inner};
use crate::slot::Flag;
use sherman_embedded::shared::{Kind, NO_ROOM, Pool, Tickets, execute, kind, only_reads, unknown};
use sherman_executor::{Driver, Unpark};
use sherman_fabric::control::Span;
use sherman_fabric::{
    Caps, ClientId, Clock, Counters, Endpoint, FabricError, GlobalAddress, Request, Response, Space, Ticket, WorkList,
};
use sherman_soft_nic::SoftNicEndpoint;
use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Requests for spans that are remembered.
const MAX_REQUESTS: usize = 16;

/// An endpoint. One per thread: it may be sent to another, not shared.
pub struct ShmEndpoint {
    /// Borrowed only for the length of one access; nothing is called meanwhile.
    flight: RefCell<Flight>,
    /// By server.
    bonds: Vec<Bond>,
    /// By server: the error of a link that its server has ended.
    ends: Vec<OnceCell<FabricError>>,
    control: SoftNicEndpoint,
    /// Requests for spans that are under way, and to whom they went.
    requests: RefCell<VecDeque<(Ticket, u16)>>,
    /// Last: it may be the end of the membership.
    fabric: Arc<Inner>,
}

#[derive(Debug)]
struct Flight {
    done: Tickets<WorkList>,
    failed: Tickets<FabricError>,
    pool: Pool,
}

impl ShmEndpoint {
    pub(crate) fn new(fabric: Arc<Inner>, control: SoftNicEndpoint, bonds: Vec<Bond>) -> Self {
        let (done, failed) = (Tickets::new(Kind::Done), Tickets::new(Kind::Other));
        let flight = RefCell::new(Flight { done, failed, pool: Pool::default() });
        let ends = bonds.iter().map(|_| OnceCell::new()).collect();
        Self { flight, bonds, ends, control, requests: RefCell::default(), fabric }
    }

    #[inline]
    fn execute(&self, list: &mut WorkList) -> Result<(), FabricError> {
        let server = list.server();
        let bond = self.bonds.get(usize::from(server)).ok_or(FabricError::NoSuchServer { server })?;
        let Ok(Grip { memory, hand, .. }) = &bond.grip else { return Err(self.explain(server, None)) };
        if self.fabric.control.is_over() || self.fabric.control.is_cut(server) {
            return Err(self.explain(server, None));
        }
        let (memory, slot) = (memory.by(hand), hand.slot());
        let mut settled = true;
        if only_reads(list) {
            if let Some(flag) = slot.flag() {
                return Err(self.explain(server, Some(flag)));
            }
            execute(&memory, list, &mut settled)?;
            return slot.flag().map_or(Ok(()), |flag| Err(self.explain(server, Some(flag))));
        }
        let Some(passed) = slot.enter() else {
            return Err(self.explain(server, slot.flag()));
        };
        let done = execute(&memory, list, &mut settled);
        slot.leave(passed, settled);
        done
    }

    /// Why nothing can be done on `server`, whose flag says this.
    #[cold]
    fn explain(&self, server: u16, flag: Option<Flag>) -> FabricError {
        let control = &self.fabric.control;
        if control.is_over() {
            return FabricError::Fenced { client: self.client() };
        }
        match (flag, self.bonds.get(usize::from(server)), self.ends.get(usize::from(server))) {
            (Some(Flag::Fenced), ..) => FabricError::Fenced { client: self.client() },
            (Some(Flag::Closed | Flag::Ended), _, Some(end)) => {
                end.get_or_init(|| control.explain_break(server)).clone()
            }
            (_, Some(Bond { grip: Err(error) }), _) => error.clone(),
            _ => FabricError::Disconnected { server },
        }
    }

    /// Makes the pages of a chunk that came.
    #[cold]
    fn prepare(&self, ticket: Ticket, spans: &[Span]) {
        let requests = &mut *self.requests.borrow_mut();
        let at = requests.iter().position(|(known, _)| *known == ticket);
        let server = at.and_then(|at| requests.remove(at)).map(|(_, server)| usize::from(server));
        if let Some(Some(map)) = server.and_then(|server| self.fabric.maps.get(server)) {
            map.gather(spans);
        }
    }

    /// Keeps the outcome of a list that did not complete.
    #[cold]
    #[inline(never)]
    fn fail(&self, list: WorkList, error: FabricError) -> Ticket {
        let flight = &mut *self.flight.borrow_mut();
        flight.pool.give(list);
        flight.failed.put(error)
    }

    /// Out of line with its whole result, as in `embedded`.
    #[cold]
    #[inline(never)]
    fn poll_failed(&self, ticket: Ticket) -> Poll<Result<WorkList, FabricError>> {
        let failed = self.flight.borrow_mut().failed.take(ticket);
        Poll::Ready(Err(failed.unwrap_or_else(|| unknown(ticket))))
    }
}

impl fmt::Debug for ShmEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmEndpoint").field("client", &self.client()).finish_non_exhaustive()
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        self.fabric.give_back(std::mem::take(&mut self.bonds));
    }
}

impl Endpoint for ShmEndpoint {
    fn caps(&self) -> &Caps {
        self.control.caps()
    }

    fn servers(&self) -> u16 {
        self.control.servers()
    }

    fn client(&self) -> ClientId {
        self.control.client()
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
        if let Some(Bond { grip: Ok(grip) }) = self.bonds.get(usize::from(address.server())) {
            grip.memory.prefetch(Space::Host, address.offset(), bytes);
        }
    }

    #[inline]
    fn post(&self, mut list: WorkList) -> Ticket {
        // A list whose outcome cannot be kept is not executed: its error must be the truth.
        let has_room = {
            let flight = self.flight.borrow();
            flight.done.has_room() && flight.failed.has_room()
        };
        if !has_room {
            return NO_ROOM;
        }
        match self.execute(&mut list) {
            Ok(()) => self.flight.borrow_mut().done.put(list),
            Err(error) => self.fail(list, error),
        }
    }

    #[inline]
    fn poll(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        if kind(ticket) == Kind::Done
            && let Some(list) = self.flight.borrow_mut().done.take(ticket)
        {
            return Poll::Ready(Ok(list));
        }
        self.poll_failed(ticket)
    }

    fn forget(&self, ticket: Ticket) {
        let flight = &mut *self.flight.borrow_mut();
        match kind(ticket) {
            Kind::Done => {
                if let Some(list) = flight.done.take(ticket) {
                    flight.pool.give(list);
                }
            }
            Kind::Other => drop(flight.failed.take(ticket)),
        }
    }

    fn call(&self, server: u16, request: Request) -> Ticket {
        let spans = matches!(request, Request::AllocSpans { .. });
        let ticket = self.control.call(server, request);
        if spans {
            let requests = &mut *self.requests.borrow_mut();
            // Of those that nobody polls to their end.
            requests.truncate(MAX_REQUESTS - 1);
            requests.push_front((ticket, server));
        }
        ticket
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        let answer = self.control.poll_call(ticket, cx);
        if let Poll::Ready(Ok(Response::Spans(spans))) = &answer {
            self.prepare(ticket, spans);
        }
        answer
    }

    fn counters(&self) -> &Counters {
        self.control.counters()
    }
}

impl Clock for ShmEndpoint {
    #[inline]
    fn now(&self) -> u64 {
        self.control.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.control.wake_at(at, waker);
    }
}

impl Driver for ShmEndpoint {
    #[inline]
    fn progress(&self) -> bool {
        self.control.progress()
    }

    fn idle_for(&self) -> Option<Duration> {
        self.control.idle_for()
    }

    #[inline]
    fn spins(&self, rounds: u32) -> bool {
        self.control.spins(rounds)
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        self.control.unparker()
    }

    fn park(&self, limit: Option<Duration>) {
        self.control.park(limit);
    }
}
