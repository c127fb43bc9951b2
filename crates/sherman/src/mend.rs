//! The current identity of a handle, and waiting for the next one.
//!
//! Only the keeper thread joins again ([`crate::keeper`]); all other threads wait here. An operation whose
//! identity has ended waits for a newer one until its deadline. Each identity has a generation. So an
//! operation that failed under an old identity does not wait if a newer one already exists.

use crate::cluster::ClusterOptions;
use crate::error::OpenError;
use crate::event::Event;
use crate::identity::Identity;
use sherman_core::{Error, Participation};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The state shared by a handle, its operations and its keeper.
pub(crate) struct Shared {
    pub(crate) options: ClusterOptions,
    state: Mutex<State>,
    /// Signals changes of the state to blocked threads.
    changed: Condvar,
    rejoins: AtomicU64,
}

/// No panic leaves it half changed: the values behind the lock are replaced as a whole.
impl std::panic::RefUnwindSafe for Shared {}

struct State {
    current: Arc<Identity>,
    /// `Some` after the keeper has seen the end of the current identity.
    gap: Option<Gap>,
    /// Whether the last handle is gone. Then there will be no further identity.
    closed: bool,
    waiting: BTreeMap<u64, Waker>,
    next_waiter: u64,
    /// Renewals and recoveries of former identities.
    former: Participation,
}

/// The time between two identities.
struct Gap {
    since: Instant,
    attempts: u32,
    /// Why the last attempt to join failed.
    failure: Option<OpenError>,
}

impl Gap {
    /// The reason not to wait any longer, if the cluster refuses the compute server.
    fn refusal(&self) -> Option<&OpenError> {
        self.failure.as_ref().filter(|failure| !failure.may_pass())
    }
}

impl State {
    /// The result of waiting for an identity newer than `generation`, if it is known: that identity, or a
    /// refusal.
    fn newer_than(&self, generation: u64, waited: Duration) -> Option<Result<Arc<Identity>, Error>> {
        if self.current.generation > generation {
            return Some(Ok(Arc::clone(&self.current)));
        }
        let refusal = self.gap.as_ref().and_then(Gap::refusal)?;
        Some(Err(Error::NotRejoined { waited, reason: refusal.to_string() }))
    }

    /// The error of a caller that has waited too long.
    fn timed_out(&self, waited: Duration) -> Error {
        let failure = self.gap.as_ref().and_then(|gap| gap.failure.as_ref());
        let reason =
            failure.map_or_else(|| "the attempt to join is still under way".to_owned(), ToString::to_string);
        Error::NotRejoined { waited, reason }
    }
}

impl Shared {
    pub(crate) fn new(options: ClusterOptions, current: Arc<Identity>) -> Self {
        let state = State {
            current,
            gap: None,
            closed: false,
            waiting: BTreeMap::new(),
            next_waiter: 0,
            former: Participation::default(),
        };
        Self { options, state: Mutex::new(state), changed: Condvar::new(), rejoins: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current identity. It may have ended.
    pub(crate) fn current(&self) -> Arc<Identity> {
        Arc::clone(&self.state().current)
    }

    /// How many times the compute server has joined the cluster again.
    pub(crate) fn rejoins(&self) -> u64 {
        self.rejoins.load(Ordering::Relaxed)
    }

    /// Renewals and recoveries of all identities together.
    pub(crate) fn participation(&self) -> Participation {
        let state = self.state();
        add(state.former, state.current.compute.participation())
    }

    /// Records that the last handle is gone. Returns whether the keeper is between two identities. In that
    /// case the caller does not wait for the keeper, because an attempt to join may take long. The keeper
    /// then leaves what it joins.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state();
        state.closed = true;
        let between = state.gap.is_some();
        drop(state);
        self.changed.notify_all();
        between
    }

    /// Records that the current identity has ended and the keeper is about to join again. False if the last
    /// handle is gone.
    pub(crate) fn begin_gap(&self) -> bool {
        let mut state = self.state();
        state.gap = Some(Gap { since: Instant::now(), attempts: 0, failure: None });
        !state.closed
    }

    /// Lets the keeper sleep between two attempts. False if the last handle is gone.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.state();
        let woken = self.changed.wait_timeout_while(state, pause, |state| !state.closed);
        !woken.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    /// Records a failed attempt to join. Returns an event for the listener if this is the first refusal.
    pub(crate) fn attempt_failed(&self, failure: OpenError) -> Option<Event> {
        let mut state = self.state();
        let client = state.current.compute.client();
        let gap = state.gap.as_mut()?;
        gap.attempts += 1;
        let (after, attempts) = (gap.since.elapsed(), gap.attempts);
        let was_refused = gap.refusal().is_some();
        gap.failure = Some(failure.clone());
        if failure.may_pass() {
            return None;
        }
        self.wake_all(state);
        (!was_refused).then_some(Event::GaveUp { client, reason: failure, after, attempts })
    }

    /// Replaces the current identity by `next`. Returns an event for the listener; `None` if the last handle
    /// is gone.
    pub(crate) fn replace(&self, next: &Arc<Identity>) -> Option<Event> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        let gap = state.gap.take()?;
        state.former = add(state.former, state.current.compute.participation());
        let former = std::mem::replace(&mut state.current, Arc::clone(next));
        self.rejoins.fetch_add(1, Ordering::Relaxed);
        self.wake_all(state);
        drop(former);
        let (client, after, attempts) = (next.compute.client(), gap.since.elapsed(), gap.attempts + 1);
        Some(Event::Rejoined { client, after, attempts })
    }

    /// Makes all waiters check their deadlines again.
    pub(crate) fn nudge(&self) {
        self.wake_all(self.state());
    }

    /// Wakes all waiters. No lock is held meanwhile, because a waker may do anything.
    fn wake_all(&self, mut state: MutexGuard<'_, State>) {
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        waiting.into_values().for_each(Waker::wake);
    }

    /// Blocks until there is an identity newer than `generation`, or until `patience` has passed.
    ///
    /// # Errors
    /// [`Error::NotRejoined`].
    pub(crate) fn wait_newer(&self, generation: u64, patience: Duration) -> Result<Arc<Identity>, Error> {
        let began = Instant::now();
        let mut state = self.state();
        loop {
            let waited = began.elapsed();
            if let Some(newer) = state.newer_than(generation, waited) {
                return newer;
            }
            let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(state.timed_out(waited));
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn add(one: Participation, other: Participation) -> Participation {
    Participation { renewals: one.renewals + other.renewals, recoveries: one.recoveries + other.recoveries }
}

/// Waits for a newer identity without blocking the thread. Dropping it removes its entry.
pub(crate) struct Waiter<'s> {
    shared: &'s Shared,
    generation: u64,
    number: Option<u64>,
}

impl<'s> Waiter<'s> {
    /// A waiter for an identity newer than `generation`.
    pub(crate) fn new(shared: &'s Shared, generation: u64) -> Self {
        Self { shared, generation, number: None }
    }

    /// The newer identity, or the reason why there will be none.
    pub(crate) fn poll(
        &mut self,
        waited: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Arc<Identity>, Error>> {
        let mut state = self.shared.state();
        if let Some(newer) = state.newer_than(self.generation, waited) {
            return Poll::Ready(newer);
        }
        let number = *self.number.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        state.waiting.insert(number, cx.waker().clone());
        Poll::Pending
    }

    /// The error of a waiter that has waited too long.
    pub(crate) fn timed_out(&self, waited: Duration) -> Error {
        self.shared.state().timed_out(waited)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.state().waiting.remove(&number);
        }
    }
}
