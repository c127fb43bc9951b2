//! One enum over the endpoints of the real backends.

use sherman_embedded::EmbeddedEndpoint;
use sherman_embedded::replicated::CopiesEndpoint;
use sherman_executor::{Driver, Unpark};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, GlobalAddress, Peer, Request, Response, Tally,
    Ticket, WorkList,
};
use sherman_replica::ReplicatedEndpoint;
#[cfg(target_os = "linux")]
use sherman_shm::ShmEndpoint;
#[cfg(target_os = "linux")]
use sherman_soft_nic::SoftNicEndpoint;
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::VerbsEndpoint;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The endpoint behind clients and sessions.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyEndpoint {
    /// An endpoint to memory servers in this process.
    Embedded(EmbeddedEndpoint),
    /// An endpoint to volumes that hosts in this process keep in two copies.
    Replicated(Box<ReplicatedEndpoint<CopiesEndpoint>>),
    /// An endpoint to memory servers in other processes.
    #[cfg(target_os = "linux")]
    SoftNic(SoftNicEndpoint),
    /// An endpoint to volumes that hosts keep in several copies.
    #[cfg(target_os = "linux")]
    Hosts(Box<ReplicatedEndpoint<SoftNicEndpoint>>),
    /// An endpoint to memory servers whose memory is mapped.
    #[cfg(target_os = "linux")]
    Shm(ShmEndpoint),
    /// An endpoint to volumes that hosts keep in several copies, which are mapped.
    #[cfg(target_os = "linux")]
    ShmHosts(Box<ReplicatedEndpoint<ShmEndpoint>>),
    /// An endpoint to memory servers whose memory is reached through a NIC.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(Box<VerbsEndpoint>),
    /// An endpoint to volumes that hosts keep in several copies, which are reached through a NIC.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    VerbsHosts(Box<ReplicatedEndpoint<VerbsEndpoint>>),
}

macro_rules! each {
    ($self:ident, $endpoint:ident => $call:expr) => {
        match $self {
            AnyEndpoint::Embedded($endpoint) => $call,
            AnyEndpoint::Replicated($endpoint) => $call,
            #[cfg(target_os = "linux")]
            AnyEndpoint::SoftNic($endpoint) => $call,
            #[cfg(target_os = "linux")]
            AnyEndpoint::Hosts($endpoint) => $call,
            #[cfg(target_os = "linux")]
            AnyEndpoint::Shm($endpoint) => $call,
            #[cfg(target_os = "linux")]
            AnyEndpoint::ShmHosts($endpoint) => $call,
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            AnyEndpoint::Verbs($endpoint) => $call,
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            AnyEndpoint::VerbsHosts($endpoint) => $call,
        }
    };
}

impl Endpoint for AnyEndpoint {
    #[inline]
    fn caps(&self) -> &Caps {
        each!(self, endpoint => endpoint.caps())
    }

    #[inline]
    fn servers(&self) -> u16 {
        each!(self, endpoint => endpoint.servers())
    }

    #[inline]
    fn client(&self) -> ComputeId {
        each!(self, endpoint => endpoint.client())
    }

    #[inline]
    fn list(&self, server: u16) -> WorkList {
        each!(self, endpoint => endpoint.list(server))
    }

    #[inline]
    fn recycle(&self, list: WorkList) {
        each!(self, endpoint => endpoint.recycle(list));
    }

    #[inline]
    fn hint(&self, address: GlobalAddress, bytes: usize) {
        each!(self, endpoint => endpoint.hint(address, bytes));
    }

    #[inline]
    fn executes_inline(&self) -> bool {
        each!(self, endpoint => endpoint.executes_inline())
    }

    #[inline]
    fn cost(&self, list: &WorkList) -> Tally {
        each!(self, endpoint => endpoint.cost(list))
    }

    #[inline]
    fn post_now(&self, list: WorkList) -> Result<WorkList, Ticket> {
        each!(self, endpoint => endpoint.post_now(list))
    }

    #[inline]
    fn read_now(&self, address: GlobalAddress, into: &mut [u8]) -> bool {
        each!(self, endpoint => endpoint.read_now(address, into))
    }

    #[inline]
    fn post(&self, list: WorkList) -> Ticket {
        each!(self, endpoint => endpoint.post(list))
    }

    #[inline]
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        each!(self, endpoint => endpoint.poll(ticket, cx))
    }

    #[inline]
    fn refuses(&self, server: u16) -> bool {
        each!(self, endpoint => endpoint.refuses(server))
    }

    fn forget(&self, ticket: Ticket) {
        each!(self, endpoint => endpoint.forget(ticket));
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        each!(self, endpoint => endpoint.call(peer, request))
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        each!(self, endpoint => endpoint.poll_call(ticket, cx))
    }

    #[inline]
    fn counters(&self) -> &Counters {
        each!(self, endpoint => endpoint.counters())
    }
}

impl Clock for AnyEndpoint {
    #[inline]
    fn now(&self) -> u64 {
        each!(self, endpoint => endpoint.now())
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        each!(self, endpoint => endpoint.wake_at(at, waker));
    }
}

impl Driver for AnyEndpoint {
    #[inline]
    fn progress(&self) -> bool {
        each!(self, endpoint => endpoint.progress())
    }

    fn idle_for(&self) -> Option<Duration> {
        each!(self, endpoint => endpoint.idle_for())
    }

    #[inline]
    fn spins(&self, rounds: u32) -> bool {
        each!(self, endpoint => endpoint.spins(rounds))
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        each!(self, endpoint => endpoint.unparker())
    }

    fn park(&self, limit: Option<Duration>) {
        each!(self, endpoint => endpoint.park(limit));
    }
}
