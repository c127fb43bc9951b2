//! One copy in its slot: readers take no lock, writers hold the cache's lock.
//!
//! The slot is a sequence lock of safe atomics. The sequence word is odd while the copy changes. A reader
//! uses what it read only if the word was even before and the same after. So it discards everything it
//! computed from words of different moments. It must not panic meanwhile, so every count is clamped to the
//! layout.

use super::layout::{
    ADDRESS, LINE_WORDS, Layout, META, Meta, SEQUENCE, SHORT_HIGH, SHORT_LOW, SearchKey, USED, key_word,
};
use crate::node::{SortedBody, get_u64};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How many times a reader tries to read a copy between two changes.
const TRIES: usize = 4;

/// A cache line of words.
pub(super) type CacheLine = [AtomicU64; LINE_WORDS];

/// A slot.
#[derive(Clone, Copy)]
pub(super) struct CacheSlot<'a> {
    pub lines: &'a [CacheLine],
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

/// How many words of a sorted line are not greater than `key`.
#[inline(always)]
fn not_greater(line: &[AtomicU64; LINE_WORDS], key: u64) -> usize {
    // A binary search, not a sum of eight comparisons: without AVX the compiler vectorises that sum, at twice
    // the cost.
    let smaller = |at: usize| usize::from(line[at % LINE_WORDS].load(Ordering::Relaxed) <= key);
    let mut count = 4 * smaller(3);
    count += 2 * smaller(count + 1);
    count += smaller(count);
    count + smaller(count) * usize::from(count == LINE_WORDS - 1)
}

impl CacheSlot<'_> {
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.lines[at / LINE_WORDS][at % LINE_WORDS].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, word: u64) {
        self.lines[at / LINE_WORDS][at % LINE_WORDS].store(word, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn meta(&self) -> Meta {
        Meta::from_bits(self.word(META))
    }

    /// Returns what `look` saw, if all of it is from one moment.
    #[inline(always)]
    pub(super) fn read<T>(&self, mut look: impl FnMut() -> T) -> Option<T> {
        let sequence = &self.lines[0][SEQUENCE];
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
        let sequence = &self.lines[0][SEQUENCE];
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
        if K::SHORT {
            return self.word(SHORT_LOW) <= key.word(0)
                && (meta.high_open || self.word(SHORT_HIGH) > key.word(0));
        }
        let fence_at = |at: usize| key.compare(self.layout.key_words, |index| self.word(at + index));
        fence_at(self.layout.low_at).is_le() && (meta.high_open || fence_at(self.layout.high_at).is_gt())
    }

    /// Returns the entry responsible for `key` (the last whose key is not greater) and its child.
    #[inline(always)]
    pub(super) fn responsible<K: SearchKey>(&self, meta: Meta, key: K) -> Option<(usize, u64)> {
        let count = meta.count.min(self.layout.room);
        if K::SHORT {
            return self.responsible_short(count, key.word(0));
        }
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            let at = self.layout.keys_at + middle * self.layout.key_words;
            if key.compare(self.layout.key_words, |index| self.word(at + index)).is_gt() {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let index = low.checked_sub(1)?;
        Some((index, self.word(self.layout.children_at + index)))
    }

    /// The same for keys of one word. Searches the samples, then the eight keys that follow one, without
    /// branches that depend on the key.
    #[inline(always)]
    fn responsible_short(&self, count: usize, key: u64) -> Option<(usize, u64)> {
        let groups = count.div_ceil(LINE_WORDS);
        let skipped = if groups > LINE_WORDS { self.sample_lines_before(groups, key) } else { 0 };
        let samples = &self.lines[1 + skipped];
        // Unused samples and keys are all ones, and the greatest key can equal that. Hence the bounds.
        let group = (skipped * LINE_WORDS + not_greater(samples, key)).min(groups).checked_sub(1)?;
        let children = &self.lines[self.layout.children_at / LINE_WORDS + group];
        // A prefetch: loads the line of children before the search knows the child, so it arrives together
        // with the line of keys.
        children[0].load(Ordering::Relaxed);
        let keys = &self.lines[self.layout.keys_at / LINE_WORDS + group];
        let within = not_greater(keys, key).min(count - group * LINE_WORDS).checked_sub(1)?;
        Some((group * LINE_WORDS + within, children[within % LINE_WORDS].load(Ordering::Relaxed)))
    }

    /// Searches several lines of samples for `groups` groups. Returns how many lines precede the last one
    /// whose first sample is not greater.
    #[inline(never)]
    fn sample_lines_before(&self, groups: usize, key: u64) -> usize {
        let (mut low, mut high) = (1, groups.div_ceil(LINE_WORDS));
        while low < high {
            let middle = low.midpoint(high);
            if self.lines[1 + middle][0].load(Ordering::Relaxed) > key {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }

    /// Whether the key of entry `index` is `key`.
    pub(super) fn has_key<K: SearchKey>(&self, index: usize, key: K) -> bool {
        let at = self.layout.keys_at + index * self.layout.key_words;
        key.compare(self.layout.key_words, |word| self.word(at + word)).is_eq()
    }

    /// The child of entry `index`.
    pub(super) fn child_at(&self, index: usize) -> u64 {
        self.word(self.layout.children_at + index)
    }

    /// Marks the copy as used in `epoch`. Writes only if the mark changes, so that lines that are read often
    /// stay clean.
    #[inline(always)]
    pub(super) fn touch(&self, epoch: u64) {
        if self.word(USED) != epoch {
            self.set(USED, epoch);
        }
    }

    /// Stores a copy in the slot. The caller makes sure that `body` fits.
    pub(super) fn fill(&self, address: u64, meta: Meta, low: &[u8], high: Option<&[u8]>, body: &SortedBody) {
        let layout = self.layout;
        self.write(|| {
            self.set(ADDRESS, address);
            self.set(META, meta.to_bits());
            self.put_key(layout.low_at, low);
            self.put_key(layout.high_at, high.unwrap_or(low));
            for index in 0..body.len() {
                self.put_key(layout.keys_at + index * layout.key_words, body.key(index));
                self.set(layout.children_at + index, get_u64(body.payload(index), 0));
            }
            if layout.key_words == 1 {
                for index in body.len()..layout.room {
                    self.set(layout.keys_at + index, u64::MAX);
                }
                self.sample();
            }
        });
    }

    /// Inserts an entry before `index`. The caller makes sure that there is room.
    pub(super) fn insert(&self, meta: Meta, index: usize, key: &[u8], child: u64) {
        let layout = self.layout;
        self.write(|| {
            for at in (index..meta.count).rev() {
                for word in 0..layout.key_words {
                    let from = layout.keys_at + at * layout.key_words + word;
                    self.set(from + layout.key_words, self.word(from));
                }
                self.set(layout.children_at + at + 1, self.child_at(at));
            }
            self.put_key(layout.keys_at + index * layout.key_words, key);
            self.set(layout.children_at + index, child);
            self.set(META, Meta { count: meta.count + 1, ..meta }.to_bits());
            if layout.key_words == 1 {
                self.sample();
            }
        });
    }

    /// Empties the slot.
    pub(super) fn vacate(&self) {
        self.write(|| self.set(ADDRESS, 0));
    }

    fn put_key(&self, at: usize, key: &[u8]) {
        for index in 0..self.layout.key_words {
            self.set(at + index, key_word(key, index));
        }
    }

    /// Takes the samples again.
    fn sample(&self) {
        let layout = self.layout;
        for index in 0..layout.keys_at - layout.samples_at {
            let at = index * LINE_WORDS;
            let sample = if at < layout.room { self.word(layout.keys_at + at) } else { u64::MAX };
            self.set(layout.samples_at + index, sample);
        }
    }
}
