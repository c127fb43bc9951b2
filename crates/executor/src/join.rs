//! The handle to a spawned task.

use crate::slab::Body;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The task will never finish: it panicked, or its executor was dropped before the task finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task was dropped before it finished")
    }
}

impl std::error::Error for Gone {}

/// What the task and its handle share.
struct Outcome<T> {
    value: Cell<Option<T>>,
    waiter: Cell<Option<Waker>>,
}

/// A future of a task's result. **Dropping it detaches the task**, which still runs until it finishes.
///
/// The handle stays on the executor's thread, and does not keep the executor alive.
#[must_use = "dropping the handle detaches the task; say so with `drop` or await it"]
pub struct JoinHandle<T> {
    outcome: Rc<Outcome<T>>,
}

impl<T> JoinHandle<T> {
    /// Whether awaiting would return at once. It stays true after the result was taken; awaiting then yields
    /// [`Gone`].
    pub fn is_finished(&self) -> bool {
        let value = self.outcome.value.take();
        let finished = value.is_some() || self.task_is_gone();
        self.outcome.value.set(value);
        finished
    }

    /// Whether the task has dropped its half of the outcome, which is the only other reference to it.
    fn task_is_gone(&self) -> bool {
        Rc::strong_count(&self.outcome) == 1
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Gone>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(value) = self.outcome.value.take() {
            return Poll::Ready(Ok(value));
        }
        if self.task_is_gone() {
            return Poll::Ready(Err(Gone));
        }
        let waiter = match self.outcome.waiter.take() {
            Some(known) if known.will_wake(cx.waker()) => known,
            _ => cx.waker().clone(),
        };
        self.outcome.waiter.set(Some(waiter));
        Poll::Pending
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

/// The task's half of the outcome. Dropping it wakes the handle, with or without a value.
struct Report<T>(Option<Rc<Outcome<T>>>);

impl<T> Report<T> {
    fn finish(self, value: T) {
        if let Some(outcome) = &self.0 {
            outcome.value.set(Some(value));
        }
    }
}

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        // Release the outcome first: the wake may poll the handle, which must not see the task as alive.
        let waiter = self.0.take().and_then(|outcome| outcome.waiter.take());
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// Splits the future that `make` makes into the body for the executor and the handle for the caller.
///
/// The future is made where it runs. A future that is moved into an `async` block and awaited there takes its
/// space twice, and is copied on the way.
pub(crate) fn task<F: Future + 'static>(make: impl FnOnce() -> F + 'static) -> (Body, JoinHandle<F::Output>) {
    let outcome = Rc::new(Outcome { value: Cell::new(None), waiter: Cell::new(None) });
    let report = Report(Some(Rc::clone(&outcome)));
    let body = Box::pin(async move {
        let value = make().await;
        report.finish(value);
    });
    (body, JoinHandle { outcome })
}
