//! Sorts the pairs of a small leaf by key, with a counting sort into buckets.
//!
//! Every scan of leaves of 8-byte keys and values runs through here. The keys of one leaf are mostly spread
//! evenly between its fences. So a bucket for each 64th of the range holds one or two keys. The counting sort
//! brings them nearly into order in two passes, and the remaining moves are by one or two positions. If keys
//! crowd into few buckets, a general sort takes over. Leaves that are already in order, as bulk loads leave
//! them, are only copied.

use super::order::{PAIR, PAIRS, key_of_pair};
use super::shape::AT_BITMAP;
use super::{LINE, get_u16};

/// The most lines of pairs, so that a count fits a byte.
pub(super) const MAX_LINES: usize = 42;
const MAX: usize = MAX_LINES * PAIRS;
const BOXES: usize = 64;
/// If at most one in this many pairs is out of order, insertion sort alone sorts them.
const FEW: usize = 3;
/// If a bucket holds more pairs than this, the general sort takes over.
const CROWDED: u8 = 8;

const _: () = assert!(MAX <= u8::MAX as usize);

/// Appends the live pairs with keys from `low` to `low + span` to `out`, ascending, each key once. `lines`
/// has at most [`MAX_LINES`] lines.
pub(super) fn collect(lines: &[[u8; LINE]], low: u64, span: u64, out: &mut Vec<u8>) {
    let start = out.len();
    // Room for one more pair: the loop writes rejected pairs there too, and overwrites them or cuts them off.
    out.resize(start + (lines.len() * PAIRS + 1) * PAIR, 0);
    let pairs = out[start..].as_chunks_mut::<PAIR>().0;
    let mut count = 0;
    let mut falls = 0;
    let mut before = 0;
    // No branch to predict: the loop copies every pair, accepted or not.
    for line in lines {
        let live = get_u16(line, AT_BITMAP);
        for (slot, pair) in line.as_chunks::<PAIR>().0[..PAIRS].iter().enumerate() {
            let key = key_of_pair(pair);
            let counts = (live >> slot & 1 != 0) & (key.wrapping_sub(low) <= span);
            pairs[count] = *pair;
            falls += usize::from(counts & (key <= before) & (count > 0));
            before = if counts { key } else { before };
            count += usize::from(counts);
        }
    }
    let pairs = &mut pairs[..count];
    let mut kept = count;
    if falls > 0 {
        if falls > count / FEW {
            counting_sort(pairs, low, span);
        }
        insert(pairs);
        // An unlocked image may show a key twice. Either pair is valid.
        if pairs.windows(2).any(|pair| key_of_pair(&pair[0]) == key_of_pair(&pair[1])) {
            kept = keep_one_of_equals(pairs);
        }
    }
    out.truncate(start + kept * PAIR);
}

/// Insertion sort.
fn insert(pairs: &mut [[u8; PAIR]]) {
    for at in 1..pairs.len() {
        let pair = pairs[at];
        let key = key_of_pair(&pair);
        let mut to = at;
        while to > 0 && key_of_pair(&pairs[to - 1]) > key {
            pairs[to] = pairs[to - 1];
            to -= 1;
        }
        pairs[to] = pair;
    }
}

/// Sorts pairs in random order approximately.
fn counting_sort(pairs: &mut [[u8; PAIR]], low: u64, span: u64) {
    let shift = (u64::BITS - span.leading_zeros()).saturating_sub(BOXES.ilog2());
    let box_of = |pair: &[u8; PAIR]| (key_of_pair(pair).wrapping_sub(low) >> shift) as usize % BOXES;
    let mut ends = [0_u8; BOXES];
    for pair in pairs.iter() {
        ends[box_of(pair)] += 1;
    }
    let mut total = 0;
    let mut fullest = 0;
    for end in &mut ends {
        fullest = fullest.max(*end);
        total += *end;
        *end = total;
    }
    if fullest > CROWDED {
        return pairs.sort_unstable_by_key(key_of_pair);
    }
    let mut hand = [[0; PAIR]; MAX];
    hand[..pairs.len()].copy_from_slice(pairs);
    for pair in hand[..pairs.len()].iter().rev() {
        let end = &mut ends[box_of(pair)];
        *end -= 1;
        pairs[usize::from(*end)] = *pair;
    }
}

#[cold]
fn keep_one_of_equals(pairs: &mut [[u8; PAIR]]) -> usize {
    let mut kept = 0;
    for at in 0..pairs.len() {
        if kept == 0 || key_of_pair(&pairs[kept - 1]) != key_of_pair(&pairs[at]) {
            pairs[kept] = pairs[at];
            kept += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

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
            let mut pairs = Vec::new();
            for slot in 0..45 {
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
            collect(&leaf(&pairs), low, span, &mut out);
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
}
