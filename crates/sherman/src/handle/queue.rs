//! The queue between a handle's callers and its workers.
//!
//! The queue is bounded. An *accepted* operation will run, even if its caller no longer waits for it. An
//! operation that finds the queue full *waits* for a slot. It is queued behind the others but belongs to its
//! future, and dropping the future removes it. So the number of waiting operations is bounded by the futures
//! that callers keep. Slots are given first come, first served.
//!
//! Invariant: while there are accepted jobs and a worker has room, a worker is awake or has been woken. A
//! worker is *idle* (the queue keeps its waker) only if it found no accepted job. Each push removes one idle
//! worker and wakes it. Jobs are dropped, and wakers called, while no lock is held.

use super::worker::Bench;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// An operation on its way to a worker. The worker runs it on its [`Bench`].
pub(crate) type Job = Box<dyn FnOnce(&Bench) + Send>;

/// The queue of one handle.
pub(crate) struct Queue {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    accepted: VecDeque<Job>,
    /// Jobs in order of arrival. Empty unless `accepted` is full.
    waiting: BTreeMap<u64, Job>,
    next: u64,
    /// Workers with nothing to do.
    idle: Vec<(usize, Waker)>,
    workers: usize,
    closed: bool,
}

/// The outcome of a push.
pub(crate) enum Pushed {
    /// The job will run.
    Accepted,
    /// The job will run when there is room, unless it is withdrawn.
    Waiting(u64),
    /// The job will not run.
    Refused(Job),
}

impl Queue {
    /// A queue that accepts `capacity` jobs, for `workers` workers.
    pub(crate) fn new(capacity: usize, workers: usize) -> Self {
        Self { capacity, inner: Mutex::new(Inner { workers, ..Inner::default() }) }
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock, so the data behind a poisoned mutex is still consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job.
    pub(crate) fn push(&self, job: Job) -> Pushed {
        let mut inner = self.locked();
        if inner.closed {
            return Pushed::Refused(job);
        }
        if inner.accepted.len() >= self.capacity {
            let number = inner.next;
            inner.next += 1;
            inner.waiting.insert(number, job);
            return Pushed::Waiting(number);
        }
        inner.accepted.push_back(job);
        let idle = inner.idle.pop();
        drop(inner);
        if let Some((_, waker)) = idle {
            waker.wake();
        }
        Pushed::Accepted
    }

    /// Removes a waiting job. Does nothing if the job has been accepted meanwhile.
    pub(crate) fn withdraw(&self, number: u64) {
        let job = self.locked().waiting.remove(&number);
        drop(job);
    }

    /// Appends up to `room` jobs for `worker` to `jobs`. Ready with false when the queue is closed and empty.
    pub(crate) fn poll_take(
        &self,
        worker: usize,
        room: usize,
        jobs: &mut Vec<Job>,
        cx: &Context<'_>,
    ) -> Poll<bool> {
        let mut inner = self.locked();
        inner.idle.retain(|&(idle, _)| idle != worker);
        let taken = room.min(inner.accepted.len());
        jobs.extend(inner.accepted.drain(..taken));
        while inner.accepted.len() < self.capacity
            && let Some((_, job)) = inner.waiting.pop_first()
        {
            inner.accepted.push_back(job);
        }
        if taken > 0 {
            // The jobs that were just moved to `accepted` have woken no worker yet.
            let others = if inner.accepted.is_empty() { None } else { inner.idle.pop() };
            drop(inner);
            if let Some((_, waker)) = others {
                waker.wake();
            }
            return Poll::Ready(true);
        }
        if inner.closed {
            return Poll::Ready(false);
        }
        inner.idle.push((worker, cx.waker().clone()));
        Poll::Pending
    }

    /// Refuses all further jobs. Queued jobs still run.
    pub(crate) fn close(&self) {
        let mut inner = self.locked();
        inner.closed = true;
        let idle = std::mem::take(&mut inner.idle);
        drop(inner);
        idle.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Records that a worker is gone. The last worker's end drops all queued jobs, which answers them.
    pub(crate) fn worker_gone(&self) {
        let mut inner = self.locked();
        inner.workers -= 1;
        if inner.workers > 0 {
            return;
        }
        inner.closed = true;
        let left = (std::mem::take(&mut inner.accepted), std::mem::take(&mut inner.waiting));
        drop(inner);
        drop(left);
    }

    /// Jobs accepted and not yet taken, and jobs waiting for a slot.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        let inner = self.locked();
        (inner.accepted.len(), inner.waiting.len())
    }
}
