//! The queues of one shard: the waiters of each slot, and the grants that no waiter has picked up yet.
//!
//! Pure bookkeeping under the shard's mutex. It neither calls nor drops wakers; the caller does that outside
//! the mutex. Its size is bounded by the operations in flight, because every waiter is a live
//! [`Acquire`](super::Acquire).

use super::{Fairness, Grant};
use std::collections::VecDeque;
use std::task::Waker;

/// Identifies a waiter within a shard. Ids do not decide turns, and 2^64 of them do not run out.
pub(super) type WaiterId = u64;

/// A waiter in a queue.
#[derive(Debug)]
pub(super) struct Waiter {
    id: WaiterId,
    fairness: Fairness,
    waker: Waker,
}

/// The queue of a slot that has waiters, or a grant that its waiter has not picked up yet.
#[derive(Debug, Default)]
struct Queue {
    /// In order of arrival; ids ascend.
    waiting: VecDeque<Waiter>,
    /// The holder that does not know about its grant yet. There is one holder, so there is at most one such
    /// grant.
    granted: Option<(WaiterId, Grant)>,
}

/// The queues of the slots of one shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Few at a time, so a scan beats a tree, and adding or removing entries does not allocate.
    queues: Vec<(usize, Queue)>,
    /// The buffer of the last removed queue, for the next new one.
    spare: VecDeque<Waiter>,
    next_id: WaiterId,
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
pub(super) struct Left {
    /// The caller must drop it outside the mutex.
    pub(super) waiter: Waiter,
    pub(super) was_first: bool,
    pub(super) more: bool,
}

impl Shard {
    /// Returns the wakers of all waiters.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.queues.iter().flat_map(|(_, queue)| &queue.waiting).map(|waiter| waiter.waker.clone()).collect()
    }

    /// Adds a waiter for `slot`.
    pub(super) fn push(&mut self, slot: usize, fairness: Fairness, waker: Waker) -> WaiterId {
        let id = self.next_id;
        self.next_id += 1;
        let at = self.position(slot).unwrap_or_else(|| {
            let waiting = std::mem::take(&mut self.spare);
            self.queues.push((slot, Queue { waiting, granted: None }));
            self.queues.len() - 1
        });
        self.queues[at].1.waiting.push_back(Waiter { id, fairness, waker });
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
                Some(first) => {
                    queue.granted = Some((first.id, grant));
                    Passed::Granted { waker: first.waker, more: !queue.waiting.is_empty() }
                }
                None => Passed::Nobody,
            },
        }
    }

    /// Takes the grant that waits for `id`.
    pub(super) fn take_grant(&mut self, slot: usize, id: WaiterId) -> Option<Grant> {
        let at = self.position(slot)?;
        let grant = self.queues[at].1.granted.take_if(|(granted, _)| *granted == id).map(|(_, grant)| grant);
        self.tidy(at);
        grant
    }

    /// Removes `id` from the queue.
    pub(super) fn leave(&mut self, slot: usize, id: WaiterId) -> Option<Left> {
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
        let waiting = &mut self.queues[at].1.waiting;
        let place = waiting.binary_search_by_key(&id, |waiter| waiter.id).ok()?;
        let known = &mut waiting.get_mut(place)?.waker;
        if known.will_wake(waker) { None } else { Some(std::mem::replace(known, waker.clone())) }
    }

    /// Number of waiters for `slot`.
    pub(super) fn waiting(&self, slot: usize) -> usize {
        self.position(slot).map_or(0, |at| self.queues[at].1.waiting.len())
    }

    fn position(&self, slot: usize) -> Option<usize> {
        self.queues.iter().position(|(of, _)| *of == slot)
    }

    /// Removes the queue at `at` if it is empty and has no grant.
    fn tidy(&mut self, at: usize) {
        let queue = &self.queues[at].1;
        if queue.waiting.is_empty() && queue.granted.is_none() {
            self.spare = self.queues.swap_remove(at).1.waiting;
        }
    }
}

#[cfg(all(test, not(loom)))]
impl Shard {
    /// Whether there are no waiters and no grants that a waiter has not picked up.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}
