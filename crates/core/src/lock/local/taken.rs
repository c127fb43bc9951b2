//! The holder's side of jobs: it takes them from the queue, and answers their waiters.

use super::queue::{Outcome, WaiterId};
use super::{LaneIndex, LocalLockTable};
use std::fmt;

/// A job that the holder of its lane took from the queue.
///
/// The two parts can be separated: the job to execute it, and the ticket to answer the waiter.
#[derive(Debug)]
pub struct Taken<'t, J, R> {
    /// What to execute.
    pub job: J,
    /// Answers the waiter.
    pub ticket: Ticket<'t, J, R>,
}

/// Answers the waiter of one taken job, exactly once.
///
/// It knows its table, lane and waiter. So a result cannot reach the wrong waiter, and a ticket that is
/// dropped can still answer: the waiter gets [`Turn::Abandoned`](super::Turn::Abandoned). That happens if the
/// holder's task is dropped or panics. The holder need not hold the lane any more when it answers. If the
/// waiter's future was dropped meanwhile, the answer is dropped silently.
#[must_use = "a ticket that is dropped abandons its waiter"]
pub struct Ticket<'t, J, R> {
    table: &'t LocalLockTable<J, R>,
    slot: usize,
    id: WaiterId,
    answered: bool,
}

impl<J, R> Ticket<'_, J, R> {
    /// Delivers the result of the job and wakes the waiter, which gets [`Turn::Done`](super::Turn::Done).
    pub fn finish(self, result: R) {
        self.conclude(Outcome::Done(result));
    }

    /// Puts the waiter with its job back into the queue, before all waiters that arrived after it. From then
    /// on it is an ordinary waiter. The job must not have been executed.
    ///
    /// The holder calls this **before** [`LocalLockTable::plan_release`], because the plan depends on whether
    /// the queue is empty. If the slot was released already, the waiter gets it as soon as it is free.
    ///
    /// Wakes the waiter: if it wanted to cancel while its job was taken, it can now.
    pub fn return_job(mut self, job: J) {
        self.answered = true;
        let (table, slot, id) = (self.table, self.slot, self.id);
        let (returned, next) = table.locked(slot, |shard| {
            let returned = shard.put_back(slot, id, job);
            let mut next = None;
            if returned.is_ok() {
                table.mark(slot);
                next = table.serve_next(shard, slot);
            }
            (returned, next)
        });
        // `Err` is the job of a waiter that is gone. It is dropped here, outside the mutex.
        [returned.ok(), next].into_iter().flatten().for_each(std::task::Waker::wake);
    }

    fn conclude(mut self, outcome: Outcome<R>) {
        self.answered = true;
        self.table.conclude(self.slot, self.id, outcome);
    }
}

impl<J, R> Drop for Ticket<'_, J, R> {
    fn drop(&mut self) {
        if !self.answered {
            self.table.conclude(self.slot, self.id, Outcome::Abandoned);
        }
    }
}

impl<J, R> fmt::Debug for Ticket<'_, J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("slot", &self.slot).field("id", &self.id).finish_non_exhaustive()
    }
}

impl<J, R> LocalLockTable<J, R> {
    /// The holder calls this, as often as it likes while it holds the lane. Moves the jobs of the first
    /// waiters to the end of `into`, in order of arrival. Takes at most `max` jobs. Stops at the first waiter
    /// that has no job or whose job `accept` refuses. Returns the number of jobs taken.
    ///
    /// The waiters behind a refused one stay, although they may have acceptable jobs. If the holder took
    /// those, they would overtake the refused waiter. Under a steady stream of jobs that waiter would starve.
    ///
    /// A taken waiter is no longer in the queue: it gets no grant, and [`plan_release`](Self::plan_release)
    /// does not count it. So the holder takes jobs **before** it plans the release.
    ///
    /// Costs one load if nobody waits. `accept` runs under a mutex: it must be short, and must not use the
    /// table.
    pub fn take_jobs<'t>(
        &'t self,
        lane: LaneIndex,
        max: usize,
        accept: impl FnMut(&J) -> bool,
        into: &mut Vec<Taken<'t, J, R>>,
    ) -> usize {
        let slot = self.slot(lane);
        let word = self.load(slot);
        debug_assert!(word.is_held(), "only the holder takes jobs");
        if !word.has_waiters() || max == 0 {
            return 0;
        }
        self.locked(slot, |shard| {
            let receive = |id, job| {
                into.push(Taken { job, ticket: Ticket { table: self, slot, id, answered: false } });
            };
            let (taken, more) = shard.take_jobs(slot, max, accept, receive);
            if !more {
                self.unmark(slot);
            }
            taken
        })
    }

    /// Sets the outcome of a taken job and wakes its waiter.
    fn conclude(&self, slot: usize, id: WaiterId, outcome: Outcome<R>) {
        let concluded = self.locked(slot, |shard| shard.conclude(slot, id, outcome));
        // `Err` is the outcome of a waiter that is gone. It is dropped here, outside the mutex.
        if let Ok(waker) = concluded {
            waker.wake();
        }
    }
}
