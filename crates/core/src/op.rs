//! One operation: what it costs, how often it tried again, until when it may wait.
//!
//! The clock is read only at the first obstacle: an operation that meets none never asks for the time. The deadline counts
//! from there.

use crate::cause::{Cause, Retries};
use crate::doubt::Doubt;
use crate::error::Error;
use crate::worker::Worker;
use sherman_fabric::endpoint::Execute;
use sherman_fabric::{ClientId, Counters, Endpoint, FabricError, GlobalAddress, Refusal, Request, Response};
use sherman_fabric::{Tally, WorkList, call, execute};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often an operation that finds no memory asks for some in a lease.
const HUNGRY_TRIES_PER_LEASE: u64 = 32;
/// Control requests of one operation that are in flight at once.
const CALLS_IN_FLIGHT: usize = 16;
/// Retries that only let other tasks run before an operation starts to sleep between them.
const EAGER_RETRIES: u32 = 8;
/// The longest pause between two tries.
const MAX_PAUSE_NANOS: u64 = 256_000;
/// At least so many pauses fit into a lease.
const PAUSES_PER_LEASE: u64 = 16;

/// An operation in flight.
#[derive(Debug)]
pub struct Op<'w, E: Endpoint> {
    pub(crate) worker: &'w Worker<E>,
    counters: Counters,
    retries: Retries,
    handed_over: Cell<u64>,
    cache_hits: Cell<u64>,
    cache_misses: Cell<u64>,
    timeout: Cell<Duration>,
    started: Cell<Option<u64>>,
    tries: Cell<u32>,
    obstacles: Cell<bool>,
    /// Whoever is waited for, if that one is known to stand still.
    stalled: Cell<ClientId>,
    /// Until when it waits for memory, once it does.
    hungry_until: Cell<Option<u64>>,
    /// Its change, if nobody knows whether that happened.
    doubt: RefCell<Option<Arc<Doubt>>>,
    /// Whether that change was to replace a value.
    replaces: Cell<bool>,
    /// Whether a change was not even posted, because the connection had ended.
    unposted: Cell<bool>,
}

impl<'w, E: Endpoint> Op<'w, E> {
    pub(crate) fn new(worker: &'w Worker<E>, timeout: Duration) -> Self {
        Self {
            worker,
            counters: Counters::default(),
            retries: Retries::default(),
            handed_over: Cell::new(0),
            cache_hits: Cell::new(0),
            cache_misses: Cell::new(0),
            timeout: Cell::new(timeout),
            started: Cell::new(None),
            tries: Cell::new(0),
            obstacles: Cell::new(false),
            stalled: Cell::new(ClientId::NOBODY),
            hungry_until: Cell::new(None),
            doubt: RefCell::new(None),
            replaces: Cell::new(false),
            unposted: Cell::new(false),
        }
    }

    /// Verbs, bytes and round trips so far.
    pub fn tally(&self) -> Tally {
        self.counters.read()
    }

    /// Retries so far, by cause.
    pub fn retries(&self) -> &Retries {
        &self.retries
    }

    /// Whether it may have had to retry or wait. If not, [`Op::retries`] is all zero and the clock was never read.
    pub fn met_obstacles(&self) -> bool {
        self.started.get().is_some() || self.obstacles.get()
    }

    /// Since when it has been waiting, by the endpoint's clock; `None` if it has met no obstacle.
    pub fn waiting_since(&self) -> Option<u64> {
        self.started.get()
    }

    /// Its change, if the operation failed and what became of the change can perhaps be found out.
    pub fn take_doubt(&self) -> Option<Arc<Doubt>> {
        self.doubt.take()
    }

    /// Whether the change of [`Op::take_doubt`] was to replace a value.
    pub fn replaces(&self) -> bool {
        self.replaces.get()
    }

    /// Notes that the change that has just failed was to replace a value.
    pub(crate) fn note_replaces(&self) {
        self.replaces.set(true);
    }

    /// The identity it acts under.
    pub fn client(&self) -> ClientId {
        self.worker.compute.client()
    }

    /// Notes that a change was not posted.
    #[cold]
    pub(crate) fn note_unposted(&self) -> FabricError {
        self.unposted.set(true);
        let error = FabricError::Fenced { client: self.client() };
        self.worker.compute.note_failure(&error);
        error
    }

    /// The error of a change whose list failed: unknown, unless the list was not even posted.
    #[cold]
    pub(crate) fn after_post(&self, source: FabricError) -> Error {
        if self.unposted.get() { source.into() } else { Error::after_post(source) }
    }

    pub(crate) fn set_doubt(&self, doubt: Arc<Doubt>) {
        self.doubt.replace(Some(doubt));
    }

    /// How many lanes it got by handover.
    pub fn handovers(&self) -> u64 {
        self.handed_over.get()
    }

    /// Lookups that the index cache answered without a READ.
    pub fn cache_hits(&self) -> u64 {
        self.cache_hits.get()
    }

    /// Lookups that had to read internal nodes although there is a cache.
    pub fn cache_misses(&self) -> u64 {
        self.cache_misses.get()
    }

    /// Counts a lookup in the index cache.
    pub(crate) fn count_lookup(&self, hit: bool) {
        let counter = if hit { &self.cache_hits } else { &self.cache_misses };
        counter.set(counter.get() + 1);
    }

    pub(crate) fn count_handover(&self) {
        self.handed_over.set(self.handed_over.get() + 1);
    }

    pub(crate) fn endpoint(&self) -> &'w E {
        &self.worker.endpoint
    }

    /// One round trip.
    #[inline]
    pub(crate) fn execute(&self, list: WorkList) -> RoundTrip<'w, E> {
        RoundTrip { worker: self.worker, inner: execute(self.endpoint(), list, &self.counters) }
    }

    /// One control request.
    pub(crate) async fn call(&self, server: u16, request: Request) -> Result<Response, FabricError> {
        let answer = call(self.endpoint(), server, request, &self.counters).await.map_err(|error| match error {
            // A server that does not know this compute server has let it go, or has been told that it is dead.
            FabricError::Refused(Refusal::NotAMember { client } | Refusal::Fenced { client })
                if client == self.endpoint().client() =>
            {
                FabricError::Fenced { client }
            }
            error => error,
        });
        answer.inspect_err(|error| self.worker.compute.note_failure(error))
    }

    /// Several control requests, a few in flight at once: the answers, in their order.
    pub(crate) async fn call_all(&self, requests: Vec<(u16, Request)>) -> Vec<Result<Response, FabricError>> {
        let calls = requests.into_iter().map(|(server, request)| Box::pin(self.call(server, request)));
        let mut waiting = calls.enumerate().fuse();
        let (mut flying, mut answers) = (Vec::new(), Vec::new());
        std::future::poll_fn(|cx| {
            loop {
                while flying.len() < CALLS_IN_FLIGHT
                    && let Some((at, call)) = waiting.next()
                {
                    answers.push(None);
                    flying.push((at, call));
                }
                let before = flying.len();
                flying.retain_mut(|(at, call)| match call.as_mut().poll(cx) {
                    Poll::Ready(answer) => {
                        answers[*at] = Some(answer);
                        false
                    }
                    Poll::Pending => true,
                });
                if flying.is_empty() && before < CALLS_IN_FLIGHT {
                    return Poll::Ready(());
                }
                if flying.len() == before {
                    return Poll::Pending;
                }
            }
        })
        .await;
        answers.into_iter().flatten().collect()
    }

    /// Waits for others to give memory back, where no server has any: those that live and do not use it, and those that are dead and are to be
    /// recovered. The caller holds no lane, and tries again. At most a lease, in all.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is nobody to wait for, or nobody gave any.
    pub(crate) async fn await_memory(&self) -> Result<(), Error> {
        let lease = self.worker.compute.geometry().lease_nanos;
        if self.hungry_until.get().is_none() {
            let Response::Renewed { expired, short } = self.call(0, Request::Short).await? else {
                return Err(Error::Unsupported { what: "the memory server's answer to a request for memory" });
            };
            if !short {
                return Err(Error::OutOfMemory);
            }
            self.worker.compute.membership.suspect_all(&expired);
            self.hungry_until.set(Some(self.endpoint().now().saturating_add(lease)));
        }
        self.note(Cause::Memory)?;
        let now = self.endpoint().now();
        if self.hungry_until.get().is_some_and(|until| now >= until) {
            return Err(Error::OutOfMemory);
        }
        let pause = lease / HUNGRY_TRIES_PER_LEASE;
        sherman_fabric::sleep_until(self.endpoint(), now.saturating_add(pause).min(self.deadline())).await;
        Ok(())
    }

    /// Whether the operation has waited so long that whoever it waits for may be dead.
    fn is_suspicious(&self) -> bool {
        let lease = self.worker.compute.geometry().lease_nanos;
        self.started.get().is_some_and(|started| self.endpoint().now().saturating_sub(started) >= lease / 4)
    }

    /// After some waiting, has the keeper find out whether `client`, who is waited for, is dead.
    pub(crate) fn suspect(&self, client: ClientId) {
        if client == ClientId::NOBODY || client == self.endpoint().client() {
            return;
        }
        if self.worker.compute.membership.is_stalled(client) {
            self.stalled.set(client);
        }
        if self.is_suspicious() {
            self.worker.compute.suspect(client);
        }
    }

    /// The same for whoever holds the lane of the node at `address`, which stays torn.
    pub(crate) async fn suspect_writer(&self, address: GlobalAddress) -> Result<(), FabricError> {
        if !self.is_suspicious() {
            return Ok(());
        }
        let geometry = self.worker.compute.geometry();
        let (space, word, mask, shift) = geometry.lane_word(self.worker.compute.lane(address));
        let mut list = self.endpoint().list(address.server());
        let read = list.read(space, word, 8);
        let list = self.execute(list).await?;
        let bits = crate::node::get_u64(list.bytes(read), 0);
        self.endpoint().recycle(list);
        self.suspect(ClientId(((bits & mask) >> shift) as u16));
        Ok(())
    }

    /// When the operation must give up; starts the clock.
    pub(crate) fn deadline(&self) -> u64 {
        let started = self.started.get().unwrap_or_else(|| {
            let now = self.endpoint().now();
            self.started.set(Some(now));
            now
        });
        let own = started.saturating_add(u64::try_from(self.timeout.get().as_nanos()).unwrap_or(u64::MAX));
        own.min(self.worker.cutoff())
    }

    /// The operation's own change is done; what follows is for the good of others and must not keep its caller waiting:
    /// the clock starts anew, for at most `patience`. It may hold a lane and wait for another: so it waits for less than the two leases
    /// after which its thread counts as wedged.
    pub(crate) fn be_brief(&self, patience: Duration) {
        let lease = Duration::from_nanos(self.worker.compute.geometry().lease_nanos);
        self.timeout.set(self.timeout.get().min(patience).min(lease));
        self.started.set(None);
        self.tries.set(0);
        self.obstacles.set(true);
    }

    pub(crate) fn timed_out(&self, cause: Cause) -> Error {
        let waited = self.started.get().map_or(0, |started| self.endpoint().now().saturating_sub(started));
        Error::Timeout { cause, waited: Duration::from_nanos(waited) }
    }

    /// Counts a retry that needs no pause: another node is tried, not the same again.
    pub(crate) fn note(&self, cause: Cause) -> Result<(), Error> {
        self.retries.add(cause);
        if self.worker.compute.is_doomed() {
            return Err(Error::Fenced { client: self.endpoint().client() });
        }
        let stalled = self.stalled.replace(ClientId::NOBODY);
        if stalled != ClientId::NOBODY {
            return Err(Error::OwnerStalled { client: stalled });
        }
        if self.endpoint().now() >= self.deadline() { Err(self.timed_out(cause)) } else { Ok(()) }
    }

    /// Counts a retry and lets time pass before it: first other tasks run, then the operation sleeps, ever longer up to a
    /// bound, until the deadline. Without the technique `backoff` it never sleeps.
    pub(crate) async fn retry(&self, cause: Cause) -> Result<(), Error> {
        self.note(cause)?;
        let tries = self.tries.get();
        self.tries.set(tries.saturating_add(1));
        if tries < EAGER_RETRIES || !self.worker.compute.techniques().backoff {
            sherman_fabric::yield_now().await;
        } else {
            // Short against a lease: another thread of ours may hold a lane and wait for this one.
            let longest = MAX_PAUSE_NANOS.min(self.worker.compute.geometry().lease_nanos / PAUSES_PER_LEASE);
            let pause = (1_000_u64 << (tries - EAGER_RETRIES).min(10)).min(longest);
            let until = self.endpoint().now().saturating_add(pause).min(self.deadline());
            sherman_fabric::sleep_until(self.endpoint(), until).await;
        }
        Ok(())
    }
}

/// The future of a list: as [`Execute`], but the compute server learns of failures that end its identity.
#[must_use = "a list's outcome is told by awaiting it"]
pub(crate) struct RoundTrip<'w, E: Endpoint> {
    worker: &'w Worker<E>,
    inner: Execute<'w, E>,
}

impl<E: Endpoint> Future for RoundTrip<'_, E> {
    type Output = Result<WorkList, FabricError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = Pin::new(&mut self.inner).poll(cx);
        if let Poll::Ready(Err(error)) = &done {
            self.worker.compute.note_failure(error);
        }
        done
    }
}
