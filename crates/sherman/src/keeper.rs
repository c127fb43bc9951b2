//! The thread that keeps a compute server in its cluster: it renews the lease and recovers others that died.
//!
//! It has an endpoint of its own, so that no operation ever waits for it, and sleeps but for three renewals a lease. It holds
//! nothing that would keep the compute server alive: whoever is last to let go of that stops it, waits for its end, and
//! leaves the cluster in order.

use crate::cluster::AnyEndpoint;
use sherman_core::{Error, Worker};
use sherman_executor::block_on;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::{Builder, JoinHandle};

/// A keeper at work. Dropping it stops it, once a recovery that it is at has ended, and waits for that.
pub(crate) struct Keeper {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// Nothing of it is ever half changed: a thread's handle and a flag.
impl std::panic::RefUnwindSafe for Keeper {}

/// How the keeper is told to stop.
#[derive(Default)]
struct Bell {
    stop: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    fn is_rung(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn ring(&self) {
        self.stop.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whom to wake. Told before the flag is looked at, so that no ring is missed.
    fn listen(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }
}

impl Keeper {
    /// Starts a keeper that acts through `worker`.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system starts no thread.
    pub(crate) fn start(worker: Worker<AnyEndpoint>) -> Result<Self, Error> {
        let bell = Arc::new(Bell::default());
        let heard = Arc::clone(&bell);
        let thread = Builder::new().name("sherman-keeper".to_owned()).spawn(move || keep(&worker, &heard));
        let thread = thread.map_err(|error| Error::Thread { kind: error.kind() })?;
        Ok(Self { bell, thread: Some(thread) })
    }
}

/// Keeps until the bell is rung, or the compute server is at its end: then there is nothing left to keep, and operations say so.
fn keep(worker: &Worker<AnyEndpoint>, bell: &Bell) {
    let mut keeping = pin!(worker.keep(|| bell.is_rung()));
    let kept = poll_fn(|cx| {
        bell.listen(cx.waker());
        keeping.as_mut().poll(cx)
    });
    let _ended: Result<(), Error> = block_on(worker.endpoint(), kept);
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, that is no reason for another.
            let _ = thread.join();
        }
    }
}
