//! Host memory as 64-byte lines, each read and written atomically (F1): a seqlock per line.
//!
//! Each line has a 32-bit **sequence word**. The words lie in a separate array. So the 16 words of a 1 KiB
//! node share one cache line, and a node stays as dense as on a NIC. An even word means that the line is
//! free. An odd word means that a writer holds it. WRITE, CAS and FAA hold the line that they change. Readers
//! only look.
//!
//! **Order, writer.** The writer takes the line by a compare-exchange even → odd with Acquire. Then come a
//! Release fence, relaxed stores of the data, and a store of the next even word with Release.
//!
//! **Order, reader.** The reader loads the word with Acquire, and waits if it is odd. It copies the data
//! relaxed. Then come an Acquire fence and a relaxed load of the word. If the word is unchanged, the copy is
//! good. Why: (a) The first load read the Release store of the last writer. So every store of that writer and
//! of all before it is visible, and nothing older is copied. (b) If the copy saw any store of a later writer,
//! then that writer's Release fence synchronises with the reader's Acquire fence. So the second load sees its
//! odd word or a later one, and the reader discards the copy. So an accepted copy is exactly the state
//! between two writers, and it existed between the two loads.
//!
//! **CAS and FAA** hold the line too. A bare compare-exchange on the data word would satisfy F4. But two of
//! them on two words of one line could show a reader the second without the first, which F1 forbids. A
//! sub-word WRITE beside a lane would also need a second protocol. Holding the line costs the same one locked
//! instruction and makes atomics atomic against WRITEs as well. It lets a WRITE of part of a word keep a
//! concurrent CAS of its other bits. A CAS that must fail is answered from an optimistic READ of its word, so
//! waiters on a lane in host memory do not write.
//!
//! **Order between lines.** A WRITE's last store is a Release of its line's word, and every access begins
//! with an Acquire of one. So a client that sees a WRITE sees all that its endpoint posted before (F3),
//! across lines. `on_chip` does the same on its words. The module `gate` explains why every READ posted later
//! anywhere sees a *completed* WRITE.
//!
//! **Whole verbs.** Under [`Atomicity::Verb`] a WRITE holds all its lines, taken in ascending order, before
//! it stores into the first. A READ samples all words, copies all lines, and accepts only if no word changed.
//! Suppose the READ copied the data of a WRITE W in line i. Then its sample of i came after W's release of i,
//! which came after W took every line j of its own. So the second look at j sees W's odd word or a later one.
//! It equals the first look only if that came after W released j.
//!
//! **The window of a READ (F8).** A reader's thread may be paused between two lines. The tree trusts that no
//! node changes 49,153 times in between. Unchanged lines of one group are from one moment, so a READ of such
//! lines needs no clock. Any other READ of more than one line reads the clock before and after. It starts
//! again if it took longer than [`READ_WINDOW`].
//!
//! **Holders.** A [`Holder`] takes lines. In one process the word need not name the holder, and no holder
//! dies alone, so `Alone` keeps nothing. Where several processes map the lines ([`shared`](crate::shared)),
//! the odd word names the holder. The holder also saves what others need to repair the line after its death.
//!
//! **In a file** the lines outlive the process, but their sequence words do not. No writer holds a line when
//! a file is opened. The module `journal` restores a line that a killed process was changing.
//!
//! **What may go wrong.** A thread stopped while it holds a line stops that line's users until it runs again:
//! they spin, then yield. A reader that writers keep overtaking takes the line itself after a few dozen
//! attempts. A sequence word wraps after 2^31 changes. A reader stopped in mid-copy for exactly a multiple of
//! that many changes would accept a wrong copy. That takes over half a minute of nothing but WRITEs to the
//! line.

mod hold;
mod keep;
mod whole;

pub(crate) use hold::{Alone, unstalled};
pub use hold::{Backoff, Holder, Stalled};
pub use keep::Keeper;

use crate::copy::{CopyPath, LINE, LINE_WORDS, Line, WORD, load_part, prefetch, store_part};
use crate::journal::Journal;
use sherman_pages::zeroed::Zeroed;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};

/// The longest time between the first and the last fetch of one READ (F8).
pub const READ_WINDOW: Duration = Duration::from_millis(1);
/// Maximum number of attempts of a READ. Each failure means that the thread was paused in the middle of a
/// copy that takes microseconds.
const READ_TRIES: u32 = 64;

/// The unit of atomicity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atomicity {
    /// Each 64-byte line, as on a NIC (F1).
    #[default]
    Line,
    /// Each verb as a whole. No NIC gives this, but the paper's node format silently needs it.
    Verb,
}

/// Number of lines whose sequence words share a cache line.
const GROUP: usize = 16;
/// Number of optimistic attempts before a reader takes the lines.
const OPTIMISM: u32 = 64;
/// Number of lines of a verb that are prefetched before the first is used. The processor recognises a longer
/// verb as a stream.
const AHEAD_LINES: usize = 32;

/// Why a READ failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError<S> {
    /// A live client holds a line and makes no progress.
    Stalled(S),
    /// No attempt stayed within [`READ_WINDOW`].
    Slow,
}

impl<S> From<S> for ReadError<S> {
    fn from(stalled: S) -> Self {
        Self::Stalled(stalled)
    }
}

/// The host memory of one server.
#[derive(Debug)]
pub(crate) struct Lines {
    words: Zeroed<AtomicU64>,
    /// One word per line, rounded up to whole groups.
    seqs: Zeroed<AtomicU32>,
    atomicity: Atomicity,
    writing: Writing,
    path: CopyPath,
}

/// How a WRITE changes lines. One `match` decides it, so memory outside a file pays nothing for memory in a
/// file.
#[derive(Debug)]
enum Writing {
    /// One line after the other.
    ByLine,
    /// With all lines of the verb held at once.
    ByVerb,
    /// In either way, but each line is first saved in the file's journal.
    Journaled(Box<Journal>),
}

/// The part of a verb that lies in one line.
struct Piece {
    line: usize,
    /// The piece's first byte within the line.
    skip: usize,
    /// The piece's bytes in the verb's buffer.
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

/// Whether `len` bytes from byte `skip` of a line on lie in one word. Then one store changes them.
#[inline]
fn in_one_word(skip: usize, len: usize) -> bool {
    skip / WORD == (skip + len.max(1) - 1) / WORD
}

/// All methods need offsets in bounds and panic otherwise. [`Region`](crate::memory::Region) checks them.
impl Lines {
    /// Allocates `bytes` bytes of zeroes, a multiple of 64. Returns `None` if the system does not have that
    /// much memory.
    pub(crate) fn new(bytes: usize, atomicity: Atomicity, path: CopyPath) -> Option<Self> {
        let writing = match atomicity {
            Atomicity::Line => Writing::ByLine,
            Atomicity::Verb => Writing::ByVerb,
        };
        Self::over(Zeroed::new(bytes / WORD)?, writing, atomicity, path)
    }

    /// The lines of `words`, which lie in a file with `journal`. `None` if the system has no memory for their
    /// sequence words.
    pub(crate) fn in_file(
        words: Zeroed<AtomicU64>,
        journal: Journal,
        atomicity: Atomicity,
        path: CopyPath,
    ) -> Option<Self> {
        Self::over(words, Writing::Journaled(Box::new(journal)), atomicity, path)
    }

    /// The lines of `words`, which other processes map too, with their sequence words. `None` if `words` are
    /// not whole lines, or if there are not [as many sequence words as needed](Self::sequence_words).
    pub(crate) fn mapped(words: Zeroed<AtomicU64>, seqs: Zeroed<AtomicU32>, path: CopyPath) -> Option<Self> {
        let fits =
            words.len().is_multiple_of(LINE_WORDS) && seqs.len() == Self::sequence_words(words.len() * WORD);
        fits.then_some(Self { words, seqs, atomicity: Atomicity::Line, writing: Writing::ByLine, path })
    }

    fn over(
        words: Zeroed<AtomicU64>,
        writing: Writing,
        atomicity: Atomicity,
        path: CopyPath,
    ) -> Option<Self> {
        let seqs = Zeroed::new(Self::sequence_words(words.len() * WORD))?;
        Some(Self { words, seqs, atomicity, writing, path })
    }

    /// The number of sequence words for `bytes` bytes.
    pub(crate) fn sequence_words(bytes: usize) -> usize {
        (bytes / LINE).next_multiple_of(GROUP)
    }

    /// The address and the size of the bytes.
    pub(crate) fn place(&self) -> (NonNull<u8>, usize) {
        (NonNull::from(&*self.words).cast(), self.bytes())
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * WORD
    }

    /// The unit of atomicity.
    pub(crate) fn atomicity(&self) -> Atomicity {
        self.atomicity
    }

    fn line(&self, line: usize) -> &[AtomicU64] {
        &self.words[line * LINE_WORDS..(line + 1) * LINE_WORDS]
    }

    /// Takes a line by making its sequence word odd. Returns the even word, which the release needs.
    #[inline]
    fn take<H: Holder + ?Sized>(&self, holder: &H, line: usize) -> Result<u32, H::Stalled> {
        match self.try_take(holder, line) {
            Ok(even) => Ok(even),
            Err(seen) => self.take_later(holder, line, seen),
        }
    }

    /// Tries once to take a line. On failure returns the word that it saw.
    #[inline]
    fn try_take<H: Holder + ?Sized>(&self, holder: &H, line: usize) -> Result<u32, u32> {
        let seq = &self.seqs[line];
        let even = seq.load(Relaxed);
        if even & 1 == 0 {
            holder.takes(line, even);
            // Release: a thread that sees the holder's name also sees what the holder saved about the line.
            if seq.compare_exchange(even, holder.odd(even), AcqRel, Relaxed).is_ok() {
                // A reader that sees one of the writer's stores must see the odd word afterwards.
                fence(Release);
                return Ok(even);
            }
        }
        Err(even)
    }

    /// Waits for a line whose word was `seen`, and takes it.
    #[cold]
    #[inline(never)]
    fn take_later<H: Holder + ?Sized>(
        &self,
        holder: &H,
        line: usize,
        mut seen: u32,
    ) -> Result<u32, H::Stalled> {
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

    /// Releases a line whose bytes are unchanged. Readers that sampled the same word before the line was
    /// taken stay right.
    fn release_unchanged(&self, line: usize, even: u32) {
        self.seqs[line].store(even, Release);
    }

    /// Prefetches the first lines of a verb and their sequence words.
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

    /// Copies bytes out for the server's own CPU. The CPU does not rely on two lines being from the same
    /// time.
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

    /// Copies bytes out, however long it takes.
    fn read_untimed<H: Holder + ?Sized>(
        &self,
        holder: &H,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), H::Stalled> {
        if offset.is_multiple_of(LINE) && into.len().is_multiple_of(LINE) {
            return self.read_groups(holder, offset / LINE, into.as_chunks_mut().0);
        }
        for piece in pieces(offset, into.len()) {
            self.read_piece(holder, piece.line, piece.skip, &mut into[piece.bytes])?;
        }
        Ok(())
    }

    /// Copies whole lines, group by group. A line that was held or changed is read again by itself.
    fn read_groups<H: Holder + ?Sized>(
        &self,
        holder: &H,
        first: usize,
        into: &mut [Line],
    ) -> Result<(), H::Stalled> {
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

    /// Makes one optimistic attempt at lines of one group. Returns a bit per line, set if the line was held
    /// or changed.
    #[inline]
    fn read_group(&self, first: usize, into: &mut [Line]) -> u32 {
        let from = &self.words[first * LINE_WORDS..(first + into.len()) * LINE_WORDS];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.path.is_avx() {
            let within = first % GROUP;
            let group = &self.seqs[first - within..first - within + GROUP];
            // SAFETY: AVX2 was detected. `group` is 16 words at a multiple of 16 in an aligned array. `from`
            // is as many lines as `into`, at a line's start in an aligned array.
            let moved = unsafe {
                crate::copy::avx::read_group(
                    group.as_ptr(),
                    from.as_ptr(),
                    into.as_mut_ptr().cast(),
                    into.len(),
                )
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

    /// Reads the lines again whose bit is set in `which`, counted from `first`.
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

    /// Copies bytes out without any protocol.
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
    pub(crate) fn write<H: Holder + ?Sized>(
        &self,
        holder: &H,
        offset: usize,
        from: &[u8],
    ) -> Result<(), H::Stalled> {
        if from.len() > LINE {
            // Taking a line is an atomic that no later load overtakes. Without the prefetch, each line's
            // cache miss would be waited for in turn. The prefetch halves the time to write 1 KiB of cold
            // memory.
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

    /// Copies bytes in, line by line through the journal. A verb that is atomic as a whole among live clients
    /// can still be cut between two lines by the death of the process.
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
            // One word is one store and needs no journal. For the same reason CAS and FAA need none.
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

    /// Reads the word of an atomic optimistically, before the atomic takes the line.
    fn peek(&self, line: usize, word: &AtomicU64) -> Option<u64> {
        let seq = &self.seqs[line];
        let before = seq.load(Acquire);
        let seen = u64::from_le(word.load(Relaxed));
        fence(Acquire);
        (before & 1 == 0 && seq.load(Relaxed) == before).then_some(seen)
    }

    /// Compares the bits of the word at `offset` under `mask` and swaps them if equal. Returns the old word.
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

    /// Adds to the word at `offset`, wrapping. Returns the old word.
    #[inline]
    pub(crate) fn faa<H: Holder + ?Sized>(
        &self,
        holder: &H,
        offset: usize,
        add: u64,
    ) -> Result<u64, H::Stalled> {
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
        /// A hook that runs when this thread's READ has copied a group of lines.
        static PAUSE: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    pub(super) fn pause() {
        let hook = PAUSE.with_borrow_mut(Option::take);
        if let Some(mut hook) = hook {
            hook();
        }
    }

    const BYTES: usize = 2 * GROUP * LINE;

    /// Returns the bytes of a reader that is paused for `pause` in the middle of its first copy, while a
    /// writer rewrites all lines.
    fn read_paused(window: Duration, pause: Duration) -> Vec<u8> {
        let lines =
            std::rc::Rc::new(Lines::new(BYTES, Atomicity::Line, CopyPath::fastest()).expect("memory"));
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

    /// This shows that the rule is needed, and that the test above can fail.
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
        for (offset, len) in [(0, GROUP * LINE), (LINE, LINE), (GROUP * LINE, GROUP * LINE), (5, 20), (0, 0)]
        {
            assert_eq!(lines.read(&Alone, offset, &mut vec![0; len]), Ok(()));
        }
        PAUSE.set(None);
    }
}
