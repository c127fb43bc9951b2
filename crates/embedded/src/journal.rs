//! The undo journal of memory in a file: the death of the process tears no line (F1, F7).
//!
//! A line is eight words, and a WRITE changes it by several stores. A process killed between two of them
//! would leave a torn line in a file that outlives it. Recovery could not repair a client's one-line entry
//! write, which has no redo record because F1 makes it one unit. So a writer that changes more than one word
//! of a line first saves the line in a **slot** of the file. It saves the old words, makes the slot valid by
//! naming the line in it, changes the line, and clears the name. When the file is opened again,
//! [`Journal::undo`] finds a valid slot and restores the old line.
//!
//! **What must hold.** A killed thread has executed its instructions up to some point and none after it. So
//! the file holds its stores up to there, in program order. Fences keep the compiler from reordering the
//! stores, and the processor too, for observers that run meanwhile. A writer uses the slot while it holds the
//! line ([`line`](crate::line)), and clears it before it releases the line. So no reader saw the undone
//! bytes, and no client got an acknowledgement for them. No writer takes a line while the line has a slot. A
//! slot serves every 64th line, behind a spin lock that is not in the file: when the process ends, the slot
//! has no owner.
//!
//! **What may go wrong.** A thread stopped while it has a slot stops the writers of that slot's lines until
//! it runs again: they spin, then yield. The journal does not protect against power loss, because the system
//! decides what reaches the disk, and in which order.

use crate::copy::LINE_WORDS;
use crate::line::Backoff;
use sherman_pages::zeroed::Zeroed;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// The maximum number of changes in progress at once.
pub(crate) const SLOTS: usize = 64;
/// Words of a slot: the old line, a word with the line's number + 1 or 0, and padding. Two cache lines, so no
/// other thread disturbs the slot's owner.
const SLOT_WORDS: usize = 2 * LINE_WORDS;
/// The index of the word in a slot that names the line.
const AT_NAME: usize = LINE_WORDS;
/// Words of the journal.
pub(crate) const WORDS: usize = SLOTS * SLOT_WORDS;

/// The slots, which lie in the file, and their locks, which only this process has.
#[derive(Debug)]
pub(crate) struct Journal {
    slots: Zeroed<AtomicU64>,
    locks: Vec<Lock>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Lock(AtomicBool);

/// Lets a test show that the journal is needed.
#[cfg(test)]
pub(crate) static DISABLED: AtomicBool = AtomicBool::new(false);

impl Journal {
    /// A journal in `slots`, which has [`WORDS`] words.
    pub(crate) fn new(slots: Zeroed<AtomicU64>) -> Self {
        Self { slots, locks: std::iter::repeat_with(Lock::default).take(SLOTS).collect() }
    }

    fn slot(&self, index: usize) -> (&[AtomicU64], &AtomicU64) {
        let slot = &self.slots[index * SLOT_WORDS..(index + 1) * SLOT_WORDS];
        (&slot[..LINE_WORDS], &slot[AT_NAME])
    }

    /// Lets `store` change `words`, the words of `line`. The caller holds the line.
    pub(crate) fn change(&self, line: usize, words: &[AtomicU64], store: impl FnOnce()) {
        #[cfg(test)]
        if DISABLED.load(Relaxed) {
            return store();
        }
        let index = line % SLOTS;
        let lock = &self.locks[index].0;
        let mut backoff = Backoff::default();
        while lock.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            backoff.wait();
        }
        let (old, name) = self.slot(index);
        for (saved, word) in old.iter().zip(words) {
            saved.store(word.load(Relaxed), Relaxed);
        }
        name.store((line as u64 + 1).to_le(), Release);
        // The name must be stored before the line changes.
        fence(Release);
        store();
        name.store(0, Release);
        lock.store(false, Release);
    }

    /// Undoes the unfinished changes of a dead process. `lines` are all lines of the file. Returns the number
    /// of restored lines, or the slot that names a line that does not exist. It may be interrupted anywhere
    /// and run again.
    pub(crate) fn undo(&self, lines: &[AtomicU64]) -> Result<usize, usize> {
        let mut undone = 0;
        for index in 0..SLOTS {
            let (old, name) = self.slot(index);
            let Some(line) = u64::from_le(name.load(Acquire)).checked_sub(1) else { continue };
            let line = usize::try_from(line).map_err(|_| index)?;
            let words = lines.as_chunks::<LINE_WORDS>().0.get(line).ok_or(index)?;
            for (word, saved) in words.iter().zip(old) {
                word.store(saved.load(Relaxed), Relaxed);
            }
            name.store(0, Release);
            undone += 1;
        }
        Ok(undone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(len: usize) -> Zeroed<AtomicU64> {
        Zeroed::new(len).unwrap()
    }

    #[test]
    fn a_change_that_was_cut_is_undone_and_one_that_ended_stays() {
        let (journal, lines) = (Journal::new(words(WORDS)), words(200 * LINE_WORDS));
        let line = |line: usize| &lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
        for at in [3, 3 + SLOTS, 199] {
            journal.change(at, line(at), || line(at).iter().for_each(|word| word.store(7, Relaxed)));
        }
        // Interrupted after some of the words: the slot is valid and was never cleared.
        let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            journal.change(3 + 2 * SLOTS, line(3 + 2 * SLOTS), || {
                line(3 + 2 * SLOTS)[..5].iter().for_each(|word| word.store(9, Relaxed));
                std::panic::resume_unwind(Box::new(()));
            });
        }));
        assert!(cut.is_err());
        assert_eq!(journal.undo(&lines), Ok(1));
        assert_eq!(journal.undo(&lines), Ok(0));
        for at in 0..200 {
            let expected = if [3, 3 + SLOTS, 199].contains(&at) { 7 } else { 0 };
            assert!(line(at).iter().all(|word| word.load(Relaxed) == expected), "line {at}");
        }
    }

    #[test]
    fn a_slot_that_names_no_line_is_an_answer() {
        let (journal, lines) = (Journal::new(words(WORDS)), words(2 * LINE_WORDS));
        for bad in [3, u64::MAX] {
            journal.slot(5).1.store(bad.to_le(), Relaxed);
            assert_eq!(journal.undo(&lines), Err(5));
        }
        journal.slot(5).1.store(2u64.to_le(), Relaxed);
        assert_eq!(journal.undo(&lines), Ok(1));
    }

    #[test]
    fn the_old_line_is_in_its_slot_before_the_slot_names_it() {
        let (journal, lines) = (Journal::new(words(WORDS)), words(100 * LINE_WORDS));
        let line = &lines[70 * LINE_WORDS..71 * LINE_WORDS];
        line.iter().for_each(|word| word.store(5, Relaxed));
        journal.change(70, line, || {
            let (old, name) = journal.slot(70 - SLOTS);
            assert_eq!(u64::from_le(name.load(Relaxed)), 71);
            assert!(old.iter().all(|word| word.load(Relaxed) == 5));
        });
        assert_eq!(journal.slot(70 - SLOTS).1.load(Relaxed), 0);
    }
}
