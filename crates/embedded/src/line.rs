//! Host memory as 64-byte lines, each read and written atomically (F1): a seqlock per line.
//!
//! Beside the lines lies one 32-bit **sequence word** per line, in an array of their own, so that a 1 KiB node's 16 words
//! share one cache line and a node stays as dense as on a NIC. Even means at rest, odd means that somebody holds the
//! line. Whoever changes a line (WRITE, CAS, FAA) holds it; readers only look.
//!
//! **Order, writer.** Taking the line is a compare-exchange even → odd with Acquire, then a Release fence, then relaxed
//! stores of the data, then the even word with Release.
//!
//! **Order, reader.** Load the word with Acquire; odd: wait. Copy the data relaxed. Acquire fence. Load the word again,
//! relaxed; if it is unchanged the copy is good. Why: (a) the first load read the Release store of the last writer, so
//! every store of that writer and of all before it is visible: nothing older is copied. (b) If the copy saw any store of
//! a later writer, then that writer's Release fence synchronises with our Acquire fence, so the second load sees its odd
//! word or a later one: the copy is thrown away. So what is accepted is exactly the state between two writers, and it
//! existed between the two loads.
//!
//! **CAS and FAA** hold the line too. A bare compare-exchange on the data word would satisfy F4, but two of them on two
//! words of one line could show a reader the second without the first, which F1 forbids; and a sub-word WRITE beside a
//! lane would need a second protocol. Holding the line costs the same one locked instruction, makes atomics atomic
//! against WRITEs as well, and lets a WRITE of part of a word keep a concurrent CAS of its other bits. A CAS that must
//! fail is answered from an optimistic READ of its word, so waiters on a lane in host memory do not write.
//!
//! **Order between lines.** A WRITE's last store is a Release of its line's word and every access begins with an
//! Acquire of one, so whoever sees a WRITE sees all that its endpoint posted before (F3), across lines; `on_chip` does the
//! same on its words. Why a *completed* WRITE is seen by every READ posted later anywhere is told in the module `gate`.
//!
//! **Whole verbs.** Under [`Atomicity::Verb`] a WRITE holds all its lines, taken in ascending order, before it stores
//! into the first, and a READ samples all words, copies all, and accepts only if none changed. If the READ holds W's
//! data in line i, then its sample of i came after W's release of i, which came after W took every line j of its own;
//! so the second look at j sees W's odd word or a later one, and equals the first only if that was taken after W
//! released j.
//!
//! **The window of a READ (F8).** A reader's thread may be paused between two lines, and the tree trusts that no node changes 49,152 times
//! in between. Lines of one group that did not change are of one moment: such a READ needs no clock. Any other READ of more than one
//! line looks at the clock before and after, and starts again if it took longer than [`READ_WINDOW`].
//!
//! **Who holds a line.** Taking a line is left to a [`Holder`]. In one process nobody needs to know who it is, nobody who
//! holds a line dies alone, and so `Alone` keeps nothing. Where several processes map the lines ([`shared`](crate::shared)), the
//! odd word names the holder, and the holder keeps what it takes to mend the line after its death.
//!
//! **In a file** the lines outlive the process, but not their sequence words: nobody holds a line when a file is opened. A
//! line that a killed process was changing is put back by the module `journal`.
//!
//! **What may go wrong.** A thread stopped while it holds a line stops that line's users until it runs again: they spin,
//! then yield. A reader overtaken for ever by writers takes the line itself after a few dozen attempts. A sequence
//! word wraps after 2^31 changes: a reader stopped in mid-copy for exactly a multiple of that many (over half a minute
//! of nothing but WRITEs to the line) would be fooled.

mod hold;
mod keep;
mod whole;

pub(crate) use hold::{Alone, unstalled};
pub use hold::{Backoff, Holder, Stalled};
pub use keep::Keeper;

use crate::copy::{CopyPath, LINE, LINE_WORDS, Line, WORD, load_part, prefetch, store_part};
use crate::journal::Journal;
use sherman_fabric::zeroed::Zeroed;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};

/// The longest time between the first and the last fetch of one READ (F8).
pub const READ_WINDOW: Duration = Duration::from_millis(1);
/// How many times a READ is tried. Each failure means that the thread was paused in the middle of a copy of microseconds.
const READ_TRIES: u32 = 64;

/// What is atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atomicity {
    /// Each 64-byte line, as on a NIC (F1).
    #[default]
    Line,
    /// Each verb as a whole. No NIC gives this; the paper's node format silently needs it.
    Verb,
}

/// Lines whose sequence words share a cache line.
const GROUP: usize = 16;
/// Optimistic attempts before a reader takes the lines.
const OPTIMISM: u32 = 64;
/// How many lines of a verb are asked for before the first is used: a longer one is a stream, which the processor
/// recognises.
const AHEAD_LINES: usize = 32;

/// Why a READ failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError<S> {
    /// Somebody holds a line and does not go on.
    Stalled(S),
    /// No try stayed within [`READ_WINDOW`].
    Slow,
}

impl<S> From<S> for ReadError<S> {
    fn from(stalled: S) -> Self {
        Self::Stalled(stalled)
    }
}

/// Host memory of one server.
#[derive(Debug)]
pub(crate) struct Lines {
    words: Zeroed<AtomicU64>,
    /// One per line, rounded up to whole groups.
    seqs: Zeroed<AtomicU32>,
    atomicity: Atomicity,
    writing: Writing,
    path: CopyPath,
}

/// How a WRITE changes lines: one `match` decides it, so memory that lies in no file pays nothing for those that do.
#[derive(Debug)]
enum Writing {
    /// One after the other.
    ByLine,
    /// All of a verb's held at once.
    ByVerb,
    /// Either of these, saving each line in the file's journal first.
    Journaled(Box<Journal>),
}

/// The part of a verb that lies in one line.
struct Piece {
    line: usize,
    /// First byte within the line.
    skip: usize,
    /// Where its bytes are in the verb's buffer.
    bytes: Range<usize>,
}

/// Cuts `len` bytes at `offset` into pieces of one line each.
fn pieces(offset: usize, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done;
        let skip = at % LINE;
        let start = done;
        done = len.min(start + LINE - skip);
        Some(Piece { line: at / LINE, skip, bytes: start..done })
    })
}

/// The lines that `len` bytes at `offset` touch.
fn lines_of(offset: usize, len: usize) -> Range<usize> {
    if len == 0 { 0..0 } else { offset / LINE..(offset + len - 1) / LINE + 1 }
}

/// Whether `len` bytes from byte `skip` of a line on lie in one word, so that they are changed by one store.
#[inline]
fn in_one_word(skip: usize, len: usize) -> bool {
    skip / WORD == (skip + len.max(1) - 1) / WORD
}

/// All methods take offsets in bounds: [`Region`](crate::memory::Region) checks. Others panic.
impl Lines {
    /// `bytes` bytes of zeroes, a multiple of 64; `None` if the system has not as much.
    pub(crate) fn new(bytes: usize, atomicity: Atomicity, path: CopyPath) -> Option<Self> {
        let writing = match atomicity {
            Atomicity::Line => Writing::ByLine,
            Atomicity::Verb => Writing::ByVerb,
        };
        Self::over(Zeroed::new(bytes / WORD)?, writing, atomicity, path)
    }

    /// The lines of `words`, which lie in a file with `journal`; `None` if the system has no memory for their sequence words.
    pub(crate) fn in_file(
        words: Zeroed<AtomicU64>,
        journal: Journal,
        atomicity: Atomicity,
        path: CopyPath,
    ) -> Option<Self> {
        Self::over(words, Writing::Journaled(Box::new(journal)), atomicity, path)
    }

    /// The lines of `words`, which other processes map too, with their sequence words; `None` if those are not
    /// [as many as they must be](Self::sequence_words), or `words` not whole lines.
    pub(crate) fn mapped(words: Zeroed<AtomicU64>, seqs: Zeroed<AtomicU32>, path: CopyPath) -> Option<Self> {
        let fits = words.len().is_multiple_of(LINE_WORDS) && seqs.len() == Self::sequence_words(words.len() * WORD);
        fits.then_some(Self { words, seqs, atomicity: Atomicity::Line, writing: Writing::ByLine, path })
    }

    fn over(words: Zeroed<AtomicU64>, writing: Writing, atomicity: Atomicity, path: CopyPath) -> Option<Self> {
        let seqs = Zeroed::new(Self::sequence_words(words.len() * WORD))?;
        Some(Self { words, seqs, atomicity, writing, path })
    }

    /// How many sequence words `bytes` bytes have.
    pub(crate) fn sequence_words(bytes: usize) -> usize {
        (bytes / LINE).next_multiple_of(GROUP)
    }

    /// Where its bytes are, and how many.
    pub(crate) fn place(&self) -> (NonNull<u8>, usize) {
        (NonNull::from(&*self.words).cast(), self.bytes())
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * WORD
    }

    /// What is atomic in it.
    pub(crate) fn atomicity(&self) -> Atomicity {
        self.atomicity
    }

    fn line(&self, line: usize) -> &[AtomicU64] {
        &self.words[line * LINE_WORDS..(line + 1) * LINE_WORDS]
    }

    /// Takes a line: its sequence word becomes odd. Answers the even word to release it from.
    #[inline]
    fn take<H: Holder + ?Sized>(&self, holder: &H, line: usize) -> Result<u32, H::Stalled> {
        match self.try_take(holder, line) {
            Ok(even) => Ok(even),
            Err(seen) => self.take_later(holder, line, seen),
        }
    }

    /// One attempt; answers the word that it met if it fails.
    #[inline]
    fn try_take<H: Holder + ?Sized>(&self, holder: &H, line: usize) -> Result<u32, u32> {
        let seq = &self.seqs[line];
        let even = seq.load(Relaxed);
        if even & 1 == 0 {
            holder.takes(line, even);
            // Release, so that who sees whose line it is sees what the holder keeps about it.
            if seq.compare_exchange(even, holder.odd(even), AcqRel, Relaxed).is_ok() {
                // A reader that sees one of our stores must see the odd word afterwards.
                fence(Release);
                return Ok(even);
            }
        }
        Err(even)
    }

    /// Waits for a line whose word was `seen`.
    #[cold]
    #[inline(never)]
    fn take_later<H: Holder + ?Sized>(&self, holder: &H, line: usize, mut seen: u32) -> Result<u32, H::Stalled> {
        let mut backoff = Backoff::default();
        loop {
            holder.wait(&mut backoff, seen)?;
            match self.try_take(holder, line) {
                Ok(even) => return Ok(even),
                Err(word) => seen = word,
            }
        }
    }

    /// Releases a line whose bytes were changed.
    fn release_changed(&self, line: usize, even: u32) {
        self.seqs[line].store(even.wrapping_add(2), Release);
    }

    /// Releases a line whose bytes are as they were: readers that sampled the same word before us stay right.
    fn release_unchanged(&self, line: usize, even: u32) {
        self.seqs[line].store(even, Release);
    }

    /// Asks the caches for what a verb will need: its first lines and their sequence words.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize, len: usize) {
        let lines = lines_of(offset, len);
        let lines = lines.start..lines.end.min(lines.start + AHEAD_LINES);
        for group in lines.clone().step_by(GROUP) {
            prefetch(&self.seqs[group]);
        }
        for line in lines {
            prefetch(&self.words[line * LINE_WORDS]);
        }
    }

    /// Copies bytes out.
    #[inline]
    pub(crate) fn read<H: Holder + ?Sized>(
        &self,
        holder: &H,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), ReadError<H::Stalled>> {
        match self.atomicity {
            Atomicity::Line => self.read_lines(holder, offset, into),
            Atomicity::Verb => {
                self.read_verb(offset, into);
                Ok(())
            }
        }
    }

    /// Copies bytes out for the server's own CPU, which trusts no two lines to belong together.
    pub(crate) fn read_own<H: Holder + ?Sized>(
        &self,
        holder: &H,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), H::Stalled> {
        match self.atomicity {
            Atomicity::Line => self.read_untimed(holder, offset, into),
            Atomicity::Verb => {
                self.read_verb(offset, into);
                Ok(())
            }
        }
    }

    fn read_lines<H: Holder + ?Sized>(
        &self,
        holder: &H,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), ReadError<H::Stalled>> {
        let lines = lines_of(offset, into.len());
        let whole = offset.is_multiple_of(LINE) && into.len().is_multiple_of(LINE);
        if whole && lines.start / GROUP == lines.end.saturating_sub(1) / GROUP {
            if self.read_group(lines.start, into.as_chunks_mut().0) == 0 {
                return Ok(());
            }
        } else if lines.len() <= 1 {
            return Ok(self.read_untimed(holder, offset, into)?);
        }
        self.read_within(READ_WINDOW, holder, offset, into)
    }

    /// Copies bytes out, all of them within `window`.
    #[inline(never)]
    fn read_within<H: Holder + ?Sized>(
        &self,
        window: Duration,
        holder: &H,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), ReadError<H::Stalled>> {
        for _ in 0..READ_TRIES {
            let began = Instant::now();
            self.read_untimed(holder, offset, into)?;
            if began.elapsed() <= window {
                return Ok(());
            }
        }
        Err(ReadError::Slow)
    }

    /// Copies bytes out, whatever time it takes.
    fn read_untimed<H: Holder + ?Sized>(&self, holder: &H, offset: usize, into: &mut [u8]) -> Result<(), H::Stalled> {
        if offset.is_multiple_of(LINE) && into.len().is_multiple_of(LINE) {
            return self.read_groups(holder, offset / LINE, into.as_chunks_mut().0);
        }
        for piece in pieces(offset, into.len()) {
            self.read_piece(holder, piece.line, piece.skip, &mut into[piece.bytes])?;
        }
        Ok(())
    }

    /// Whole lines, group by group; a line that moved is read again by itself.
    fn read_groups<H: Holder + ?Sized>(&self, holder: &H, first: usize, into: &mut [Line]) -> Result<(), H::Stalled> {
        let mut line = first;
        let mut rest = into;
        while !rest.is_empty() {
            let count = (GROUP - line % GROUP).min(rest.len());
            let (part, tail) = rest.split_at_mut(count);
            let moved = self.read_group(line, part);
            if moved != 0 {
                self.reread(holder, line, moved, part)?;
            }
            line += count;
            rest = tail;
            #[cfg(test)]
            tests::pause();
        }
        Ok(())
    }

    /// One optimistic attempt at lines of one group. Answers a bit per line: set if it was held or changed.
    #[inline]
    fn read_group(&self, first: usize, into: &mut [Line]) -> u32 {
        let from = &self.words[first * LINE_WORDS..(first + into.len()) * LINE_WORDS];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.path.is_avx() {
            let within = first % GROUP;
            let group = &self.seqs[first - within..first - within + GROUP];
            // SAFETY: AVX was detected; `group` is 16 words at a multiple of 16 in an aligned array; `from` is as
            // many lines as `into`, at a line's start in an aligned array.
            let moved = unsafe {
                crate::copy::avx::read_group(group.as_ptr(), from.as_ptr(), into.as_mut_ptr().cast(), into.len())
            };
            return (moved >> within) & ((1 << into.len()) - 1);
        }
        let seqs = &self.seqs[first..first + into.len()];
        let mut before = [0; GROUP];
        for (sample, seq) in before.iter_mut().zip(seqs) {
            *sample = seq.load(Acquire);
        }
        self.path.load(from, into);
        fence(Acquire);
        let mut moved = 0;
        for (i, (sample, seq)) in before.iter().zip(seqs).enumerate() {
            moved |= ((sample & 1) | u32::from(seq.load(Relaxed) != *sample)) << i;
        }
        moved
    }

    /// Reads again the lines from `first` on whose bit is set in `which`.
    #[cold]
    fn reread<H: Holder + ?Sized>(
        &self,
        holder: &H,
        first: usize,
        which: u32,
        into: &mut [Line],
    ) -> Result<(), H::Stalled> {
        for (i, bytes) in into.iter_mut().enumerate() {
            if which & (1 << i) != 0 {
                self.read_piece(holder, first + i, 0, bytes)?;
            }
        }
        Ok(())
    }

    /// Reads bytes of one line.
    fn read_piece<H: Holder + ?Sized>(
        &self,
        holder: &H,
        line: usize,
        skip: usize,
        into: &mut [u8],
    ) -> Result<(), H::Stalled> {
        let seq = &self.seqs[line];
        let words = self.line(line);
        let mut backoff = Backoff::default();
        for _ in 0..OPTIMISM {
            let before = seq.load(Acquire);
            if before & 1 == 0 {
                load_part(words, skip, into);
                fence(Acquire);
                if seq.load(Relaxed) == before {
                    return Ok(());
                }
            }
            backoff.wait();
        }
        let even = self.take(holder, line)?;
        load_part(words, skip, into);
        self.release_unchanged(line, even);
        Ok(())
    }

    /// Copies bytes out, under no protocol.
    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        if offset.is_multiple_of(LINE) && into.len().is_multiple_of(LINE) {
            let from = &self.words[offset / WORD..(offset + into.len()) / WORD];
            return self.path.load(from, into.as_chunks_mut().0);
        }
        for piece in pieces(offset, into.len()) {
            load_part(self.line(piece.line), piece.skip, &mut into[piece.bytes]);
        }
    }

    /// Copies bytes into a line that the caller holds.
    #[inline]
    fn copy_piece_in(&self, line: usize, skip: usize, from: &[u8]) {
        match from.as_chunks::<LINE>() {
            (whole @ [_], _) => self.path.store(self.line(line), whole),
            _ => store_part(self.line(line), skip, from),
        }
    }

    /// Copies bytes in.
    #[inline]
    pub(crate) fn write<H: Holder + ?Sized>(&self, holder: &H, offset: usize, from: &[u8]) -> Result<(), H::Stalled> {
        if from.len() > LINE {
            // Taking a line is an atomic that no later load overtakes, so without this each would be waited for in turn:
            // 1 KiB of cold memory is written in half the time.
            self.prefetch(offset, from.len());
        }
        match &self.writing {
            Writing::ByLine => {
                for piece in pieces(offset, from.len()) {
                    self.write_piece(holder, piece.line, piece.skip, &from[piece.bytes])?;
                }
            }
            Writing::ByVerb => self.write_verb(offset, from),
            Writing::Journaled(journal) => self.write_journaled(journal, offset, from),
        }
        Ok(())
    }

    /// Copies bytes into one line.
    #[inline]
    fn write_piece<H: Holder + ?Sized>(
        &self,
        holder: &H,
        line: usize,
        skip: usize,
        from: &[u8],
    ) -> Result<(), H::Stalled> {
        let even = self.take(holder, line)?;
        if !in_one_word(skip, from.len()) {
            holder.changes(self.line(line));
        }
        self.copy_piece_in(line, skip, from);
        self.release_changed(line, even);
        Ok(())
    }

    /// Copies bytes in, line by line through the journal. A verb that is atomic as a whole among the living is still cut
    /// between two lines by the death of the process.
    #[inline(never)]
    fn write_journaled(&self, journal: &Journal, offset: usize, from: &[u8]) {
        let lines = lines_of(offset, from.len());
        let by_verb = self.atomicity == Atomicity::Verb;
        if by_verb {
            self.take_all(lines.clone());
        }
        for Piece { line, skip, bytes } in pieces(offset, from.len()) {
            let even = if by_verb { None } else { Some(unstalled(self.take(&Alone, line))) };
            let one_word = in_one_word(skip, bytes.len());
            let store = || self.copy_piece_in(line, skip, &from[bytes]);
            // What lies in one word is one store and needs no journal, as a CAS and an FAA do not.
            if one_word {
                store()
            } else {
                journal.change(line, self.line(line), store)
            }
            if let Some(even) = even {
                self.release_changed(line, even);
            }
        }
        if by_verb {
            self.release_all_changed(lines);
        }
    }

    /// An atomic's look at its word before it takes the line.
    fn peek(&self, line: usize, word: &AtomicU64) -> Option<u64> {
        let seq = &self.seqs[line];
        let before = seq.load(Acquire);
        let seen = u64::from_le(word.load(Relaxed));
        fence(Acquire);
        (before & 1 == 0 && seq.load(Relaxed) == before).then_some(seen)
    }

    /// Compares the bits of the word at `offset` under `mask` and swaps them if equal. Answers the word as it was.
    #[inline]
    pub(crate) fn cas<H: Holder + ?Sized>(
        &self,
        holder: &H,
        offset: usize,
        compare: u64,
        swap: u64,
        mask: u64,
    ) -> Result<u64, H::Stalled> {
        let line = offset / LINE;
        let word = &self.words[offset / WORD];
        if let Some(seen) = self.peek(line, word)
            && (seen ^ compare) & mask != 0
        {
            return Ok(seen);
        }
        let even = self.take(holder, line)?;
        let old = u64::from_le(word.load(Relaxed));
        if (old ^ compare) & mask != 0 {
            self.release_unchanged(line, even);
        } else {
            word.store(((old & !mask) | (swap & mask)).to_le(), Relaxed);
            self.release_changed(line, even);
        }
        Ok(old)
    }

    /// Adds to the word at `offset`, wrapping. Answers the word as it was.
    #[inline]
    pub(crate) fn faa<H: Holder + ?Sized>(&self, holder: &H, offset: usize, add: u64) -> Result<u64, H::Stalled> {
        let line = offset / LINE;
        let word = &self.words[offset / WORD];
        let even = self.take(holder, line)?;
        let old = u64::from_le(word.load(Relaxed));
        word.store(old.wrapping_add(add).to_le(), Relaxed);
        self.release_changed(line, even);
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        /// What happens when this thread's READ has copied a group of lines.
        static PAUSE: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    pub(super) fn pause() {
        let hook = PAUSE.with_borrow_mut(Option::take);
        if let Some(mut hook) = hook {
            hook();
        }
    }

    const BYTES: usize = 2 * GROUP * LINE;

    /// What a reader reads that is paused in the middle of its first copy for `pause`, while another rewrites everything.
    fn read_paused(window: Duration, pause: Duration) -> Vec<u8> {
        let lines = std::rc::Rc::new(Lines::new(BYTES, Atomicity::Line, CopyPath::fastest()).expect("memory"));
        unstalled(lines.write(&Alone, 0, &[1; BYTES]));
        let writer = std::rc::Rc::clone(&lines);
        PAUSE.set(Some(Box::new(move || {
            std::thread::sleep(pause);
            unstalled(writer.write(&Alone, 0, &[2; BYTES]));
        })));
        let mut found = vec![0; BYTES];
        assert_eq!(lines.read_within(window, &Alone, 0, &mut found), Ok(()));
        found
    }

    #[test]
    fn a_reader_that_was_paused_for_longer_than_the_window_reads_again() {
        assert_eq!(read_paused(READ_WINDOW, 2 * READ_WINDOW), [2; BYTES], "both halves are of one window");
    }

    /// So the rule is needed, and the test above can fail.
    #[test]
    fn without_the_window_a_paused_reader_accepts_lines_of_two_times() {
        let found = read_paused(Duration::MAX, 2 * READ_WINDOW);
        assert_eq!((found[0], found[BYTES - 1]), (1, 2));
    }

    #[test]
    fn a_reader_that_never_stays_within_the_window_gets_an_error() {
        let lines = Lines::new(BYTES, Atomicity::Line, CopyPath::fastest()).expect("memory");
        let mut found = vec![0; BYTES];
        assert_eq!(lines.read_within(Duration::ZERO, &Alone, 0, &mut found), Err(ReadError::Slow));
    }

    #[test]
    fn a_read_of_one_group_that_nobody_changes_needs_no_clock() {
        let lines = Lines::new(BYTES, Atomicity::Line, CopyPath::fastest()).expect("memory");
        PAUSE.set(Some(Box::new(|| panic!("it is read in one piece"))));
        for (offset, len) in [(0, GROUP * LINE), (LINE, LINE), (GROUP * LINE, GROUP * LINE), (5, 20), (0, 0)] {
            assert_eq!(lines.read(&Alone, offset, &mut vec![0; len]), Ok(()));
        }
        PAUSE.set(None);
    }
}
