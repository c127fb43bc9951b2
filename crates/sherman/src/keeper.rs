//! The two threads that keep a compute server in its cluster: the keeper renews the lease, the recoverer recovers members that died.
//!
//! They are two so that no recovery, however long it takes, delays a renewal. Each has an endpoint of its own, so no operation ever waits
//! for them. The keeper sleeps but for three renewals a lease. The recoverer opens its endpoint when there is something to recover for the
//! first time: most compute servers never need one. Neither holds anything that would keep the compute server alive: the last handle to it
//! stops them, waits for their end, and leaves the cluster.

use crate::any::AnyFabric;
use crate::cluster::AnyEndpoint;
use sherman_core::{ComputeServer, Error, Worker};
use sherman_executor::block_on;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Builder, JoinHandle, Thread};

/// A keeper and a recoverer at work. Dropping this stops them, once a recovery under way has ended, and waits for that. The keeper stops
/// last: it renews the lease as long as the recoverer works.
pub(crate) struct Keeper {
    /// The recoverer's, then the keeper's.
    threads: Vec<(Arc<Stop>, JoinHandle<()>)>,
}

/// Nothing of it is ever half changed: threads' handles and flags.
impl std::panic::RefUnwindSafe for Keeper {}

/// How one of the threads learns that it is to stop.
#[derive(Default)]
struct Stop {
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

    /// Polls `future`, and again when the thread is asked to stop. The waker is stored before the flag is read, so that no request
    /// is missed.
    fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        future.poll(cx)
    }
}

impl Keeper {
    /// Starts a keeper that acts through `worker`, and a recoverer that acts through an endpoint of `fabric`.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system starts no thread.
    pub(crate) fn start(worker: Worker<AnyEndpoint>, fabric: AnyFabric) -> Result<Self, Error> {
        let mut keeper = Self { threads: Vec::new() };
        let compute = Arc::clone(worker.compute());
        keeper.spawn("sherman-recover", move |stop| recover(&fabric, &compute, stop))?;
        keeper.spawn("sherman-keeper", move |stop| keep(&worker, stop))?;
        Ok(keeper)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce(&Stop) + Send + 'static) -> Result<(), Error> {
        let stop = Arc::<Stop>::default();
        let heard = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || body(&heard));
        self.threads.push((stop, thread.map_err(|error| Error::Thread { kind: error.kind() })?));
        Ok(())
    }
}

/// Renews until asked to stop, or until the compute server is doomed: then operations say so.
fn keep(worker: &Worker<AnyEndpoint>, stop: &Stop) {
    let mut keeping = pin!(worker.keep(|| stop.is_asked()));
    let _ended: Result<(), Error> = block_on(worker.endpoint(), poll_fn(|cx| stop.poll(keeping.as_mut(), cx)));
}

/// Waits for something to recover, opens an endpoint, and recovers until asked to stop.
fn recover(fabric: &AnyFabric, compute: &Arc<ComputeServer>, stop: &Stop) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut wanted = pin!(compute.recoverer_wanted());
    while stop.poll(wanted.as_mut(), &mut cx).is_pending() && !stop.is_asked() {
        std::thread::park();
    }
    if stop.is_asked() || compute.is_doomed() {
        return;
    }
    let worker = match fabric.endpoint() {
        Ok(endpoint) => Worker::new(endpoint, Arc::clone(compute)),
        // A server that cannot be reached ends this identity.
        Err(error) => return compute.note_failure(&error),
    };
    let mut recovering = pin!(worker.recover_others(|| stop.is_asked()));
    let _ended: Result<(), Error> = block_on(worker.endpoint(), poll_fn(|cx| stop.poll(recovering.as_mut(), cx)));
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for (stop, thread) in self.threads.drain(..) {
            stop.ask();
            // It does not panic; if it did, that is no reason for another panic.
            let _ = thread.join();
        }
    }
}
