//! A client thread's endpoint. Verbs finish inside `post`, on memory that this process maps. Requests go to
//! the server processes.

use crate::fabric::{Inner, MappedServer, Mapping};
use crate::slot::Flag;
use sherman_control::ControlEndpoint;
use sherman_embedded::shared::{execute, only_reads};
use sherman_executor::{Driver, Unpark};
use sherman_fabric::control::Span;
use sherman_fabric::tickets::{NO_ROOM, Outcomes, unknown};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, GlobalAddress, Peer, Request, Response, Space,
    Ticket, WorkList,
};
use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The most span requests that an endpoint remembers.
const MAX_REQUESTS: usize = 16;

/// An endpoint, one per thread. It may move to another thread, but threads cannot share it.
pub struct ShmEndpoint {
    /// Borrowed for one access only; no other code runs while it is borrowed.
    flight: RefCell<Outcomes<FabricError>>,
    /// Indexed by server.
    mapped: Vec<MappedServer>,
    /// Indexed by server: the error of a link that the server has ended.
    ends: Vec<OnceCell<FabricError>>,
    control: ControlEndpoint,
    /// Span requests in flight, and the server that each went to.
    requests: RefCell<VecDeque<(Ticket, u16)>>,
    /// Last field, because dropping it may end the membership.
    fabric: Arc<Inner>,
}

impl ShmEndpoint {
    pub(crate) fn new(fabric: Arc<Inner>, control: ControlEndpoint, mapped: Vec<MappedServer>) -> Self {
        let ends = mapped.iter().map(|_| OnceCell::new()).collect();
        Self { flight: RefCell::default(), mapped, ends, control, requests: RefCell::default(), fabric }
    }

    #[inline]
    fn execute(&self, list: &mut WorkList) -> Result<(), FabricError> {
        let server = list.server();
        let mapped = self.mapped.get(usize::from(server)).ok_or(FabricError::NoSuchServer { server })?;
        let Ok(Mapping { memory, holder, .. }) = &mapped.mapping else {
            return Err(self.explain(server, None));
        };
        if self.fabric.control.is_over() || self.fabric.control.is_cut(server) {
            return Err(self.explain(server, None));
        }
        let (memory, slot) = (memory.by(holder), holder.slot());
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

    /// Returns why nothing can be done on `server`. `flag` is the flag of the client's slot there, if it is
    /// up.
    #[cold]
    fn explain(&self, server: u16, flag: Option<Flag>) -> FabricError {
        let control = &self.fabric.control;
        if control.is_over() {
            return FabricError::Fenced { client: self.client() };
        }
        match (flag, self.mapped.get(usize::from(server)), self.ends.get(usize::from(server))) {
            (Some(Flag::Fenced), ..) => FabricError::Fenced { client: self.client() },
            (Some(Flag::Closed | Flag::Ended), _, Some(end)) => {
                end.get_or_init(|| control.explain_break(server)).clone()
            }
            (_, Some(MappedServer { mapping: Err(error) }), _) => error.clone(),
            _ => FabricError::Disconnected { server },
        }
    }

    /// Makes the huge pages of the chunks in which the new spans lie.
    #[cold]
    fn prepare(&self, ticket: Ticket, spans: &[Span]) {
        let requests = &mut *self.requests.borrow_mut();
        let at = requests.iter().position(|(known, _)| *known == ticket);
        let server = at.and_then(|at| requests.remove(at)).map(|(_, server)| usize::from(server));
        if let Some(Some(map)) = server.and_then(|server| self.fabric.maps.get(server)) {
            map.gather(spans);
        }
    }

    /// Keeps the error of a list that did not complete.
    #[cold]
    #[inline(never)]
    fn fail(&self, list: WorkList, error: FabricError) -> Ticket {
        let flight = &mut *self.flight.borrow_mut();
        flight.pool.give(list);
        flight.others.put(error)
    }

    /// Out of line together with its whole result, as in `embedded`.
    #[cold]
    #[inline(never)]
    fn poll_failed(&self, ticket: Ticket) -> Poll<Result<WorkList, FabricError>> {
        let failed = self.flight.borrow_mut().others.take(ticket);
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
        self.fabric.give_back(std::mem::take(&mut self.mapped));
    }
}

impl Endpoint for ShmEndpoint {
    fn caps(&self) -> &Caps {
        self.control.caps()
    }

    fn servers(&self) -> u16 {
        self.control.servers()
    }

    fn client(&self) -> ComputeId {
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
        if let Some(MappedServer { mapping: Ok(mapping) }) = self.mapped.get(usize::from(address.server())) {
            mapping.memory.prefetch(Space::Host, address.offset(), bytes);
        }
    }

    #[inline]
    fn executes_inline(&self) -> bool {
        true
    }

    #[inline]
    fn post(&self, mut list: WorkList) -> Ticket {
        // A list executes only if its outcome can be kept. Otherwise its ticket reports an error, and that
        // error must be true.
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
        let mut list = self.list(address.server());
        let read = list.read(Space::Host, address.offset(), into.len() as u32);
        match self.post_now(list) {
            Ok(list) => {
                into.copy_from_slice(list.bytes(read));
                self.recycle(list);
                true
            }
            Err(ticket) => {
                self.forget(ticket);
                false
            }
        }
    }

    #[inline]
    fn poll(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        if let Some(list) = self.flight.borrow_mut().take_done(ticket) {
            return Poll::Ready(Ok(list));
        }
        self.poll_failed(ticket)
    }

    fn forget(&self, ticket: Ticket) {
        self.flight.borrow_mut().forget(ticket);
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        let spans = matches!(request, Request::AllocSpans { .. });
        let ticket = self.control.call(peer, request);
        if spans {
            let requests = &mut *self.requests.borrow_mut();
            // Drops the oldest requests: callers that never poll their request to completion leave them
            // behind.
            requests.truncate(MAX_REQUESTS - 1);
            requests.push_front((ticket, peer.server()));
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
