//! Endpoints of the simulated fabric.

use crate::sim::SharedWorld;
use crate::world::flight::Phase;
use sherman_executor::Driver;
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, Fabric, FabricError, GlobalAddress, Memory, Peer, Request,
    Response, Space, Ticket, VerbId, WorkList,
};
use sherman_replica::{LaneTable, ReplicatedEndpoint, VolumeTable};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The ticket for a list that is posted after its schedule has ended.
const TOO_LATE: Ticket = Ticket(u64::MAX);

fn too_late() -> FabricError {
    FabricError::Unsupported { what: "outlive the schedule it was made in" }
}

/// A compute server in the simulated world. It has one identity and any number of endpoints.
#[derive(Clone)]
pub struct SimFabric {
    pub(crate) world: SharedWorld,
    pub(crate) owner: u32,
    client: ComputeId,
    table: Arc<VolumeTable>,
}

/// An endpoint for volumes. Without replication it passes everything through.
pub type VolumeEndpoint = ReplicatedEndpoint<SimEndpoint>;

impl SimFabric {
    pub(crate) fn new(world: SharedWorld, owner: u32, client: ComputeId, table: Arc<VolumeTable>) -> Self {
        Self { world, owner, client, table }
    }

    /// Returns the table of volumes that this compute server uses until its identity ends (rule E).
    pub fn table(&self) -> &Arc<VolumeTable> {
        &self.table
    }

    /// Returns a new endpoint for volumes.
    ///
    /// # Errors
    /// As [`Fabric::endpoint`].
    pub fn volumes(&self) -> Result<VolumeEndpoint, FabricError> {
        ReplicatedEndpoint::new(self.endpoint()?, Arc::clone(&self.table), LaneTable::OnChip)
    }

    /// Returns the identity of this compute server.
    pub fn client(&self) -> ComputeId {
        self.client
    }

    /// Returns the number of this compute server, in order of joining. Traces use it as the name.
    pub fn number(&self) -> u32 {
        self.owner
    }
}

impl std::fmt::Debug for SimFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimFabric(cs{}, client {})", self.owner, self.client)
    }
}

impl Fabric for SimFabric {
    type Endpoint = SimEndpoint;

    fn endpoint(&self) -> Result<SimEndpoint, FabricError> {
        let mut world = self.world.borrow_mut();
        if world.compute_servers.get(self.owner as usize).is_none_or(|cs| cs.client != self.client) {
            return Err(too_late());
        }
        let (number, birth) = world.add_endpoint(self.owner);
        Ok(SimEndpoint {
            caps: Rc::clone(&world.caps),
            servers: world.servers.len() as u16,
            client: self.client,
            inline: world.inline.is_on(self.owner),
            refused: Cell::new(0),
            number,
            owner: self.owner,
            birth,
            counters: Counters::default(),
            world: Rc::clone(&self.world),
        })
    }
}

/// One thread's connection to every simulated memory server, with one queue pair per server.
///
/// It is valid for the schedule in which it was made. An endpoint made before
/// [`Sim::checkpoint`](crate::Sim::checkpoint) is valid for all schedules.
pub struct SimEndpoint {
    world: SharedWorld,
    caps: Rc<Caps>,
    servers: u16,
    client: ComputeId,
    /// Whether lists execute inside `post`, or can.
    inline: bool,
    /// The list of this number from now on does not execute inside `post`. 0 means none.
    refused: Cell<u32>,
    number: u32,
    owner: u32,
    birth: u64,
    counters: Counters,
}

impl SimEndpoint {
    /// Returns the number of this endpoint, in order of creation. Traces use it as the name.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the list that is posted now must not execute inside `post`.
    fn refuses_list(&self) -> bool {
        let left = self.refused.get();
        self.refused.set(left.saturating_sub(1));
        left == 1
    }

    fn keep_read(&self, done: Result<WorkList, Ticket>, read: VerbId, into: &mut [u8]) -> bool {
        match done {
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

    /// Takes a list that has completed without an error. Otherwise its ticket stays good.
    fn take_good(&self, ticket: Ticket) -> Result<WorkList, Ticket> {
        let mut world = self.world.borrow_mut();
        let slot = world.flights.find(ticket).ok_or(ticket)?;
        let flight = world.flights.get_mut(slot);
        if flight.phase != Phase::Delivered || flight.error.is_some() {
            return Err(ticket);
        }
        let learnt = flight.fetched ^ flight.posted.rotate_left(1);
        let list = world.flights.end(slot);
        world.learn(learnt);
        Ok(list)
    }

    fn is_open(&self, world: &crate::world::World) -> bool {
        !world.closed
            && world.endpoints.get(self.number as usize).is_some_and(|known| known.birth == self.birth)
    }
}

/// For operations that take their steps one by one. The unit tests of this crate have none.
#[cfg(not(test))]
impl SimEndpoint {
    /// Makes one of the next lists not execute inside `post`: the first, the second, … 0 means none.
    pub(crate) fn refuse(&self, list: u32) {
        self.refused.set(list);
    }

    /// Posts a list as [`Endpoint::post_now`] does, but other clients run between its units.
    pub(crate) async fn run_list(&self, list: WorkList) -> Result<WorkList, Ticket> {
        let refused = self.refuses_list();
        let ticket = self.post(list);
        if !refused {
            std::future::poll_fn(|cx| self.poll_executed(ticket, cx)).await;
        }
        if refused { Err(ticket) } else { self.take_good(ticket) }
    }

    /// Reads as [`Endpoint::read_now`] does, but other clients run between the units.
    pub(crate) async fn run_read(&self, address: GlobalAddress, into: &mut [u8]) -> bool {
        let mut list = self.list(address.server());
        let read = list.read(Space::Host, address.offset(), into.len() as u32);
        self.keep_read(self.run_list(list).await, read, into)
    }

    /// Ready when the list can be polled.
    fn poll_executed(&self, ticket: Ticket, cx: &Context<'_>) -> Poll<()> {
        let mut world = self.world.borrow_mut();
        let Some(slot) = world.flights.find(ticket) else { return Poll::Ready(()) };
        let flight = world.flights.get_mut(slot);
        if flight.phase == Phase::Delivered {
            return Poll::Ready(());
        }
        watch(&mut flight.waker, cx);
        Poll::Pending
    }
}

impl std::fmt::Debug for SimEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimEndpoint({}, client {})", self.number, self.client)
    }
}

impl Clock for SimEndpoint {
    fn now(&self) -> u64 {
        let mut world = self.world.borrow_mut();
        let now = world.clock_of(self.owner).read(world.now);
        if world.history.on {
            world.history.time_was_read();
            world.learn(now);
        }
        now
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        let mut world = self.world.borrow_mut();
        world.history.time_was_read();
        let at = world.clock_of(self.owner).when(at);
        world.timers.add(at, waker);
    }
}

impl Driver for SimEndpoint {
    fn progress(&self) -> bool {
        false
    }

    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

impl Endpoint for SimEndpoint {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn servers(&self) -> u16 {
        self.servers
    }

    fn client(&self) -> ComputeId {
        self.client
    }

    fn list(&self, server: u16) -> WorkList {
        self.world.borrow_mut().list(server)
    }

    fn recycle(&self, list: WorkList) {
        self.world.borrow_mut().recycle(list);
    }

    fn executes_inline(&self) -> bool {
        self.inline
    }

    fn post_now(&self, list: WorkList) -> Result<WorkList, Ticket> {
        let refused = self.refuses_list();
        let ticket = self.post(list);
        if !self.inline || refused {
            return Err(ticket);
        }
        self.world.borrow_mut().execute_inline(ticket);
        self.take_good(ticket)
    }

    fn read_now(&self, address: GlobalAddress, into: &mut [u8]) -> bool {
        let mut list = self.list(address.server());
        let read = list.read(Space::Host, address.offset(), into.len() as u32);
        self.keep_read(self.post_now(list), read, into)
    }

    fn post(&self, list: WorkList) -> Ticket {
        let mut world = self.world.borrow_mut();
        if !self.is_open(&world) {
            world.recycle(list);
            return TOO_LATE;
        }
        world.post(self.number, list)
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        let mut world = self.world.borrow_mut();
        let Some(slot) = world.flights.find(ticket) else { return Poll::Ready(Err(too_late())) };
        let flight = world.flights.get_mut(slot);
        if flight.phase != Phase::Delivered {
            watch(&mut flight.waker, cx);
            return Poll::Pending;
        }
        let (error, learnt) = (flight.error.take(), flight.fetched ^ flight.posted.rotate_left(1));
        let list = world.flights.end(slot);
        world.learn(learnt ^ u64::from(error.is_some()));
        match error {
            None => Poll::Ready(Ok(list)),
            Some(error) => {
                world.recycle(list);
                Poll::Ready(Err(error))
            }
        }
    }

    fn forget(&self, ticket: Ticket) {
        let mut world = self.world.borrow_mut();
        let Some(slot) = world.flights.find(ticket) else { return };
        world.forget(slot);
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        let mut world = self.world.borrow_mut();
        if self.is_open(&world) { world.call(self.number, peer, request) } else { TOO_LATE }
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        let mut world = self.world.borrow_mut();
        let Some(slot) = world.flights.find(ticket) else { return Poll::Ready(Err(too_late())) };
        let flight = world.flights.get_mut(slot);
        if flight.phase != Phase::Delivered {
            watch(&mut flight.waker, cx);
            return Poll::Pending;
        }
        let (response, error, learnt) = (flight.response.take(), flight.error.take(), flight.fetched);
        let _ = world.flights.end(slot);
        world.learn(learnt);
        match (response, error) {
            (Some(response), None) => Poll::Ready(Ok(response)),
            (_, error) => Poll::Ready(Err(error.unwrap_or_else(too_late))),
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Stores the waker of the polling task.
fn watch(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if waker.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}

/// Direct access to a server's memory, from outside the schedule.
#[derive(Clone)]
pub struct SimMemory {
    world: SharedWorld,
    server: u16,
}

impl SimMemory {
    pub(crate) fn new(world: SharedWorld, server: u16) -> Self {
        Self { world, server }
    }
}

impl std::fmt::Debug for SimMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimMemory(server {})", self.server)
    }
}

impl Memory for SimMemory {
    fn size(&self, space: Space) -> u64 {
        self.world.borrow().servers[usize::from(self.server)].memory.size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        let world = self.world.borrow();
        into.copy_from_slice(world.servers[usize::from(self.server)].memory.bytes(space, offset, into.len()));
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        self.world.borrow_mut().servers[usize::from(self.server)].memory.store(space, offset, from);
    }
}
