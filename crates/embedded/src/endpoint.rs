//! A client thread's endpoint. Verbs finish inside `post`; `poll` only hands the list back.
//!
//! The verb path takes no lock, reads no clock and, once its pool is warm, allocates nothing. Control calls lock the
//! server they go to. The only call that may have to wait is one that stops a member's lists ([`Request::Fence`],
//! [`Request::Leave`]): it stays pending until they have ended.

use crate::cluster::{EmbeddedCluster, Membership};
use crate::gate::{Drain, Gate};
use crate::tickets::{Pool, Tickets};
use crate::verbs;
use sherman_executor::{Driver, Timers};
use sherman_fabric::{Caps, ClientId, Clock, Counters, Endpoint, FabricError, Request, Response, Ticket, WorkList};
use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An endpoint. One per thread: it may be sent to another, not shared.
#[derive(Debug)]
pub struct EmbeddedEndpoint {
    membership: Arc<Membership>,
    gate: Arc<Gate>,
    /// Borrowed only for the length of one access; nothing is called meanwhile.
    flight: RefCell<Flight>,
    timers: Timers,
    counters: Counters,
}

#[derive(Debug)]
struct Flight {
    tickets: Tickets<InFlight>,
    pool: Pool,
}

/// What a ticket names.
#[derive(Debug)]
enum InFlight {
    List(Result<WorkList, FabricError>),
    Call(Call),
}

/// A control request under way.
#[derive(Debug)]
enum Call {
    Answered(Result<Response, FabricError>),
    /// The answer is known, but is told only when these lists have ended.
    Stopping(Drain, Response),
    /// The servers are told only when these lists have ended: then the id may be issued again.
    Leaving(Drain),
}

impl EmbeddedEndpoint {
    pub(crate) fn new(membership: Arc<Membership>) -> Self {
        let gate = membership.member.new_gate();
        let flight = Flight { tickets: Tickets::new(), pool: Pool::default() };
        Self { membership, gate, flight: RefCell::new(flight), timers: Timers::new(), counters: Counters::default() }
    }

    fn cluster(&self) -> &EmbeddedCluster {
        &self.membership.cluster
    }

    fn fenced(&self) -> FabricError {
        FabricError::Fenced { client: self.membership.member.client }
    }

    #[inline]
    fn execute(&self, list: &mut WorkList) -> Result<(), FabricError> {
        let server = self.cluster().server(list.server())?;
        let flag = self.membership.member.flag(list.server());
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

    fn begin(&self, server: u16, request: &Request) -> Result<Call, FabricError> {
        let member = &self.membership.member;
        let cluster = self.cluster();
        let handler = cluster.server(server)?;
        if member.flag(server).is_up() {
            return Err(self.fenced());
        }
        if *request == Request::Leave && server == 0 {
            return Ok(Call::Leaving(member.leave()));
        }
        let response = handler.handle(member.client, request, cluster.now())?;
        match *request {
            Request::Fence { client } => {
                let drain = cluster.member(client).map(|fenced| fenced.fence(server));
                Ok(drain.map_or(Call::Answered(Ok(response.clone())), |drain| Call::Stopping(drain, response)))
            }
            _ => Ok(Call::Answered(Ok(response))),
        }
    }
}

impl Call {
    /// Whether it can be answered now; if not, because of lists that are being executed at this moment.
    fn is_ready(&mut self) -> bool {
        match self {
            Self::Answered(_) => true,
            Self::Stopping(drain, _) | Self::Leaving(drain) => drain.is_over(),
        }
    }
}

impl Tickets<InFlight> {
    /// The call under `ticket`, or `None` if it cannot be answered yet.
    fn take_call(&mut self, ticket: Ticket) -> Result<Option<Call>, FabricError> {
        match self.get_mut(ticket)? {
            InFlight::Call(call) => {
                if !call.is_ready() {
                    return Ok(None);
                }
            }
            InFlight::List(_) => return Err(NOT_A_CALL),
        }
        match self.take(ticket)? {
            InFlight::Call(call) => Ok(Some(call)),
            InFlight::List(_) => Err(NOT_A_CALL),
        }
    }
}

const NOT_A_CALL: FabricError = FabricError::Unsupported { what: "answer a list as a call" };
const NOT_A_LIST: FabricError = FabricError::Unsupported { what: "answer a call as a list" };

impl Endpoint for EmbeddedEndpoint {
    fn caps(&self) -> &Caps {
        self.cluster().caps()
    }

    fn servers(&self) -> u16 {
        self.cluster().servers()
    }

    fn client(&self) -> ClientId {
        self.membership.member.client
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
    fn post(&self, mut list: WorkList) -> Ticket {
        // A list whose outcome cannot be kept is not executed: its error must be the truth.
        let has_room = self.flight.borrow().tickets.has_room();
        let done = if has_room { self.execute(&mut list) } else { Ok(()) };
        let flight = &mut *self.flight.borrow_mut();
        match done {
            Ok(()) => flight.tickets.put(InFlight::List(Ok(list))),
            Err(error) => {
                flight.pool.give(list);
                flight.tickets.put(InFlight::List(Err(error)))
            }
        }
    }

    #[inline]
    fn poll(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        let tickets = &mut self.flight.borrow_mut().tickets;
        if let Ok(InFlight::Call(_)) = tickets.get_mut(ticket) {
            return Poll::Ready(Err(NOT_A_LIST));
        }
        Poll::Ready(tickets.take(ticket).and_then(|done| match done {
            InFlight::List(done) => done,
            InFlight::Call(_) => Err(NOT_A_LIST),
        }))
    }

    fn forget(&self, ticket: Ticket) {
        let flight = &mut *self.flight.borrow_mut();
        if let Ok(InFlight::List(Ok(list))) = flight.tickets.take(ticket) {
            flight.pool.give(list);
        }
    }

    fn call(&self, server: u16, request: Request) -> Ticket {
        // As for lists: without room it is not sent.
        let has_room = self.flight.borrow().tickets.has_room();
        let call = if has_room { self.begin(server, &request) } else { Ok(Call::Answered(Ok(Response::Done))) };
        let call = call.unwrap_or_else(|error| Call::Answered(Err(error)));
        self.flight.borrow_mut().tickets.put(InFlight::Call(call))
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        let call = match self.flight.borrow_mut().tickets.take_call(ticket)? {
            Some(call) => call,
            None => {
                // Nobody wakes us when those lists end; they are being executed, so look again soon.
                std::thread::yield_now();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        };
        Poll::Ready(match call {
            Call::Answered(answer) => answer,
            Call::Stopping(_, response) => Ok(response),
            Call::Leaving(_) if self.membership.member.may_go() => self.cluster().say_goodbye(self.client()),
            Call::Leaving(_) => Err(self.fenced()),
        })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Clock for EmbeddedEndpoint {
    fn now(&self) -> u64 {
        self.cluster().now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.timers.insert(at, waker);
    }
}

impl Driver for EmbeddedEndpoint {
    fn progress(&self) -> bool {
        // The clock is read only if somebody waits for it.
        !self.timers.is_empty() && self.timers.fire(self.now())
    }

    fn idle_for(&self) -> Option<Duration> {
        self.timers.next().map(|at| Duration::from_nanos(at.saturating_sub(self.now())))
    }
}
