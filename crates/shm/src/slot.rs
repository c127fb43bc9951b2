//! The slot that a link has in the segment, in cache lines of its own.
//!
//! ```text
//!       word
//!   0 |  0 turn   1 line   2 even   3 saved                  changed by the client
//!  64 |  8 .. 15 the line as it was                           changed by the client
//! 128 | 16 flag  17 client                                    changed by the server
//! 192 | 24 done                                               changed by the client, once
//! ```
//! **Repairing a line.** To take a line, a client makes the line's sequence word odd. *Before* that, it
//! writes into its slot the line and the even word that it replaces. The odd word names the slot. Before the
//! client changes more than one word, it saves the line and marks it as saved.
//!
//! A killed thread has executed its instructions up to some point and none after it. So its stores up to that
//! point remain, in program order. Fences keep the compiler from reordering these stores. For readers on
//! other processors, they also keep the processor from doing so.
//!
//! So if the sequence word of the slot's line names the slot, the dead client held that line. If the line was
//! saved, the server puts it back. Otherwise at most one word was changed, by one store, and the line is
//! whole either way. Then the server releases the line. If the sequence word does not name the slot, the
//! client held nothing. The repair can be repeated safely.
//!
//! Slot 0 belongs to the server's own process. It is never repaired: when that process dies, the memory is
//! gone.

use sherman_embedded::shared::{Passed, enter, leave};
use sherman_fabric::ComputeId;
use sherman_pages::mapped::Mapping;
use sherman_pages::zeroed::Zeroed;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Words in a slot: four cache lines.
pub(crate) const SLOT_WORDS: usize = 32;
const TURN: usize = 0;
const LINE: usize = 1;
const EVEN: usize = 2;
const SAVED: usize = 3;
const IMAGE: usize = 8;
const IMAGE_WORDS: usize = 8;
const FLAG: usize = 16;
const CLIENT: usize = 17;
const DONE: usize = 24;

/// Why a link may no longer change memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// Its session is over.
    Fenced = 1,
    /// Its connection has ended.
    Ended = 2,
    /// The server stops.
    Closed = 3,
}

impl Flag {
    fn of(word: u64) -> Option<Self> {
        match word {
            0 => None,
            2 => Some(Self::Ended),
            3 => Some(Self::Closed),
            _ => Some(Self::Fenced),
        }
    }
}

/// The odd sequence word of a line that slot `index` holds.
pub(crate) fn odd(index: u32) -> u32 {
    index << 1 | 1
}

/// The slot that an odd sequence word names.
pub(crate) fn holder(word: u32) -> u32 {
    word >> 1
}

/// A slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalSlot<'s>(&'s [AtomicU64; SLOT_WORDS]);

impl<'s> JournalSlot<'s> {
    /// The slot that consists of the first of `words`.
    #[inline]
    pub(crate) fn new(words: &'s [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(Self)
    }

    /// Odd while a list that changes memory is in progress.
    pub(crate) fn turn(self) -> u64 {
        self.0[TURN].load(SeqCst)
    }

    /// Begins a list that changes memory, unless the flag is up.
    #[inline]
    pub(crate) fn enter(self) -> Option<Passed> {
        enter(&self.0[TURN], || self.0[FLAG].load(SeqCst) == 0)
    }

    /// Ends the list.
    #[inline]
    pub(crate) fn leave(self, passed: Passed, settled: bool) {
        leave(&self.0[TURN], passed, settled);
    }

    /// Why the owner may not change memory; `None` if it may.
    #[inline]
    pub(crate) fn flag(self) -> Option<Flag> {
        Flag::of(self.0[FLAG].load(Acquire))
    }

    /// Raises the flag. The first reason stays, except that a fence replaces every other reason.
    pub(crate) fn raise(self, flag: Flag) {
        if flag == Flag::Fenced {
            self.0[FLAG].store(flag as u64, SeqCst);
        } else {
            let _ = self.0[FLAG].compare_exchange(0, flag as u64, SeqCst, SeqCst);
        }
    }

    /// The client that owns the slot.
    pub(crate) fn client(self) -> ComputeId {
        ComputeId(self.0[CLIENT].load(Relaxed) as u16)
    }

    /// Records that the owner is about to take `line`, whose sequence word is `even`. The line is not saved
    /// yet.
    #[inline]
    pub(crate) fn note(self, line: u64, even: u32) {
        // The previous line must be released before these stores.
        fence(Release);
        self.0[SAVED].store(0, Relaxed);
        self.0[LINE].store(line, Relaxed);
        self.0[EVEN].store(even.into(), Relaxed);
    }

    /// Saves the words of the recorded line.
    #[inline]
    pub(crate) fn save(self, words: &[AtomicU64]) {
        for (saved, word) in self.0[IMAGE..IMAGE + IMAGE_WORDS].iter().zip(words) {
            saved.store(word.load(Relaxed), Relaxed);
        }
        self.0[SAVED].store(1, Release);
        // The line must be saved before it changes.
        fence(Release);
    }

    /// The line that was recorded last, if it was saved.
    pub(crate) fn saved(self) -> Option<(u64, [u64; IMAGE_WORDS])> {
        (self.0[SAVED].load(Acquire) == 1)
            .then(|| (self.0[LINE].load(Relaxed), std::array::from_fn(|i| self.0[IMAGE + i].load(Relaxed))))
    }

    /// A number that changes whenever the slot's owner makes progress.
    pub(crate) fn pulse(self) -> u64 {
        let [turn, line, even, saved] = [TURN, LINE, EVEN, SAVED].map(|at| self.0[at].load(Relaxed));
        turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ line.rotate_left(24) ^ even << 1 ^ saved
    }

    /// Gives the slot to `client`, which may use it from now on.
    pub(crate) fn open(self, client: ComputeId) {
        for at in [LINE, EVEN, SAVED, DONE] {
            self.0[at].store(0, Relaxed);
        }
        self.0[TURN].store(self.turn().wrapping_add(1) & !1, Relaxed);
        self.0[CLIENT].store(client.0.into(), Relaxed);
        self.0[FLAG].store(0, SeqCst);
    }

    /// Records that the owner will never touch the slot again.
    pub(crate) fn finish(self) {
        self.0[DONE].store(1, Release);
    }

    /// Whether the owner has finished the slot.
    pub(crate) fn is_finished(self) -> bool {
        self.0[DONE].load(Acquire) == 1
    }

    /// Repairs the line that this slot, number `index`, held when its owner died. Returns whether it held
    /// one.
    pub(crate) fn mend(self, index: u32, sequence: &[AtomicU32], host: &[AtomicU64]) -> bool {
        let line = usize::try_from(self.0[LINE].load(Acquire)).unwrap_or(usize::MAX);
        let (Some(word), Some(words)) = (sequence.get(line), host.as_chunks::<IMAGE_WORDS>().0.get(line))
        else {
            return false;
        };
        if word.load(Acquire) != odd(index) {
            return false;
        }
        if let Some((_, image)) = self.saved() {
            for (word, saved) in words.iter().zip(image) {
                word.store(saved, Relaxed);
            }
        }
        let even = self.0[EVEN].load(Relaxed) as u32 & !1;
        word.store(even.wrapping_add(2), Release);
        true
    }
}

/// All slots of a segment.
#[derive(Debug)]
pub(crate) struct Slots {
    words: Zeroed<AtomicU64>,
    mapping: Arc<Mapping>,
    offset: usize,
}

impl Slots {
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize, slots: u32) -> Option<Self> {
        let words = Zeroed::in_mapping(mapping, offset, slots as usize * SLOT_WORDS)?;
        Some(Self { words, mapping: Arc::clone(mapping), offset })
    }

    /// Slot `index`, if it exists.
    pub(crate) fn get(&self, index: u32) -> Option<JournalSlot<'_>> {
        self.words.as_chunks().0.get(index as usize).map(JournalSlot)
    }

    /// The words of slot `index`, for its owner.
    pub(crate) fn words(&self, index: u32) -> Option<Zeroed<AtomicU64>> {
        self.get(index)?;
        Zeroed::in_mapping(&self.mapping, self.offset + index as usize * SLOT_WORDS * 8, SLOT_WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(len: usize) -> Zeroed<AtomicU64> {
        Zeroed::new(len).unwrap()
    }

    fn image(words: &[AtomicU64]) -> Vec<u64> {
        words.iter().map(|word| word.load(Relaxed)).collect()
    }

    /// Cuts the change of a line after each of its stores.
    #[test]
    fn wherever_its_owner_dies_a_line_is_whole_and_free() {
        const INDEX: u32 = 5;
        for cut in 0..=12 {
            let (own, host, sequence) = (words(SLOT_WORDS), words(24), Zeroed::<AtomicU32>::new(16).unwrap());
            host.iter().for_each(|word| word.store(1, Relaxed));
            sequence[1].store(40, Relaxed);
            let slot = JournalSlot::new(&own).unwrap();
            let mut stores = 0;
            let mut step = |store: &dyn Fn()| {
                if stores < cut {
                    store();
                }
                stores += 1;
            };
            step(&|| slot.note(1, 40));
            step(&|| sequence[1].store(odd(INDEX), Relaxed));
            step(&|| slot.save(&host[8..16]));
            for i in 8..16 {
                step(&|| host[i].store(2, Relaxed));
            }
            step(&|| sequence[1].store(42, Relaxed));
            let held = (2..12).contains(&cut);
            assert_eq!(slot.mend(INDEX, &sequence, &host), held, "{cut}");
            assert!(!slot.mend(INDEX, &sequence, &host), "{cut}");
            assert_eq!(sequence[1].load(Relaxed), if cut < 2 { 40 } else { 42 }, "{cut}");
            assert_eq!(image(&host[8..16]), [if cut < 12 { 1 } else { 2 }; 8], "{cut}");
            assert!(image(&host).iter().enumerate().all(|(i, word)| (8..16).contains(&i) || *word == 1));
        }
    }

    #[test]
    fn a_change_of_one_word_is_kept_or_not_and_never_undone() {
        let (own, host, sequence) = (words(SLOT_WORDS), words(16), Zeroed::<AtomicU32>::new(16).unwrap());
        let slot = JournalSlot::new(&own).unwrap();
        slot.note(0, 2);
        slot.save(&host[..8]);
        slot.note(1, 0);
        sequence[1].store(odd(3), Relaxed);
        host[9].store(7, Relaxed);
        assert!(slot.mend(3, &sequence, &host));
        assert_eq!((host[9].load(Relaxed), sequence[1].load(Relaxed), sequence[0].load(Relaxed)), (7, 2, 0));
    }

    #[test]
    fn nonsense_in_a_slot_repairs_nothing() {
        let (own, host, sequence) = (words(SLOT_WORDS), words(16), Zeroed::<AtomicU32>::new(16).unwrap());
        let slot = JournalSlot::new(&own).unwrap();
        for line in [2, 15, 16, u64::MAX] {
            own[LINE].store(line, Relaxed);
            own[SAVED].store(line, Relaxed);
            assert!(!slot.mend(1, &sequence, &host));
        }
        own[LINE].store(1, Relaxed);
        own[EVEN].store(u64::MAX, Relaxed);
        sequence[1].store(odd(1), Relaxed);
        assert!(slot.mend(1, &sequence, &host));
        assert_eq!(sequence[1].load(Relaxed) % 2, 0);
    }

    #[test]
    fn a_flag_refuses_and_a_fence_outdoes_what_was_said_before() {
        let own = words(SLOT_WORDS);
        let slot = JournalSlot::new(&own).unwrap();
        slot.open(ComputeId(3));
        let passed = slot.enter().unwrap();
        assert_eq!(slot.turn() % 2, 1);
        slot.raise(Flag::Ended);
        slot.raise(Flag::Closed);
        assert_eq!(slot.flag(), Some(Flag::Ended));
        slot.leave(passed, false);
        assert!(slot.turn().is_multiple_of(2) && slot.enter().is_none() && slot.turn().is_multiple_of(2));
        slot.raise(Flag::Fenced);
        assert_eq!(
            (slot.flag(), slot.client(), slot.is_finished()),
            (Some(Flag::Fenced), ComputeId(3), false)
        );
        slot.finish();
        assert!(slot.is_finished());
        slot.open(ComputeId(4));
        assert!(slot.flag().is_none() && !slot.is_finished() && slot.enter().is_some());
    }
}
