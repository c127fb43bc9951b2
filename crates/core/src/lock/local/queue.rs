//! The queues of one shard: the waiters of each slot, the grants that no waiter has picked up yet, and the
//! waiters whose jobs a holder took.
//!
//! Pure bookkeeping under the shard's mutex. It neither calls nor drops wakers, jobs or results; the caller
//! does that outside the mutex. Its size is bounded by the operations in flight, because every entry belongs
//! to a live [`Acquire`](super::Acquire) or [`AcquireWith`](super::AcquireWith).
//!
//! A waiter is in exactly one place: in `waiting`, in `granted`, or in `taken`.

use super::{Fairness, Grant};
use std::collections::VecDeque;
use std::task::{Poll, Waker};

/// Identifies a waiter within a shard. Ids do not decide turns, and 2^64 of them do not run out.
pub(super) type WaiterId = u64;

/// A waiter in a queue.
#[derive(Debug)]
pub(super) struct Waiter<J> {
    id: WaiterId,
    fairness: Fairness,
    pub(super) waker: Waker,
    /// What a holder may do in the waiter's place.
    pub(super) job: Option<J>,
}

/// A grant, and the waiter's job, which nobody executed.
#[derive(Debug)]
pub(super) struct Granted<J> {
    pub(super) grant: Grant,
    pub(super) job: Option<J>,
}

/// How a taken job ended.
#[derive(Debug)]
pub(super) enum Outcome<R> {
    Done(R),
    /// The holder dropped its ticket: the change may or may not have happened.
    Abandoned,
}

/// How far a taken job is.
#[derive(Debug)]
pub(super) enum Stage<R> {
    Executing {
        fairness: Fairness,
        waker: Waker,
    },
    /// The waiter was woken and has not picked this up yet.
    Over(Outcome<R>),
}

/// The entries of one slot. It exists while it has any.
#[derive(Debug)]
struct Queue<J, R> {
    /// In order of arrival; ids ascend.
    waiting: VecDeque<Waiter<J>>,
    /// The holder that does not know about its grant yet. There is one holder, so there is at most one such
    /// grant.
    granted: Option<(WaiterId, Granted<J>)>,
    /// The waiters whose jobs a holder took; ids ascend.
    taken: VecDeque<(WaiterId, Stage<R>)>,
}

impl<J, R> Default for Queue<J, R> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), granted: None, taken: VecDeque::new() }
    }
}

/// The queues of the slots of one shard.
#[derive(Debug)]
pub(super) struct Shard<J, R> {
    /// Few at a time, so a scan beats a tree, and adding or removing entries does not allocate.
    queues: Vec<(usize, Queue<J, R>)>,
    /// The last removed queue. The next new one uses its buffers.
    spare: Queue<J, R>,
    next_id: WaiterId,
}

impl<J, R> Default for Shard<J, R> {
    fn default() -> Self {
        Self { queues: Vec::new(), spare: Queue::default(), next_id: 0 }
    }
}

/// The result of passing a slot on.
pub(super) enum Passed {
    /// The first waiter holds the slot now. `more`: others still wait.
    Granted { waker: Waker, more: bool },
    /// The slot is free, and the caller must wake the first waiter with this waker.
    Announced(Waker),
    /// The queue is empty.
    Nobody,
}

/// A waiter that left the queue.
pub(super) struct Left<J> {
    /// The caller must drop it outside the mutex.
    pub(super) waiter: Waiter<J>,
    pub(super) was_first: bool,
    pub(super) more: bool,
}

impl<J, R> Shard<J, R> {
    /// Returns the wakers of all waiters, and of those whose jobs are being executed.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        let of_queue = |(_, queue): &(usize, Queue<J, R>)| {
            let waiting = queue.waiting.iter().map(|waiter| waiter.waker.clone());
            let taken = queue.taken.iter().filter_map(|(_, stage)| match stage {
                Stage::Executing { waker, .. } => Some(waker.clone()),
                Stage::Over(_) => None,
            });
            waiting.chain(taken).collect::<Vec<_>>()
        };
        self.queues.iter().flat_map(of_queue).collect()
    }

    /// Adds a waiter for `slot`.
    pub(super) fn push(&mut self, slot: usize, fairness: Fairness, waker: Waker, job: Option<J>) -> WaiterId {
        let id = self.next_id;
        self.next_id += 1;
        let at = self.position(slot).unwrap_or_else(|| {
            let queue = std::mem::take(&mut self.spare);
            self.queues.push((slot, queue));
            self.queues.len() - 1
        });
        self.queues[at].1.waiting.push_back(Waiter { id, fairness, waker, job });
        id
    }

    /// Passes `slot`, which the caller holds, to the first waiter.
    pub(super) fn pass(&mut self, slot: usize, grant: Grant) -> Passed {
        let Some(at) = self.position(slot) else { return Passed::Nobody };
        let queue = &mut self.queues[at].1;
        debug_assert!(queue.granted.is_none(), "a grant that was not picked up is the holder's");
        match queue.waiting.front() {
            None => Passed::Nobody,
            Some(Waiter { fairness: Fairness::Barging, waker, .. }) => Passed::Announced(waker.clone()),
            Some(_) => match queue.waiting.pop_front() {
                Some(Waiter { id, waker, job, .. }) => {
                    queue.granted = Some((id, Granted { grant, job }));
                    Passed::Granted { waker, more: !queue.waiting.is_empty() }
                }
                None => Passed::Nobody,
            },
        }
    }

    /// Takes the grant that waits for `id`.
    pub(super) fn take_grant(&mut self, slot: usize, id: WaiterId) -> Option<Granted<J>> {
        let at = self.position(slot)?;
        let granted = self.queues[at].1.granted.take_if(|(of, _)| *of == id).map(|(_, granted)| granted);
        self.tidy(at);
        granted
    }

    /// Removes `id` from the queue.
    pub(super) fn leave(&mut self, slot: usize, id: WaiterId) -> Option<Left<J>> {
        let at = self.position(slot)?;
        let waiting = &mut self.queues[at].1.waiting;
        let place = waiting.binary_search_by_key(&id, |waiter| waiter.id).ok()?;
        let waiter = waiting.remove(place)?;
        let left = Left { waiter, was_first: place == 0, more: !waiting.is_empty() };
        self.tidy(at);
        Some(left)
    }

    /// Sets the waker for `id`. If it replaces a different waker, returns that one, which the caller must
    /// drop outside the mutex.
    pub(super) fn renew(&mut self, slot: usize, id: WaiterId, waker: &Waker) -> Option<Waker> {
        let at = self.position(slot)?;
        let Queue { waiting, taken, .. } = &mut self.queues[at].1;
        let known = match waiting.binary_search_by_key(&id, |waiter| waiter.id) {
            Ok(place) => &mut waiting.get_mut(place)?.waker,
            Err(_) => match &mut taken.get_mut(search(taken, id).ok()?)?.1 {
                Stage::Executing { waker, .. } => waker,
                Stage::Over(_) => return None,
            },
        };
        if known.will_wake(waker) { None } else { Some(std::mem::replace(known, waker.clone())) }
    }

    /// Number of waiters for `slot`.
    pub(super) fn waiting(&self, slot: usize) -> usize {
        self.position(slot).map_or(0, |at| self.queues[at].1.waiting.len())
    }

    /// Number of waiters for `slot` whose jobs were taken.
    pub(super) fn taken(&self, slot: usize) -> usize {
        self.position(slot).map_or(0, |at| self.queues[at].1.taken.len())
    }

    fn position(&self, slot: usize) -> Option<usize> {
        self.queues.iter().position(|(of, _)| *of == slot)
    }

    /// Removes the queue at `at` if it has no entries.
    fn tidy(&mut self, at: usize) {
        let queue = &self.queues[at].1;
        if queue.waiting.is_empty() && queue.granted.is_none() && queue.taken.is_empty() {
            self.spare = self.queues.swap_remove(at).1;
        }
    }
}

/// Jobs that a holder executes.
impl<J, R> Shard<J, R> {
    /// Takes the jobs of the first waiters, at most `max`, up to the first one that has no job or that
    /// `accept` refuses. Gives each job to `receive`. Returns the number of jobs taken, and whether any
    /// waiter is left.
    pub(super) fn take_jobs(
        &mut self,
        slot: usize,
        max: usize,
        mut accept: impl FnMut(&J) -> bool,
        mut receive: impl FnMut(WaiterId, J),
    ) -> (usize, bool) {
        let Some(at) = self.position(slot) else { return (0, false) };
        let Queue { waiting, taken, .. } = &mut self.queues[at].1;
        // Asks about all jobs before it moves the first one. So a panic in `accept` changes nothing.
        let wanted = |waiter: &&Waiter<J>| waiter.job.as_ref().is_some_and(&mut accept);
        let accepted = waiting.iter().take(max).take_while(wanted).count();
        for _ in 0..accepted {
            let Some(job) = waiting.front_mut().and_then(|first| first.job.take()) else { break };
            let Some(Waiter { id, fairness, waker, .. }) = waiting.pop_front() else { break };
            // An earlier job that was returned and taken again goes in front of later ones.
            let place = search(taken, id).unwrap_or_else(|place| place);
            taken.insert(place, (id, Stage::Executing { fairness, waker }));
            receive(id, job);
        }
        (accepted, !waiting.is_empty())
    }

    /// Sets the outcome of a taken job. Returns the waker to call, or the outcome if the waiter is gone. The
    /// caller does both outside the mutex.
    pub(super) fn conclude(
        &mut self,
        slot: usize,
        id: WaiterId,
        outcome: Outcome<R>,
    ) -> Result<Waker, Outcome<R>> {
        let Some(at) = self.position(slot) else { return Err(outcome) };
        let taken = &mut self.queues[at].1.taken;
        let entry = search(taken, id).ok().and_then(|place| taken.get_mut(place));
        let Some((_, stage @ Stage::Executing { .. })) = entry else { return Err(outcome) };
        match std::mem::replace(stage, Stage::Over(outcome)) {
            Stage::Executing { waker, .. } => Ok(waker),
            Stage::Over(outcome) => Err(outcome),
        }
    }

    /// Puts a taken waiter back into the queue, before all waiters that arrived after it. Returns its waker,
    /// or the job if the waiter is gone.
    pub(super) fn put_back(&mut self, slot: usize, id: WaiterId, job: J) -> Result<Waker, J> {
        let Some(at) = self.position(slot) else { return Err(job) };
        let Queue { waiting, taken, .. } = &mut self.queues[at].1;
        let Ok(place) = search(taken, id) else { return Err(job) };
        let Some((_, Stage::Executing { fairness, waker })) = taken.remove(place) else { return Err(job) };
        let place = waiting.binary_search_by_key(&id, |waiter| waiter.id).unwrap_or_else(|place| place);
        waiting.insert(place, Waiter { id, fairness, waker: waker.clone(), job: Some(job) });
        Ok(waker)
    }

    /// Removes and returns the outcome of the job of `id`. Pending while a holder executes the job. `None` if
    /// no holder has taken it.
    pub(super) fn outcome(&mut self, slot: usize, id: WaiterId) -> Option<Poll<Outcome<R>>> {
        let at = self.position(slot)?;
        let taken = &mut self.queues[at].1.taken;
        let place = search(taken, id).ok()?;
        if let Stage::Executing { .. } = taken.get(place)?.1 {
            return Some(Poll::Pending);
        }
        let (_, Stage::Over(outcome)) = taken.remove(place)? else { return None };
        self.tidy(at);
        Some(Poll::Ready(outcome))
    }

    /// Removes the taken waiter `id`. Its ticket then finds no waiter. The caller must drop the returned
    /// stage outside the mutex.
    pub(super) fn forget(&mut self, slot: usize, id: WaiterId) -> Option<Stage<R>> {
        let at = self.position(slot)?;
        let taken = &mut self.queues[at].1.taken;
        let (_, stage) = taken.remove(search(taken, id).ok()?)?;
        self.tidy(at);
        Some(stage)
    }
}

/// The place of `id` among the taken waiters, or where it belongs.
fn search<R>(taken: &VecDeque<(WaiterId, Stage<R>)>, id: WaiterId) -> Result<usize, usize> {
    taken.binary_search_by_key(&id, |(of, _)| *of)
}

#[cfg(all(test, not(loom)))]
impl<J, R> Shard<J, R> {
    /// Whether there are no waiters, no grants that a waiter has not picked up, and no taken waiters.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Number of entries that all buffers have room for.
    pub(super) fn capacity(&self) -> usize {
        let buffers = self.queues.iter().map(|(_, queue)| queue).chain([&self.spare]);
        buffers.map(|queue| queue.waiting.capacity() + queue.taken.capacity()).sum()
    }
}
