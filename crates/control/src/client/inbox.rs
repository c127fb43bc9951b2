//! Answers of control on their way from the thread of the link to the thread of an endpoint.

use super::notifier::Notifier;
use sherman_executor::Unpark;
use sherman_fabric::{FabricError, Response, Ticket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The answer to one call.
pub(super) type Answered = (Ticket, Result<Response, FabricError>);

/// Answers that wait for their endpoint, and what wakes it.
#[derive(Debug)]
pub(super) struct Inbox {
    answers: Mutex<Vec<Answered>>,
    /// Readable while there are answers. Changed only with the lock held, so that no answer is missed.
    notifier: Notifier,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { answers: Mutex::default(), notifier: Notifier::new()? }))
    }

    /// Puts an answer in, and wakes the endpoint if it sleeps.
    pub(super) fn put(&self, answered: Answered) {
        let mut answers = self.lock();
        answers.push(answered);
        if answers.len() == 1 {
            self.notifier.unpark();
        }
    }

    /// Takes all answers.
    pub(super) fn take(&self) -> Vec<Answered> {
        let mut answers = self.lock();
        if !answers.is_empty() {
            self.notifier.clear();
        }
        std::mem::take(&mut *answers)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Answered>> {
        // Nothing panics while the lock is held, so the data behind a poisoned lock is still valid.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifier.as_fd()
    }
}
