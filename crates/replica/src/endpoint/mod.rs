//! An endpoint for volumes over a backend's endpoint for copies.
//!
//! `core` posts a list for a volume. The endpoint decides which copies get which verbs:
//!
//! | list | backup and joining copy | primary |
//! |---|---|---|
//! | READs, and verbs on lanes | nothing | all of it |
//! | a list with *data verbs* | first the data verbs alone | then all of it |
//! | [`Reach::Only`] | | all of it to that copy, nothing to the others |
//!
//! A data verb is a WRITE outside the lane table, or a CAS of a root word. Lanes exist at the primary alone.
//! A list with data verbs has two halves. The second half is posted when every part of the first has
//! completed (W1), and the release of the lane is in the second half. If a CAS of the first half finds
//! another word, the list ends with that result: another client is between the two halves of its own CAS.
//! Only the WRITEs before that CAS go to the primary too.
//!
//! If a part of a list fails, the endpoint posts nothing more of it (T2: only the table removes a copy). The
//! error says how far the list got ([`FabricError::CopyFailed`]), and ends the identity of the client.
//!
//! A posted list executes although no task polls it. The endpoint posts second halves whenever one of its
//! methods is called, and the executor calls [`Driver::progress`].
//!
//! Without replication the endpoint passes everything through: same verbs, same tickets, same counters.

mod flight;
mod route;

#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;

use crate::table::VolumeTable;
use flight::{Flight, Halves};
use route::Volumes;
use sherman_executor::{Driver, Unpark};
use sherman_fabric::tickets::{NOT_A_CALL, NOT_A_LIST, TicketKind, Tickets, unknown};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, GlobalAddress, Peer, Reach, Request, Response,
    Role, Space, Tally, Ticket, WorkList,
};
use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Where the lanes of a copy lie. On-chip memory holds nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneTable {
    /// In on-chip memory.
    OnChip,
    /// In host memory.
    Host {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
}

impl LaneTable {
    /// Whether the byte at `offset` belongs to a lane.
    pub fn has(&self, space: Space, at: u64) -> bool {
        match *self {
            Self::OnChip => space == Space::OnChip,
            Self::Host { offset, bytes } => space == Space::Host && at >= offset && at - offset < bytes,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct ReplicatedEndpoint<E: Endpoint> {
    inner: E,
    volumes: Volumes,
    state: RefCell<State>,
}

/// What is in flight.
#[derive(Debug)]
struct State {
    flights: Tickets<Flight>,
    /// The tickets whose first half is in flight.
    halves: Vec<Ticket>,
}

impl<E: Endpoint> ReplicatedEndpoint<E> {
    /// An endpoint for the volumes of `table`, whose copies are the servers of `inner`.
    ///
    /// # Errors
    /// [`FabricError::NoSuchServer`] if the table names a copy that `inner` does not have.
    pub fn new(inner: E, table: Arc<VolumeTable>, lanes: LaneTable) -> Result<Self, FabricError> {
        let servers = inner.servers();
        let missing = table.volumes().iter().flat_map(|entry| entry.copies()).find(|(_, c)| *c >= servers);
        if let Some((_, server)) = missing {
            return Err(FabricError::NoSuchServer { server });
        }
        let volumes = Volumes::new(table, lanes, servers);
        let state = State { flights: Tickets::new(TicketKind::Done), halves: Vec::new() };
        Ok(Self { inner, volumes, state: RefCell::new(state) })
    }

    /// The endpoint of the backend.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// The table that it uses.
    pub fn table(&self) -> &Arc<VolumeTable> {
        self.volumes.table()
    }

    /// Posts a list to one copy, and keeps it under a ticket.
    fn post_to(&self, mut list: WorkList, role: Role) -> Ticket {
        let volume = list.server();
        let flight = match self.volumes.copy(volume, role) {
            Ok(copy) => {
                list.route(copy);
                Flight::Last { volume, role, before: None, ticket: self.inner.post(list) }
            }
            Err(error) => {
                self.inner.recycle(list);
                Flight::Failed(error)
            }
        };
        self.keep(flight)
    }

    fn keep(&self, flight: Flight) -> Ticket {
        self.state.borrow_mut().flights.put(flight)
    }

    /// Posts the first half of a list with data verbs.
    fn post_halves(&self, list: WorkList) -> Ticket {
        let halves = Halves::begin(&self.inner, &self.volumes, list);
        let ticket = self.keep(Flight::Halves(Box::new(halves)));
        self.state.borrow_mut().halves.push(ticket);
        // A backend that executes inside `post` has completed the first half by now.
        self.advance(ticket);
        ticket
    }

    /// Posts the second half of a list if its first half has completed. Wakes the task that waits for it.
    fn advance(&self, ticket: Ticket) {
        let mut state = self.state.borrow_mut();
        let Some(Flight::Halves(halves)) = state.flights.get_mut(ticket) else { return };
        let waker = halves.waker.clone();
        let mut cx = Context::from_waker(waker.as_ref().unwrap_or(Waker::noop()));
        let Poll::Ready(next) = halves.poll(&self.inner, &self.volumes, &mut cx) else { return };
        let forgotten = halves.forgotten;
        if forgotten {
            // Nobody asks for the outcome. The second half, if there is one, is posted and executes.
            next.forget(&self.inner);
            let _ = state.flights.take(ticket);
        } else if let Some(flight) = state.flights.get_mut(ticket) {
            *flight = next;
        }
        state.halves.retain(|&other| other != ticket);
        drop(state);
        if let Some(waker) = waker.filter(|_| !forgotten) {
            waker.wake();
        }
    }

    /// Posts every second half that can be posted.
    fn advance_all(&self) {
        if self.volumes.is_plain() {
            return;
        }
        let halves = self.state.borrow().halves.clone();
        halves.into_iter().for_each(|ticket| self.advance(ticket));
    }
}

impl<E: Endpoint> Clock for ReplicatedEndpoint<E> {
    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.inner.wake_at(at, waker);
    }
}

impl<E: Endpoint> Driver for ReplicatedEndpoint<E> {
    fn progress(&self) -> bool {
        let woke = self.inner.progress();
        self.advance_all();
        woke
    }

    fn idle_for(&self) -> Option<Duration> {
        self.inner.idle_for()
    }

    fn spins(&self, rounds: u32) -> bool {
        self.inner.spins(rounds)
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        self.inner.unparker()
    }

    fn park(&self, limit: Option<Duration>) {
        self.inner.park(limit);
    }
}

impl<E: Endpoint> Endpoint for ReplicatedEndpoint<E> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn servers(&self) -> u16 {
        self.volumes.count()
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
        if let Ok(copy) = self.volumes.copy(address.server(), Role::Primary) {
            self.inner.hint(GlobalAddress::new(copy, address.offset()), bytes);
        }
    }

    fn sorted(&self, nodes: usize, entries: usize) {
        self.inner.sorted(nodes, entries);
    }

    fn shared(&self, bytes: usize) {
        self.inner.shared(bytes);
    }

    /// A list with two halves waits for the first, so nothing is said to execute inline.
    fn executes_inline(&self) -> bool {
        self.volumes.is_plain() && self.inner.executes_inline()
    }

    fn post_now(&self, list: WorkList) -> Result<WorkList, Ticket> {
        if self.volumes.is_plain() { self.inner.post_now(list) } else { Err(self.post(list)) }
    }

    fn read_now(&self, address: GlobalAddress, into: &mut [u8]) -> bool {
        self.volumes.is_plain() && self.inner.read_now(address, into)
    }

    fn cost(&self, list: &WorkList) -> Tally {
        self.volumes.cost(list)
    }

    fn post(&self, list: WorkList) -> Ticket {
        if self.volumes.is_plain() {
            return self.inner.post(list);
        }
        self.advance_all();
        match list.reach() {
            Reach::Only(role) => self.post_to(list, role),
            Reach::All if self.volumes.is_written_twice(&list) => self.post_halves(list),
            Reach::All => self.post_to(list, Role::Primary),
        }
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        if self.volumes.is_plain() {
            return self.inner.poll(ticket, cx);
        }
        if let Some(Flight::Halves(halves)) = self.state.borrow_mut().flights.get_mut(ticket) {
            halves.watch(cx.waker());
        }
        self.advance(ticket);
        let mut state = self.state.borrow_mut();
        let done = match state.flights.get_mut(ticket) {
            None => return Poll::Ready(Err(unknown(ticket))),
            Some(Flight::Halves(_)) => return Poll::Pending,
            Some(Flight::Call { .. }) => return Poll::Ready(Err(NOT_A_LIST)),
            Some(Flight::Last { volume, role, before, ticket }) => {
                let (volume, role, before) = (*volume, *role, *before);
                let Poll::Ready(done) = self.inner.poll(*ticket, cx) else { return Poll::Pending };
                Some(self.volumes.completed(done, volume, role, before))
            }
            Some(Flight::Ending(_, ticket)) => {
                // Whether or not that fails, the backup's answer is true.
                let Poll::Ready(done) = self.inner.poll(*ticket, cx) else { return Poll::Pending };
                done.into_iter().for_each(|list| self.inner.recycle(list));
                None
            }
            Some(Flight::Ended(_) | Flight::Failed(_)) => None,
        };
        let flight = state.flights.take(ticket);
        Poll::Ready(match (done, flight) {
            (Some(done), _) => done,
            (None, Some(Flight::Ended(list) | Flight::Ending(list, _))) => Ok(list),
            (None, Some(Flight::Failed(error))) => Err(error),
            (None, _) => Err(unknown(ticket)),
        })
    }

    fn forget(&self, ticket: Ticket) {
        if self.volumes.is_plain() {
            return self.inner.forget(ticket);
        }
        let mut state = self.state.borrow_mut();
        match state.flights.get_mut(ticket) {
            // Its second half must still be posted.
            Some(Flight::Halves(halves)) => {
                (halves.forgotten, halves.waker) = (true, None);
                drop(state);
                self.advance(ticket);
            }
            Some(_) => {
                if let Some(flight) = state.flights.take(ticket) {
                    flight.forget(&self.inner);
                }
            }
            None => {}
        }
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        if self.volumes.is_plain() {
            return self.inner.call(peer, request);
        }
        self.advance_all();
        let copy = match peer {
            Peer::Control => Ok(Peer::Control),
            Peer::Volume(volume) => self.volumes.copy(volume, Role::Primary).map(Peer::Volume),
        };
        let flight = match copy {
            Ok(copy) => Flight::Call { peer, ticket: self.inner.call(copy, request) },
            Err(error) => Flight::Failed(error),
        };
        self.keep(flight)
    }

    fn refuses(&self, server: u16) -> bool {
        self.volumes.entry(server).copies().any(|(_, copy)| self.inner.refuses(copy))
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        if self.volumes.is_plain() {
            return self.inner.poll_call(ticket, cx);
        }
        let mut state = self.state.borrow_mut();
        let done = match state.flights.get_mut(ticket) {
            None => return Poll::Ready(Err(unknown(ticket))),
            Some(Flight::Failed(error)) => Err(error.clone()),
            Some(Flight::Call { peer, ticket }) => {
                let peer = *peer;
                let Poll::Ready(done) = self.inner.poll_call(*ticket, cx) else { return Poll::Pending };
                done.map_err(|error| match peer {
                    Peer::Control => error,
                    Peer::Volume(volume) => self.volumes.named(error, volume),
                })
            }
            Some(_) => return Poll::Ready(Err(NOT_A_CALL)),
        };
        let _ = state.flights.take(ticket);
        Poll::Ready(done)
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}
