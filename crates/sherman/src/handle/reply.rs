//! The answer to one operation, from a worker thread to whoever awaits it.
//!
//! What must hold: an answer is given exactly once, if not by the operation then by the drop of its [`Sender`], so that
//! nobody waits for a worker that is gone.

use sherman_core::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

enum State<T> {
    Waiting(Option<Waker>),
    Answered(Result<T, Error>),
    Taken,
}

struct Slot<T>(Mutex<State<T>>);

impl<T> Slot<T> {
    fn locked(&self) -> MutexGuard<'_, State<T>> {
        // A state is replaced whole, so what a poisoned mutex guards is one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker's half.
pub(crate) struct Sender<T> {
    slot: Arc<Slot<T>>,
    /// What the receiver is told if this is dropped without an answer.
    otherwise: Option<Error>,
}

/// The caller's half: a future of the answer.
pub(crate) struct Receiver<T>(Arc<Slot<T>>);

/// Both halves. Until the operation [begins](Sender::begin), a dropped sender means that nothing was changed.
pub(crate) fn reply<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Slot(Mutex::new(State::Waiting(None))));
    (Sender { slot: Arc::clone(&slot), otherwise: Some(Error::HandleClosed) }, Receiver(slot))
}

impl<T> Sender<T> {
    /// From now on the operation may change something.
    pub(crate) fn begin(&mut self) {
        self.otherwise = Some(Error::SessionDropped);
    }

    /// Answers.
    pub(crate) fn send(mut self, answer: Result<T, Error>) {
        self.otherwise = None;
        self.answer(answer);
    }

    fn answer(&self, answer: Result<T, Error>) {
        let before = std::mem::replace(&mut *self.slot.locked(), State::Answered(answer));
        // With nothing locked: a waker may do anything.
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
                let waker = known.filter(|known| known.will_wake(cx.waker())).unwrap_or_else(|| cx.waker().clone());
                *state = State::Waiting(Some(waker));
                Poll::Pending
            }
            // Polled after it was ready: there is no answer any more.
            State::Taken => Poll::Ready(Err(Error::HandleClosed)),
        }
    }
}
