//! The local lock table (LLT) of a compute server: paper §4.3, "Hierarchical structure" and "Handover mechanism".
//!
//! One slot for each lane of each memory server, shared by all threads of the compute server. Conflicting operations of one
//! compute server queue here, so that only one of them at a time goes to the memory server, and whoever holds a lane may
//! hand it, global lock and all, to the next in the queue.
//!
//! A slot is one `AtomicU8` (`word.rs`): an uncontended lock and release cost one CAS each. Queues exist only for slots
//! that somebody waits for, in sharded mutexes (`queue.rs`). The order of waiters is their order in a queue, not a ticket
//! number, so there is no counter to overflow into the lock itself; a grant is delivered under the queue's mutex and an
//! uncontended lock is taken with `Acquire` and freed with `Release`, so everything the last holder did is visible to the
//! next. (The published artifact fails on both counts.)
//!
//! What must hold:
//! - at most one holder per slot, a waiter that was granted the slot but does not know yet included;
//! - [`Grant::HandedOver`] only while this compute server holds the global lane, [`Grant::Fresh`] only while it does not;
//! - `WAITERS` is set iff the slot's queue is not empty, and both change only under the shard's mutex;
//! - a slot that is free although somebody is queued has a [`Fairness::Barging`] waiter in front, and that one was woken;
//! - wakers are called, and dropped, outside the mutexes.
//!
//! What may go wrong: an [`Acquire`] that is dropped after a handover reached it, with nobody queued behind, leaves the
//! global lane **parked** with this compute server: it stays taken, for the memory server and all other compute servers,
//! until some thread of this one asks for it (and gets [`Grant::HandedOver`]). Operations therefore run as tasks that are
//! never dropped midway (`docs/FABRIC.md`), and give up waiting by [`Acquire::cancel`], which never parks a lane.
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

/// Mutexes over the queues. Under loom one: more would only multiply what it explores.
const SHARDS: usize = if cfg!(loom) { 1 } else { 128 };

/// Names a lane: the memory server, and its index in that server's lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneIndex {
    /// The memory server.
    pub server: u16,
    /// The index in its lock table.
    pub lane: u32,
}

/// Who gets a slot that becomes free while somebody waits. The technique `queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// First come, first served: the slot passes directly to the first in the queue.
    Fifo,
    /// Whoever comes by: the first in the queue is woken, but the slot is free for all meanwhile.
    Barging,
}

/// How a slot was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a granted slot must be released"]
pub enum Grant {
    /// The global lane is still to be taken.
    Fresh,
    /// This compute server holds the global lane already.
    HandedOver,
}

/// What a releaser must do about the global lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the plan decides whether the global lane is released"]
pub enum Plan {
    /// Leave it taken: the next in the queue gets it.
    HandOver,
    /// Release it.
    Global,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The slot is passed on or free.
    Done,
    /// It was to be handed over, but everyone has left the queue: **the caller still holds** slot and lane. It must release
    /// the global lane and then finish with [`Plan::Global`].
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
    /// A table for `servers` memory servers with `lanes_per_server` lanes each: one byte a lane.
    pub fn new(servers: u16, lanes_per_server: u32) -> Self {
        let slots = usize::from(servers) * lanes_per_server as usize;
        Self {
            lanes_per_server,
            words: (0..slots).map(|_| AtomicU8::new(Word::FREE.bits())).collect(),
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
        }
    }

    /// Acquires the slot if it is free and nobody is queued. One CAS.
    ///
    /// This and all others panic on a lane that the table does not have.
    #[inline]
    pub fn try_acquire(&self, lane: LaneIndex) -> Option<Grant> {
        self.try_take(self.slot(lane), Fairness::Fifo)
    }

    /// A future of the slot. It asks when it is first polled, and is queued then if it has to be.
    pub fn acquire(&self, lane: LaneIndex, fairness: Fairness) -> Acquire<'_> {
        Acquire::new(self, self.slot(lane), fairness)
    }

    /// For the holder, **before** it posts its write-back list: whether that list must carry the release of the global lane.
    ///
    /// [`Plan::HandOver`] iff `handover` is on, somebody is queued and the lane was handed over fewer than `max_handovers`
    /// times in a row.
    #[inline]
    pub fn plan_release(&self, lane: LaneIndex, max_handovers: u32, handover: bool) -> Plan {
        // Only the holder changes the depth, and a waiter missed by a hair merely waits for a fresh grant.
        let word = self.load(self.slot(lane));
        debug_assert!(word.is_held(), "only the holder plans a release");
        let may = handover && word.has_waiters() && word.depth() < max_handovers.min(Word::MAX_DEPTH);
        if may { Plan::HandOver } else { Plan::Global }
    }

    /// For the holder, **after** the completion of the list that carried its last change (F5).
    ///
    /// With [`Plan::HandOver`] the first in the queue gets [`Grant::HandedOver`]; see [`Finished::MustReleaseGlobal`] for when
    /// there is none any more. With [`Plan::Global`] it gets [`Grant::Fresh`], or the slot becomes free; handovers are counted
    /// from zero again.
    #[inline]
    pub fn finish_release(&self, lane: LaneIndex, plan: Plan) -> Finished {
        let slot = self.slot(lane);
        let word = self.load(slot);
        debug_assert!(word.is_held(), "only the holder releases");
        match plan {
            Plan::Global if !word.has_waiters() && self.replace(slot, word, Word::FREE, Ordering::Release).is_ok() => {
                Finished::Done
            }
            Plan::Global => {
                self.pass_on(slot, Grant::Fresh, 0, Word::FREE);
                Finished::Done
            }
            Plan::HandOver if self.pass_on(slot, Grant::HandedOver, word.depth() + 1, word) => Finished::Done,
            Plan::HandOver => Finished::MustReleaseGlobal,
        }
    }

    /// Wakes everyone who is queued for any slot: they look at what has happened and may give up.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            lock(shard, |shard| shard.wakers()).into_iter().for_each(Waker::wake);
        }
    }

    /// How many are queued for `lane`. For tests and statistics.
    pub fn waiting(&self, lane: LaneIndex) -> usize {
        let slot = self.slot(lane);
        self.locked(slot, |shard| shard.waiting(slot))
    }

    /// Whether every slot is free and nobody is queued: what must hold when nothing is in flight.
    pub fn all_free(&self) -> bool {
        (0..self.words.len()).all(|slot| self.load(slot) == Word::FREE)
    }

    /// For the holder of `slot`: passes it to the first in the queue. With nobody queued the word becomes `otherwise`, and
    /// the answer is false.
    #[cold]
    fn pass_on(&self, slot: usize, grant: Grant, depth: u32, otherwise: Word) -> bool {
        let passed = self.locked(slot, |shard| {
            let passed = shard.pass(slot, grant);
            let word = match &passed {
                Passed::Granted { more, .. } => Word::held(depth).with_waiters(*more),
                Passed::Announced(_) => Word::free(grant, depth).with_waiters(true),
                Passed::Nobody => otherwise.with_waiters(false),
            };
            // While the slot is held and its shard locked, nobody else changes the word.
            self.words[slot].store(word.bits(), Ordering::Release);
            passed
        });
        match passed {
            Passed::Granted { waker, .. } | Passed::Announced(waker) => waker.wake(),
            Passed::Nobody => return false,
        }
        true
    }

    /// Takes the slot if it is free, for one who does or does not respect the queue.
    #[inline]
    fn try_take(&self, slot: usize, fairness: Fairness) -> Option<Grant> {
        let mut word = self.load(slot);
        // Ends as soon as nobody else succeeds in changing the word.
        while word.is_free_for(fairness) {
            match self.replace(slot, word, word.taken(), Ordering::Acquire) {
                Ok(()) => return Some(word.grant()),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Takes the slot if it is free, else marks it as waited for, in one step. Under the shard's mutex.
    fn take_or_mark(&self, slot: usize, fairness: Fairness) -> Option<Grant> {
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

    /// Takes the mark of waiters off. Under the shard's mutex.
    fn unmark(&self, slot: usize) {
        self.words[slot].fetch_and(!Word::FREE.with_waiters(true).bits(), Ordering::AcqRel);
    }

    fn slot(&self, lane: LaneIndex) -> usize {
        assert!(lane.lane < self.lanes_per_server, "the table has {} lanes a server: {lane:?}", self.lanes_per_server);
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
    // Nothing in here panics half-way, so what a poisoned mutex guards is still whole.
    change(&mut shard.0.lock().unwrap_or_else(PoisonError::into_inner))
}

impl fmt::Debug for LocalLockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLockTable").field("slots", &self.words.len()).finish_non_exhaustive()
    }
}
