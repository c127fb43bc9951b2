//! The undo journal of memory that lies in a file: no line is torn by the death of the process (F1, F7).
//!
//! A line is eight words and changed by several stores. A process that is killed between two of them would leave a line
//! that never was, in a file that outlives it. A client's one-line entry write, which has no redo record because F1 makes it one unit,
//! could not be mended afterwards. So whoever changes more than one word of a line saves the line first, in a **slot** of
//! the file: save the old words, declare the slot valid by naming the line in it, change the line, clear the name.
//! [`Journal::undo`] finds a valid slot when the file is opened again and puts the old line back.
//!
//! **What must hold.** A thread that is killed has executed its instructions up to some point and none behind it, so what it
//! leaves are its stores up to there, in the order of the program; fences keep the compiler (and, for whoever looks
//! meanwhile, the processor) from making that another order. The slot is used while its line is held ([`line`](crate::line)),
//! and cleared before the line is released, so what is undone was seen by nobody and acknowledged to nobody. Nobody takes a line while
//! it has a slot. A slot serves every 64th line, behind a spin lock that is not in the file: no process, no owner.
//!
//! **What may go wrong.** A thread stopped while it has a slot stops the writers of that slot's lines until it runs again:
//! they spin, then yield. Power loss is another matter: what reaches the disk, and in which order, nobody here decides.

use crate::copy::LINE_WORDS;
use crate::line::Backoff;
use sherman_fabric::zeroed::Zeroed;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// How many changes can be under way at once.
pub(crate) const SLOTS: usize = 64;
/// Words of a slot: the old line, the line's number + 1 or 0, and padding: two cache lines, whose owner no other thread
/// disturbs.
const SLOT_WORDS: usize = 2 * LINE_WORDS;
/// Which word of a slot names the line.
const AT_NAME: usize = LINE_WORDS;
/// Words of the journal.
pub(crate) const WORDS: usize = SLOTS * SLOT_WORDS;

/// The slots, in the file, and who uses them, which is known in this process alone.
#[derive(Debug)]
pub(crate) struct Journal {
    slots: Zeroed<AtomicU64>,
    locks: Vec<Lock>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Lock(AtomicBool);

/// For the test that shows what a journal is for.
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

    /// Lets `store` change `words`, the bytes of `line`, which the caller holds.
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
        // The name, then the line.
        fence(Release);
        store();
        name.store(0, Release);
        lock.store(false, Release);
    }

    /// Puts back what a dead process was changing; `lines` are all the lines there are. Answers how many lines those were,
    /// or the slot that names a line that does not exist. Can be cut anywhere and done again.
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
        // Cut after some of the words: a slot that was declared valid and never cleared.
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
