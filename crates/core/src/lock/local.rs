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
//! Invariants:
//! - A slot has at most one holder. A waiter that was granted the slot but does not know it yet counts as the
//!   holder.
//! - [`Grant::HandedOver`] occurs only while this compute server holds the global lane, [`Grant::Fresh`] only
//!   while it does not.
//! - `WAITERS` is set iff the slot's queue is not empty, and both change only under the shard's mutex.
//! - If a slot is free although its queue is not empty, the first waiter is a [`Fairness::Barging`] waiter
//!   that was woken.
//! - Wakers are called, and dropped, outside the mutexes.
//!
//! A dropped [`Acquire`] can leave a global lane **parked** with this compute server. That happens if a
//! handover had reached it and no waiter is queued behind. For the memory server and all other compute
//! servers the lane then stays taken. It does so until some thread of this one asks for it (and gets
//! [`Grant::HandedOver`]). Therefore operations run as tasks that are never dropped midway
//! (`docs/FABRIC.md`). They give up waiting by [`Acquire::cancel`], which never parks a lane.
//!
//! `tests/loom_local.rs` explores the interleavings.

mod acquire;
mod queue;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

pub use acquire::Acquire;

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

/// The local lock table.
pub struct LocalLockTable {
    lanes_per_server: u32,
    words: Box<[AtomicU8]>,
    shards: Box<[Padded]>,
}

/// Keeps neighbouring mutexes off each other's cache line.
#[derive(Default)]
#[repr(align(64))]
struct Padded(Mutex<Shard>);

impl LocalLockTable {
    /// Creates a table for `servers` memory servers with `lanes_per_server` lanes each: one byte per lane.
    pub fn new(servers: u16, lanes_per_server: u32) -> Self {
        let slots = usize::from(servers) * lanes_per_server as usize;
        Self {
            lanes_per_server,
            words: (0..slots).map(|_| AtomicU8::new(Word::FREE.bits())).collect(),
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
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
    pub fn acquire(&self, lane: LaneIndex, fairness: Fairness) -> Acquire<'_> {
        Acquire::new(self, self.slot(lane), fairness)
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

    /// Wakes every waiter of every slot. The waiters then check the state and may give up.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            lock(shard, |shard| shard.wakers()).into_iter().for_each(Waker::wake);
        }
    }

    /// Number of waiters for `lane`. For tests and statistics.
    pub fn waiting(&self, lane: LaneIndex) -> usize {
        let slot = self.slot(lane);
        self.locked(slot, |shard| shard.waiting(slot))
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

    /// Clears the waiters mark. Under the shard's mutex.
    fn unmark(&self, slot: usize) {
        self.words[slot].fetch_and(!Word::FREE.with_waiters(true).bits(), Ordering::AcqRel);
    }

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

    fn locked<R>(&self, slot: usize, change: impl FnOnce(&mut Shard) -> R) -> R {
        lock(&self.shards[slot % SHARDS], change)
    }
}

fn lock<R>(shard: &Padded, change: impl FnOnce(&mut Shard) -> R) -> R {
    // Nothing in here panics half-way, so the state behind a poisoned mutex is valid.
    change(&mut shard.0.lock().unwrap_or_else(PoisonError::into_inner))
}

impl fmt::Debug for LocalLockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLockTable").field("slots", &self.words.len()).finish_non_exhaustive()
    }
}
