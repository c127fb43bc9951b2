//! Waiting for a slot.

use super::queue::{Granted, Left, Passed, Shard, WaiterId};
use super::word::Word;
use super::{Fairness, Grant, LocalLockTable, NoJob};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// A future of a slot: [`LocalLockTable::acquire`].
///
/// Give up by [`cancel`](Self::cancel). Dropping the future while it waits leaves the queue. If a grant had
/// already arrived, the slot goes to the next waiter or becomes free. There is one exception: a lane that was
/// *handed over* and finds no other waiter stays parked with this compute server, until a thread here
/// acquires it. See the module.
#[must_use = "a future does nothing unless polled"]
#[derive(Debug)]
pub struct Acquire<'t, J = NoJob, R = NoJob> {
    table: &'t LocalLockTable<J, R>,
    slot: usize,
    fairness: Fairness,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Unasked,
    Queued(WaiterId),
    /// Granted or cancelled.
    Over,
}

impl<'t, J, R> Acquire<'t, J, R> {
    pub(super) fn new(table: &'t LocalLockTable<J, R>, slot: usize, fairness: Fairness) -> Self {
        Self { table, slot, fairness, state: State::Unasked }
    }

    /// Gives up waiting. `None`: the future no longer waits. `Some`: a grant had already arrived and **the
    /// caller holds the slot**.
    ///
    /// The last waiter to leave a queue whose lane was left to barging threads takes that lane too, so that
    /// the lane is not parked.
    #[must_use = "a slot that was granted after all must be released"]
    pub fn cancel(mut self) -> Option<Grant> {
        let State::Queued(id) = std::mem::replace(&mut self.state, State::Over) else { return None };
        let (table, slot) = (self.table, self.slot);
        table.locked(slot, |shard| table.leave(shard, slot, id, LocalLockTable::take_kept)).settle().0
    }
}

impl<J, R> Future for Acquire<'_, J, R> {
    type Output = Grant;

    /// Stays pending permanently once it has returned a grant.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Grant> {
        let (table, slot, fairness) = (self.table, self.slot, self.fairness);
        let grant = match self.state {
            State::Unasked => match table.ask(slot, fairness, cx.waker(), None) {
                Ok(id) => {
                    self.state = State::Queued(id);
                    None
                }
                Err(Granted { grant, .. }) => Some(grant),
            },
            State::Queued(id) => {
                let look = |shard: &mut _| table.look(shard, slot, fairness, id, cx.waker());
                let (granted, _unused_waker) = table.locked(slot, look);
                granted.map(|granted| granted.grant)
            }
            State::Over => None,
        };
        match grant {
            Some(grant) => {
                self.state = State::Over;
                Poll::Ready(grant)
            }
            None => Poll::Pending,
        }
    }
}

impl<J, R> Drop for Acquire<'_, J, R> {
    fn drop(&mut self) {
        let State::Queued(id) = std::mem::replace(&mut self.state, State::Over) else { return };
        let (table, slot) = (self.table, self.slot);
        let leaving = table.locked(slot, |shard| table.leave(shard, slot, id, |_, _| None));
        if let (Some(grant), _) = leaving.settle() {
            table.decline(slot, grant);
        }
    }
}

/// A waiter that has left its queue. The mutex is unlocked before [`Leaving::settle`].
#[must_use = "the next waiter may have to be woken"]
pub(super) struct Leaving<J> {
    grant: Option<Grant>,
    job: Option<J>,
    /// The waker of the waiter that left.
    unused: Option<Waker>,
    /// The waker of the next waiter, which was served.
    wake: Option<Waker>,
}

impl<J> Leaving<J> {
    /// Wakes the next waiter if needed. Returns the slot's grant if the waiter that left holds the slot now,
    /// and its job.
    pub(super) fn settle(self) -> (Option<Grant>, Option<J>) {
        drop(self.unused);
        if let Some(waker) = self.wake {
            waker.wake();
        }
        (self.grant, self.job)
    }
}

/// The steps of a waiter, with or without a job.
impl<J, R> LocalLockTable<J, R> {
    /// Takes the slot, or joins its queue.
    pub(super) fn ask(
        &self,
        slot: usize,
        fairness: Fairness,
        waker: &Waker,
        job: Option<J>,
    ) -> Result<WaiterId, Granted<J>> {
        if let Some(grant) = self.try_take(slot, fairness) {
            return Err(Granted { grant, job });
        }
        let waker = waker.clone();
        self.locked(slot, |shard| match self.take_or_mark(slot, fairness) {
            Some(grant) => Err(Granted { grant, job }),
            None => Ok(shard.push(slot, fairness, waker, job)),
        })
    }

    /// Returns the grant of `id`, if it has arrived or the waiter can take the free slot. Otherwise sets its
    /// waker. Also returns a waker that the caller must drop outside the mutex. Under the shard's mutex.
    pub(super) fn look(
        &self,
        shard: &mut Shard<J, R>,
        slot: usize,
        fairness: Fairness,
        id: WaiterId,
        waker: &Waker,
    ) -> (Option<Granted<J>>, Option<Waker>) {
        if let Some(granted) = shard.take_grant(slot, id) {
            return (Some(granted), None);
        }
        if fairness == Fairness::Barging
            && let Some(grant) = self.try_take(slot, Fairness::Barging)
        {
            let Some(Left { waiter, more, .. }) = shard.leave(slot, id) else {
                return (Some(Granted { grant, job: None }), None);
            };
            if !more {
                self.unmark(slot);
            }
            return (Some(Granted { grant, job: waiter.job }), Some(waiter.waker));
        }
        (None, shard.renew(slot, id, waker))
    }

    /// Leaves the queue, and serves the next waiter if needed. The waiter then holds the slot if its grant
    /// had already arrived or `if_last` took it. Under the shard's mutex.
    pub(super) fn leave(
        &self,
        shard: &mut Shard<J, R>,
        slot: usize,
        id: WaiterId,
        if_last: impl FnOnce(&Self, usize) -> Option<Grant>,
    ) -> Leaving<J> {
        let mut leaving = Leaving { grant: None, job: None, unused: None, wake: None };
        if let Some(Granted { grant, job }) = shard.take_grant(slot, id) {
            leaving.grant = Some(grant);
            leaving.job = job;
        } else if let Some(Left { waiter, was_first, more }) = shard.leave(slot, id) {
            leaving.job = waiter.job;
            leaving.unused = Some(waiter.waker);
            if !more {
                self.unmark(slot);
                leaving.grant = if_last(self, slot);
            } else if was_first {
                leaving.wake = self.serve_next(shard, slot);
            }
        }
        leaving
    }

    /// Takes a free slot whose global lane this compute server holds.
    pub(super) fn take_kept(&self, slot: usize) -> Option<Grant> {
        if self.load(slot).is_kept() { self.try_take(slot, Fairness::Barging) } else { None }
    }

    /// Passes on a grant that arrived for a dropped future.
    pub(super) fn decline(&self, slot: usize, grant: Grant) {
        let depth = self.load(slot).depth();
        // Without another waiter the slot becomes free, and a lane that was handed over stays parked.
        self.pass_on(slot, grant, depth, Word::free(grant, depth));
    }

    /// Serves the first waiter, if the slot is free. Returns the waker to call. Under the shard's mutex.
    pub(super) fn serve_next(&self, shard: &mut Shard<J, R>, slot: usize) -> Option<Waker> {
        // The depth before taking the slot equals the depth after: only a pass changes it.
        let grant = self.try_take(slot, Fairness::Barging)?;
        let depth = self.load(slot).depth();
        let (word, waker) = match shard.pass(slot, grant) {
            Passed::Granted { waker, more } => (Word::held(depth).with_waiters(more), Some(waker)),
            Passed::Announced(waker) => (Word::free(grant, depth).with_waiters(true), Some(waker)),
            Passed::Nobody => (Word::free(grant, depth), None),
        };
        self.words[slot].store(word.bits(), Ordering::Release);
        waker
    }
}
