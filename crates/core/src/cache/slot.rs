//! One copy in its slot: readers take no lock, writers hold the cache's lock.
//!
//! The slot is a sequence lock of safe atomics. Its sequence word is in the head, which is never anything
//! else. The word is odd while the copy changes. A reader uses what it read only if the word was even before
//! and the same after. So it discards everything it computed from words of different moments. It must not
//! panic meanwhile, so every index is clamped or checked.
//!
//! A run may pass from one copy to another. The writer empties the first head before it stores the second
//! copy. So a reader that sees words of the second copy in the run also sees that the first head changed.

use super::content::{Content, Encoded, Fences};
use super::layout::{
    ADDRESS, BASE, GROUP, GROUP_KEYS, LINE_WORDS, Layout, META, Meta, RUN, Run, SEQUENCE, SHORT_HIGH,
    SHORT_LOW, SearchKey, USED, WINDOW,
};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How many times a reader tries to read a copy between two changes.
const TRIES: usize = 4;

/// A cache line of words.
pub(super) type CacheLine = [AtomicU64; LINE_WORDS];

/// A slot.
#[derive(Clone, Copy)]
pub(super) struct CacheSlot<'a> {
    /// The head.
    pub head: &'a [CacheLine],
    /// The words of all runs, and a window more.
    pub runs: &'a [AtomicU64],
    pub layout: &'a Layout,
}

/// A slot's answer to a search for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// The slot holds a copy of another node, or none.
    Other,
    /// The slot holds the node's copy, but the copy cannot answer. It has another level, does not cover the
    /// key, or is being changed.
    Nothing,
    /// The child responsible for the key.
    Child(u64),
}

/// How many of the first 7 words are not greater than `key`, if the words are sorted.
#[inline(always)]
fn not_greater_of_7<const N: usize>(words: &[AtomicU64; N], key: u64) -> usize {
    // A binary search, not a sum of comparisons: without AVX the compiler vectorises that sum, at twice the
    // cost.
    let smaller = |at: usize| usize::from(words[at % N].load(Ordering::Relaxed) <= key);
    let mut count = 4 * smaller(3);
    count += 2 * smaller(count + 1);
    count + smaller(count)
}

/// How many words of a sorted line are not greater than `key`.
#[inline(always)]
fn not_greater(line: &CacheLine, key: u64) -> usize {
    let count = not_greater_of_7(line, key);
    count + usize::from(line[LINE_WORDS - 1].load(Ordering::Relaxed) <= key)
}

/// The number of `width` bits at bit `at` of `words`. Reads no word without such a bit.
#[inline(always)]
fn field(words: impl Fn(usize) -> u64, at: usize, width: usize) -> u64 {
    let last = (at + width).wrapping_sub(1);
    let shift = at as u32 % 64;
    let low = words(at / 64) >> shift;
    // In two steps: a shift by 64 would be one by 0. If both words are the same, the mask cuts this off.
    let high = words(last / 64) << 1 << (63 - shift);
    let mask = u64::MAX.wrapping_shr(64_u32.wrapping_sub(width as u32));
    (low | high) & mask
}

impl CacheSlot<'_> {
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.head[at / LINE_WORDS][at % LINE_WORDS].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, at: usize, word: u64) {
        self.head[at / LINE_WORDS][at % LINE_WORDS].store(word, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn meta(&self) -> Meta {
        Meta::from_bits(self.word(META))
    }

    pub(super) fn run(&self) -> Run {
        Run::from_bits(self.word(RUN))
    }

    /// The first word of the run.
    #[inline(always)]
    fn run_at(&self) -> usize {
        self.word(RUN) as u32 as usize * LINE_WORDS
    }

    /// A word of a run, counted from the first run. A reader may ask for one that does not exist.
    fn run_word(&self, at: usize) -> u64 {
        self.runs.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The words of a group, and more.
    #[inline(always)]
    fn window(&self, meta: Meta, group: usize) -> Option<&[AtomicU64; WINDOW]> {
        let at = self.run_at() + group * Layout::group_words(meta.code.bytes);
        self.runs.get(at..)?.first_chunk()
    }

    /// Returns what `look` saw, if all of it is from one moment.
    #[inline(always)]
    pub(super) fn read<T>(&self, mut look: impl FnMut() -> T) -> Option<T> {
        let sequence = &self.head[0][SEQUENCE];
        for _ in 0..TRIES {
            let before = sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = look();
                // No load of `look` may happen after the second load of the sequence.
                fence(Ordering::Acquire);
                if sequence.load(Ordering::Relaxed) == before {
                    return Some(seen);
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Runs `change`, which stores. Only under the cache's lock.
    fn write(&self, change: impl FnOnce()) {
        let sequence = &self.head[0][SEQUENCE];
        let before = sequence.load(Ordering::Relaxed);
        sequence.store(before.wrapping_add(1), Ordering::Relaxed);
        // No store of `change` may become visible before the odd sequence.
        fence(Ordering::Release);
        change();
        sequence.store(before.wrapping_add(2), Ordering::Release);
    }

    /// The child responsible for `key` according to the copy of the node at `address` and `level`.
    #[inline(always)]
    pub(super) fn child<K: SearchKey>(&self, address: u64, level: u8, key: K) -> Says {
        self.read(|| {
            if self.word(ADDRESS) != address {
                return Says::Other;
            }
            let meta = self.meta();
            if meta.level != level || !self.covers(meta, key) {
                return Says::Nothing;
            }
            self.responsible(meta, key).map_or(Says::Nothing, |(_, child)| Says::Child(child))
        })
        .unwrap_or(Says::Nothing)
    }

    /// Whether `key` is inside the fences.
    #[inline(always)]
    pub(super) fn covers<K: SearchKey>(&self, meta: Meta, key: K) -> bool {
        if K::SHORT || self.layout.key_words == 1 {
            return self.word(SHORT_LOW) <= key.word(0)
                && (meta.high_open || self.word(SHORT_HIGH) > key.word(0));
        }
        let (low, words) = (self.run_at(), self.layout.key_words);
        let fence_at = |at: usize| key.compare(words, |index| self.run_word(at + index));
        fence_at(low).is_le() && (meta.high_open || fence_at(low + words).is_gt())
    }

    /// Returns the entry responsible for `key` (the last whose key is not greater) and its child.
    #[inline(always)]
    pub(super) fn responsible<K: SearchKey>(&self, meta: Meta, key: K) -> Option<(usize, u64)> {
        if K::SHORT || self.layout.key_words == 1 {
            return self.responsible_short(meta, key.word(0));
        }
        let (mut low, mut high) = (0, self.count(meta));
        while low < high {
            let middle = low.midpoint(high);
            if key.compare(self.layout.key_words, |word| self.key_word_at(meta, middle, word)).is_gt() {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let index = low.checked_sub(1)?;
        Some((index, self.child_at(meta, index)))
    }

    /// The number of entries. A reader may see any, so it is clamped.
    #[inline(always)]
    pub(super) fn count(&self, meta: Meta) -> usize {
        meta.count.min(self.layout.room)
    }

    /// The same for keys of one word. Searches the samples, then the group of one, without branches that
    /// depend on the key.
    #[inline(always)]
    fn responsible_short(&self, meta: Meta, key: u64) -> Option<(usize, u64)> {
        let count = self.count(meta);
        let groups = count.div_ceil(GROUP);
        let skipped = if groups > LINE_WORDS { self.sample_lines_before(groups, key) } else { 0 };
        let samples = &self.head[1 + skipped];
        // Unused samples and keys are all ones, and the greatest key can equal that. Hence the bounds.
        let group = (skipped * LINE_WORDS + not_greater(samples, key)).min(groups).checked_sub(1)?;
        let window = self.window(meta, group)?;
        let within = not_greater_of_7(window, key).min(count - group * GROUP - 1);
        Some((group * GROUP + within, self.child_in(meta, window, within)))
    }

    /// Child `within` of a group.
    #[inline(always)]
    fn child_in(&self, meta: Meta, window: &[AtomicU64; WINDOW], within: usize) -> u64 {
        let width = meta.code.bytes * 8;
        let word = |at: usize| window[(GROUP_KEYS + at) % WINDOW].load(Ordering::Relaxed);
        meta.code.decode(self.word(BASE), field(word, within * width, width))
    }

    /// Searches several lines of samples for `groups` groups. Returns how many lines precede the last one
    /// whose first sample is not greater.
    #[inline(never)]
    fn sample_lines_before(&self, groups: usize, key: u64) -> usize {
        let (mut low, mut high) = (1, groups.div_ceil(LINE_WORDS));
        while low < high {
            let middle = low.midpoint(high);
            if self.head[1 + middle][0].load(Ordering::Relaxed) > key {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }

    /// Word `word` of the key of entry `index`.
    fn key_word_at(&self, meta: Meta, index: usize, word: usize) -> u64 {
        if self.layout.key_words != 1 {
            return self.run_word(self.run_at() + (2 + index) * self.layout.key_words + word);
        }
        match index % GROUP {
            0 => self.word(LINE_WORDS + index / GROUP),
            within => {
                let group = index / GROUP * Layout::group_words(meta.code.bytes);
                self.run_word(self.run_at() + group + within - 1)
            }
        }
    }

    /// Whether the key of entry `index` is `key`.
    pub(super) fn has_key<K: SearchKey>(&self, meta: Meta, index: usize, key: K) -> bool {
        key.compare(self.layout.key_words, |word| self.key_word_at(meta, index, word)).is_eq()
    }

    /// The child of entry `index`.
    pub(super) fn child_at(&self, meta: Meta, index: usize) -> u64 {
        if self.layout.key_words == 1 {
            let window = self.window(meta, index / GROUP);
            return window.map_or(0, |window| self.child_in(meta, window, index % GROUP));
        }
        let at = self.run_at() + self.layout.long_children_at(self.count(meta));
        let width = meta.code.bytes * 8;
        let code = field(|word| self.run_word(at + word), index * width, width);
        meta.code.decode(self.word(BASE), code)
    }

    /// All entries. Only under the cache's lock.
    pub(super) fn content(&self, meta: Meta) -> Content {
        let words = self.layout.key_words;
        let count = self.count(meta);
        Content {
            keys: (0..count * words).map(|at| self.key_word_at(meta, at / words, at % words)).collect(),
            children: (0..count).map(|index| self.child_at(meta, index)).collect(),
        }
    }

    /// The fences. Only under the cache's lock.
    pub(super) fn fences(&self) -> Fences {
        let words = self.layout.key_words;
        if words == 1 {
            return Fences { low: vec![self.word(SHORT_LOW)], high: vec![self.word(SHORT_HIGH)] };
        }
        let fence = |at: usize| (at..at + words).map(|at| self.run_word(at)).collect();
        Fences { low: fence(self.run_at()), high: fence(self.run_at() + words) }
    }

    /// Marks the copy as used in `epoch`. Writes only if the mark changes, so that lines that are read often
    /// stay clean.
    #[inline(always)]
    pub(super) fn touch(&self, epoch: u64) {
        if self.word(USED) != epoch {
            self.set(USED, epoch);
        }
    }

    /// Stores a copy in the slot. The caller makes sure that it fits into `run`.
    pub(super) fn fill(&self, address: u64, meta: Meta, fences: &Fences, encoded: &Encoded, run: Run) {
        self.write(|| {
            self.set(ADDRESS, address);
            self.set(META, meta.to_bits());
            self.set(RUN, run.to_bits());
            self.set(BASE, encoded.base);
            if self.layout.key_words == 1 {
                self.set(SHORT_LOW, fences.low[0]);
                self.set(SHORT_HIGH, fences.high[0]);
                let unused = std::iter::repeat(u64::MAX);
                let samples = encoded.samples.iter().copied().chain(unused);
                for (at, sample) in (LINE_WORDS..self.layout.head_lines * LINE_WORDS).zip(samples) {
                    self.set(at, sample);
                }
            }
            let words = self.runs.get(run.first as usize * LINE_WORDS..).unwrap_or_default();
            for (word, &value) in words.iter().zip(&encoded.run) {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    /// Empties the slot, and leaves a note in place of its run.
    pub(super) fn vacate(&self, note: u64) {
        self.write(|| {
            self.set(ADDRESS, 0);
            self.set(RUN, note);
        });
    }
}
