//! A client thread's endpoint: calls, and perhaps lists, over one connection to each server.

use super::connections::Connections;
use super::fabric::Membership;
use super::lists::{Lists, NoLists};
use super::notifier::Notifier;
use crate::pace::Pace;
use sherman_executor::{Driver, Timers, Unpark};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, Peer, Request, Response, Ticket, WorkList,
};
use std::cell::RefCell;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An endpoint, one per thread. It may move to another thread, but threads cannot share it.
///
/// Dropping it waits until all posted lists have executed, unless its identity has ended: no other client
/// could tell that a lane was not released. Its connections then serve the next endpoint.
pub struct ControlEndpoint<L: Lists = NoLists> {
    /// Borrowed for one access only; no waker is called while it is borrowed. Empty only during the drop.
    connections: RefCell<Connections<L>>,
    timers: Timers,
    counters: Counters,
    pace: Pace,
    notifier: Arc<Notifier>,
    /// Last field, because dropping it may end the membership, which needs the connections back first.
    membership: Arc<Membership<L>>,
}

impl<L: Lists> ControlEndpoint<L> {
    pub(crate) fn new(
        membership: Arc<Membership<L>>,
        connections: Connections<L>,
        notifier: Notifier,
    ) -> Self {
        Self {
            connections: RefCell::new(connections),
            timers: Timers::new(),
            counters: Counters::default(),
            pace: Pace::default(),
            notifier: Arc::new(notifier),
            membership,
        }
    }

    /// Wakes the tasks whose lists and calls are answered. Nothing is borrowed meanwhile, because a waker may
    /// do anything.
    fn wake(&self) -> bool {
        let mut woken = self.connections.borrow_mut().flight.take_woken();
        let any = !woken.is_empty();
        woken.drain(..).for_each(Waker::wake);
        self.connections.borrow_mut().flight.give_woken(woken);
        any
    }
}

impl<L: Lists> fmt::Debug for ControlEndpoint<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlEndpoint").field("client", &self.client()).finish_non_exhaustive()
    }
}

impl<L: Lists> Drop for ControlEndpoint<L> {
    fn drop(&mut self) {
        let mut connections = self.connections.replace(Connections::new(Vec::new()));
        if self.membership.waits_for_lists() {
            connections.finish_lists(&self.membership.peers);
            self.membership.give_back(connections);
        }
    }
}

/// Lists are refused unless `L` sends them.
impl<L: Lists> Endpoint for ControlEndpoint<L> {
    fn caps(&self) -> &Caps {
        &self.membership.caps
    }

    fn servers(&self) -> u16 {
        self.membership.peers.servers()
    }

    fn client(&self) -> ComputeId {
        self.membership.peers.client
    }

    #[inline]
    fn list(&self, server: u16) -> WorkList {
        self.connections.borrow_mut().flight.list(server)
    }

    #[inline]
    fn recycle(&self, list: WorkList) {
        self.connections.borrow_mut().flight.recycle(list);
    }

    #[inline]
    fn post(&self, list: WorkList) -> Ticket {
        let connections = &mut *self.connections.borrow_mut();
        if self.membership.is_over() {
            return connections.flight.refuse_list(list, self.membership.peers.fenced());
        }
        connections.post(list, &self.membership.peers)
    }

    #[inline]
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        self.connections.borrow_mut().flight.poll_list(ticket, cx)
    }

    #[inline]
    fn refuses(&self, server: u16) -> bool {
        self.membership.is_over() || self.connections.borrow_mut().has_ended(server, &self.membership.peers)
    }

    fn forget(&self, ticket: Ticket) {
        let connections = &mut *self.connections.borrow_mut();
        connections.flight.forget(ticket);
        connections.flush();
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        let connections = &mut *self.connections.borrow_mut();
        if let Err(error) = self.membership.allow(peer, &request) {
            return connections.flight.refuse_call(error);
        }
        connections.call(peer, &request, &self.membership.peers)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        self.connections.borrow_mut().flight.poll_call(ticket, cx)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl<L: Lists> Clock for ControlEndpoint<L> {
    fn now(&self) -> u64 {
        self.membership.peers.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.timers.insert(at, waker);
    }
}

impl<L: Lists> Driver for ControlEndpoint<L> {
    fn progress(&self) -> bool {
        self.connections.borrow_mut().drive(&self.membership.peers);
        let answered = self.wake();
        // Reads the clock only if a task waits for it.
        (!self.timers.is_empty() && self.timers.fire(self.now())) || answered
    }

    fn idle_for(&self) -> Option<Duration> {
        if !self.connections.borrow().is_idle() {
            // A thread that does not sleep in `park` must poll to learn of an answer.
            return Some(Duration::ZERO);
        }
        self.timers.next().map(|at| Duration::from_nanos(at.saturating_sub(self.now())))
    }

    fn spins(&self, rounds: u32) -> bool {
        let in_flight = !self.connections.borrow().is_idle();
        self.pace.spins(rounds, in_flight, || self.now())
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        Some(Arc::clone(&self.notifier) as Arc<dyn Unpark>)
    }

    fn park(&self, limit: Option<Duration>) {
        let limit = limit.map(|limit| self.now().saturating_add(super::connections::nanos(limit)));
        let until = [limit, self.timers.next()].into_iter().flatten().min();
        let connections = self.connections.borrow();
        if connections.sleep(&self.membership.peers, Some(self.notifier.as_fd()), until) {
            self.notifier.clear();
        } else if !connections.is_idle() {
            self.pace.slept(self.now());
        }
    }
}
