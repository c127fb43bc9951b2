//! The two threads that keep a compute server in its cluster: the keeper renews the lease, the recoverer
//! recovers dead members.
//!
//! They are two threads, so that no recovery, however long, delays a renewal. Each has its own endpoint, so
//! no operation waits for them. The keeper wakes only for three renewals per lease. The recoverer opens its
//! endpoint at its first recovery, because most compute servers never need one. The last handle to the
//! cluster stops both threads, waits for their end, and leaves the cluster.
//!
//! After an identity has ended, the keeper joins the cluster again and continues under the next one.
//! Operations that need an identity wait for it, and an unused cluster is ready for its next operation. A
//! recoverer belongs to one identity and ends with it.

use crate::cluster::{AnyEndpoint, ClusterOptions};
use crate::event::Event;
use crate::identity::Identity;
use crate::mend::Shared;
use sherman_core::{ComputeServer, Doubt, Error, Fate, Worker};
use sherman_executor::block_on;
use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The first and the longest pause between two attempts to join again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// The pause after the cluster refused the compute server.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// An identity that lived this long, and two leases, counts as a success: the backoff starts again with the
/// first pause.
const SOUND_LIFE: Duration = Duration::from_secs(1);
/// How many identities of a handle that leaves may end because the table of volumes changes.
const LAST_IDENTITIES: u32 = 3;
/// The interval of checks whether a former identity still has something in flight.
const QUIET_LOOKS: Duration = Duration::from_millis(1);

/// A thread, with a signal to stop it.
pub(crate) struct StoppableThread {
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

/// The signal that asks a thread to stop.
#[derive(Default)]
pub(crate) struct Stop {
    asked: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Stop {
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Polls `future`. A request to stop wakes the task again. The waker is stored before the flag is read,
    /// so that no request is missed.
    fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        future.poll(cx)
    }
}

impl StoppableThread {
    /// Starts a thread.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system cannot start a thread.
    pub(crate) fn spawn(name: &str, body: impl FnOnce(&Stop) + Send + 'static) -> Result<Self, Error> {
        let stop = Arc::<Stop>::default();
        let heard = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || body(&heard));
        Ok(Self { stop, thread: thread.map_err(|error| Error::Thread { kind: error.kind() })? })
    }

    /// Asks the thread to stop. With `wait`, waits until it has. A thread does not wait for itself, because a
    /// listener may drop the last handle.
    pub(crate) fn stop(self, wait: bool) {
        self.stop.ask();
        if wait && self.thread.thread().id() != std::thread::current().id() {
            // The thread does not panic. If it did, that would be no reason to panic here.
            let _ = self.thread.join();
        }
    }

    /// Asks the thread to stop, and waits for that, but not for longer than `patience`. Returns whether it
    /// has stopped.
    pub(crate) fn stop_within(self, patience: Duration) -> bool {
        self.stop.ask();
        let end = Instant::now() + patience;
        while !self.thread.is_finished() && Instant::now() < end {
            std::thread::sleep(QUIET_LOOKS);
        }
        self.thread.is_finished()
    }
}

/// Keeps a compute server in its cluster, under one identity after another, until asked to stop.
pub(crate) fn keep(
    shared: &Shared,
    mut identity: Arc<Identity>,
    mut worker: Worker<AnyEndpoint>,
    stop: &Stop,
) {
    let mut pauses = Pauses::default();
    loop {
        let began = Instant::now();
        renew(&worker, stop);
        if stop.is_asked() {
            return;
        }
        // The keeper may have failed for another reason. Without renewals the identity ends anyway.
        identity.compute.end();
        identity.fabric.end();
        let renewing = renew_until_table(&identity, worker);
        let goes_on = shared.begin_gap();
        let ClusterOptions { events, rejoin, .. } = &shared.options;
        let client = identity.compute.client();
        events.tell(&Event::IdentityEnded { client, reason: identity.compute.end_reason() });
        let lease = Duration::from_nanos(identity.compute.geometry().lease_nanos);
        if is_sound(began.elapsed(), lease) {
            pauses = Pauses::default();
        }
        if !goes_on || !rejoin {
            return;
        }
        let joined = join_again(shared, &identity, &mut pauses);
        if let Some(renewing) = renewing {
            renewing.stop(false);
        }
        let Some(next) = joined else { return };
        (identity, worker) = next;
    }
}

/// Whether an identity lived so long that the next one may join at once. One that ends within two leases may
/// never have renewed: on an overloaded host each new identity would add to the load and lose its lease too.
fn is_sound(lived: Duration, lease: Duration) -> bool {
    lived >= SOUND_LIFE.max(2 * lease)
}

/// Renews until asked to stop, or until the identity has ended.
fn renew(worker: &Worker<AnyEndpoint>, stop: &Stop) {
    let mut keeping = pin!(worker.keep(|| stop.is_asked()));
    let mut ended = pin!(worker.compute().ended());
    block_on(
        worker.endpoint(),
        poll_fn(|cx| {
            // Does not wait for a renewal in flight to a silent server.
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            stop.poll(keeping.as_mut(), cx).map(drop)
        }),
    );
}

/// Goes on renewing the lease of an identity that lost a copy of its volumes (E2), in a thread of its own,
/// while the keeper tries to join again. The renewals end when the next identity recovers this one, or when
/// the cluster has a new table. Without the thread the lease runs out: then the outcome of some changes stays
/// unknown.
fn renew_until_table(identity: &Identity, worker: Worker<AnyEndpoint>) -> Option<StoppableThread> {
    if !identity.compute.awaits_table() {
        return None;
    }
    let renew = move |stop: &Stop| {
        let _ended: Result<(), Error> = block_on(worker.endpoint(), worker.keep(|| stop.is_asked()));
    };
    StoppableThread::spawn("sherman-renew", renew).ok()
}

/// Joins the cluster of `former` again. Returns `None` if the last handle was dropped meanwhile.
fn join_again(
    shared: &Shared,
    former: &Identity,
    pauses: &mut Pauses,
) -> Option<(Arc<Identity>, Worker<AnyEndpoint>)> {
    loop {
        if !shared.pause(pauses.next()) {
            return None;
        }
        let (next, worker) = match former.next(&shared.options) {
            Ok(next) => next,
            Err(failure) => {
                let refused = !failure.may_pass();
                if let Some(event) = shared.attempt_failed(failure) {
                    shared.options.events.tell(&event);
                }
                if refused && !shared.pause(REFUSED_PAUSE) {
                    return None;
                }
                continue;
            }
        };
        let Some(event) = shared.replace(&next) else {
            drop(worker);
            if !next.leave() {
                leave_after(next, &shared.options);
            }
            return None;
        };
        shared.options.events.tell(&event);
        return Some((next, worker));
    }
}

/// Leaves the cluster after an identity that ended because the table of volumes changed: a next identity
/// recovers it, and leaves. Otherwise nobody might recover it: in a cluster without clients the copies of
/// volumes could not be made again (J3) before a client comes.
pub(crate) fn leave_after(mut former: Arc<Identity>, options: &ClusterOptions) {
    for _ in 0..LAST_IDENTITIES {
        let Ok((next, worker)) = former.next(options) else { return };
        drop(worker);
        if next.leave() {
            return;
        }
        former = next;
    }
}

/// The backoff between attempts: no pause before the first, then doubling up to a limit, each with random
/// jitter.
#[derive(Default)]
struct Pauses {
    last: Option<Duration>,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let (first, longest) = PAUSES;
        let Some(last) = self.last else {
            self.last = Some(Duration::ZERO);
            return Duration::ZERO;
        };
        let next = (2 * last).clamp(first, longest);
        self.last = Some(next);
        // Between half and all of the pause, so that the clients of a returning server do not all join at
        // once.
        next / 2 + (next / 2).mul_f64(random())
    }
}

/// A number from 0 to 1, from the standard library's source of randomness.
fn random() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Settles the doubts of a former identity (changes with unknown outcome), waits for something to recover,
/// opens an endpoint, and recovers until asked to stop.
pub(crate) fn recover(identity: &Arc<Identity>, former: Option<Arc<ComputeServer>>, stop: &Stop) {
    let compute = &identity.compute;
    let mut worker = None;
    if let Some(former) = former {
        // So other clients need not wait until the former lease has expired. Claims the former identity
        // before its lists have ended: otherwise its lease may expire first, and others recover it.
        if former.incarnation().is_some() {
            let _unsettled = Unsettle(&former);
            let Ok(settling) = identity.worker() else { return };
            let claim = block_on(settling.endpoint(), settling.claim_former(&former));
            let mut doubts = take_doubts(&former, compute, stop);
            block_on(settling.endpoint(), settling.settle_doubts(&former, claim, &doubts.0));
            // All are settled, or left to the next identity.
            doubts.0.clear();
            worker = Some(settling);
        } else {
            drop(take_doubts(&former, compute, stop));
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut wanted = pin!(compute.recoverer_wanted());
    // A compute server that is about to leave still recovers dead clients. Where all clients are short-lived,
    // no other client does it.
    while stop.poll(wanted.as_mut(), &mut cx).is_pending() {
        if stop.is_asked() {
            return;
        }
        std::thread::park();
    }
    if compute.is_terminated() {
        return;
    }
    // A server that is not reachable ends this identity.
    let Ok(worker) = worker.map_or_else(|| identity.worker(), Ok) else { return };
    let mut recovering = pin!(worker.recover_others(|| stop.is_asked()));
    let _ended: Result<(), Error> =
        block_on(worker.endpoint(), poll_fn(|cx| stop.poll(recovering.as_mut(), cx)));
}

/// Dropping this settles the doubts that nobody has taken from a former identity as unknown.
struct Unsettle<'f>(&'f ComputeServer);

impl Drop for Unsettle<'_> {
    fn drop(&mut self) {
        drop(Unsettled(self.0.take_doubts()));
    }
}

/// Doubts. Dropping this settles the remaining ones as unknown.
struct Unsettled(Vec<Arc<Doubt>>);

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.iter().for_each(|doubt| doubt.settle(Fate::Unknown));
    }
}

/// Takes the doubts of a former identity when it has nothing in flight any more. That takes as long as a
/// server may be silent. The wait is at most one lease, because other clients wait for the lanes.
fn take_doubts(former: &ComputeServer, compute: &ComputeServer, stop: &Stop) -> Unsettled {
    let end = Instant::now() + Duration::from_nanos(compute.geometry().lease_nanos);
    while !former.is_quiet() && !compute.is_terminated() && !stop.is_asked() && Instant::now() < end {
        std::thread::sleep(QUIET_LOOKS);
    }
    Unsettled(former.take_doubts())
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_that_never_renewed_its_lease_does_not_reset_the_pauses() {
        let lease = Duration::from_secs(3);
        assert!(!is_sound(lease + lease / 10, lease));
        assert!(is_sound(3 * lease, lease));
        assert!(!is_sound(SOUND_LIFE / 2, Duration::from_millis(100)));
        assert!(is_sound(SOUND_LIFE, Duration::from_millis(100)));
    }

    #[test]
    fn pauses_grow_to_their_bound() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.next(), Duration::ZERO);
        let mut whole = PAUSES.0;
        for _ in 0..20 {
            let pause = pauses.next();
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
            whole = (2 * whole).min(PAUSES.1);
        }
    }
}
