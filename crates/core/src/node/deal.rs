//! The pairs of a small leaf in the order of their keys, dealt out to boxes.
//!
//! Every scan of leaves of 8-byte keys and values runs through here. The keys of one leaf are mostly spread evenly between
//! its fences, so a box for each 64th of the range holds one or two of them: counting sort brings them nearly into order in
//! two passes, and what is left moves by a place or two. Where keys crowd into few boxes a general sort does it. Leaves
//! that are in order already, as bulk loads leave them, are copied straight away.

use super::LINE;
use super::order::{PAIR, PAIRS, each_pair, key_of_pair};

/// The most lines of pairs: what makes a place fit a byte.
pub(super) const MAX_LINES: usize = 42;
const MAX: usize = MAX_LINES * PAIRS;
const BOXES: usize = 64;
/// Fewer falls than one in so many pairs, and each is inserted where it belongs.
const FEW: usize = 3;
/// A fuller box is left to the general sort.
const CROWDED: u8 = 8;

const _: () = assert!(MAX <= 128);

/// The live pairs whose keys lie within a range, as they lie in the leaf.
struct Hand {
    keys: [u64; MAX + 1],
    /// The slot of each.
    slots: [u8; MAX + 1],
    count: usize,
}

/// Appends the live pairs with keys from `low` to `low + span` to `out`, ascending, each key once.
pub(super) fn collect(lines: &[[u8; LINE]], low: u64, span: u64, out: &mut Vec<u8>) {
    let mut hand = Hand { keys: [0; MAX + 1], slots: [0; MAX + 1], count: 0 };
    let falls = hand.take(lines, low, span);
    let start = out.len();
    out.resize(start + hand.count * PAIR, 0);
    let places = out[start..].as_chunks_mut::<PAIR>().0;
    let pair_in = |slot: u8| {
        let (line, slot) = (usize::from(slot) / PAIRS, usize::from(slot) % PAIRS);
        &lines[line].as_chunks::<PAIR>().0[slot]
    };
    if falls > hand.count / FEW {
        hand.deal(low, span);
    } else if falls > 0 {
        hand.insert(hand.count);
    }
    for (place, &slot) in places.iter_mut().zip(&hand.slots) {
        *place = *pair_in(slot);
    }
    // An unlocked image may show a key twice: either will do.
    if falls > 0 && hand.keys[..hand.count].windows(2).any(|pair| pair[0] == pair[1]) {
        let kept = keep_one_of_equals(places);
        out.truncate(start + kept * PAIR);
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

impl Hand {
    /// Takes the pairs up; how many do not exceed the one before. Nothing is predicted: a slot is taken whether it counts or not, and the
    /// next takes its place if not.
    fn take(&mut self, lines: &[[u8; LINE]], low: u64, span: u64) -> usize {
        let mut slot = 0;
        let mut count = 0;
        let mut falls = 0;
        let mut before = 0;
        each_pair(lines, |pair, live| {
            let key = key_of_pair(pair);
            let counts = live & (key.wrapping_sub(low) <= span);
            self.keys[count] = key;
            self.slots[count] = slot;
            slot += 1;
            falls += usize::from(counts & (count > 0) & (key <= before));
            before = if counts { key } else { before };
            count += usize::from(counts);
        });
        self.count = count;
        falls
    }

    /// Sorts them by inserting each where it belongs, `most` places to the left at most.
    fn insert(&mut self, most: usize) {
        let Self { keys, slots, count } = self;
        let (keys, slots) = (&mut keys[..*count], &mut slots[..*count]);
        for at in 1..keys.len() {
            let (key, slot) = (keys[at], slots[at]);
            if keys[at - 1] <= key {
                continue;
            }
            let least = at.saturating_sub(most);
            let mut to = at;
            while to > least && keys[to - 1] > key {
                keys[to] = keys[to - 1];
                slots[to] = slots[to - 1];
                to -= 1;
            }
            keys[to] = key;
            slots[to] = slot;
        }
    }

    /// Sorts them whatever their order.
    fn deal(&mut self, low: u64, span: u64) {
        let count = self.count;
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(BOXES.ilog2());
        let box_of = |key: u64| (key.wrapping_sub(low) >> shift) as usize % BOXES;
        let mut ends = [0_u8; BOXES];
        for &key in &self.keys[..count] {
            ends[box_of(key)] += 1;
        }
        let mut total = 0;
        let mut fullest = 0;
        for end in &mut ends {
            fullest = fullest.max(*end);
            total += *end;
            *end = total;
        }
        let (keys, slots) = (self.keys, self.slots);
        if fullest > CROWDED {
            let mut order: [u8; MAX] = std::array::from_fn(|at| at as u8);
            order[..count].sort_unstable_by_key(|&at| keys[usize::from(at)]);
            for (to, &at) in order[..count].iter().enumerate() {
                (self.keys[to], self.slots[to]) = (keys[usize::from(at)], slots[usize::from(at)]);
            }
            return;
        }
        for (&key, &slot) in keys[..count].iter().zip(&slots).rev() {
            let end = &mut ends[box_of(key)];
            *end -= 1;
            (self.keys[usize::from(*end)], self.slots[usize::from(*end)]) = (key, slot);
        }
        self.insert(usize::from(CROWDED));
    }
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
            // Spread over everything, crowded, few, or full of doubles.
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
            assert_eq!(found.iter().map(key_of_pair).collect::<Vec<_>>(), expected.keys().copied().collect::<Vec<_>>());
            for pair in found {
                let value = u64::from_be_bytes(*pair.last_chunk().expect("eight bytes"));
                assert!(expected[&key_of_pair(pair)].contains(&value));
            }
        }
    }
}
