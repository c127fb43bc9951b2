//! The endpoint trait, and async helpers for it.

use crate::{
    Call, Caps, ComputeId, Counters, FabricError, GlobalAddress, Peer, Request, Response, Tally, WorkList,
};
use sherman_executor::Driver;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The endpoint's time: real on a real backend, virtual in the simulator.
pub trait Clock {
    /// Nanoseconds since some fixed moment. Never goes backwards.
    fn now(&self) -> u64;

    /// Wakes `waker` at `at` or soon after. May wake early or more than once, so the caller checks
    /// [`Clock::now`].
    fn wake_at(&self, at: u64, waker: &Waker);
}

/// Names a list or call in flight on one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The ticket of a slot in its `generation`.
    #[inline]
    pub const fn new(generation: u32, slot: u32) -> Self {
        Self((generation as u64) << 32 | slot as u64)
    }

    /// How often the slot was used before.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The slot.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// A client thread's access to every memory server. All methods take `&self`, because many tasks of one
/// thread share it.
///
/// Guarantees F1–F7 of `docs/FABRIC.md`. The endpoint owns the buffers of lists in flight. [`Endpoint::poll`]
/// returns a posted list. If its ticket was forgotten, the list is recycled when it completes.
pub trait Endpoint: Clock + Driver {
    /// The capabilities of this backend.
    fn caps(&self) -> &Caps;

    /// Number of memory servers, numbered from 0.
    fn servers(&self) -> u16;

    /// The client id of this endpoint.
    fn client(&self) -> ComputeId;

    /// An empty list for `server`, from the pool if it has one.
    fn list(&self, server: u16) -> WorkList;

    /// Gives a list's buffers back to the pool.
    fn recycle(&self, list: WorkList);

    /// Hints that the caller will soon read these bytes of host memory. Costs nothing on the fabric and
    /// promises nothing. A backend with local memory may begin to fetch it.
    #[inline]
    fn hint(&self, address: GlobalAddress, bytes: usize) {
        let _ = (address, bytes);
    }

    /// Reports that the caller has sorted `entries` entries of `nodes` nodes. Costs nothing on the fabric. A
    /// backend that models CPU time charges it to the caller's thread.
    #[inline]
    fn sorted(&self, nodes: usize, entries: usize) {
        let _ = (nodes, entries);
    }

    /// Reports that the caller used `bytes` that another task's READ fetched. Costs nothing on the fabric. A
    /// backend that models CPU time charges the caller's thread as for a READ of its own.
    #[inline]
    fn shared(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Whether [`Endpoint::post`] executes a list before it returns, as on memory that the process maps.
    #[inline]
    fn executes_inline(&self) -> bool {
        false
    }

    /// The cost of posting `list`: more than that of its verbs if they go to several copies.
    #[inline]
    fn cost(&self, list: &WorkList) -> Tally {
        list.tally()
    }

    /// Posts a list. It executes whether or not a task polls it. [`Endpoint::poll`] returns its errors.
    fn post(&self, list: WorkList) -> Ticket;

    /// Posts a list. Where lists execute inside [`Endpoint::post`], returns the list if it has completed
    /// without an error. Otherwise returns its ticket.
    #[inline]
    fn post_now(&self, list: WorkList) -> Result<WorkList, Ticket> {
        Err(self.post(list))
    }

    /// Executes one READ of host memory before it returns, as a list of its own. Returns false if it did not:
    /// the endpoint executes nothing inside [`Endpoint::post`], or the READ failed. Then `into` may hold
    /// anything, and the caller posts the READ to learn more.
    #[inline]
    fn read_now(&self, address: GlobalAddress, into: &mut [u8]) -> bool {
        let _ = (address, into);
        false
    }

    /// The list with its results, once it has completed. Each ticket completes only once.
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>>;

    /// Gives up `ticket`. The list still executes.
    fn forget(&self, ticket: Ticket);

    /// Sends a control request to `peer`. Not ordered with verbs.
    fn call(&self, peer: Peer, request: Request) -> Ticket;

    /// Whether the connection to `server` has ended, so that nothing posted to it from now on will be sent. A
    /// caller that asks before it posts a change then knows that the change did not happen.
    #[inline]
    fn refuses(&self, server: u16) -> bool {
        let _ = server;
        false
    }

    /// The answer to a control request.
    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>>;

    /// The running totals of this endpoint.
    fn counters(&self) -> &Counters;
}

/// One compute server's access to a cluster: a factory of endpoints that share an identity.
pub trait Fabric {
    /// The type of its endpoints.
    type Endpoint: Endpoint;

    /// A new endpoint, for the calling thread.
    fn endpoint(&self) -> Result<Self::Endpoint, FabricError>;
}

/// Posts `list` and waits for it: one round trip, counted in the endpoint's counters and in `counters`.
#[inline]
pub fn execute<'e, E: Endpoint + ?Sized>(
    endpoint: &'e E,
    list: WorkList,
    counters: &Counters,
) -> Execute<'e, E> {
    let cost = endpoint.cost(&list);
    counters.add(&cost);
    endpoint.counters().add(&cost);
    Execute { endpoint, ticket: Some(endpoint.post(list)) }
}

/// Posts `list` as [`Endpoint::post_now`] does, and counts it as [`execute`] does.
#[inline]
pub fn execute_now<E: Endpoint + ?Sized>(
    endpoint: &E,
    list: WorkList,
    counters: &Counters,
) -> Result<WorkList, Ticket> {
    count_now(endpoint, &list, counters);
    endpoint.post_now(list)
}

/// Counts a list as [`execute_now`] does.
#[inline]
pub fn count_now<E: Endpoint + ?Sized>(endpoint: &E, list: &WorkList, counters: &Counters) {
    let cost = list.tally();
    counters.add(&cost);
    endpoint.counters().add(&cost);
}

/// Reads as [`Endpoint::read_now`] does. A READ that succeeds counts as one round trip.
#[inline]
pub fn read_now<E: Endpoint + ?Sized>(
    endpoint: &E,
    address: GlobalAddress,
    into: &mut [u8],
    counters: &Counters,
) -> bool {
    let read = endpoint.read_now(address, into);
    if read {
        count_read(endpoint, into.len(), counters);
    }
    read
}

/// Counts a READ as [`read_now`] does.
#[inline]
pub fn count_read<E: Endpoint + ?Sized>(endpoint: &E, bytes: usize, counters: &Counters) {
    let cost = Tally { round_trips: 1, reads: 1, bytes_read: bytes as u64, ..Tally::default() };
    counters.add(&cost);
    endpoint.counters().add(&cost);
}

/// The future of [`execute`]. The list is already posted. Dropping the future forgets the ticket, but the
/// verbs still execute.
#[must_use = "await it to learn the list's outcome"]
#[derive(Debug)]
pub struct Execute<'e, E: Endpoint + ?Sized> {
    endpoint: &'e E,
    ticket: Option<Ticket>,
}

impl<'e, E: Endpoint + ?Sized> Execute<'e, E> {
    /// Waits for a list that was posted and counted before.
    pub fn posted(endpoint: &'e E, ticket: Ticket) -> Self {
        Self { endpoint, ticket: Some(ticket) }
    }
}

impl<E: Endpoint + ?Sized> Future for Execute<'_, E> {
    type Output = Result<WorkList, FabricError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.ticket.expect("not polled after completion");
        let done = self.endpoint.poll(ticket, cx);
        if done.is_ready() {
            self.ticket = None;
        }
        done
    }
}

impl<E: Endpoint + ?Sized> Drop for Execute<'_, E> {
    #[inline]
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.endpoint.forget(ticket);
        }
    }
}

/// Sends a control request and waits for its reply.
///
/// # Errors
/// [`FabricError::UnexpectedReply`] if the peer's answer does not fit the request.
pub async fn call<E: Endpoint + ?Sized, C: Call>(
    endpoint: &E,
    peer: Peer,
    call: C,
    counters: &Counters,
) -> Result<C::Reply, FabricError> {
    let cost = Tally { calls: 1, ..Tally::default() };
    counters.add(&cost);
    endpoint.counters().add(&cost);
    let ticket = endpoint.call(peer, call.request());
    std::future::poll_fn(|cx| endpoint.poll_call(ticket, cx)).await.and_then(C::expect)
}

/// Waits until [`Clock::now`] has reached `at`.
pub async fn sleep_until<C: Clock + ?Sized>(clock: &C, at: u64) {
    std::future::poll_fn(|cx| {
        if clock.now() >= at {
            return Poll::Ready(());
        }
        clock.wake_at(at, cx.waker());
        Poll::Pending
    })
    .await;
}

/// Lets every other ready task of this thread run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
