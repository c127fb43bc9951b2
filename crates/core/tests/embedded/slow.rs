//! An endpoint whose completions always come one poll late.

use sherman_executor::Driver;
use sherman_fabric::{Caps, ClientId, Clock, Counters, Endpoint, FabricError, Request, Response, Ticket, WorkList};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Wraps an endpoint: every list and call is pending at its first poll.
#[derive(Debug)]
pub struct Slow<E> {
    inner: E,
    seen: RefCell<BTreeSet<(bool, Ticket)>>,
}

impl<E> Slow<E> {
    pub fn new(inner: E) -> Self {
        Self { inner, seen: RefCell::default() }
    }

    /// Whether this is the second poll; the first asks for another.
    fn is_due(&self, call: bool, ticket: Ticket, cx: &mut Context<'_>) -> bool {
        let due = !self.seen.borrow_mut().insert((call, ticket));
        if due {
            self.seen.borrow_mut().remove(&(call, ticket));
        } else {
            cx.waker().wake_by_ref();
        }
        due
    }
}

impl<E: Clock> Clock for Slow<E> {
    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.inner.wake_at(at, waker);
    }
}

impl<E: Driver> Driver for Slow<E> {
    fn progress(&self) -> bool {
        self.inner.progress()
    }

    fn idle_for(&self) -> Option<Duration> {
        self.inner.idle_for()
    }
}

impl<E: Endpoint> Endpoint for Slow<E> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn servers(&self) -> u16 {
        self.inner.servers()
    }

    fn client(&self) -> ClientId {
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

    fn forget(&self, ticket: Ticket) {
        self.inner.forget(ticket);
    }

    fn call(&self, server: u16, request: Request) -> Ticket {
        self.inner.call(server, request)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        if self.is_due(true, ticket, cx) { self.inner.poll_call(ticket, cx) } else { Poll::Pending }
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}
