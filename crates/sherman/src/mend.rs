//! The current identity of a handle, and waiting for the next one.
//!
//! The keeper's thread alone joins again ([`crate::keeper`]); everybody else waits here. An operation that finds its identity at its end
//! waits for a newer one until its deadline. Each identity has a generation, so an operation that failed under an old one never waits for
//! something that has happened already.

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

/// What a handle, its operations and its keeper share.
pub(crate) struct Shared {
    pub(crate) options: ClusterOptions,
    state: Mutex<State>,
    /// Something in the state has changed that a blocked thread waits for.
    changed: Condvar,
    rejoins: AtomicU64,
}

/// Nothing of it is ever half changed: what is behind the lock is replaced as a whole.
impl std::panic::RefUnwindSafe for Shared {}

struct State {
    current: Arc<Identity>,
    /// Since the keeper has seen the end of the current identity.
    gap: Option<Gap>,
    /// The last handle is gone: there will be no other identity.
    closed: bool,
    waiting: BTreeMap<u64, Waker>,
    next_waiter: u64,
    /// What former identities did.
    former: Participation,
}

/// The time between two identities.
struct Gap {
    since: Instant,
    attempts: u32,
    /// Why the last attempt failed.
    failure: Option<OpenError>,
}

impl Gap {
    /// Why nothing more is waited for, if the cluster refuses to be joined.
    fn refusal(&self) -> Option<&OpenError> {
        self.failure.as_ref().filter(|failure| !failure.may_pass())
    }
}

impl State {
    /// What a caller that has worked under `generation` waits for, if it is there.
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
        let reason = failure.map_or_else(|| "the attempt to join is still under way".to_owned(), ToString::to_string);
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

    /// How often the cluster was joined again.
    pub(crate) fn rejoins(&self) -> u64 {
        self.rejoins.load(Ordering::Relaxed)
    }

    /// What all identities together did.
    pub(crate) fn participation(&self) -> Participation {
        let state = self.state();
        add(state.former, state.current.compute.participation())
    }

    /// The last handle is gone. Whether the keeper is between two identities: then nobody waits for it, since an attempt to join may take
    /// long, and it leaves by itself what it joins.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state();
        state.closed = true;
        let between = state.gap.is_some();
        drop(state);
        self.changed.notify_all();
        between
    }

    /// The current identity has ended: the keeper is about to join again. False if the last handle is gone.
    pub(crate) fn begin_gap(&self) -> bool {
        let mut state = self.state();
        state.gap = Some(Gap { since: Instant::now(), attempts: 0, failure: None });
        !state.closed
    }

    /// The keeper sleeps between two attempts. False if the last handle is gone.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.state();
        let woken = self.changed.wait_timeout_while(state, pause, |state| !state.closed);
        !woken.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    /// An attempt to join failed. What to tell the listener, if this is the first refusal.
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

    /// `next` takes the place of the current identity. What to tell the listener; `None` if the last handle is gone.
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

    /// Has everybody who waits look at their deadlines again.
    pub(crate) fn nudge(&self) {
        self.wake_all(self.state());
    }

    /// Wakes everybody who waits, with nothing locked: a waker may do anything.
    fn wake_all(&self, mut state: MutexGuard<'_, State>) {
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        waiting.into_values().for_each(Waker::wake);
    }

    /// Blocks until there is an identity newer than `generation`, or until `patience` is over.
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

/// One that waits for a newer identity without blocking its thread. Forgotten when it is dropped.
pub(crate) struct Waiter<'s> {
    shared: &'s Shared,
    generation: u64,
    number: Option<u64>,
}

impl<'s> Waiter<'s> {
    /// One that waits for an identity newer than `generation`.
    pub(crate) fn new(shared: &'s Shared, generation: u64) -> Self {
        Self { shared, generation, number: None }
    }

    /// The newer identity, or why there will be none.
    pub(crate) fn poll(&mut self, waited: Duration, cx: &mut Context<'_>) -> Poll<Result<Arc<Identity>, Error>> {
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

    /// The error of one that has waited too long.
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
