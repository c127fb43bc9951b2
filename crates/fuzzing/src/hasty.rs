//! An endpoint in virtual time: whoever waits is woken at once, at the time it waited for.
//!
//! A tree that lies makes operations wait until their deadline. In real time that would be all that a fuzzer does. Here
//! every look at the clock takes two microseconds and every sleep none at all, so that an operation which waits ends as fast
//! as one which does not, and the same input always takes the same way. An operation that ends neither by its deadline nor
//! otherwise is an endless loop, and told as one: verbs are counted.

use sherman_executor::Driver;
use sherman_fabric::{
    Caps, ClientId, Clock, Counters, Endpoint, FabricError, GlobalAddress, Request, Response, Ticket, WorkList,
};
use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a look at the clock takes.
const LOOK_NANOS: u64 = 2_000;

/// An endpoint whose time is virtual.
#[derive(Debug)]
pub struct Hasty<E> {
    inner: E,
    now: Cell<u64>,
    /// Lists and calls that may still be posted before this counts as an endless loop.
    left: Cell<u64>,
}

impl<E> Hasty<E> {
    /// Wraps an endpoint.
    pub fn new(inner: E) -> Self {
        Self { inner, now: Cell::new(0), left: Cell::new(u64::MAX) }
    }

    /// From now on, more than `lists` lists and calls are an endless loop.
    pub fn allow(&self, lists: u64) {
        self.left.set(lists);
    }

    fn count(&self) {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.expect("an operation ends, by its deadline at the latest"));
    }
}

impl<E> Clock for Hasty<E> {
    fn now(&self) -> u64 {
        let now = self.now.get() + LOOK_NANOS;
        self.now.set(now);
        now
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.now.set(self.now.get().max(at));
        waker.wake_by_ref();
    }
}

impl<E: Driver> Driver for Hasty<E> {
    fn progress(&self) -> bool {
        self.inner.progress()
    }

    fn idle_for(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl<E: Endpoint> Endpoint for Hasty<E> {
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

    fn hint(&self, address: GlobalAddress, bytes: usize) {
        self.inner.hint(address, bytes);
    }

    fn post(&self, list: WorkList) -> Ticket {
        self.count();
        self.inner.post(list)
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        self.inner.poll(ticket, cx)
    }

    fn forget(&self, ticket: Ticket) {
        self.inner.forget(ticket);
    }

    fn call(&self, server: u16, request: Request) -> Ticket {
        self.count();
        self.inner.call(server, request)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        self.inner.poll_call(ticket, cx)
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}
