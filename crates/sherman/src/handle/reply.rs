//! The answer to one operation, from a worker thread to the caller that awaits it.
//!
//! Invariant: each operation is answered exactly once, by the operation itself or by the drop of its
//! [`Sender`]. So no caller waits for a worker that is gone.

use sherman_core::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

enum State<T> {
    Waiting(Option<Waker>),
    Answered(Result<T, Error>),
    Taken,
}

struct ReplySlot<T>(Mutex<State<T>>);

impl<T> ReplySlot<T> {
    fn locked(&self) -> MutexGuard<'_, State<T>> {
        // A state is always replaced as a whole, so a poisoned mutex still guards a valid one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker's half.
pub(crate) struct Sender<T> {
    slot: Arc<ReplySlot<T>>,
    /// The error that the receiver gets if the sender is dropped without an answer.
    otherwise: Option<Error>,
}

/// The caller's half: a future of the answer.
pub(crate) struct Receiver<T>(Arc<ReplySlot<T>>);

/// Creates both halves. Until the operation [begins](Sender::begin), a dropped sender means that nothing was
/// changed.
pub(crate) fn reply<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(ReplySlot(Mutex::new(State::Waiting(None))));
    (Sender { slot: Arc::clone(&slot), otherwise: Some(Error::HandleClosed) }, Receiver(slot))
}

impl<T> Sender<T> {
    /// Marks the operation as begun. From now on it may change the tree.
    pub(crate) fn begin(&mut self) {
        self.otherwise = Some(Error::SessionDropped);
    }

    /// Sends the answer.
    pub(crate) fn send(mut self, answer: Result<T, Error>) {
        self.otherwise = None;
        self.answer(answer);
    }

    fn answer(&self, answer: Result<T, Error>) {
        let before = std::mem::replace(&mut *self.slot.locked(), State::Answered(answer));
        // No lock is held here, because a waker may do anything.
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if let Some(error) = self.otherwise.take() {
            self.answer(Err(error));
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.locked();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Answered(answer) => Poll::Ready(answer),
            State::Waiting(known) => {
                let waker =
                    known.filter(|known| known.will_wake(cx.waker())).unwrap_or_else(|| cx.waker().clone());
                *state = State::Waiting(Some(waker));
                Poll::Pending
            }
            // Polled again after it was ready. The answer is no longer available.
            State::Taken => Poll::Ready(Err(Error::HandleClosed)),
        }
    }
}
