//! Sessions: many operations in flight on one thread.
//!
//! An operation is a *task of the session*; the future a caller holds is a handle to it (`docs/FABRIC.md`). Dropping the handle
//! detaches: the operation still runs to its end, so no lane stays held and nothing is left half made. Dropping the session
//! drains what is in flight, bounded in time: an operation that waits gives up by itself at its deadline.

use crate::error::Error;
use crate::worker::Worker;
use sherman_executor::{JoinHandle, LocalExecutor};
use sherman_fabric::Endpoint;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Runs operations of one worker as tasks. Not `Send`.
pub struct Session<E: Endpoint + 'static> {
    executor: LocalExecutor,
    worker: Rc<Worker<E>>,
}

/// The most operations a session keeps in flight: what bounds its memory, not what makes it fast.
pub const MAX_IN_FLIGHT: usize = 1 << 16;

/// An operation in flight. Resolves when it is done; dropping it detaches, it does not cancel.
#[must_use = "an operation's outcome is told by awaiting it"]
pub struct Operation<T> {
    /// `None` if the session had too many already.
    handle: Option<JoinHandle<Result<T, Error>>>,
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").finish_non_exhaustive()
    }
}

impl<T> Future for Operation<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The task is gone only if it panicked, or its session was dropped and could not drain in time.
        let Some(handle) = &mut self.handle else {
            return Poll::Ready(Err(Error::TooManyInFlight { limit: MAX_IN_FLIGHT }));
        };
        Pin::new(handle).poll(cx).map(|outcome| outcome.unwrap_or(Err(Error::SessionDropped)))
    }
}

impl<E: Endpoint> fmt::Debug for Session<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl<E: Endpoint> Session<E> {
    /// A session of `worker`, for the calling thread.
    pub fn new(worker: Worker<E>) -> Self {
        Self { executor: LocalExecutor::new(), worker: Rc::new(worker) }
    }

    /// Its worker.
    pub fn worker(&self) -> &Rc<Worker<E>> {
        &self.worker
    }

    /// Starts an operation: `operation` is given the worker and runs as a task, while the session [runs](Session::run). With
    /// [`MAX_IN_FLIGHT`] in flight it is refused, and resolves to [`Error::TooManyInFlight`].
    pub fn start<T, F>(&self, operation: impl FnOnce(Rc<Worker<E>>) -> F + 'static) -> Operation<T>
    where
        T: 'static,
        F: Future<Output = Result<T, Error>> + 'static,
    {
        if self.in_flight() >= MAX_IN_FLIGHT {
            return Operation { handle: None };
        }
        let worker = Rc::clone(&self.worker);
        Operation { handle: Some(self.executor.spawn_with(|| operation(worker))) }
    }

    /// Runs `future` and every operation in flight until `future` is done.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.executor.run_until(self.worker.endpoint(), future)
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.executor.tasks()
    }

    /// Waits for everything in flight; at most twice the compute server's timeout, since an operation that waits gives up
    /// after one. Returns how many operations are left.
    pub fn drain(&self) -> usize {
        let endpoint = self.worker.endpoint();
        let patience = u64::try_from(self.worker.compute().timeout().as_nanos()).unwrap_or(u64::MAX);
        let deadline = endpoint.now().saturating_add(patience.saturating_mul(2));
        self.executor.drain(endpoint, || endpoint.now() >= deadline)
    }
}

impl<E: Endpoint> Drop for Session<E> {
    fn drop(&mut self) {
        self.drain();
    }
}
