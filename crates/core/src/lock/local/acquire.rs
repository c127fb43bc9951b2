//! Waiting for a slot.

use super::queue::{Left, Passed, WaiterId};
use super::word::Word;
use super::{Fairness, Grant, LocalLockTable};
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
pub struct Acquire<'t> {
    table: &'t LocalLockTable,
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

impl<'t> Acquire<'t> {
    pub(super) fn new(table: &'t LocalLockTable, slot: usize, fairness: Fairness) -> Self {
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
        self.leave(id, |table, slot| {
            if table.load(slot).is_kept() { table.try_take(slot, Fairness::Barging) } else { None }
        })
    }

    /// Leaves the queue, and serves the next waiter if needed. Returns the grant, if it had already arrived
    /// or `if_last` took it.
    fn leave(
        &self,
        id: WaiterId,
        if_last: impl FnOnce(&LocalLockTable, usize) -> Option<Grant>,
    ) -> Option<Grant> {
        let (table, slot) = (self.table, self.slot);
        let mut wake = None;
        let mut dropped = None;
        let grant = table.locked(slot, |shard| {
            if let Some(grant) = shard.take_grant(slot, id) {
                return Some(grant);
            }
            let Left { waiter, was_first, more } = shard.leave(slot, id)?;
            dropped = Some(waiter);
            if !more {
                table.unmark(slot);
                return if_last(table, slot);
            }
            if was_first {
                wake = serve_next(table, shard, slot);
            }
            None
        });
        drop(dropped);
        if let Some(waker) = wake {
            waker.wake();
        }
        grant
    }

    fn ask(&mut self, waker: &Waker) -> Poll<Grant> {
        let (table, slot, fairness) = (self.table, self.slot, self.fairness);
        if let Some(grant) = table.try_take(slot, fairness) {
            self.state = State::Over;
            return Poll::Ready(grant);
        }
        let waker = waker.clone();
        let queued = table.locked(slot, |shard| match table.take_or_mark(slot, fairness) {
            Some(grant) => Err(grant),
            None => Ok(shard.push(slot, fairness, waker)),
        });
        match queued {
            Ok(id) => {
                self.state = State::Queued(id);
                Poll::Pending
            }
            Err(grant) => {
                self.state = State::Over;
                Poll::Ready(grant)
            }
        }
    }

    fn look(&mut self, id: WaiterId, waker: &Waker) -> Poll<Grant> {
        let (table, slot) = (self.table, self.slot);
        let mut dropped = (None, None);
        let grant = table.locked(slot, |shard| {
            if let Some(grant) = shard.take_grant(slot, id) {
                return Some(grant);
            }
            if self.fairness == Fairness::Barging
                && let Some(grant) = table.try_take(slot, Fairness::Barging)
            {
                let left = shard.leave(slot, id);
                if left.as_ref().is_some_and(|left| !left.more) {
                    table.unmark(slot);
                }
                dropped.0 = left;
                return Some(grant);
            }
            dropped.1 = shard.renew(slot, id, waker);
            None
        });
        drop(dropped);
        match grant {
            Some(grant) => {
                self.state = State::Over;
                Poll::Ready(grant)
            }
            None => Poll::Pending,
        }
    }
}

/// Serves the new first waiter after the first one left, if the slot is free.
fn serve_next(table: &LocalLockTable, shard: &mut super::Shard, slot: usize) -> Option<Waker> {
    // The depth before taking the slot equals the depth after: only a pass changes it.
    let grant = table.try_take(slot, Fairness::Barging)?;
    let depth = table.load(slot).depth();
    let (word, waker) = match shard.pass(slot, grant) {
        Passed::Granted { waker, more } => (Word::held(depth).with_waiters(more), Some(waker)),
        Passed::Announced(waker) => (Word::free(grant, depth).with_waiters(true), Some(waker)),
        Passed::Nobody => (Word::free(grant, depth), None),
    };
    table.words[slot].store(word.bits(), Ordering::Release);
    waker
}

impl Future for Acquire<'_> {
    type Output = Grant;

    /// Stays pending permanently once it has returned a grant.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Grant> {
        match self.state {
            State::Unasked => self.ask(cx.waker()),
            State::Queued(id) => self.look(id, cx.waker()),
            State::Over => Poll::Pending,
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let State::Queued(id) = std::mem::replace(&mut self.state, State::Over) else { return };
        if let Some(grant) = self.leave(id, |_, _| None) {
            let depth = self.table.load(self.slot).depth();
            // Without another waiter the slot becomes free, and a lane that was handed over stays parked.
            self.table.pass_on(self.slot, grant, depth, Word::free(grant, depth));
        }
    }
}
