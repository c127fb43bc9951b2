//! A client thread's endpoint: verbs and calls over one connection to each server.

use super::bell::Bell;
use super::fabric::Membership;
use super::station::Station;
use crate::pace::Pace;
use sherman_executor::{Driver, Timers, Unpark};
use sherman_fabric::{Caps, ClientId, Clock, Counters, Endpoint, FabricError, Request, Response, Ticket, WorkList};
use std::cell::RefCell;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An endpoint. One per thread: it may be sent to another, not shared.
///
/// Dropping it waits until the lists that were posted have executed, unless its identity has ended: nobody else could tell that a lane
/// was not released. Its connections then serve the next endpoint.
pub struct SoftNicEndpoint {
    /// Borrowed only for the length of one access; no waker is called meanwhile. Empty only while it is being dropped.
    station: RefCell<Station>,
    timers: Timers,
    counters: Counters,
    pace: Pace,
    bell: Arc<Bell>,
    /// Last: it may be the end of the membership, which needs the connections back first.
    membership: Arc<Membership>,
}

impl SoftNicEndpoint {
    pub(crate) fn new(membership: Arc<Membership>, station: Station, bell: Bell) -> Self {
        Self {
            station: RefCell::new(station),
            timers: Timers::new(),
            counters: Counters::default(),
            pace: Pace::new(),
            bell: Arc::new(bell),
            membership,
        }
    }

    /// Wakes whom the station says, with nothing borrowed: a waker may do anything.
    fn wake(&self) -> bool {
        let mut woken = self.station.borrow_mut().flight.take_woken();
        let any = !woken.is_empty();
        woken.drain(..).for_each(Waker::wake);
        self.station.borrow_mut().flight.give_woken(woken);
        any
    }
}

impl fmt::Debug for SoftNicEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftNicEndpoint").field("client", &self.client()).finish_non_exhaustive()
    }
}

impl Drop for SoftNicEndpoint {
    fn drop(&mut self) {
        let mut station = self.station.replace(Station::new(Vec::new()));
        if self.membership.waits_for_lists() {
            station.finish_lists(&self.membership.peers);
            self.membership.give_back(station);
        }
    }
}

impl Endpoint for SoftNicEndpoint {
    fn caps(&self) -> &Caps {
        &self.membership.caps
    }

    fn servers(&self) -> u16 {
        self.membership.peers.servers()
    }

    fn client(&self) -> ClientId {
        self.membership.peers.client
    }

    #[inline]
    fn list(&self, server: u16) -> WorkList {
        self.station.borrow_mut().flight.list(server)
    }

    #[inline]
    fn recycle(&self, list: WorkList) {
        self.station.borrow_mut().flight.recycle(list);
    }

    #[inline]
    fn post(&self, list: WorkList) -> Ticket {
        let station = &mut *self.station.borrow_mut();
        if self.membership.is_over() {
            return station.flight.refuse_list(list, self.membership.peers.fenced());
        }
        station.post(list, &self.membership.peers)
    }

    #[inline]
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        self.station.borrow_mut().flight.poll_list(ticket, cx)
    }

    #[inline]
    fn refuses(&self, server: u16) -> bool {
        self.membership.is_over() || self.station.borrow_mut().has_ended(server, &self.membership.peers)
    }

    fn forget(&self, ticket: Ticket) {
        let station = &mut *self.station.borrow_mut();
        station.flight.forget(ticket);
        station.flush();
    }

    fn call(&self, server: u16, request: Request) -> Ticket {
        let station = &mut *self.station.borrow_mut();
        if let Err(error) = self.membership.allow(server, &request) {
            return station.flight.refuse_call(error);
        }
        station.call(server, &request, &self.membership.peers)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        self.station.borrow_mut().flight.poll_call(ticket, cx)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Clock for SoftNicEndpoint {
    fn now(&self) -> u64 {
        self.membership.peers.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.timers.insert(at, waker);
    }
}

impl Driver for SoftNicEndpoint {
    fn progress(&self) -> bool {
        self.station.borrow_mut().drive(&self.membership.peers);
        let answered = self.wake();
        // The clock is read only if somebody waits for it.
        (!self.timers.is_empty() && self.timers.fire(self.now())) || answered
    }

    fn idle_for(&self) -> Option<Duration> {
        if !self.station.borrow().is_idle() {
            // Who does not sleep in `park` has no way to hear of an answer but to ask.
            return Some(Duration::ZERO);
        }
        self.timers.next().map(|at| Duration::from_nanos(at.saturating_sub(self.now())))
    }

    fn spins(&self, rounds: u32) -> bool {
        let in_flight = !self.station.borrow().is_idle();
        self.pace.spins(rounds, in_flight, || self.now())
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        Some(Arc::clone(&self.bell) as Arc<dyn Unpark>)
    }

    fn park(&self, limit: Option<Duration>) {
        let limit = limit.map(|limit| self.now().saturating_add(super::station::nanos(limit)));
        let until = [limit, self.timers.next()].into_iter().flatten().min();
        let station = self.station.borrow();
        if station.sleep(&self.membership.peers, Some(self.bell.as_fd()), until) {
            self.bell.hush();
        } else if !station.is_idle() {
            self.pace.slept(self.now());
        }
    }
}
