//! The live entries of an unsorted leaf in the order of their keys: what scans and splits begin with.
//!
//! Slots are filled in ascending order by splits, merges and bulk loads and at random by puts, so most leaves are nearly
//! sorted. An entry is represented by the first eight bytes of its key as a number: for keys of eight bytes, which most
//! trees have, that is all of it and nothing but numbers is compared.

use super::shape::{AT_BITMAP, Body};
use super::view::Node;
use super::{LINE, get_u16, slots};

/// Buffers for [`Node::collect`]: used again and again, they stop growing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    low: Vec<u8>,
    high: Vec<u8>,
    /// May be longer than what was gathered last: stale ranks are cheaper than cleared ones.
    ranks: Vec<Rank>,
    /// The keys of what was gathered, where `prefix` is not all of them.
    keys: Vec<u8>,
}

/// An entry waiting to be put in order.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    /// The first eight bytes of the key, big-endian; of a shorter key, all of it and zeros.
    prefix: u64,
    slot: u32,
    /// Where the entry begins in the image ([`gather_words`]), or which key of `keys` is its own.
    at: u32,
}

/// Keys from `low` on, up to and including `low + span`.
#[derive(Clone, Copy, Debug)]
struct Words {
    low: u64,
    span: u64,
}

impl Words {
    #[inline(always)]
    fn contains(self, word: u64) -> bool {
        word.wrapping_sub(self.low) <= self.span
    }
}

/// Lines whose slots begin with keys of eight bytes.
#[derive(Clone, Copy)]
struct WordLines<'a> {
    lines: &'a [[u8; LINE]],
    per_line: usize,
    entry_len: usize,
}

impl<'a> WordLines<'a> {
    /// `None` if the node's keys have another length, or are laid out otherwise.
    fn of(node: &Node<'a>) -> Option<(Self, usize)> {
        match node.shape.body {
            Body::Slots { first_line, per_line } if node.shape.key_len == 8 => {
                let lines = &node.image.as_chunks().0[first_line..];
                Some((Self { lines, per_line, entry_len: node.shape.entry_len() }, first_line * LINE))
            }
            _ => None,
        }
    }

    /// Calls `f(word, slot, offset, live)` for each slot, live or not.
    #[inline(always)]
    fn each(self, mut f: impl FnMut(u64, usize, usize, bool)) {
        for (number, line) in self.lines.iter().enumerate() {
            let live = get_u16(line, AT_BITMAP);
            for slot in 0..self.per_line {
                let Some(word) = line[slot * self.entry_len..].first_chunk() else { continue };
                let at = number * LINE + slot * self.entry_len;
                f(u64::from_be_bytes(*word), number * self.per_line + slot, at, live >> slot & 1 != 0);
            }
        }
    }
}

/// The keys of eight bytes that lie inside the fences and within `first..=last`; `None` if there can be none.
fn words_within(node: &Node<'_>, first: &[u8; 8], last: &[u8; 8]) -> Option<Words> {
    let mut fence = [0; 8];
    node.shape.fences.load(node.image, 0, &mut fence);
    let low = u64::from_be_bytes(fence.max(*first));
    let mut high = u64::from_be_bytes(*last);
    if !node.header.flags.high_open {
        node.shape.fences.load(node.image, 8, &mut fence);
        high = high.min(u64::from_be_bytes(fence).checked_sub(1)?);
    }
    Some(Words { low, span: high.checked_sub(low)? })
}

/// How many live entries lie inside the fences, of keys of eight bytes; `None` if they are not.
pub(super) fn count_words(node: &Node<'_>) -> Option<usize> {
    let (words, _) = WordLines::of(node)?;
    let Some(inside) = words_within(node, &[0; 8], &[0xff; 8]) else { return Some(0) };
    let mut count = 0;
    let mut add = |word, _, _, live| count += usize::from(live & inside.contains(word));
    // The compiler knows where the slots of the commonest entry are.
    match words {
        WordLines { per_line: 3, entry_len: 16, lines } => {
            WordLines { lines, per_line: 3, entry_len: 16 }.each(&mut add);
        }
        other => other.each(&mut add),
    }
    Some(count)
}

/// Gathers the ranks of words inside `within`; their `at` counts from the first of `lines`. Nothing is predicted: a rank
/// is written whether it counts or not.
#[inline(always)]
fn gather_words(words: WordLines<'_>, within: Words, base: usize, ranks: &mut Vec<Rank>) -> usize {
    let most = words.lines.len() * words.per_line;
    if ranks.len() < most {
        ranks.resize(most, Rank::default());
    }
    let mut count = 0;
    words.each(|prefix, slot, at, live| {
        ranks[count] = Rank { prefix, slot: slot as u32, at: (base + at) as u32 };
        count += usize::from(live & within.contains(prefix));
    });
    count
}

/// Entries in order, each key once.
pub(super) struct Ordered<'a> {
    ranks: &'a [Rank],
    /// The keys, unless the ranks say where in the image they are.
    keys: Option<&'a [u8]>,
}

impl<'a> Ordered<'a> {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Their slots.
    pub(super) fn slots(&self) -> impl ExactSizeIterator<Item = usize> + use<'a> {
        self.ranks.iter().map(|rank| rank.slot as usize)
    }

    /// How many have a key below `key`.
    pub(super) fn below(&self, key: &[u8]) -> usize {
        let prefix = prefix_of(key);
        self.ranks.partition_point(|rank| match self.keys {
            Some(keys) if rank.prefix == prefix => key_of(rank, keys, key.len()) < key,
            _ => rank.prefix < prefix,
        })
    }

    /// Copies them out of `node`, one after the other.
    pub(super) fn copy(&self, node: &Node<'_>, into: &mut [u8]) {
        let entry_len = node.shape.entry_len();
        if self.keys.is_none() && entry_len == 16 {
            for (place, rank) in into.as_chunks_mut::<16>().0.iter_mut().zip(self.ranks) {
                let at = rank.at as usize;
                place.copy_from_slice(&node.image[at..at + 16]);
            }
            return;
        }
        for (place, slot) in into.chunks_exact_mut(entry_len).zip(self.slots()) {
            slots::load(node.shape, node.image, slot, 0, place);
        }
    }
}

impl Scratch {
    /// Bytes of memory the buffers take.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.low.capacity()
            + self.high.capacity()
            + self.keys.capacity()
            + self.ranks.capacity() * std::mem::size_of::<Rank>()
    }

    /// The live entries of an unsorted leaf inside the fences and within `first..=last`. Whether they are whole is the
    /// caller's question.
    pub(super) fn gather(&mut self, node: &Node<'_>, first: &[u8], last: Option<&[u8]>) -> Ordered<'_> {
        let words = WordLines::of(node);
        let bounds =
            (if first.is_empty() { Ok(&[0; 8]) } else { first.try_into() }, last.unwrap_or(&[0xff; 8]).try_into());
        let ((words, base), first, last) = match (words, bounds) {
            (Some(words), (Ok(first), Ok(last))) => (words, first, last),
            _ => return self.gather_keys(node, first, last),
        };
        let count = match (words_within(node, first, last), words) {
            (None, _) => 0,
            (Some(within), WordLines { lines, per_line: 3, entry_len: 16 }) => {
                gather_words(WordLines { lines, per_line: 3, entry_len: 16 }, within, base, &mut self.ranks)
            }
            (Some(within), words) => gather_words(words, within, base, &mut self.ranks),
        };
        let count = sort_words(&mut self.ranks[..count]);
        Ordered { ranks: &self.ranks[..count], keys: None }
    }

    /// [`Scratch::gather`] for keys of any length, taken out of their slots.
    fn gather_keys(&mut self, node: &Node<'_>, first: &[u8], last: Option<&[u8]>) -> Ordered<'_> {
        let shape = node.shape;
        let len = shape.key_len;
        for (fence, at) in [(&mut self.low, 0), (&mut self.high, len)] {
            fence.resize(len, 0);
            shape.fences.load(node.image, at, fence);
        }
        let low = first.max(&self.low);
        let high = (!node.header.flags.high_open).then_some(&self.high[..]);
        let within =
            |key: &[u8]| key >= low && high.is_none_or(|high| key < high) && last.is_none_or(|last| key <= last);
        self.keys.clear();
        self.ranks.clear();
        for slot in (0..shape.capacity).filter(|&slot| slots::is_live(shape, node.image, slot)) {
            let at = self.keys.len();
            self.keys.resize(at + len, 0);
            slots::load(shape, node.image, slot, 0, &mut self.keys[at..]);
            let key = &self.keys[at..];
            if within(key) {
                self.ranks.push(Rank { prefix: prefix_of(key), slot: slot as u32, at: (at / len) as u32 });
            } else {
                self.keys.truncate(at);
            }
        }
        let count = if len <= 8 {
            sort_words(&mut self.ranks)
        } else {
            let keys = &self.keys;
            let key = |rank: &Rank| key_of(rank, keys, len);
            let less = |a: &Rank, b: &Rank| a.prefix < b.prefix || a.prefix == b.prefix && key(a) < key(b);
            if !self.ranks.is_sorted_by(less) {
                self.ranks.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b))));
                self.ranks.dedup_by(|b, a| a.prefix == b.prefix && key(a) == key(b));
            }
            self.ranks.len()
        };
        Ordered { ranks: &self.ranks[..count], keys: Some(&self.keys) }
    }
}

fn key_of<'a>(rank: &Rank, keys: &'a [u8], len: usize) -> &'a [u8] {
    let at = rank.at as usize * len;
    &keys[at..at + len]
}

fn prefix_of(key: &[u8]) -> u64 {
    if let Some(word) = key.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    word[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(word)
}

/// Sorts by prefix, which is all of the key, drops all but one of equal keys and returns how many are left.
fn sort_words(ranks: &mut [Rank]) -> usize {
    if ranks.is_sorted_by(|a, b| a.prefix < b.prefix) {
        return ranks.len();
    }
    ranks.sort_unstable_by_key(|rank| rank.prefix);
    let mut kept = 1;
    for next in 1..ranks.len() {
        if ranks[next].prefix != ranks[kept - 1].prefix {
            ranks[kept] = ranks[next];
            kept += 1;
        }
    }
    kept
}
