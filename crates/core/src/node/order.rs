//! The live entries of an unsorted leaf in the order of their keys. Scans and splits begin with it.
//!
//! Splits, merges and bulk loads fill slots in ascending order, and puts fill them at random. So most leaves
//! are nearly sorted, and `sort_nearly` is made for that. The first eight bytes of its key, as a number,
//! represent an entry. For keys of at most eight bytes, which most trees have, that is the whole key, and the
//! sort compares only numbers.

use super::counting_sort::{DensePairs, Pairs, WidePairs};
use super::shape::{AT_BITMAP, Body, MAX_KEY};
use super::view::Node;
use super::{Flags, LINE, counting_sort, dense, get_u16, slots};
use std::cmp::Ordering;

/// Bytes of a key that is one number.
const WORD: usize = 8;
/// Bytes of an entry of two words. `PAIRS` is how many of them lie in a line.
pub(super) const PAIR: usize = 16;
pub(super) const PAIRS: usize = AT_BITMAP / PAIR;

/// If more than one in this many entries is out of order, a general sort takes over.
const NEARLY: usize = 3;

/// Buffers for [`Node::collect`]. With reuse they stop growing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    low: Vec<u8>,
    high: Vec<u8>,
    ranks: Vec<Rank>,
    /// The keys of the gathered entries, if a rank's prefix is not the whole key.
    keys: Vec<u8>,
    dropped: Vec<Rank>,
    dropped_pairs: Vec<[u8; PAIR]>,
}

/// An entry to be sorted.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    /// The first eight bytes of the key, big-endian. A shorter key is padded with zeros.
    prefix: u64,
    slot: u32,
    /// The index of its key in `keys`, if `keys` is used.
    key: u32,
}

/// The keys of one word from `low` to `low + span`, inclusive.
#[derive(Clone, Copy, Debug)]
struct Words {
    low: u64,
    span: u64,
}

/// The high fence, if there is one. Entries at or above it do not exist.
fn high_fence(flags: Flags, fence: &[u8]) -> Option<&[u8]> {
    seam!(node::high_fence());
    (!flags.high_open).then_some(fence)
}

impl Words {
    /// The keys inside the fences and within `first..=last`; `None` if there can be none. Padding shorter
    /// keys with zeros does not change their order.
    fn within(node: &Node<'_>, first: &[u8], last: Option<&[u8]>) -> Option<Self> {
        let len = node.shape.key_len;
        let mut fence = [0; WORD];
        node.shape.fences.load(node.image, 0, &mut fence[..len]);
        let low = u64::from_be_bytes(fence).max(prefix_of(first));
        let mut high = last.map_or(u64::MAX, prefix_of);
        if !node.header.flags.high_open {
            node.shape.fences.load(node.image, len, &mut fence[..len]);
            high = high.min(u64::from_be_bytes(fence).checked_sub(1)?);
        }
        Some(Self { low, span: high.checked_sub(low)? })
    }

    #[inline(always)]
    fn contains(self, word: u64) -> bool {
        word.wrapping_sub(self.low) <= self.span
    }
}

/// The lines of slots, if an entry is two words.
fn lines_of_words<'a>(node: &Node<'a>) -> Option<&'a [[u8; LINE]]> {
    match node.shape.body {
        Body::Slots { first_line, .. } if node.shape.key_len == WORD && node.shape.entry_len() == PAIR => {
            Some(&node.image.as_chunks().0[first_line..])
        }
        _ => None,
    }
}

/// The lines of slots, if a slot has two words.
fn pair_lines<'a>(node: &Node<'a>) -> Option<&'a [[u8; LINE]]> {
    lines_of_words(node).filter(|_| !node.shape.is_dense)
}

/// Calls `f(pair, live)` for each slot of two words, live or not.
#[inline(always)]
fn each_pair(lines: &[[u8; LINE]], mut f: impl FnMut(&[u8; PAIR], bool)) {
    for line in lines {
        let live = get_u16(line, AT_BITMAP);
        for (slot, pair) in line.as_chunks().0[..PAIRS].iter().enumerate() {
            f(pair, live >> slot & 1 != 0);
        }
    }
}

/// Calls `f(key, slot, live)` for each slot whose key is one word, live or not.
#[inline(always)]
fn each_word(node: &Node<'_>, mut f: impl FnMut(u64, usize, bool)) {
    let (shape, image) = (node.shape, node.image);
    let len = shape.key_len;
    if let Some(lines) = pair_lines(node) {
        let mut slot = 0;
        return each_pair(lines, |pair, live| {
            f(key_of_pair(pair), slot, live);
            slot += 1;
        });
    }
    match shape.body {
        Body::Slots { first_line, per_line } => {
            let low = dense::base(shape, image);
            for (number, line) in image.as_chunks::<LINE>().0[first_line..].iter().enumerate() {
                let live = shape.live(line);
                for slot in 0..per_line {
                    let at = slot * shape.slot_len();
                    let key = match shape.is_dense {
                        true => dense::key_at(line, slot, shape.payload_len, low),
                        false => prefix_of(&line[at..at + len]),
                    };
                    f(key, number * per_line + slot, live >> slot & 1 != 0);
                }
            }
        }
        Body::Nibbled { start } => {
            let stride = shape.entry_len() + 1;
            for (slot, entry) in image[start..].chunks_exact(stride).take(shape.capacity).enumerate() {
                let first = u64::from(entry[0] << 4 | entry[stride - 1] >> 4);
                let rest = prefix_of(&entry[..len]) & u64::MAX >> 8;
                f(first << 56 | rest, slot, entry[0] >> 4 != 0);
            }
        }
        Body::LongSlots { .. } => {
            let mut key = [0; WORD];
            for slot in 0..shape.capacity {
                slots::load(shape, image, slot, 0, &mut key[..len]);
                f(u64::from_be_bytes(key), slot, slots::is_live(shape, image, slot));
            }
        }
        Body::Sorted(_) => {}
    }
}

#[inline(always)]
pub(super) fn key_of_pair(pair: &[u8; PAIR]) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&pair[..WORD]);
    u64::from_be_bytes(word)
}

/// How many live entries of an unsorted leaf lie inside the fences. Needs no memory.
pub(super) fn count_inside(node: &Node<'_>) -> usize {
    if node.shape.key_len > WORD {
        let mut buffer = [0; MAX_KEY];
        let live = (0..node.shape.capacity).filter(|&slot| slots::is_live(node.shape, node.image, slot));
        return live.filter(|&slot| node.slot_inside(slot, &mut buffer)).count();
    }
    let Some(inside) = Words::within(node, &[], None) else { return 0 };
    let mut count = 0;
    each_word(node, |word, _, live| count += usize::from(live & inside.contains(word)));
    count
}

/// The first slot of an unsorted leaf, live or not, whose key lies outside the fences. Needs no memory.
pub(super) fn first_outside(node: &Node<'_>) -> Option<usize> {
    if node.shape.key_len > WORD {
        let mut buffer = [0; MAX_KEY];
        return (0..node.shape.capacity).find(|&slot| !node.slot_inside(slot, &mut buffer));
    }
    let inside = Words::within(node, &[], None);
    let mut first = usize::MAX;
    each_word(node, |word, slot, _| {
        let outside = inside.is_none_or(|inside| !inside.contains(word));
        first = first.min(if outside { slot } else { usize::MAX });
    });
    (first != usize::MAX).then_some(first)
}

/// Finds a free slot for `key` in a small leaf of pairs: between the slots of its neighbours if there is one,
/// else near them. A leaf whose slots are in key order is scanned several times faster. Returns `None` if no
/// slot is free, or if this is no small leaf of pairs.
pub(super) fn slot_between(node: &Node<'_>, key: &[u8]) -> Option<usize> {
    let lines = pair_lines(node).filter(|lines| lines.len() * PAIRS <= u64::BITS as usize)?;
    let inside = Words::within(node, &[], None)?;
    let key = prefix_of(key);
    let (mut below, mut above) = ((0, 0), (u64::MAX, lines.len() as u32 * PAIRS as u32));
    let mut taken = 0_u64;
    let mut slot = 0;
    each_pair(lines, |pair, live| {
        let other = key_of_pair(pair);
        let counts = live & inside.contains(other);
        taken |= u64::from(counts) << slot;
        if counts & (other < key) & (other >= below.0) {
            below = (other, slot + 1);
        }
        if counts & (other > key) & (other <= above.0) {
            above = (other, slot);
        }
        slot += 1;
    });
    let free = !taken & (u64::MAX >> (u64::BITS - slot));
    let from = |at: u32| if at < u64::BITS { u64::MAX << at } else { 0 };
    let middle = below.1.midpoint(above.1);
    let between = free & from(below.1) & !from(above.1);
    // Prefer the first free slot from the middle of the gap on, then from its beginning. Without a free slot
    // in the gap, take the nearest one.
    if let Some(choice) = [between & from(middle), between].into_iter().find(|&choice| choice != 0) {
        return Some(choice.trailing_zeros() as usize);
    }
    let (right, left) = (free & from(below.1), free & !from(below.1));
    match (right != 0, left != 0) {
        (false, false) => None,
        (true, false) => Some(right.trailing_zeros() as usize),
        (false, true) => Some(left.ilog2() as usize),
        (true, true) => {
            let (after, before) = (right.trailing_zeros(), left.ilog2());
            Some(if after - below.1 <= below.1 - before { after } else { before } as usize)
        }
    }
}

/// Whether keys are one word, and bounds of these lengths compare with them as numbers.
fn are_words(node: &Node<'_>, first: &[u8], last: Option<&[u8]>) -> bool {
    let len = node.shape.key_len;
    len <= WORD && first.len() <= len && last.is_none_or(|last| last.len() == len)
}

/// Appends the pairs of a leaf of 8-byte keys and values to `out`. Returns false if it is no such leaf.
/// Copies the pairs directly, and sorts them in place if needed.
pub(super) fn collect_pairs(
    node: &Node<'_>,
    first: &[u8],
    last: Option<&[u8]>,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> bool {
    let Some(lines) = lines_of_words(node).filter(|_| are_words(node, first, last)) else { return false };
    let Some(within) = Words::within(node, first, last) else { return true };
    if node.shape.is_dense {
        let pairs = DensePairs { low: dense::base(node.shape, node.image) };
        collect_from(lines, pairs, within, scratch, out);
    } else {
        collect_from(lines, WidePairs, within, scratch, out);
    }
    true
}

#[inline(always)]
fn collect_from<P: Pairs>(
    lines: &[[u8; LINE]],
    pairs_of: P,
    within: Words,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    if lines.len() <= counting_sort::MAX_LINES {
        return counting_sort::collect(lines, pairs_of, within.low, within.span, out);
    }
    let start = out.len();
    out.resize(start + lines.len() * P::PER_LINE * PAIR, 0);
    let pairs = out[start..].as_chunks_mut().0;
    let mut count = 0;
    // No branch to predict: the loop copies every pair, accepted or not.
    for line in lines {
        let live = P::live(line);
        for slot in 0..P::PER_LINE {
            let pair = pairs_of.pair(line, slot);
            pairs[count] = pair;
            count += usize::from((live >> slot & 1 != 0) & within.contains(key_of_pair(&pair)));
        }
    }
    let count = sort_nearly(&mut pairs[..count], &mut scratch.dropped_pairs, |a, b| {
        key_of_pair(a).cmp(&key_of_pair(b))
    });
    out.truncate(start + count * PAIR);
}

/// Entries in order, each key once.
pub(super) struct Ordered<'a> {
    ranks: &'a [Rank],
    /// The keys, unless a key is one word.
    keys: Option<&'a [u8]>,
}

impl<'a> Ordered<'a> {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// The slots of the entries.
    pub(super) fn slots(&self) -> impl ExactSizeIterator<Item = usize> + use<'a> {
        self.ranks.iter().map(|rank| rank.slot as usize)
    }

    /// How many entries have a key below `key`.
    pub(super) fn below(&self, key: &[u8]) -> usize {
        let prefix = prefix_of(key);
        self.ranks.partition_point(|rank| match self.keys {
            Some(keys) if rank.prefix == prefix => key_of(rank, keys, key.len()) < key,
            _ => rank.prefix < prefix,
        })
    }
}

impl Scratch {
    /// Gathers the live entries of an unsorted leaf inside the fences and within `first..=last`. The caller
    /// checks whether they are whole.
    pub(super) fn gather(&mut self, node: &Node<'_>, first: &[u8], last: Option<&[u8]>) -> Ordered<'_> {
        self.ranks.clear();
        if !are_words(node, first, last) {
            return self.gather_keys(node, first, last);
        }
        self.ranks.reserve(node.shape.capacity);
        if let Some(within) = Words::within(node, first, last) {
            each_word(node, |prefix, slot, live| {
                if live & within.contains(prefix) {
                    self.ranks.push(Rank { prefix, slot: slot as u32, key: 0 });
                }
            });
        }
        let count = sort_nearly(&mut self.ranks, &mut self.dropped, |a, b| a.prefix.cmp(&b.prefix));
        Ordered { ranks: &self.ranks[..count], keys: None }
    }

    /// [`Scratch::gather`] for keys of any length, copied out of their slots.
    fn gather_keys(&mut self, node: &Node<'_>, first: &[u8], last: Option<&[u8]>) -> Ordered<'_> {
        let shape = node.shape;
        let len = shape.key_len;
        for (fence, at) in [(&mut self.low, 0), (&mut self.high, len)] {
            fence.resize(len, 0);
            shape.fences.load(node.image, at, fence);
        }
        let low = first.max(&self.low);
        let high = high_fence(node.header.flags, &self.high);
        let within = |key: &[u8]| {
            key >= low && high.is_none_or(|high| key < high) && last.is_none_or(|last| key <= last)
        };
        self.keys.clear();
        for slot in (0..shape.capacity).filter(|&slot| slots::is_live(shape, node.image, slot)) {
            let at = self.keys.len();
            self.keys.resize(at + len, 0);
            slots::load(shape, node.image, slot, 0, &mut self.keys[at..]);
            let key = &self.keys[at..];
            if within(key) {
                self.ranks.push(Rank { prefix: prefix_of(key), slot: slot as u32, key: (at / len) as u32 });
            } else {
                self.keys.truncate(at);
            }
        }
        let keys = &self.keys;
        let count = sort_nearly(&mut self.ranks, &mut self.dropped, |a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| key_of(a, keys, len).cmp(key_of(b, keys, len)))
        });
        Ordered { ranks: &self.ranks[..count], keys: Some(keys) }
    }

    /// Bytes of memory the buffers take.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.low.capacity()
            + self.high.capacity()
            + self.keys.capacity()
            + (self.ranks.capacity() + self.dropped.capacity()) * std::mem::size_of::<Rank>()
            + self.dropped_pairs.capacity() * PAIR
    }
}

fn key_of<'a>(rank: &Rank, keys: &'a [u8], len: usize) -> &'a [u8] {
    let at = rank.key as usize * len;
    &keys[at..at + len]
}

/// The first eight bytes as a number that compares as the bytes do. Missing bytes count as zeros.
#[inline(always)]
fn prefix_of(key: &[u8]) -> u64 {
    if let Some(word) = key.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    key.iter().zip((0..WORD).rev()).fold(0, |word, (byte, at)| word | u64::from(*byte) << (8 * at))
}

/// Sorts `items`, most of which are in order, and drops all but one of equal items. Returns how many remain.
///
/// It removes items that do not ascend, sorts them separately and merges them in again. An item that is too
/// large for its position would make all later items look too small. So if the next item fits in its
/// position, the too large one is removed instead.
#[inline(always)]
fn sort_nearly<T: Copy>(
    items: &mut [T],
    dropped: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> usize {
    let less = |a: &T, b: &T| compare(a, b) == Ordering::Less;
    let fall = |pair: &[T]| !less(&pair[0], &pair[1]);
    let Some(first) = items.windows(2).position(fall) else { return items.len() };
    if items[first..].windows(2).filter(|pair| fall(pair)).count() > items.len() / NEARLY {
        items.sort_unstable_by(&compare);
        return if items.windows(2).any(fall) { keep_one_of_equals(items, less) } else { items.len() };
    }
    dropped.clear();
    dropped.reserve(items.len());
    let mut kept = first + 1;
    for next in first + 1..items.len() {
        let item = items[next];
        if less(&items[kept - 1], &item) {
            items[kept] = item;
            kept += 1;
        } else if kept > 1 && less(&items[kept - 2], &item) && less(&item, &items[kept - 1]) {
            dropped.push(items[kept - 1]);
            items[kept - 1] = item;
        } else {
            dropped.push(item);
        }
    }
    dropped.sort_unstable_by(&compare);
    let mut twice = dropped.windows(2).any(fall);
    let (mut low, mut high) = (kept, dropped.len());
    for at in (0..items.len()).rev() {
        if high == 0 {
            break;
        }
        if low > 0 && less(&dropped[high - 1], &items[low - 1]) {
            items[at] = items[low - 1];
            low -= 1;
        } else {
            twice |= low > 0 && !less(&items[low - 1], &dropped[high - 1]);
            items[at] = dropped[high - 1];
            high -= 1;
        }
    }
    if twice { keep_one_of_equals(items, less) } else { items.len() }
}

#[cold]
fn keep_one_of_equals<T: Copy>(items: &mut [T], less: impl Fn(&T, &T) -> bool) -> usize {
    let mut kept = 1;
    for next in 1..items.len() {
        if less(&items[kept - 1], &items[next]) {
            items[kept] = items[next];
            kept += 1;
        }
    }
    kept.min(items.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_order_it_is_sorted_and_each_is_there_once() {
        // All sequences of six numbers below five: every pattern of ascending, descending and equal
        // neighbours.
        for number in 0..5_usize.pow(6) {
            let mut items: Vec<usize> = (0..6).map(|at| number / 5_usize.pow(at) % 5).collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            expected.dedup();
            let count = sort_nearly(&mut items, &mut Vec::new(), |a, b| a.cmp(b));
            assert_eq!(items[..count], expected, "{number}");
        }
        assert_eq!(sort_nearly(&mut [], &mut Vec::new(), |a: &u8, b| a.cmp(b)), 0);
    }
}
