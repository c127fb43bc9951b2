//! One operation: its cost, its retries, and its deadline.
//!
//! An operation reads the clock only at its first obstacle, and its deadline counts from there. An operation
//! without obstacles never reads the clock.

use crate::cause::{Cause, Retries};
use crate::doubt::Doubt;
use crate::error::Error;
use crate::lock::local::LaneIndex;
use crate::tree::values::MadeBlock;
use crate::worker::Worker;
use sherman_fabric::control::Renewal;
use sherman_fabric::endpoint::Execute;
use sherman_fabric::{Call, ComputeId, Counters, Endpoint, FabricError, GlobalAddress, Refusal, calls};
use sherman_fabric::{Peer, Tally, Ticket, WorkList, call, execute, execute_now};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How many times per lease an operation that finds no memory asks for some.
const HUNGRY_TRIES_PER_LEASE: u64 = 32;
/// The most control requests of one operation in flight at once.
const CALLS_IN_FLIGHT: usize = 16;
/// Retries that only let other tasks run. After them an operation sleeps between retries.
const EAGER_RETRIES: u32 = 8;
/// Tries of a lane with the shortest pause of the technique `fair`. After them pauses grow.
const SOON_RETRIES: u32 = 64;
/// After so many further tries the pause has doubled.
const SOON_DOUBLING: u32 = 64;
/// The shortest pause between two tries of a lane with the technique `fair`.
const SOON_NANOS: u64 = 300;
/// The longest pause between two tries.
const MAX_PAUSE_NANOS: u64 = 256_000;
/// At least this many pauses fit into a lease.
const PAUSES_PER_LEASE: u64 = 16;

/// An operation in flight.
#[derive(Debug)]
pub struct Op<'w, E: Endpoint> {
    pub(crate) worker: &'w Worker<E>,
    counters: Counters,
    retries: Retries,
    handed_over: Cell<u64>,
    combined: Cell<u64>,
    shared: Cell<u64>,
    cache_hits: Cell<u64>,
    cache_misses: Cell<u64>,
    timeout: Cell<Duration>,
    started: Cell<Option<u64>>,
    /// The lane that the last try found taken, its holder, and since when this operation has seen no other.
    holder: Cell<Option<(LaneIndex, ComputeId, u64)>>,
    tries: Cell<u32>,
    obstacles: Cell<bool>,
    /// The client that the operation waits for, if that client is known to be stalled.
    stalled: Cell<ComputeId>,
    /// Until when the operation waits for memory, once it does.
    hungry_until: Cell<Option<u64>>,
    /// Its change, if the outcome is unknown.
    doubt: RefCell<Option<Arc<Doubt>>>,
    /// Whether that change would replace a value.
    replaces: Cell<bool>,
    /// Whether a change was not even posted, because the connection had ended.
    unposted: Cell<bool>,
    /// Whether it is part of a recovery.
    recovers: bool,
    /// A block that no entry refers to yet.
    made: RefCell<Option<Box<MadeBlock>>>,
}

impl<'w, E: Endpoint> Op<'w, E> {
    pub(crate) fn new(worker: &'w Worker<E>, timeout: Duration) -> Self {
        Self {
            worker,
            counters: Counters::default(),
            retries: Retries::default(),
            handed_over: Cell::new(0),
            combined: Cell::new(0),
            shared: Cell::new(0),
            cache_hits: Cell::new(0),
            cache_misses: Cell::new(0),
            timeout: Cell::new(timeout),
            started: Cell::new(None),
            holder: Cell::new(None),
            tries: Cell::new(0),
            obstacles: Cell::new(false),
            stalled: Cell::new(ComputeId::NOBODY),
            hungry_until: Cell::new(None),
            doubt: RefCell::new(None),
            replaces: Cell::new(false),
            unposted: Cell::new(false),
            recovers: false,
            made: RefCell::new(None),
        }
    }

    /// Creates an operation that is part of the recovery of another member. It may take lanes although its
    /// compute server has no redo area: control knows this compute server as a recoverer (I43).
    pub(crate) fn to_recover(worker: &'w Worker<E>, timeout: Duration) -> Self {
        Self { recovers: true, ..Self::new(worker, timeout) }
    }

    /// Whether it is part of a recovery.
    pub(crate) fn recovers(&self) -> bool {
        self.recovers
    }

    /// Whether control knows that this compute server may have to be recovered, so that it may take lanes.
    pub(crate) fn may_take_lanes(&self) -> bool {
        seam!(membership::may_take_lanes());
        self.recovers || self.worker.compute.is_active()
    }

    /// Verbs, bytes and round trips so far.
    pub fn tally(&self) -> Tally {
        self.counters.read()
    }

    /// Retries so far, by cause.
    pub fn retries(&self) -> &Retries {
        &self.retries
    }

    /// Whether it may have had to retry or wait. If false, [`Op::retries`] is all zero and the operation
    /// never read the clock.
    pub fn met_obstacles(&self) -> bool {
        self.started.get().is_some() || self.obstacles.get()
    }

    /// Since when it has been waiting, by the endpoint's clock. `None` if it has met no obstacle.
    pub fn waiting_since(&self) -> Option<u64> {
        self.started.get()
    }

    /// Takes its change, if the operation failed and the outcome of the change may still be determined.
    pub fn take_doubt(&self) -> Option<Arc<Doubt>> {
        self.doubt.take()
    }

    /// Whether the change of [`Op::take_doubt`] would replace a value.
    pub fn replaces(&self) -> bool {
        self.replaces.get()
    }

    /// Records that the change that has just failed would replace a value.
    pub(crate) fn note_replaces(&self) {
        self.replaces.set(true);
    }

    /// The identity under which it runs.
    pub fn client(&self) -> ComputeId {
        self.worker.compute.client()
    }

    /// Records that a change was not posted.
    #[cold]
    pub(crate) fn note_unposted(&self) -> FabricError {
        self.unposted.set(true);
        let error = FabricError::Fenced { client: self.client() };
        self.worker.compute.note_failure(&error);
        error
    }

    /// Returns the error of a change whose list failed: outcome unknown, unless the list was not even posted.
    #[cold]
    pub(crate) fn after_post(&self, source: FabricError) -> Error {
        if self.unposted.get() {
            return source.into();
        }
        self.note_progress(&source);
        Error::after_post(source)
    }

    pub(crate) fn set_doubt(&self, doubt: Arc<Doubt>) {
        self.doubt.replace(Some(doubt));
    }

    /// How many lanes it got by handover.
    pub fn handovers(&self) -> u64 {
        self.handed_over.get()
    }

    /// How many changes of other operations it executed together with its own.
    pub fn combined(&self) -> u64 {
        self.combined.get()
    }

    /// How many READs of other operations served it, in place of READs of its own.
    pub fn shared(&self) -> u64 {
        self.shared.get()
    }

    pub(crate) fn count_shared(&self) {
        self.shared.set(self.shared.get() + 1);
    }

    pub(crate) fn count_combined(&self, others: usize) {
        self.combined.set(self.combined.get() + others as u64);
    }

    /// Whether a change was not posted, because the connection had ended.
    pub(crate) fn is_unposted(&self) -> bool {
        self.unposted.get()
    }

    /// Lookups that the index cache answered without a READ.
    pub fn cache_hits(&self) -> u64 {
        self.cache_hits.get()
    }

    /// Lookups that had to read internal nodes although a cache is in use.
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

    /// The block that it has made and that no entry refers to yet.
    pub(crate) fn made(&self) -> &RefCell<Option<Box<MadeBlock>>> {
        &self.made
    }

    pub(crate) fn endpoint(&self) -> &'w E {
        &self.worker.endpoint
    }

    /// Executes a list in one round trip.
    #[inline]
    pub(crate) fn execute(&self, list: WorkList) -> RoundTrip<'w, E> {
        RoundTrip { worker: self.worker, inner: execute(self.endpoint(), list, &self.counters) }
    }

    /// Executes a list inside `post`, where that is possible and succeeds. Otherwise returns its ticket.
    #[inline]
    pub(crate) fn execute_now(&self, list: WorkList) -> Result<WorkList, Ticket> {
        execute_now(self.endpoint(), list, &self.counters)
    }

    /// The outcome of a list that [`Op::execute_now`] has posted.
    pub(crate) fn outcome_of(&self, ticket: Ticket) -> RoundTrip<'w, E> {
        RoundTrip { worker: self.worker, inner: Execute::posted(self.endpoint(), ticket) }
    }

    /// Where its verbs are counted.
    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sends one control request.
    pub(crate) async fn call<C: Call>(&self, peer: Peer, request: C) -> Result<C::Reply, FabricError> {
        let answer =
            call(self.endpoint(), peer, request, &self.counters).await.map_err(|error| match error {
                // A peer that does not know this compute server has removed it, or knows that it is declared
                // dead.
                FabricError::Refused(Refusal::NotAMember { client } | Refusal::Fenced { client })
                    if client == self.endpoint().client() =>
                {
                    FabricError::Fenced { client }
                }
                error => error,
            });
        answer.inspect_err(|error| {
            if peer == Peer::Control && matches!(error, FabricError::ServerLost { .. }) {
                // Without the control state no client can renew its lease.
                self.worker.compute.terminate();
            }
            self.worker.compute.note_failure(error);
        })
    }

    /// Sends several control requests, a few in flight at once. Returns the answers in the order of the
    /// requests.
    pub(crate) async fn call_all<C: Call>(
        &self,
        requests: Vec<(Peer, C)>,
    ) -> Vec<Result<C::Reply, FabricError>> {
        let calls = requests.into_iter().map(|(peer, request)| Box::pin(self.call(peer, request)));
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

    /// Waits for other clients to give memory back, when no server has any. Live clients give back what they
    /// do not use, and dead clients are recovered. The caller holds no lane, and then retries. All waits
    /// together last at most one lease.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no client to wait for, or no client gave any memory back.
    pub(crate) async fn await_memory(&self) -> Result<(), Error> {
        let lease = self.worker.compute.geometry().lease_nanos;
        if self.hungry_until.get().is_none() {
            let Renewal { expired, short } = self.call(Peer::Control, calls::Short).await?;
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

    /// Whether the operation has waited for a client since `since`, and so long that the client may be dead.
    fn is_suspicious(&self, since: Option<u64>) -> bool {
        let lease = self.worker.compute.geometry().lease_nanos;
        since.is_some_and(|since| self.endpoint().now().saturating_sub(since) >= lease / 4)
    }

    /// After some waiting, has the recoverer find out whether `client`, for which the operation waits, is
    /// dead.
    pub(crate) fn suspect(&self, client: ComputeId) {
        self.suspect_since(client, self.started.get());
    }

    /// Like `suspect`, for the client that holds `lane`. A lane that goes from client to client is busy, not
    /// lost. So the wait counts from the time when the operation first saw this holder.
    pub(crate) fn suspect_lane_holder(&self, lane: LaneIndex, client: ComputeId) {
        let since = match self.holder.get() {
            Some((at, holder, since)) if at == lane && holder == client => since,
            _ => self.endpoint().now(),
        };
        self.holder.set(Some((lane, client, since)));
        self.suspect_since(client, Some(since));
    }

    fn suspect_since(&self, client: ComputeId, since: Option<u64>) {
        if client == ComputeId::NOBODY || client == self.endpoint().client() {
            return;
        }
        if self.worker.compute.membership.is_stalled(client) {
            self.stalled.set(client);
        }
        if self.is_suspicious(since) {
            self.worker.compute.suspect(client);
        }
    }

    /// Like `suspect`, for the client that holds the lane of the node at `address`, which stays torn.
    pub(crate) async fn suspect_writer(&self, address: GlobalAddress) -> Result<(), FabricError> {
        if !self.is_suspicious(self.started.get()) {
            return Ok(());
        }
        let geometry = self.worker.compute.geometry();
        let (space, word, mask, shift) = geometry.lane_word(self.worker.compute.lane(address));
        let mut list = self.endpoint().list(address.server());
        let read = list.read(space, word, 8);
        let list = self.execute(list).await?;
        let bits = crate::node::get_u64(list.bytes(read), 0);
        self.endpoint().recycle(list);
        self.suspect(ComputeId(((bits & mask) >> shift) as u16));
        Ok(())
    }

    /// The time when the operation must give up. Starts the clock.
    pub(crate) fn deadline(&self) -> u64 {
        let started = self.started.get().unwrap_or_else(|| {
            let now = self.endpoint().now();
            self.started.set(Some(now));
            now
        });
        let own = started.saturating_add(u64::try_from(self.timeout.get().as_nanos()).unwrap_or(u64::MAX));
        own.min(self.worker.cutoff())
    }

    /// Restarts the clock, with a limit of `patience`. The operation's own change is done; what follows only
    /// helps other clients and must not delay the caller. The operation may hold a lane while it waits for
    /// another. So it waits for less than the two leases after which its thread counts as wedged.
    pub(crate) fn cap_remaining_wait(&self, patience: Duration) {
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

    /// Counts a retry that no deadline ends.
    pub(crate) fn count_retry(&self, cause: Cause) {
        self.retries.add(cause);
    }

    /// Counts a retry that needs no pause, because the operation tries another node, not the same one again.
    pub(crate) fn note(&self, cause: Cause) -> Result<(), Error> {
        self.retries.add(cause);
        if self.worker.compute.is_terminated() {
            return Err(Error::Fenced { client: self.endpoint().client() });
        }
        let stalled = self.stalled.replace(ComputeId::NOBODY);
        if stalled != ComputeId::NOBODY {
            return Err(Error::OwnerStalled { client: stalled });
        }
        if self.endpoint().now() >= self.deadline() { Err(self.timed_out(cause)) } else { Ok(()) }
    }

    /// Counts a retry of a lane that another compute server holds, and waits before it. With the technique
    /// `fair` the pauses are short and constant at first, and then grow slowly. So a lane that is free again
    /// does not stay idle, and an operation that was unlucky for long still tries almost as often as others.
    pub(crate) async fn retry_soon(&self, cause: Cause) -> Result<(), Error> {
        if !self.worker.compute.techniques().fair {
            return self.retry(cause).await;
        }
        self.note(cause)?;
        let tries = self.tries.get();
        self.tries.set(tries.saturating_add(1));
        let doublings = tries.saturating_sub(SOON_RETRIES) / SOON_DOUBLING;
        let pause = (SOON_NANOS << doublings.min(10)).min(self.longest_pause());
        let until = self.endpoint().now().saturating_add(pause).min(self.deadline());
        sherman_fabric::sleep_until(self.endpoint(), until).await;
        Ok(())
    }

    /// The longest pause between two tries. It is short compared with a lease: another thread of this compute
    /// server may hold a lane and wait for this one.
    fn longest_pause(&self) -> u64 {
        MAX_PAUSE_NANOS.min(self.worker.compute.geometry().lease_nanos / PAUSES_PER_LEASE)
    }

    /// Counts a retry and waits before it. At first only other tasks run. Then the operation sleeps, longer
    /// each time up to a bound, until the deadline. Without the technique `backoff` it never sleeps.
    pub(crate) async fn retry(&self, cause: Cause) -> Result<(), Error> {
        self.note(cause)?;
        let tries = self.tries.get();
        self.tries.set(tries.saturating_add(1));
        if tries < EAGER_RETRIES || !self.worker.compute.techniques().backoff {
            sherman_fabric::yield_now().await;
        } else {
            let pause = (1_000_u64 << (tries - EAGER_RETRIES).min(10)).min(self.longest_pause());
            let until = self.endpoint().now().saturating_add(pause).min(self.deadline());
            sherman_fabric::sleep_until(self.endpoint(), until).await;
        }
        Ok(())
    }
}

/// The future of a list. Like [`Execute`], but it reports failures that end the identity to the compute
/// server.
#[must_use = "await it to learn the list's outcome"]
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
