//! READs that several gets of one compute server share.
//!
//! Gets of hot keys often want the same lines at the same time. While two READs of these lines are in flight,
//! a further get posts none. It waits for the **next** READ of the lines, which serves all gets that wait by
//! then. A get that finds fewer than two posts its own at once: sharing would only delay it.
//!
//! ```text
//!  get 1   begin · [READ ..............] end
//!  get 2     begin · [READ ...................] end
//!  get 3       begin · waits ········· [READ ..................] end      its poster
//!  get 4             begin · waits ···································· end      shares it
//!  get 5                                  begin · waits ············      for the READ after it
//! ```
//! **The rule** (I52): a get uses a READ only if it was posted after the get began. A READ that is already in
//! flight may have fetched its lines before, and a write may have been acknowledged since. So a round is
//! *open* until its poster *closes* it, right before it posts the READ, and gets join open rounds only.
//!
//! A **round** is one such READ and the gets that wait for it:
//!
//! ```text
//!  Open ---- a READ of the slot ends: first waiter ----> Named ---- its poster runs ----> Posted
//!                                                          |                                | deliver -> Read
//!                                                          | poster dropped: the next       | dropped -> Failed
//!                                                          v waiter is named
//! ```
//! A waiter of a failed round posts its own READ, and so gets its own error. Waiters bound their patience
//! (`Op::get_shared`), because a poster runs only when its thread does.
//!
//! Windows are hashed to **slots**. A slot is one `AtomicU8`: the number of READs in flight, at most
//! [`CROWD`], and the mark `WAITERS`. Windows that share a slot only wait for each other's READs to end, and
//! never share bytes. A get that shares nothing costs two atomic operations. Rounds exist only for slots with
//! waiters, in sharded mutexes (`rounds.rs`).
//!
//! Invariants:
//! - `WAITERS` is set iff the slot has an open round without a poster. It changes only under the shard's
//!   mutex. While it is set, [`CROWD`] READs are in flight or about to be posted, so one of them will end and
//!   name a poster.
//! - A waiter learns exactly one thing: that it is the poster, that the bytes are there, or that the READ
//!   failed.
//! - A round belongs to live futures alone, so the operations in flight bound the memory.
//! - Wakers are called outside the mutexes.
//!
//! `loom_tests` explores the interleavings.

#[cfg(all(test, loom))]
mod loom_tests;
mod rounds;
#[cfg(feature = "mutants")]
pub(crate) mod seam;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;

pub(crate) use wait::{Share, SharedTurn};

use crate::sync::{AtomicU8, Mutex};
use rounds::{RoundId, Rounds};
use sherman_fabric::GlobalAddress;
use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// The READs of one window that must be in flight before a get waits for the next one.
pub(crate) const CROWD: u8 = 2;
/// The mark of a slot with an open round that has no poster.
const WAITERS: u8 = 0x80;
/// The largest number of slots.
const MAX_SLOTS: usize = 4096;
/// Number of mutexes over the rounds.
const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// Lines of a leaf: their first byte, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineRange {
    pub(crate) first: GlobalAddress,
    pub(crate) bytes: usize,
}

/// The READs of lines that the gets of one compute server have in flight.
pub struct SharedReads {
    /// Empty if READs are not shared.
    words: Box<[AtomicU8]>,
    shards: Box<[Padded]>,
}

/// Keeps neighbouring mutexes off each other's cache line.
#[repr(align(64))]
struct Padded(Mutex<Rounds>);

impl SharedReads {
    /// Creates a table with about `slots` slots. With 0, READs are not shared.
    pub(crate) fn new(slots: usize) -> Self {
        let slots = if slots == 0 { 0 } else { slots.next_power_of_two().min(MAX_SLOTS) };
        let shards = if slots == 0 { 0 } else { SHARDS };
        Self {
            words: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            shards: (0..shards).map(|_| Padded(Mutex::new(Rounds::default()))).collect(),
        }
    }

    /// Counts a READ of these lines, which the caller posts at once. Returns `None` if so many are in flight
    /// that the caller should share the next one.
    #[inline]
    pub(crate) fn begin(&self, lines: LineRange) -> Option<InFlight<'_>> {
        if self.words.is_empty() {
            return Some(InFlight { counted: None });
        }
        let slot = self.slot(lines);
        self.try_count(slot).then(|| InFlight { counted: Some((self, slot)) })
    }

    /// Returns a future of the bytes of these lines, or of the right to read them for others too.
    pub(crate) fn share(&self, lines: LineRange) -> Share<'_> {
        Share::new(self, self.slot(lines), lines)
    }

    /// Wakes every waiter. The waiters then check the state of the compute server.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            lock(shard, |rounds| rounds.wakers()).into_iter().for_each(Waker::wake);
        }
    }

    /// Whether no READ is counted and no get waits. Must hold when nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
            && self.shards.iter().all(|shard| lock(shard, |rounds| rounds.is_empty()))
    }

    /// Counts one more READ of the slot, unless there are enough. Words only count: bytes and wakers pass
    /// through the mutexes, so no order with other memory is needed.
    #[inline]
    fn try_count(&self, slot: usize) -> bool {
        let mut word = self.words[slot].load(Ordering::Relaxed);
        // Ends as soon as no other thread changes the word in between.
        while word < CROWD {
            match self.replace(slot, word, word + 1) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Counts one more READ of the slot, or else sets the mark `WAITERS`. Under the shard's mutex.
    fn count_or_mark(&self, slot: usize) -> bool {
        let mut word = self.words[slot].load(Ordering::Relaxed);
        loop {
            let free = word < CROWD;
            match self.replace(slot, word, if free { word + 1 } else { word | WAITERS }) {
                Ok(()) => return free,
                Err(now) => word = now,
            }
        }
    }

    /// Ends a READ of the slot. If gets wait, the first one takes its place and posts the next READ.
    #[inline]
    fn end(&self, slot: usize) {
        let mut word = self.words[slot].load(Ordering::Relaxed);
        while word & WAITERS == 0 {
            match self.replace(slot, word, word - 1) {
                Ok(()) => return,
                Err(now) => word = now,
            }
        }
        self.name_poster(slot);
    }

    #[cold]
    fn name_poster(&self, slot: usize) {
        let named = self.locked(slot, |rounds| {
            let waker = rounds.name(slot);
            if waker.is_none() {
                // The waiters have left since, and with them the mark.
                self.words[slot].fetch_sub(1, Ordering::Relaxed);
            }
            self.unmark_if_named(rounds, slot);
            waker
        });
        if let Some(waker) = named {
            waker.wake();
        }
    }

    /// Removes the mark `WAITERS` if every open round of the slot has a poster. Under the shard's mutex.
    fn unmark_if_named(&self, rounds: &Rounds, slot: usize) {
        if !rounds.has_unnamed(slot) {
            self.words[slot].fetch_and(!WAITERS, Ordering::Relaxed);
        }
    }

    #[inline]
    fn slot(&self, lines: LineRange) -> usize {
        // Lines begin at multiples of 64 bytes. The multiplication spreads neighbours.
        let line = lines.first.to_bits() >> 6;
        let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        hash as usize & (self.words.len() - 1)
    }

    #[inline]
    fn replace(&self, slot: usize, from: u8, to: u8) -> Result<(), u8> {
        self.words[slot].compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).map(drop)
    }

    fn locked<T>(&self, slot: usize, change: impl FnOnce(&mut Rounds) -> T) -> T {
        lock(&self.shards[slot % SHARDS], change)
    }
}

fn lock<T>(shard: &Padded, change: impl FnOnce(&mut Rounds) -> T) -> T {
    // Nothing in here panics half-way, so the state behind a poisoned mutex is valid.
    change(&mut shard.0.lock().unwrap_or_else(PoisonError::into_inner))
}

impl fmt::Debug for SharedReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReads").field("slots", &self.words.len()).finish_non_exhaustive()
    }
}

/// A READ that its get posted for itself alone. Drop it when the READ has ended.
#[must_use = "a READ is counted until this is dropped"]
#[derive(Debug)]
pub(crate) struct InFlight<'t> {
    counted: Option<(&'t SharedReads, usize)>,
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((table, slot)) = self.counted {
            table.end(slot);
        }
    }
}

/// A READ that its poster posts for all waiters of a round. If it is dropped before [`Posting::deliver`],
/// the waiters learn that the READ failed.
#[must_use = "waiters wait for these bytes"]
#[derive(Debug)]
pub(crate) struct Posting<'t> {
    table: &'t SharedReads,
    slot: usize,
    round: RoundId,
    told: bool,
}

impl Posting<'_> {
    /// Hands the bytes to the waiters.
    pub(crate) fn deliver(mut self, bytes: &[u8]) {
        self.told = true;
        self.tell(Some(bytes));
    }

    fn tell(&self, bytes: Option<&[u8]>) {
        seam!(share::tell(bytes));
        let waiters = self.table.locked(self.slot, |rounds| rounds.conclude(self.round, bytes));
        waiters.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.tell(None);
        }
        self.table.end(self.slot);
    }
}
