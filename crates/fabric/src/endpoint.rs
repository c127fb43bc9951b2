//! The endpoint trait, and async sugar over it.

use crate::{Caps, ClientId, Counters, FabricError, GlobalAddress, Request, Response, Tally, WorkList};
use sherman_executor::Driver;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Time as the endpoint's world tells it: real on a real backend, virtual in the simulator.
pub trait Clock {
    /// Nanoseconds since some fixed moment. Never goes back.
    fn now(&self) -> u64;

    /// Wakes `waker` at `at` or soon after. May wake early or more than once: the caller looks at [`Clock::now`].
    fn wake_at(&self, at: u64, waker: &Waker);
}

/// Names something in flight on one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A client thread's access to every memory server: `&self` throughout, since many tasks of one thread share it.
///
/// Guarantees F1–F7 of `docs/FABRIC.md`. The endpoint owns the buffers of what is in flight: a posted list comes back
/// from [`Endpoint::poll`] or, if its ticket was forgotten, is recycled when it completes.
pub trait Endpoint: Clock + Driver {
    /// What this backend can do.
    fn caps(&self) -> &Caps;

    /// How many memory servers there are, numbered from 0.
    fn servers(&self) -> u16;

    /// The identity this endpoint acts under.
    fn client(&self) -> ClientId;

    /// An empty list for `server`, from the pool where it has one.
    fn list(&self, server: u16) -> WorkList;

    /// Gives a list's buffers back to the pool.
    fn recycle(&self, list: WorkList);

    /// Says that these bytes of host memory are going to be read soon. Costs nothing on the fabric and promises nothing: a
    /// backend whose memory is at hand may begin to fetch it.
    #[inline]
    fn hint(&self, address: GlobalAddress, bytes: usize) {
        let _ = (address, bytes);
    }

    /// Posts a list. It executes whether or not anyone polls. Errors are told by [`Endpoint::poll`].
    fn post(&self, list: WorkList) -> Ticket;

    /// The list with its results, once it has completed. A ticket is polled to completion once.
    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>>;

    /// Gives up interest in `ticket`; the list still executes.
    fn forget(&self, ticket: Ticket);

    /// Sends a control request to a memory server's CPU. Not ordered with verbs.
    fn call(&self, server: u16, request: Request) -> Ticket;

    /// Whether nothing that is posted to `server` from now on will be sent: the connection has ended. A caller that asks before it posts
    /// a change knows that the change did not happen.
    #[inline]
    fn refuses(&self, server: u16) -> bool {
        let _ = server;
        false
    }

    /// The answer to a control request.
    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>>;

    /// What this endpoint has done so far.
    fn counters(&self) -> &Counters;
}

/// One compute server's way into a cluster: a factory of endpoints that share an identity.
pub trait Fabric {
    /// Its endpoints.
    type Endpoint: Endpoint;

    /// A new endpoint, for the calling thread.
    fn endpoint(&self) -> Result<Self::Endpoint, FabricError>;
}

/// Posts `list` and waits for it: one round trip, counted in the endpoint's counters and in `counters`.
#[inline]
pub fn execute<'e, E: Endpoint + ?Sized>(endpoint: &'e E, list: WorkList, counters: &Counters) -> Execute<'e, E> {
    let cost = list.tally();
    counters.add(&cost);
    endpoint.counters().add(&cost);
    Execute { endpoint, ticket: Some(endpoint.post(list)) }
}

/// The future of [`execute`]. Posted at once; dropping it forgets the ticket, not the verbs.
#[must_use = "a list's outcome is told by awaiting it"]
#[derive(Debug)]
pub struct Execute<'e, E: Endpoint + ?Sized> {
    endpoint: &'e E,
    ticket: Option<Ticket>,
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

/// Sends a control request and waits for its answer.
pub async fn call<E: Endpoint + ?Sized>(
    endpoint: &E,
    server: u16,
    request: Request,
    counters: &Counters,
) -> Result<Response, FabricError> {
    let cost = Tally { calls: 1, ..Tally::default() };
    counters.add(&cost);
    endpoint.counters().add(&cost);
    let ticket = endpoint.call(server, request);
    std::future::poll_fn(|cx| endpoint.poll_call(ticket, cx)).await
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
