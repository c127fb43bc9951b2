//! Sessions: many operations in flight on one thread.
//!
//! An operation is a *task of the session*; the caller's future is a handle to it (`docs/FABRIC.md`).
//! Dropping the handle detaches the operation. It still runs to completion, so no lane stays held and no
//! change stays unfinished. Dropping the session drains all operations in flight, for a bounded time: an
//! operation that waits gives up by itself at its deadline.
//!
//! Operations run on the session's [`Seat`]. A [`Worker`] is a seat with one permanent identity. A seat may
//! also replace a worker whose identity has ended by another one, while operations are in flight on both.

use crate::error::Error;
use crate::worker::Worker;
use sherman_executor::{Driver, JoinHandle, LocalExecutor, Unpark};
use sherman_fabric::Endpoint;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Gives the operations of a session access to the cluster, and drives their progress.
pub trait Seat: Driver {
    /// How long an operation may wait for other clients, unless it sets its own limit.
    fn timeout(&self) -> Duration;

    /// The time, in nanoseconds.
    fn now(&self) -> u64;
}

impl<E: Endpoint> Driver for Worker<E> {
    fn progress(&self) -> bool {
        self.endpoint.progress()
    }

    fn idle_for(&self) -> Option<Duration> {
        self.endpoint.idle_for()
    }

    fn spins(&self, rounds: u32) -> bool {
        self.endpoint.spins(rounds)
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        self.endpoint.unparker()
    }

    fn park(&self, limit: Option<Duration>) {
        self.endpoint.park(limit);
    }
}

impl<E: Endpoint> Seat for Worker<E> {
    fn timeout(&self) -> Duration {
        self.compute.timeout()
    }

    fn now(&self) -> u64 {
        self.endpoint.now()
    }
}

/// Runs operations on one seat as tasks. Not `Send`.
pub struct Session<S: Seat + 'static> {
    executor: LocalExecutor,
    seat: Rc<S>,
}

/// The most operations a session keeps in flight. The limit bounds memory; it is not tuned for speed.
pub const MAX_IN_FLIGHT: usize = 1 << 16;

/// An operation in flight. Resolves when the operation is done. Dropping it detaches the operation and does
/// not cancel it.
#[must_use = "await it to learn the operation's outcome"]
pub struct Operation<T> {
    /// `None` if the session already had too many operations in flight.
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
        // The task is gone (`SessionDropped`) only if it panicked, or if its session was dropped and could
        // not drain in time.
        let Some(handle) = &mut self.handle else {
            return Poll::Ready(Err(Error::TooManyInFlight { limit: MAX_IN_FLIGHT }));
        };
        Pin::new(handle).poll(cx).map(|outcome| outcome.unwrap_or(Err(Error::SessionDropped)))
    }
}

impl<S: Seat> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl<S: Seat> Session<S> {
    /// Creates a session on `seat`, for the calling thread.
    pub fn new(seat: S) -> Self {
        Self { executor: LocalExecutor::new(), seat: Rc::new(seat) }
    }

    /// Its seat.
    pub fn seat(&self) -> &Rc<S> {
        &self.seat
    }

    /// Starts an operation: `operation` receives the seat and runs as a task, while the session
    /// [runs](Session::run). If [`MAX_IN_FLIGHT`] operations are in flight, the session refuses it, and it
    /// resolves to [`Error::TooManyInFlight`].
    pub fn start<T, F>(&self, operation: impl FnOnce(Rc<S>) -> F + 'static) -> Operation<T>
    where
        T: 'static,
        F: Future<Output = Result<T, Error>> + 'static,
    {
        if self.in_flight() >= MAX_IN_FLIGHT {
            return Operation { handle: None };
        }
        let seat = Rc::clone(&self.seat);
        Operation { handle: Some(self.executor.spawn_with(|| operation(seat))) }
    }

    /// Runs `future` and every operation in flight until `future` is done.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.executor.run_until(&*self.seat, future)
    }

    /// Number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.executor.tasks()
    }

    /// Waits for all operations in flight, for at most twice the seat's timeout, since an operation that
    /// waits gives up after one timeout. Returns how many operations remain.
    pub fn drain(&self) -> usize {
        let seat = &*self.seat;
        let patience = u64::try_from(seat.timeout().as_nanos()).unwrap_or(u64::MAX);
        let deadline = seat.now().saturating_add(patience.saturating_mul(2));
        self.executor.drain(seat, || seat.now() >= deadline)
    }
}

impl<S: Seat> Drop for Session<S> {
    fn drop(&mut self) {
        self.drain();
    }
}
