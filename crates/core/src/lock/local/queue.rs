//! The queues of one shard: who waits for which slot, and which grants have not been picked up yet.
//!
//! Pure bookkeeping under the shard's mutex; it neither calls nor drops wakers, but gives them to the caller to do so
//! outside. Bounded by the operations in flight: every waiter is an [`Acquire`](super::Acquire) that somebody holds.

use super::{Fairness, Grant};
use std::collections::VecDeque;
use std::task::Waker;

/// Tells waiters of a shard apart. Never compared for turns, and 2^64 of them do not run out.
pub(super) type WaiterId = u64;

/// One in a queue.
#[derive(Debug)]
pub(super) struct Waiter {
    id: WaiterId,
    fairness: Fairness,
    waker: Waker,
}

/// A slot that is waited for, or whose grant is on its way.
#[derive(Debug, Default)]
struct Queue {
    /// First come, first served; ids ascend.
    waiting: VecDeque<Waiter>,
    /// The holder that does not know yet. There is one holder, so there is one such grant.
    granted: Option<(WaiterId, Grant)>,
}

/// The queues of the slots of one shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Few at a time, so a scan beats a tree; and entries come and go without allocating.
    queues: Vec<(usize, Queue)>,
    /// The buffer of the last queue that ended, for the next that begins.
    spare: VecDeque<Waiter>,
    next_id: WaiterId,
}

/// To whom a slot was passed.
pub(super) enum Passed {
    /// The first in the queue holds it now. `more`: others still wait.
    Granted { waker: Waker, more: bool },
    /// The first in the queue is to be told that the slot is free.
    Announced(Waker),
    /// Nobody waits.
    Nobody,
}

/// One who left the queue.
pub(super) struct Left {
    /// For the caller to drop outside the mutex.
    pub(super) waiter: Waiter,
    pub(super) was_first: bool,
    pub(super) more: bool,
}

impl Shard {
    /// Whom to wake so that everyone looks.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.queues.iter().flat_map(|(_, queue)| &queue.waiting).map(|waiter| waiter.waker.clone()).collect()
    }

    /// Queues someone for `slot`.
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

    /// Passes `slot`, which the caller holds, to the first in its queue.
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

    /// The grant that waits for `id`, taken.
    pub(super) fn take_grant(&mut self, slot: usize, id: WaiterId) -> Option<Grant> {
        let at = self.position(slot)?;
        let grant = self.queues[at].1.granted.take_if(|(granted, _)| *granted == id).map(|(_, grant)| grant);
        self.tidy(at);
        grant
    }

    /// Takes `id` out of the queue.
    pub(super) fn leave(&mut self, slot: usize, id: WaiterId) -> Option<Left> {
        let at = self.position(slot)?;
        let waiting = &mut self.queues[at].1.waiting;
        let place = waiting.binary_search_by_key(&id, |waiter| waiter.id).ok()?;
        let waiter = waiting.remove(place)?;
        let left = Left { waiter, was_first: place == 0, more: !waiting.is_empty() };
        self.tidy(at);
        Some(left)
    }

    /// Whom to wake for `id` from now on. Returns the waker to drop outside the mutex, if it was another.
    pub(super) fn renew(&mut self, slot: usize, id: WaiterId, waker: &Waker) -> Option<Waker> {
        let at = self.position(slot)?;
        let waiting = &mut self.queues[at].1.waiting;
        let place = waiting.binary_search_by_key(&id, |waiter| waiter.id).ok()?;
        let known = &mut waiting.get_mut(place)?.waker;
        if known.will_wake(waker) { None } else { Some(std::mem::replace(known, waker.clone())) }
    }

    /// How many wait for `slot`.
    pub(super) fn waiting(&self, slot: usize) -> usize {
        self.position(slot).map_or(0, |at| self.queues[at].1.waiting.len())
    }

    fn position(&self, slot: usize) -> Option<usize> {
        self.queues.iter().position(|(of, _)| *of == slot)
    }

    /// Ends the queue at `at` if nothing is left in it.
    fn tidy(&mut self, at: usize) {
        let queue = &self.queues[at].1;
        if queue.waiting.is_empty() && queue.granted.is_none() {
            self.spare = self.queues.swap_remove(at).1.waiting;
        }
    }
}

#[cfg(all(test, not(loom)))]
impl Shard {
    /// Whether nobody waits for anything and no grant is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}
