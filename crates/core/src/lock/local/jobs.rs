//! Waiting for a slot with a job that the holder may execute.

use super::queue::{Granted, Outcome, WaiterId};
use super::{Fairness, Grant, LocalLockTable};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// How a wait with a job ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a granted slot must be released"]
pub enum Turn<J, R> {
    /// No holder executed the job. **The caller holds the slot** and has its job back.
    Granted(Grant, J),
    /// A holder executed the job. The caller does not hold the slot.
    Done(R),
    /// A holder took the job and gave no result. The change may or may not have happened. The caller does not
    /// hold the slot.
    Abandoned,
}

/// How a cancellation ended: [`AcquireWith::cancel`].
#[derive(Debug)]
#[must_use = "a granted slot must be released, and a job that is being executed must be waited for"]
pub enum Cancelled<'t, J, R> {
    /// No holder took the job, and none will.
    Left(J),
    /// The slot was granted before. **The caller holds the slot.**
    Granted(Grant, J),
    /// A holder had executed the job.
    Done(R),
    /// A holder took the job and gave no result. The change may or may not have happened. Also the answer if
    /// the future had returned its turn before.
    Abandoned,
    /// A holder executes the job right now. The caller must go on waiting to learn the outcome. It is woken
    /// when the job is done, abandoned, or returned to the queue, where it can be cancelled again.
    Taken(AcquireWith<'t, J, R>),
}

/// A future of a slot or of a job's result: [`LocalLockTable::acquire_with`].
///
/// While it waits, its job is in the queue. Give up by [`cancel`](Self::cancel). Dropping the future while it
/// waits leaves the queue and drops the job. If a grant had already arrived, the slot goes to the next waiter
/// or becomes free, except that a lane can stay parked. See the module. Dropping the future while a holder
/// executes the job does not stop the holder, which then drops the result.
#[must_use = "a future does nothing unless polled"]
pub struct AcquireWith<'t, J, R> {
    table: &'t LocalLockTable<J, R>,
    slot: usize,
    fairness: Fairness,
    state: State<J>,
}

enum State<J> {
    Unasked(J),
    /// In the queue, granted, or taken.
    Queued(WaiterId),
    /// It returned its turn, or was cancelled.
    Over,
}

/// No part of it is pinned.
impl<J, R> Unpin for AcquireWith<'_, J, R> {}

impl<'t, J, R> AcquireWith<'t, J, R> {
    pub(super) fn new(table: &'t LocalLockTable<J, R>, slot: usize, fairness: Fairness, job: J) -> Self {
        Self { table, slot, fairness, state: State::Unasked(job) }
    }

    /// Gives up waiting, if the job is not being executed.
    ///
    /// As with [`Acquire::cancel`](super::Acquire::cancel), the last waiter to leave a queue whose lane was
    /// left to barging threads takes that lane, so that the lane is not parked.
    pub fn cancel(mut self) -> Cancelled<'t, J, R> {
        let (table, slot) = (self.table, self.slot);
        let id = match std::mem::replace(&mut self.state, State::Over) {
            State::Unasked(job) => return Cancelled::Left(job),
            State::Queued(id) => id,
            State::Over => return Cancelled::Abandoned,
        };
        let left = table.locked(slot, |shard| match shard.outcome(slot, id) {
            None => Ok(table.leave(shard, slot, id, LocalLockTable::take_kept)),
            Some(outcome) => Err(outcome),
        });
        match left {
            Ok(leaving) => match leaving.settle() {
                (Some(grant), job) => Cancelled::Granted(grant, own(job)),
                (None, job) => Cancelled::Left(own(job)),
            },
            Err(Poll::Pending) => {
                self.state = State::Queued(id);
                Cancelled::Taken(self)
            }
            Err(Poll::Ready(Outcome::Done(result))) => Cancelled::Done(result),
            Err(Poll::Ready(Outcome::Abandoned)) => Cancelled::Abandoned,
        }
    }

    /// Looks for the grant or the outcome, and sets the waker.
    fn look(&self, id: WaiterId, waker: &Waker) -> Poll<Turn<J, R>> {
        let (table, slot) = (self.table, self.slot);
        let (turn, _unused_waker) = table.locked(slot, |shard| match shard.outcome(slot, id) {
            None => {
                let (granted, unused) = table.look(shard, slot, self.fairness, id, waker);
                (granted.map_or(Poll::Pending, |granted| Poll::Ready(granted.into())), unused)
            }
            Some(outcome) => {
                let unused = if outcome.is_pending() { shard.renew(slot, id, waker) } else { None };
                (outcome.map(Turn::from), unused)
            }
        });
        turn
    }
}

/// The job of a waiter that was not taken.
fn own<J>(job: Option<J>) -> J {
    job.expect("only a holder that takes a waiter takes its job")
}

impl<J, R> From<Granted<J>> for Turn<J, R> {
    fn from(Granted { grant, job }: Granted<J>) -> Self {
        Self::Granted(grant, own(job))
    }
}

impl<J, R> From<Outcome<R>> for Turn<J, R> {
    fn from(outcome: Outcome<R>) -> Self {
        match outcome {
            Outcome::Done(result) => Self::Done(result),
            Outcome::Abandoned => Self::Abandoned,
        }
    }
}

impl<J, R> Future for AcquireWith<'_, J, R> {
    type Output = Turn<J, R>;

    /// Stays pending permanently once it has returned a turn.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<J, R>> {
        let this = self.get_mut();
        match std::mem::replace(&mut this.state, State::Over) {
            State::Unasked(job) => match this.table.ask(this.slot, this.fairness, cx.waker(), Some(job)) {
                Ok(id) => this.state = State::Queued(id),
                Err(granted) => return Poll::Ready(granted.into()),
            },
            State::Queued(id) => match this.look(id, cx.waker()) {
                Poll::Pending => this.state = State::Queued(id),
                ready => return ready,
            },
            State::Over => {}
        }
        Poll::Pending
    }
}

impl<J, R> Drop for AcquireWith<'_, J, R> {
    fn drop(&mut self) {
        let State::Queued(id) = std::mem::replace(&mut self.state, State::Over) else { return };
        let (table, slot) = (self.table, self.slot);
        let left = table.locked(slot, |shard| match shard.forget(slot, id) {
            None => Ok(table.leave(shard, slot, id, |_, _| None)),
            Some(stage) => Err(stage),
        });
        if let Ok(leaving) = left
            && let (Some(grant), _) = leaving.settle()
        {
            table.decline(slot, grant);
        }
    }
}

impl<J, R> fmt::Debug for AcquireWith<'_, J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireWith").field("slot", &self.slot).finish_non_exhaustive()
    }
}
