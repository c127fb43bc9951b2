//! An endpoint whose completions always come one poll late.

use sherman_fabric::{Endpoint, FabricError, Request, Response, Ticket, WorkList};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::task::{Context, Poll};

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

    /// Whether this is the second poll. The first poll requests another.
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

forward_clock_and_driver!(Slow);

impl<E: Endpoint> Endpoint for Slow<E> {
    forward_the_rest!();

    fn post(&self, list: WorkList) -> Ticket {
        self.inner.post(list)
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        if self.is_due(false, ticket, cx) { self.inner.poll(ticket, cx) } else { Poll::Pending }
    }

    fn call(&self, server: u16, request: Request) -> Ticket {
        self.inner.call(server, request)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        if self.is_due(true, ticket, cx) { self.inner.poll_call(ticket, cx) } else { Poll::Pending }
    }
}
