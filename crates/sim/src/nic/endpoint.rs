//! Endpoints of the modelled fabric.

use super::machine::NANO;
use super::world::{Port, World};
use sherman_executor::Driver;
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, Fabric, FabricError, Peer, Request, Response, Ticket,
    WorkList,
};
use sherman_replica::ReplicatedEndpoint;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(super) type SharedWorld = Rc<RefCell<World>>;

fn unknown() -> FabricError {
    FabricError::Unsupported { what: "poll a ticket that is not in flight" }
}

/// A compute server in the modelled world. It has one identity on one machine, and any number of threads.
#[derive(Clone)]
pub struct NicFabric {
    world: SharedWorld,
    client: ComputeId,
    machine: u16,
    line_picos: Cell<u64>,
}

impl NicFabric {
    pub(super) fn new(world: SharedWorld, client: ComputeId, machine: u16) -> Self {
        Self { world, client, machine, line_picos: Cell::new(0) }
    }

    /// Sets the CPU time per line read, in picoseconds, for threads made from now on.
    pub fn set_line_picos(&self, picos: u64) {
        self.line_picos.set(picos);
    }

    /// Returns the identity of this compute server.
    pub fn client(&self) -> ComputeId {
        self.client
    }

    /// Returns a new endpoint for volumes, with a thread of its own.
    ///
    /// # Errors
    /// As [`Fabric::endpoint`].
    pub fn volumes(&self) -> Result<NicVolumeEndpoint, FabricError> {
        let copies = self.world.borrow().copies.clone();
        ReplicatedEndpoint::new(self.endpoint()?, Arc::clone(&copies.table), copies.lanes)
    }
}

/// An endpoint for volumes. If volumes have one copy each, it passes everything through.
pub type NicVolumeEndpoint = ReplicatedEndpoint<NicEndpoint>;

impl std::fmt::Debug for NicFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NicFabric(machine {}, client {})", self.machine, self.client)
    }
}

impl Fabric for NicFabric {
    type Endpoint = NicEndpoint;

    fn endpoint(&self) -> Result<NicEndpoint, FabricError> {
        let mut world = self.world.borrow_mut();
        let port = Port { client: self.client, machine: self.machine, line: self.line_picos.get() };
        Ok(NicEndpoint {
            number: world.add_port(port),
            caps: Rc::clone(&world.caps),
            servers: world.server_models.len() as u16,
            client: self.client,
            counters: Counters::default(),
            world: Rc::clone(&self.world),
        })
    }
}

/// One modelled thread: its CPU, and a queue pair to every memory server.
pub struct NicEndpoint {
    world: SharedWorld,
    caps: Rc<Caps>,
    servers: u16,
    client: ComputeId,
    number: u32,
    counters: Counters,
}

impl NicEndpoint {
    /// Returns the number of its thread, for [`NicSim::spawn_on`](super::NicSim::spawn_on).
    pub fn thread(&self) -> u32 {
        self.number
    }

    /// Returns the number of verbs that all threads have posted so far, except while time stood still.
    pub fn verbs(&self) -> u64 {
        self.world.borrow().verbs
    }

    /// Makes the CPU of the running task busy for `nanos`. Has no effect outside of a task.
    pub fn spend(&self, nanos: u64) {
        self.world.borrow_mut().spend(nanos * NANO);
    }
}

impl std::fmt::Debug for NicEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NicEndpoint({}, client {})", self.number, self.client)
    }
}

impl Clock for NicEndpoint {
    fn now(&self) -> u64 {
        self.world.borrow().time() / NANO
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.world.borrow_mut().timers.add(at, waker);
    }
}

impl Driver for NicEndpoint {
    fn progress(&self) -> bool {
        false
    }

    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

impl Endpoint for NicEndpoint {
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

    fn sorted(&self, nodes: usize, entries: usize) {
        let mut world = self.world.borrow_mut();
        let params = world.timing.params;
        world.spend(nodes as u64 * params.sort_nanos * NANO + entries as u64 * params.sort_entry_picos);
    }

    fn shared(&self, bytes: usize) {
        let mut world = self.world.borrow_mut();
        let looked_at = (bytes as u64).div_ceil(64) * world.ports[self.number as usize].line;
        let poll = world.timing.params.poll_nanos * NANO;
        world.spend(poll + looked_at);
    }

    fn post(&self, list: WorkList) -> Ticket {
        self.world.borrow_mut().post(self.number, list)
    }

    /// The completion wakes the task that posted the list, even if another task polls it. Only if volumes
    /// have copies, it wakes the one that polled it last.
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        let mut world = self.world.borrow_mut();
        let Some(slot) = world.flights.find(ticket) else { return Poll::Ready(Err(unknown())) };
        if !world.flights.get(slot).done {
            world.watch(slot, cx.waker());
            return Poll::Pending;
        }
        let flight = world.flights.get_mut(slot);
        let (error, lines) = (flight.error.take(), flight.reply.div_ceil(64));
        let list = world.flights.end(slot);
        let looked_at = lines * world.ports[self.number as usize].line;
        let poll = world.timing.params.poll_nanos * NANO;
        world.spend(poll + looked_at);
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
        if let Some(slot) = world.flights.find(ticket) {
            world.forget(slot);
        }
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        self.world.borrow_mut().call(self.number, peer, request)
    }

    fn poll_call(&self, ticket: Ticket, _cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        let mut world = self.world.borrow_mut();
        let Some(slot) = world.flights.find(ticket) else { return Poll::Ready(Err(unknown())) };
        let flight = world.flights.get_mut(slot);
        if !flight.done {
            return Poll::Pending;
        }
        let (response, error) = (flight.response.take(), flight.error.take());
        let list = world.flights.end(slot);
        world.recycle(list);
        match (response, error) {
            (Some(response), None) => Poll::Ready(Ok(response)),
            (_, error) => Poll::Ready(Err(error.unwrap_or_else(unknown))),
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
