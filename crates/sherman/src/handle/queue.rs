//! What lies between a handle's callers and its workers.
//!
//! Bounded: so many operations are *accepted*, each will run even if nobody waits for it any more. An operation that finds the queue full
//! *waits* for a place: it is queued behind, but belongs to its future, and goes when that is dropped. So what is waiting
//! is bounded by the futures that callers keep, and places are given first come, first served.
//!
//! What must hold: while jobs are accepted and a worker has room, a worker is awake or has been woken. A worker is *idle*
//! (its waker is kept here) only if it found nothing accepted; each push takes one idle worker out and wakes it.
//! Jobs are dropped and wakers called with nothing locked.

use super::worker::Bench;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// An operation on its way to a worker, which puts it on its bench.
pub(crate) type Job = Box<dyn FnOnce(&Bench) + Send>;

/// The queue of one handle.
pub(crate) struct Queue {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    accepted: VecDeque<Job>,
    /// In the order of arrival. Empty unless `accepted` is full.
    waiting: BTreeMap<u64, Job>,
    next: u64,
    /// Workers with nothing to do.
    idle: Vec<(usize, Waker)>,
    workers: usize,
    closed: bool,
}

/// What became of a job.
pub(crate) enum Pushed {
    /// It will run.
    Accepted,
    /// It will once there is room, unless it is withdrawn.
    Waiting(u64),
    /// It will not.
    Refused(Job),
}

impl Queue {
    /// A queue that accepts `capacity` jobs, for `workers` workers.
    pub(crate) fn new(capacity: usize, workers: usize) -> Self {
        Self { capacity, inner: Mutex::new(Inner { workers, ..Inner::default() }) }
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics half-way, so what a poisoned mutex guards is still whole.
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

    /// Takes a waiting job back. Nothing happens if it has been accepted meanwhile.
    pub(crate) fn withdraw(&self, number: u64) {
        let job = self.locked().waiting.remove(&number);
        drop(job);
    }

    /// Up to `room` jobs for `worker`, appended to `jobs`. Ready with false once the queue is closed and empty.
    pub(crate) fn poll_take(&self, worker: usize, room: usize, jobs: &mut Vec<Job>, cx: &Context<'_>) -> Poll<bool> {
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
            // What just came in has woken nobody.
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

    /// Refuses what comes from now on. What is queued still runs.
    pub(crate) fn close(&self) {
        let mut inner = self.locked();
        inner.closed = true;
        let idle = std::mem::take(&mut inner.idle);
        drop(inner);
        idle.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// A worker is gone. With the last, what is queued is dropped, and so answered.
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

    /// Jobs accepted and not yet taken, and jobs waiting for a place.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        let inner = self.locked();
        (inner.accepted.len(), inner.waiting.len())
    }
}
