//! Endpoints that misbehave. They are one type, because each type of endpoint compiles the tree again.

use sherman_embedded::EmbeddedEndpoint;
use sherman_executor::Driver;
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, Peer, Request, Response, Ticket, WorkList,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Selects the requests that get a nonsense answer.
pub type About = fn(&Request) -> bool;

/// Wraps an endpoint: its completions come late, or some of its answers make no sense.
#[derive(Debug)]
pub struct Wrapped {
    inner: EmbeddedEndpoint,
    late: bool,
    /// Lists and calls that were polled once.
    seen: RefCell<BTreeSet<(bool, Ticket)>>,
    about: Cell<About>,
    lies: RefCell<BTreeSet<Ticket>>,
    /// The error of the selected requests, in place of a nonsense answer.
    error: RefCell<Option<FabricError>>,
}

impl Wrapped {
    fn new(inner: EmbeddedEndpoint, late: bool) -> Self {
        let about: About = |_| false;
        let (seen, lies, error) = Default::default();
        Self { inner, late, seen, about: Cell::new(about), lies, error }
    }

    /// Every list and call is pending at its first poll, so every verb is an await point.
    pub fn late(inner: EmbeddedEndpoint) -> Self {
        Self::new(inner, true)
    }

    /// Requests that [`Wrapped::lie_about`] selects get the answer to another request.
    pub fn lying(inner: EmbeddedEndpoint) -> Self {
        Self::new(inner, false)
    }

    /// Sets which requests get a nonsense answer from now on.
    pub fn lie_about(&self, about: About) {
        self.about.set(about);
    }

    /// Lets the requests that [`Wrapped::lie_about`] selects end in `error`, in place of a nonsense answer.
    pub fn fail_with(&self, error: FabricError) {
        self.error.replace(Some(error));
    }

    /// Whether a list or call may complete. If it is late, the first poll requests another.
    fn is_due(&self, call: bool, ticket: Ticket, cx: &mut Context<'_>) -> bool {
        if !self.late {
            return true;
        }
        let due = !self.seen.borrow_mut().insert((call, ticket));
        if due {
            self.seen.borrow_mut().remove(&(call, ticket));
        } else {
            cx.waker().wake_by_ref();
        }
        due
    }
}

impl Clock for Wrapped {
    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.inner.wake_at(at, waker);
    }
}

impl Driver for Wrapped {
    fn progress(&self) -> bool {
        self.inner.progress()
    }

    fn idle_for(&self) -> Option<Duration> {
        self.inner.idle_for()
    }
}

impl Endpoint for Wrapped {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn servers(&self) -> u16 {
        self.inner.servers()
    }

    fn client(&self) -> ComputeId {
        self.inner.client()
    }

    fn list(&self, server: u16) -> WorkList {
        self.inner.list(server)
    }

    fn recycle(&self, list: WorkList) {
        self.inner.recycle(list);
    }

    fn post(&self, list: WorkList) -> Ticket {
        self.inner.post(list)
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        if self.is_due(false, ticket, cx) { self.inner.poll(ticket, cx) } else { Poll::Pending }
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        let lie = (self.about.get())(&request);
        let ticket = self.inner.call(peer, request);
        if lie {
            self.lies.borrow_mut().insert(ticket);
        }
        ticket
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        if !self.is_due(true, ticket, cx) {
            return Poll::Pending;
        }
        let answer = self.inner.poll_call(ticket, cx);
        if answer.is_ready() && self.lies.borrow_mut().remove(&ticket) {
            let nonsense = Response::Joined { client: ComputeId(1) };
            return Poll::Ready(self.error.borrow().clone().map_or(Ok(nonsense), Err));
        }
        answer
    }

    fn forget(&self, ticket: Ticket) {
        self.inner.forget(ticket);
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}
