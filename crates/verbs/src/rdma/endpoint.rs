//! A client thread's endpoint: verbs use queue pairs, everything else uses the control connections.

use super::connections::{Connections, Sabotage};
use super::fabric::Shared;
use crate::wire::Wire;
use sherman_control::ControlEndpoint;
use sherman_executor::{Driver, Unpark};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, Peer, Request, Response, Ticket, WorkList,
};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Rounds before the first yield: a NIC answers within a few microseconds.
const HASTY_ROUNDS: u32 = 64;
/// How long to poll without a sleep, in nanoseconds.
const SPIN: u64 = 200_000;
/// The longest sleep while something is in flight: a completion wakes no thread.
const NAP: Duration = Duration::from_micros(50);
/// How many times `patience` a dropped endpoint waits for its last lists before it gives up.
const FINISH_PATIENCE: u64 = 4;

/// An endpoint. One per thread: it may be sent to another thread, not shared.
///
/// Dropping it waits until the posted lists have executed: otherwise no other client could tell that a lane
/// was not released. The next endpoint then uses its links.
pub struct VerbsEndpoint {
    /// Borrowed only during one access, and no waker is called in that time. Present until the drop.
    connections: ManuallyDrop<RefCell<Connections>>,
    /// When the current spin began.
    began: Cell<u64>,
    control: ControlEndpoint,
    shared: Arc<Shared>,
}

impl VerbsEndpoint {
    pub(super) fn new(shared: Arc<Shared>, control: ControlEndpoint, mut connections: Connections) -> Self {
        connections.wire = Wire::default();
        Self {
            connections: ManuallyDrop::new(RefCell::new(connections)),
            began: Cell::new(0),
            control,
            shared,
        }
    }

    /// The counters of its use of the NIC.
    pub fn wire(&self) -> Wire {
        self.connections.borrow().wire
    }

    /// For tests: moves the queue pair to `server` to its error state, as a fault of the device would.
    #[doc(hidden)]
    pub fn end_queue_pair(&self, server: u16) {
        self.connections.borrow_mut().sabotage(server, Sabotage::End);
    }

    /// For tests: names the memory of `server` with a key that the server did not give out.
    #[doc(hidden)]
    pub fn spoil_key(&self, server: u16) {
        self.connections.borrow_mut().sabotage(server, Sabotage::Key);
    }

    /// For tests: assumes that `server` has more memory than it has.
    #[doc(hidden)]
    pub fn believe_more(&self, server: u16) {
        self.connections.borrow_mut().sabotage(server, Sabotage::Beyond);
    }

    fn drive(&self) -> bool {
        let connections = &mut *self.connections.borrow_mut();
        connections.drive(&self.shared.control, self.shared.patience, || self.control.now());
        connections.flight.has_woken()
    }

    /// Calls the wakers of completed lists, with nothing borrowed: a waker may do anything.
    fn wake(&self) {
        let mut woken = self.connections.borrow_mut().flight.take_woken();
        woken.drain(..).for_each(Waker::wake);
        self.connections.borrow_mut().flight.give_woken(woken);
    }

    fn is_idle(&self) -> bool {
        self.connections.borrow().is_idle()
    }
}

impl fmt::Debug for VerbsEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsEndpoint").field("client", &self.client()).finish_non_exhaustive()
    }
}

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        // SAFETY: the endpoint is being dropped, and nothing accesses the field again.
        let mut connections = unsafe { ManuallyDrop::take(&mut self.connections) }.into_inner();
        let shared = &self.shared;
        if shared.control.is_over() {
            return;
        }
        let deadline = self.control.now().saturating_add(shared.patience.saturating_mul(FINISH_PATIENCE));
        let mut rounds = 0u32;
        while !connections.is_idle() {
            connections.drive(&shared.control, shared.patience, || self.control.now());
            if self.control.now() > deadline {
                connections.give_up(&shared.control);
            }
            match rounds {
                0..HASTY_ROUNDS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
            rounds = rounds.saturating_add(1);
        }
        // The tasks that waited are gone with the endpoint.
        connections.flight = Default::default();
        shared.give_back(connections);
    }
}

impl Endpoint for VerbsEndpoint {
    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn servers(&self) -> u16 {
        self.control.servers()
    }

    fn client(&self) -> ComputeId {
        self.control.client()
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
        if self.shared.control.is_over() {
            return connections.flight.refuse_list(list, FabricError::Fenced { client: self.client() });
        }
        connections.post(list, || self.control.now())
    }

    #[inline]
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        self.connections.borrow_mut().flight.poll_list(ticket, cx)
    }

    fn forget(&self, ticket: Ticket) {
        self.connections.borrow_mut().flight.forget(ticket);
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        self.control.call(peer, request)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        self.control.poll_call(ticket, cx)
    }

    fn counters(&self) -> &Counters {
        self.control.counters()
    }
}

impl Clock for VerbsEndpoint {
    fn now(&self) -> u64 {
        self.control.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.control.wake_at(at, waker);
    }
}

impl Driver for VerbsEndpoint {
    fn progress(&self) -> bool {
        let any = self.drive();
        if any {
            self.wake();
        }
        self.control.progress() || any
    }

    fn idle_for(&self) -> Option<Duration> {
        if self.is_idle() { self.control.idle_for() } else { Some(Duration::ZERO) }
    }

    fn spins(&self, rounds: u32) -> bool {
        if self.is_idle() {
            return self.control.spins(rounds);
        }
        if rounds < HASTY_ROUNDS {
            if rounds == 0 {
                self.began.set(self.control.now());
            }
            return true;
        }
        // On a soft device the other side may need this processor.
        std::thread::yield_now();
        self.control.now().saturating_sub(self.began.get()) < SPIN
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        self.control.unparker()
    }

    fn park(&self, limit: Option<Duration>) {
        let limit = if self.is_idle() { limit } else { Some(limit.map_or(NAP, |limit| limit.min(NAP))) };
        self.control.park(limit);
    }
}
