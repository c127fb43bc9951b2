//! The local lock table (LLT) of a compute server: paper §4.3, "Hierarchical structure" and "Handover
//! mechanism".
//!
//! The table has one slot for each lane of each memory server, shared by all threads of the compute server.
//! Conflicting operations of one compute server queue here, so that only one of them at a time goes to the
//! memory server. The holder of a lane may hand it, with the global lock, to the next thread in the queue.
//!
//! A slot is one `AtomicU8` (`word.rs`): an uncontended lock and release cost one CAS each. Queues exist only
//! for slots with waiters, in sharded mutexes (`queue.rs`). Waiters are served in queue order, not by ticket
//! number, so no counter can overflow into the lock itself. A grant is delivered under the queue's mutex. An
//! uncontended lock is taken with `Acquire` and freed with `Release`. So everything the last holder did is
//! visible to the next. (The published artifact fails on both counts.)
//!
//! A waiter can leave a **job** in the queue: a description of its change ([`LocalLockTable::acquire_with`]).
//! The holder takes the jobs of the first waiters ([`LocalLockTable::take_jobs`], `taken.rs`), executes them
//! along with its own change, and delivers a result to each. Such a waiter never holds the slot. The table
//! does not know what a job is.
//!
//! ```text
//!            +--------- return_job --------+
//!            v                             |
//!  poll -> waiting ---- take_jobs ----> executing ---- finish ----------> Done
//!            |                             +---------- ticket dropped --> Abandoned
//!            +--- the holder releases --------------------------------> Granted
//! ```
//!
//! Invariants:
//! - A slot has at most one holder. A waiter that was granted the slot but does not know it yet counts as the
//!   holder.
//! - [`Grant::HandedOver`] occurs only while this compute server holds the global lane, [`Grant::Fresh`] only
//!   while it does not.
//! - `WAITERS` is set iff the slot's queue is not empty, and both change only under the shard's mutex. A
//!   waiter whose job is taken is **not** in the queue. The holder answers it without passing the slot on, so
//!   it must not make the holder keep the global lane for it.
//! - A waiter gets exactly one of: a grant, a result, or the news that a holder abandoned its job. While
//!   a holder has its job, it gets no grant. A waiter that was granted the slot or left keeps its job.
//! - A holder takes jobs from the front of the queue and skips no waiter.
//! - A taken waiter is answered even if the holder's task is dropped or panics: [`Ticket`] does that when it
//!   is dropped.
//! - If a slot is free although its queue is not empty, the first waiter is a [`Fairness::Barging`] waiter
//!   that was woken.
//! - Wakers are called, and wakers, jobs and results are dropped, outside the mutexes.
//! - Every entry of a queue belongs to a live future. So the operations in flight bound the table's memory.
//!
//! A dropped [`Acquire`] or [`AcquireWith`] can leave a global lane **parked** with this compute server. That
//! happens if a handover had reached it and no waiter is queued behind. For the memory server and all other
//! compute servers the lane then stays taken. It does so until some thread of this one asks for it (and gets
//! [`Grant::HandedOver`]). Therefore operations run as tasks that are never dropped midway
//! (`docs/FABRIC.md`). They give up waiting by [`Acquire::cancel`] or [`AcquireWith::cancel`], which never
//! park a lane.
//!
//! `tests/loom_local` explores the interleavings.

mod acquire;
mod jobs;
mod queue;
mod taken;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

pub use acquire::Acquire;
pub use jobs::{AcquireWith, Cancelled, Turn};
pub use taken::{Taken, Ticket};

use crate::sync::{AtomicU8, Mutex};
use queue::{Passed, Shard};
use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Waker;
use word::Word;

/// Number of mutexes over the queues. One under loom, because more would only multiply the states to explore.
const SHARDS: usize = if cfg!(loom) { 1 } else { 128 };

/// Identifies a lane: the memory server, and the lane's index in that server's lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneIndex {
    /// The memory server.
    pub server: u16,
    /// The index in its lock table.
    pub lane: u32,
}

/// Decides which thread gets a slot that becomes free while threads wait. Set by the technique `queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// First come, first served: the slot passes directly to the first waiter in the queue.
    Fifo,
    /// The fastest thread gets it: the first waiter is woken, but meanwhile any thread may take the slot.
    Barging,
}

/// How a slot was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a granted slot must be released"]
pub enum Grant {
    /// The thread must still take the global lane.
    Fresh,
    /// This compute server holds the global lane already.
    HandedOver,
}

/// What a releaser must do about the global lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the plan decides whether the global lane is released"]
pub enum ReleasePlan {
    /// Leave it taken: the next waiter in the queue gets it.
    HandOver,
    /// Release it.
    Global,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The slot was passed on or is free.
    Done,
    /// A handover was planned, but all waiters have left the queue: **the caller still holds** slot and lane.
    /// It must release the global lane and then finish with [`ReleasePlan::Global`].
    MustReleaseGlobal,
}

/// The job and the result of a table whose waiters leave no jobs. It has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoJob {}

/// The local lock table. Its waiters may leave jobs of type `J`, and get results of type `R`.
pub struct LocalLockTable<J = NoJob, R = NoJob> {
    lanes_per_server: u32,
    words: Box<[AtomicU8]>,
    shards: Box<[Padded<J, R>]>,
}

/// Keeps neighbouring mutexes off each other's cache line.
#[repr(align(64))]
struct Padded<J, R>(Mutex<Shard<J, R>>);

impl<J, R> LocalLockTable<J, R> {
    /// Creates a table for `servers` memory servers with `lanes_per_server` lanes each: one byte per lane.
    pub fn new(servers: u16, lanes_per_server: u32) -> Self {
        let slots = usize::from(servers) * lanes_per_server as usize;
        Self {
            lanes_per_server,
            words: (0..slots).map(|_| AtomicU8::new(Word::FREE.bits())).collect(),
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(Shard::default()))).collect(),
        }
    }

    /// Acquires the slot if it is free and its queue is empty. One CAS.
    ///
    /// This and all other methods panic on a lane that the table does not have.
    #[inline]
    pub fn try_acquire(&self, lane: LaneIndex) -> Option<Grant> {
        self.try_take(self.slot(lane), Fairness::Fifo)
    }

    /// Returns a future of the slot. Its first poll requests the slot, and joins the queue if needed.
    pub fn acquire(&self, lane: LaneIndex, fairness: Fairness) -> Acquire<'_, J, R> {
        Acquire::new(self, self.slot(lane), fairness)
    }

    /// Returns a future of the slot, or of the result of `job`. Its first poll requests the slot, and joins
    /// the queue with the job if needed.
    pub fn acquire_with(&self, lane: LaneIndex, fairness: Fairness, job: J) -> AcquireWith<'_, J, R> {
        AcquireWith::new(self, self.slot(lane), fairness, job)
    }

    /// The holder calls this **before** it posts its write-back list. Tells whether that list must carry the
    /// release of the global lane.
    ///
    /// Returns [`ReleasePlan::HandOver`] iff `handover` is on, the queue is not empty and the lane was handed
    /// over fewer than `max_handovers` times in a row.
    #[inline]
    pub fn plan_release(&self, lane: LaneIndex, max_handovers: u32, handover: bool) -> ReleasePlan {
        // Only the holder changes the depth. A waiter that arrives just too late merely waits for a fresh
        // grant.
        let word = self.load(self.slot(lane));
        debug_assert!(word.is_held(), "only the holder plans a release");
        let may = handover && word.has_waiters() && word.depth() < max_handovers.min(Word::MAX_DEPTH);
        if may { ReleasePlan::HandOver } else { ReleasePlan::Global }
    }

    /// The holder calls this **after** the completion of the list that carried its last change (F5).
    ///
    /// With [`ReleasePlan::HandOver`] the first waiter gets [`Grant::HandedOver`]; if the queue is empty by
    /// now, see [`Finished::MustReleaseGlobal`]. With [`ReleasePlan::Global`] the first waiter gets
    /// [`Grant::Fresh`], or the slot becomes free. The count of handovers restarts from zero.
    #[inline]
    pub fn finish_release(&self, lane: LaneIndex, plan: ReleasePlan) -> Finished {
        let slot = self.slot(lane);
        let word = self.load(slot);
        debug_assert!(word.is_held(), "only the holder releases");
        match plan {
            ReleasePlan::Global
                if !word.has_waiters() && self.replace(slot, word, Word::FREE, Ordering::Release).is_ok() =>
            {
                Finished::Done
            }
            ReleasePlan::Global => {
                self.pass_on(slot, Grant::Fresh, 0, Word::FREE);
                Finished::Done
            }
            ReleasePlan::HandOver if self.pass_on(slot, Grant::HandedOver, word.depth() + 1, word) => {
                Finished::Done
            }
            ReleasePlan::HandOver => Finished::MustReleaseGlobal,
        }
    }

    /// Wakes every waiter of every slot, and those whose jobs are being executed. The waiters then check the
    /// state and may give up.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            lock(shard, |shard| shard.wakers()).into_iter().for_each(Waker::wake);
        }
    }

    /// Whether an operation waits for `lane`. One load.
    #[inline]
    pub fn has_waiters(&self, lane: LaneIndex) -> bool {
        self.load(self.slot(lane)).has_waiters()
    }

    /// Number of waiters for `lane`. Those whose jobs were taken do not count. For tests and statistics.
    pub fn waiting(&self, lane: LaneIndex) -> usize {
        let slot = self.slot(lane);
        self.locked(slot, |shard| shard.waiting(slot))
    }

    /// Number of waiters for `lane` whose jobs were taken, and that have not picked up the outcome yet. For
    /// tests and statistics.
    pub fn taken(&self, lane: LaneIndex) -> usize {
        let slot = self.slot(lane);
        self.locked(slot, |shard| shard.taken(slot))
    }

    /// Whether every slot is free and every queue is empty. Must hold when nothing is in flight.
    pub fn all_free(&self) -> bool {
        (0..self.words.len()).all(|slot| self.load(slot) == Word::FREE)
    }

    /// Passes `slot`, which the caller holds, to the first waiter. If the queue is empty, sets the word to
    /// `otherwise` and returns false.
    #[cold]
    fn pass_on(&self, slot: usize, grant: Grant, depth: u32, otherwise: Word) -> bool {
        let passed = self.locked(slot, |shard| {
            let passed = shard.pass(slot, grant);
            let word = match &passed {
                Passed::Granted { more, .. } => Word::held(depth).with_waiters(*more),
                Passed::Announced(_) => Word::free(grant, depth).with_waiters(true),
                Passed::Nobody => otherwise.with_waiters(false),
            };
            // While the slot is held and its shard locked, no other thread changes the word.
            self.words[slot].store(word.bits(), Ordering::Release);
            passed
        });
        match passed {
            Passed::Granted { waker, .. } | Passed::Announced(waker) => waker.wake(),
            Passed::Nobody => return false,
        }
        true
    }

    /// Takes the slot if it is free. `fairness` tells whether the caller respects the queue.
    #[inline]
    pub(super) fn try_take(&self, slot: usize, fairness: Fairness) -> Option<Grant> {
        let mut word = self.load(slot);
        // Ends as soon as no other thread changes the word in between.
        while word.is_free_for(fairness) {
            match self.replace(slot, word, word.taken(), Ordering::Acquire) {
                Ok(()) => return Some(word.grant()),
                Err(now) => word = now,
            }
        }
        None
    }

    /// In one step, takes the slot if it is free, or else sets its waiters mark. Under the shard's mutex.
    fn take_or_mark(&self, slot: usize, fairness: Fairness) -> Option<Grant> {
        seam!(lock::take_or_mark(self, slot, fairness));
        let mut word = self.load(slot);
        loop {
            let free = word.is_free_for(fairness);
            let next = if free { word.taken() } else { word.with_waiters(true) };
            match self.replace(slot, word, next, Ordering::AcqRel) {
                Ok(()) => return free.then(|| word.grant()),
                Err(now) => word = now,
            }
        }
    }

    /// Sets the waiters mark. Under the shard's mutex.
    fn mark(&self, slot: usize) {
        self.words[slot].fetch_or(Word::FREE.with_waiters(true).bits(), Ordering::AcqRel);
    }

    /// Clears the waiters mark. Under the shard's mutex.
    fn unmark(&self, slot: usize) {
        self.words[slot].fetch_and(!Word::FREE.with_waiters(true).bits(), Ordering::AcqRel);
    }

    #[inline]
    fn slot(&self, lane: LaneIndex) -> usize {
        assert!(
            lane.lane < self.lanes_per_server,
            "the table has {} lanes a server: {lane:?}",
            self.lanes_per_server
        );
        usize::from(lane.server) * self.lanes_per_server as usize + lane.lane as usize
    }

    #[inline]
    fn load(&self, slot: usize) -> Word {
        Word::from_bits(self.words[slot].load(Ordering::Relaxed))
    }

    #[inline]
    fn replace(&self, slot: usize, from: Word, to: Word, order: Ordering) -> Result<(), Word> {
        let swapped = self.words[slot].compare_exchange(from.bits(), to.bits(), order, Ordering::Relaxed);
        swapped.map(drop).map_err(Word::from_bits)
    }

    fn locked<T>(&self, slot: usize, change: impl FnOnce(&mut Shard<J, R>) -> T) -> T {
        lock(&self.shards[slot % SHARDS], change)
    }
}

fn lock<J, R, T>(shard: &Padded<J, R>, change: impl FnOnce(&mut Shard<J, R>) -> T) -> T {
    // Nothing in here panics half-way, so the state behind a poisoned mutex is valid.
    change(&mut shard.0.lock().unwrap_or_else(PoisonError::into_inner))
}

impl<J, R> fmt::Debug for LocalLockTable<J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLockTable").field("slots", &self.words.len()).finish_non_exhaustive()
    }
}
