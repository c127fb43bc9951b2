//! An endpoint in virtual time: a sleeping operation wakes at once, at the time it waited for.
//!
//! A corrupt tree makes operations wait until their deadline. In real time, a fuzzer would do nothing but
//! wait. Here every clock read takes two microseconds and every sleep takes no time. So an operation that
//! waits ends as fast as one that does not, and the same input always gives the same run. The endpoint counts
//! verbs, so that it detects an operation that never ends as an endless loop.

use sherman_executor::Driver;
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, GlobalAddress, Peer, Request, Response, Ticket,
    WorkList,
};
use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Virtual time that one clock read takes.
const LOOK_NANOS: u64 = 2_000;

/// An endpoint whose time is virtual.
#[derive(Debug)]
pub struct VirtualTime<E> {
    inner: E,
    now: Cell<u64>,
    /// Remaining lists and calls until the endpoint reports an endless loop.
    left: Cell<u64>,
}

impl<E> VirtualTime<E> {
    /// Wraps an endpoint.
    pub fn new(inner: E) -> Self {
        Self { inner, now: Cell::new(0), left: Cell::new(u64::MAX) }
    }

    /// Resets the count: more than `lists` lists and calls from now on count as an endless loop.
    pub fn allow(&self, lists: u64) {
        self.left.set(lists);
    }

    fn count(&self) {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.expect("an operation ends, by its deadline at the latest"));
    }
}

impl<E> Clock for VirtualTime<E> {
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

impl<E: Driver> Driver for VirtualTime<E> {
    fn progress(&self) -> bool {
        self.inner.progress()
    }

    fn idle_for(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl<E: Endpoint> Endpoint for VirtualTime<E> {
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

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        self.count();
        self.inner.call(peer, request)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        self.inner.poll_call(ticket, cx)
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}
