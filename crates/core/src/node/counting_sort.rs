//! Sorts the pairs of a small leaf by key, with a counting sort into buckets.
//!
//! Every scan of leaves of 8-byte keys and values runs through here. The keys of one leaf are mostly spread
//! evenly between its fences. So a bucket for each 64th of the range holds one or two keys. The counting sort
//! brings them nearly into order in two passes, and the remaining moves are by one or two positions. If keys
//! crowd into few buckets, a general sort takes over. Leaves that are already in order, as bulk loads leave
//! them, are only copied.
//!
//! The passes move *ranks*, half as large as pairs. A rank is the distance of a key from the lowest one,
//! shifted to the left as far as the range allows, with the pair's slot in the low byte. Each pair moves
//! once, from its slot to its place in the result. If the range is too large for that, which only a tree of
//! few leaves has, the pairs themselves are sorted.

use super::order::{PAIR, PAIRS, key_of_pair};
use super::shape::AT_BITMAP;
use super::{LINE, dense, get_u16};

/// The most lines of pairs, so that a count fits a byte.
pub(super) const MAX_LINES: usize = 42;
/// The most slots.
const MAX: usize = MAX_LINES * dense::PER_LINE;
const BOXES: usize = 64;
/// If at most one in this many pairs is out of order, insertion sort alone sorts them. The lines of a hashed
/// leaf may be in order each, but not one after the other. So one in three would be too many.
const FEW: usize = 8;
/// If a bucket holds more pairs than this, the general sort takes over.
const CROWDED: u8 = 8;

const _: () = assert!(MAX <= u8::MAX as usize);

/// How to read the pairs of a line.
pub(super) trait Pairs: Copy {
    /// Slots per line.
    const PER_LINE: usize;

    /// The bits of the live slots of a line.
    fn live(line: &[u8; LINE]) -> u16;

    /// The key in slot `index` of a line.
    fn key(self, line: &[u8; LINE], index: usize) -> u64;

    /// The pair in slot `index` of a line.
    fn pair(self, line: &[u8; LINE], index: usize) -> [u8; PAIR];
}

/// The pairs of wide lines.
#[derive(Clone, Copy)]
pub(super) struct WidePairs;

impl Pairs for WidePairs {
    const PER_LINE: usize = PAIRS;

    #[inline(always)]
    fn live(line: &[u8; LINE]) -> u16 {
        get_u16(line, AT_BITMAP)
    }

    #[inline(always)]
    fn key(self, line: &[u8; LINE], index: usize) -> u64 {
        key_of_pair(&self.pair(line, index))
    }

    #[inline(always)]
    fn pair(self, line: &[u8; LINE], index: usize) -> [u8; PAIR] {
        line.as_chunks().0[index]
    }
}

/// The pairs of dense lines of a leaf with this low fence.
#[derive(Clone, Copy)]
pub(super) struct DensePairs {
    pub(super) low: u64,
}

impl Pairs for DensePairs {
    const PER_LINE: usize = dense::PER_LINE;

    #[inline(always)]
    fn live(line: &[u8; LINE]) -> u16 {
        get_u16(line, AT_BITMAP) >> dense::LIVE_SHIFT
    }

    #[inline(always)]
    fn key(self, line: &[u8; LINE], index: usize) -> u64 {
        dense::key_at(line, index, PAIR - size_of::<u64>(), self.low)
    }

    #[inline(always)]
    fn pair(self, line: &[u8; LINE], index: usize) -> [u8; PAIR] {
        dense::pair_at(line, index, self.low)
    }
}

/// Appends the live pairs with keys from `low` to `low + span` to `out`, ascending, each key once. `lines`
/// has at most [`MAX_LINES`] lines.
pub(super) fn collect<P: Pairs>(lines: &[[u8; LINE]], pairs_of: P, low: u64, span: u64, out: &mut Vec<u8>) {
    let slots = lines.len() * P::PER_LINE;
    if span.leading_zeros() < u8::BITS || slots > MAX {
        collect_pairs(lines, pairs_of, low, span, out);
    } else if slots <= BOXES {
        // Most leaves have at most 64 slots. Smaller arrays are cleared faster.
        collect_by_rank::<P, BOXES>(lines, pairs_of, low, span, out);
    } else {
        collect_by_rank::<P, 256>(lines, pairs_of, low, span, out);
    }
}

/// Does the work of [`collect`] for lines of at most `MOST` slots, at most 256, if ranks have room for their
/// slots. All indexes are taken modulo `MOST`, so none needs a check.
fn collect_by_rank<P: Pairs, const MOST: usize>(
    lines: &[[u8; LINE]],
    pairs_of: P,
    low: u64,
    span: u64,
    out: &mut Vec<u8>,
) {
    let (mut ranks, mut sorted) = ([0_u64; MOST], [0_u64; MOST]);
    let shift = span.leading_zeros();
    let (mut count, mut falls, mut before, mut first) = (0, 0, 0, 0);
    // No branch to predict: the loop stores every rank, accepted or not.
    for line in lines {
        let live = P::live(line);
        for slot in 0..P::PER_LINE {
            let distance = pairs_of.key(line, slot).wrapping_sub(low);
            let counts = (live >> slot & 1 != 0) & (distance <= span);
            // In a range of one key every distance is 0, whatever the shift.
            let rank = distance << (shift % u64::BITS) | (first + slot) as u64;
            ranks[count % MOST] = rank;
            falls += usize::from(counts & (rank < before));
            before = if counts { rank } else { before };
            count += usize::from(counts);
        }
        first += P::PER_LINE;
    }
    let count = count.min(MOST);
    let ranks = if falls <= count / FEW {
        insert(&mut ranks, count);
        &mut ranks[..count]
    } else if sort_by_bucket(&ranks[..count], &mut sorted) {
        &mut sorted[..count]
    } else {
        ranks[..count].sort_unstable();
        &mut ranks[..count]
    };
    // An unlocked image may show a key twice. Either pair is valid.
    let equal = |one: u64, other: u64| one ^ other <= u64::from(u8::MAX);
    let mut kept = count;
    if ranks.windows(2).fold(false, |any, two| any | equal(two[0], two[1])) {
        kept = keep_one_of_equals(ranks, |one, other| equal(*one, *other));
    }
    let start = out.len();
    out.resize(start + kept * PAIR, 0);
    for (pair, rank) in out[start..].as_chunks_mut::<PAIR>().0.iter_mut().zip(ranks) {
        let slot = usize::from(*rank as u8);
        *pair = pairs_of.pair(&lines[slot / P::PER_LINE], slot % P::PER_LINE);
    }
}

/// Does the work of [`collect`] for any lines: sorts the pairs themselves.
#[inline(never)]
fn collect_pairs<P: Pairs>(lines: &[[u8; LINE]], pairs_of: P, low: u64, span: u64, out: &mut Vec<u8>) {
    let start = out.len();
    for line in lines {
        let live = P::live(line);
        for slot in (0..P::PER_LINE).filter(|slot| live >> slot & 1 != 0) {
            if pairs_of.key(line, slot).wrapping_sub(low) <= span {
                out.extend_from_slice(&pairs_of.pair(line, slot));
            }
        }
    }
    let pairs = out[start..].as_chunks_mut::<PAIR>().0;
    pairs.sort_unstable_by_key(key_of_pair);
    let kept = keep_one_of_equals(pairs, |one, other| key_of_pair(one) == key_of_pair(other));
    out.truncate(start + kept * PAIR);
}

/// Sorts the first `count` ranks by insertion.
#[inline(always)]
fn insert<const MOST: usize>(ranks: &mut [u64; MOST], count: usize) {
    let mut before = ranks[0];
    for at in 1..count {
        let rank = ranks[at % MOST];
        if rank >= before {
            before = rank;
            continue;
        }
        let mut to = at;
        while to > 0 && ranks[(to - 1) % MOST] > rank {
            ranks[to % MOST] = ranks[(to - 1) % MOST];
            to -= 1;
        }
        ranks[to % MOST] = rank;
    }
}

/// Sorts ranks in random order into `sorted`. Returns false, and leaves them as they are, if that would be
/// slow.
#[inline(always)]
fn sort_by_bucket<const MOST: usize>(ranks: &[u64], sorted: &mut [u64; MOST]) -> bool {
    let mut ends = [0_u8; BOXES];
    for &rank in ranks {
        ends[box_of(rank)] += 1;
    }
    if !add_up(&mut ends) {
        return false;
    }
    for &rank in ranks.iter().rev() {
        let end = &mut ends[box_of(rank)];
        *end = end.wrapping_sub(1);
        sorted[usize::from(*end) % MOST] = rank;
    }
    insert(sorted, ranks.len());
    true
}

/// The bucket of a rank.
#[inline(always)]
fn box_of(rank: u64) -> usize {
    (rank >> (u64::BITS - BOXES.ilog2())) as usize
}

/// Turns the counts of the buckets into their ends. Returns false if a bucket is crowded.
fn add_up(counts: &mut [u8; BOXES]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // A byte above `CROWDED` gets its highest bit, or has it already.
    const TO_CROWDED: u64 = u64::from_ne_bytes([0x7f - CROWDED; 8]);
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    let (mut before, mut crowded) = (0_u8, 0);
    for eight in counts.as_chunks_mut::<8>().0 {
        let word = u64::from_le_bytes(*eight);
        crowded |= word | word.wrapping_add(TO_CROWDED);
        // Adds to each byte all bytes below it. No sum exceeds the number of pairs, which fits a byte.
        let sums = word.wrapping_mul(ONES).wrapping_add(ONES.wrapping_mul(u64::from(before)));
        *eight = sums.to_le_bytes();
        before = eight[7];
    }
    crowded & HIGHEST == 0
}

/// Keeps one of equal neighbours. Returns how many items remain.
#[cold]
fn keep_one_of_equals<T: Copy>(items: &mut [T], equal: impl Fn(&T, &T) -> bool) -> usize {
    let mut kept = 0;
    for at in 0..items.len() {
        if kept == 0 || !equal(&items[kept - 1], &items[at]) {
            items[kept] = items[at];
            kept += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Dense lines with the given pairs in the given slots. All keys are below 2^48.
    fn dense_leaf(pairs: &[(usize, u64, u64)]) -> Vec<[u8; LINE]> {
        let mut lines = vec![[0; LINE]; 15];
        for &(slot, key, value) in pairs {
            let line = &mut lines[slot / dense::PER_LINE];
            dense::put(line, slot % dense::PER_LINE, 0, &key.to_be_bytes(), &value.to_be_bytes());
        }
        lines
    }

    /// Lines with the given pairs in the given slots.
    fn leaf(pairs: &[(usize, u64, u64)]) -> Vec<[u8; LINE]> {
        let mut lines = vec![[0; LINE]; 15];
        for &(slot, key, value) in pairs {
            let line = &mut lines[slot / PAIRS];
            let at = slot % PAIRS * PAIR;
            line[at..at + 8].copy_from_slice(&key.to_be_bytes());
            line[at + 8..at + 16].copy_from_slice(&value.to_be_bytes());
            line[60] |= 1 << (slot % PAIRS);
        }
        lines
    }

    #[test]
    fn whatever_the_keys_they_come_in_order_and_once() {
        let mut dice = 7_u64;
        let mut roll = || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice
        };
        for round in 0..20_000 {
            // Keys spread over the whole range, crowded, mostly duplicates, or spread over a part of the
            // range.
            let mask = [u64::MAX, 0xff, 7, u64::MAX >> 20][round % 4];
            let is_dense = round % 4 > 0 && round % 8 > 3;
            let mut pairs = Vec::new();
            for slot in 0..if is_dense { 60 } else { 45 } {
                if roll() % 4 > 0 {
                    pairs.push((slot, roll() & mask, slot as u64));
                }
            }
            let (low, span) = (roll() & mask & roll(), roll() & mask);
            let mut expected: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for &(_, key, value) in pairs.iter().filter(|(_, key, _)| key.wrapping_sub(low) <= span) {
                expected.entry(key).or_default().push(value);
            }
            if low.checked_add(span).is_none() {
                continue;
            }
            let mut out = vec![1, 2, 3];
            if is_dense {
                collect(&dense_leaf(&pairs), DensePairs { low: 0 }, low, span, &mut out);
            } else {
                collect(&leaf(&pairs), WidePairs, low, span, &mut out);
            }
            assert_eq!(out[..3], [1, 2, 3]);
            let found = out[3..].as_chunks::<PAIR>().0;
            assert_eq!(
                found.iter().map(key_of_pair).collect::<Vec<_>>(),
                expected.keys().copied().collect::<Vec<_>>()
            );
            for pair in found {
                let value = u64::from_be_bytes(*pair.last_chunk().expect("eight bytes"));
                assert!(expected[&key_of_pair(pair)].contains(&value));
            }
        }
    }

    /// Prints how long [`collect`] takes for leaves of some sizes whose keys are in random slots, and in
    /// order. The NIC model charges the former (`sort_nanos`, `sort_entry_picos`).
    ///
    /// `cargo test --release -p sherman-core what_a_sort_costs -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    #[allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]
    fn what_a_sort_costs() {
        let mut dice = 7_u64;
        let mut roll = || {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            dice >> 20
        };
        println!("entries  random, ns  in order, ns");
        for entries in [9_usize, 18, 27, 36, 45, 60, 75, 90] {
            let took = [true, false].map(|scrambled| {
                // Many leaves, so that the processor cannot learn one.
                let leaves: Vec<_> = (0..256)
                    .map(|_| {
                        let mut keys: Vec<u64> = (0..entries).map(|_| roll() % 1_000_000).collect();
                        if !scrambled {
                            keys.sort_unstable();
                        }
                        let mut lines = vec![[0; LINE]; entries.div_ceil(PAIRS)];
                        for (slot, key) in keys.into_iter().enumerate() {
                            let (line, at) = (&mut lines[slot / PAIRS], slot % PAIRS * PAIR);
                            line[at..at + 8].copy_from_slice(&key.to_be_bytes());
                            line[60] |= 1 << (slot % PAIRS);
                        }
                        lines
                    })
                    .collect();
                let mut out = Vec::new();
                let mut fastest = f64::INFINITY;
                for _ in 0..500 {
                    let began = std::time::Instant::now();
                    for lines in &leaves {
                        out.clear();
                        collect(std::hint::black_box(lines), WidePairs, 0, 999_999, &mut out);
                        std::hint::black_box(&out);
                    }
                    fastest = fastest.min(began.elapsed().as_nanos() as f64 / leaves.len() as f64);
                }
                fastest
            });
            println!("{entries:>7}  {:>10.1}  {:>12.1}", took[0], took[1]);
        }
    }
}
