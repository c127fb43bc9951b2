//! Maps index `i` to the bytes of a key, and makes values that can be checked.
//!
//! A workload uses indexes: `0..count` are loaded, higher ones are for inserts of new keys. The hottest index
//! is 0. The position of an index among the keys decides which tree nodes are hot:
//!
//! - [`HotKeys::Scattered`]: keys are a bijective hash of indexes, spread over the whole range, so that hot
//!   keys lie alone among cold ones. This is YCSB's "scrambled", without its collisions.
//! - [`HotKeys::Clustered`]: keys ascend with indexes, so hot keys are neighbours and fill a few leaves.
//!
//! Sorting all loaded keys gives their order. For [`Keys::even`] keys, arithmetic gives it: they lie at equal
//! distances, and scattered indexes map to them by strides of the golden ratio. So an experiment can use a
//! tree most of whose nodes are never created.
//!
//! A key is a big-endian number in the first eight bytes of the key size, followed by zeros. Shorter keys
//! have fewer values. An index without a value is refused, never wrapped.

/// Odd multipliers of the bijective hash.
const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];
/// Added first, so that index 0 is not key 0.
const OFFSET: u64 = 0x2545_f491_4f6c_dd1d;
/// Values of at least this size carry a tag of their key.
const TAGGED_VALUE: usize = 8;

sherman_fabric::named! {
    /// Whether hot keys are neighbours.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
    pub enum HotKeys {
        /// Spread over the key range.
        #[default]
        Scattered => "scattered",
        /// Next to each other.
        Clustered => "clustered",
    }
}

crate::parsed_by_name!(HotKeys, "available are ");

sherman_fabric::errors! {
    /// Why a set of keys is not possible.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum KeysError {
        /// A workload needs at least one key.
        None => "there must be at least one key",
        /// Keys have 1 to 1024 bytes.
        Size {
            /// Bytes asked for.
            asked: usize,
        } => "keys have 1 to 1024 bytes, not {asked}",
        /// Keys of that size have too few values.
        TooMany {
            /// Keys asked for.
            asked: u64,
            /// The most keys of that size.
            limit: u64,
        } => "keys of that size have {limit} values, too few for {asked} keys",
    }
}

/// The keys of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    count: u64,
    key_size: usize,
    hot: HotKeys,
    /// Whether loaded keys lie at equal distances.
    even: bool,
    bits: u32,
    /// For even keys: the distance between neighbouring loaded keys. New keys lie in between.
    step: u64,
    /// Coprime to `count`: `i * stride % count` visits every index once, in a shuffled order.
    stride: u64,
    /// The inverse of `stride` modulo `count`.
    unstride: u64,
}

impl Keys {
    /// Makes `count` keys of `key_size` bytes to load, and room for new ones.
    pub fn new(count: u64, key_size: usize, hot: HotKeys) -> Result<Self, KeysError> {
        if count == 0 {
            return Err(KeysError::None);
        }
        if !(1..=1024).contains(&key_size) {
            return Err(KeysError::Size { asked: key_size });
        }
        let bits = 8 * key_size.min(8) as u32;
        let last = mask(bits);
        if count - 1 > last {
            return Err(KeysError::TooMany { asked: count, limit: last + 1 });
        }
        let step = (last / count).max(1);
        let stride = coprime_near_golden(count);
        // Clustered keys always lie at equal distances.
        let even = hot == HotKeys::Clustered;
        Ok(Self { count, key_size, hot, even, bits, step, stride, unstride: inverse(stride, count) })
    }

    /// Makes keys as `new` does, but with loaded keys at equal distances, so that [`Keys::nth`] is defined.
    pub fn even(count: u64, key_size: usize, hot: HotKeys) -> Result<Self, KeysError> {
        Ok(Self { even: true, ..Self::new(count, key_size, hot)? })
    }

    /// Returns whether loaded keys lie at equal distances.
    pub fn is_even(&self) -> bool {
        self.even
    }

    /// Returns the index of a new key right above the loaded key of `index`, a different one for every `turn`
    /// from 1 on. For even keys only. [`Keys::has`] says whether this index has a key.
    pub fn beside(&self, index: u64, turn: u64) -> u64 {
        debug_assert!(self.even && index < self.count && turn > 0);
        turn.saturating_mul(self.count).saturating_add(self.unshuffled(self.place(index)))
    }

    /// Returns the index of the `nth` loaded key in order. For even keys only.
    pub fn nth(&self, nth: u64) -> u64 {
        debug_assert!(self.even && nth < self.count);
        match self.hot {
            HotKeys::Scattered => self.unshuffled(nth),
            HotKeys::Clustered => nth,
        }
    }

    /// Returns how many loaded keys lie below the key of `index`, which must have one. For even keys only.
    pub fn place(&self, index: u64) -> u64 {
        debug_assert!(self.even);
        self.number(index).div_ceil(self.step).min(self.count)
    }

    /// Returns the number of loaded keys.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> usize {
        self.key_size
    }

    /// Where hot keys lie.
    pub fn hot(&self) -> HotKeys {
        self.hot
    }

    /// Returns whether `index` has a key.
    pub fn has(&self, index: u64) -> bool {
        index < self.count
            || match self.even {
                false => index <= mask(self.bits),
                true => index / self.count < self.step,
            }
    }

    /// Returns the index to load as the `nth`. Every index occurs once, in an order unrelated to the keys, so
    /// that loaded leaves are as full as after random inserts.
    pub fn loaded(&self, nth: u64) -> u64 {
        match self.even {
            false => nth,
            true => self.shuffled(nth),
        }
    }

    fn shuffled(&self, nth: u64) -> u64 {
        times(nth, self.stride, self.count)
    }

    /// Undoes [`shuffled`](Self::shuffled).
    fn unshuffled(&self, at: u64) -> u64 {
        times(at, self.unstride, self.count)
    }

    /// Writes the `nth` loaded key in order to `key`, which has the key size. For even keys only.
    #[inline]
    pub fn write_nth(&self, nth: u64, key: &mut [u8]) {
        debug_assert!(self.even && nth < self.count);
        self.write_number(nth * self.step, key);
    }

    /// Returns the number of key `index`, which must have one.
    pub fn number(&self, index: u64) -> u64 {
        debug_assert!(self.has(index));
        match self.hot {
            HotKeys::Scattered if !self.even => scatter(index, self.bits),
            HotKeys::Clustered if index < self.count => index * self.step,
            _ => self.shuffled(index % self.count) * self.step + index / self.count,
        }
    }

    /// Returns the index whose key is `number`, or `None`.
    pub fn index_of(&self, number: u64) -> Option<u64> {
        let index = match self.even {
            false => gather(number, self.bits),
            true => {
                let (nth, turn) = (number / self.step, number % self.step);
                let loaded = nth < self.count;
                match turn {
                    0 => loaded.then(|| self.nth(nth))?,
                    _ => loaded
                        .then(|| turn.checked_mul(self.count)?.checked_add(self.unshuffled(nth)))
                        .flatten()?,
                }
            }
        };
        self.has(index).then_some(index)
    }

    /// Returns the numbers of all keys to load, ascending. Scattered keys that are not even take eight bytes
    /// of memory each.
    pub fn sorted(&self) -> Box<dyn Iterator<Item = u64>> {
        let keys = *self;
        match self.even {
            false => {
                let mut numbers: Vec<u64> = (0..self.count).map(|index| keys.number(index)).collect();
                numbers.sort_unstable();
                Box::new(numbers.into_iter())
            }
            true => Box::new((0..self.count).map(move |nth| nth * keys.step)),
        }
    }

    /// Returns the number that `key` was written from.
    #[inline]
    pub fn number_in(&self, key: &[u8]) -> u64 {
        match key.first_chunk() {
            Some(head) => u64::from_be_bytes(*head),
            None => key.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)),
        }
    }

    /// Writes key `index` to `key`, which has the key size.
    #[inline]
    pub fn write_key(&self, index: u64, key: &mut [u8]) {
        self.write_number(self.number(index), key);
    }

    /// Writes the key for `number` to `key`, which has the key size.
    #[inline]
    pub fn write_number(&self, number: u64, key: &mut [u8]) {
        let number = number << (64 - self.bits);
        let head = self.key_size.min(8);
        key[..head].copy_from_slice(&number.to_be_bytes()[..head]);
        key[head..].fill(0);
    }

    /// Writes a value for key `index` to `value`. A value of at least eight bytes contains a tag of its key.
    #[inline]
    pub fn write_value(&self, index: u64, version: u64, value: &mut [u8]) {
        let word = if value.len() >= TAGGED_VALUE { tag(index) | version << 32 } else { version };
        let head = value.len().min(8);
        value[..head].copy_from_slice(&word.to_le_bytes()[..head]);
        value[head..].fill(version as u8);
    }

    /// Returns whether `value` may belong to key `index`.
    #[inline]
    pub fn value_fits(&self, index: u64, value: &[u8]) -> bool {
        value.len() < TAGGED_VALUE
            || u64::from(u32::from_le_bytes([value[0], value[1], value[2], value[3]])) == tag(index)
    }
}

/// Returns `a * b` modulo `n`. Generated trees need it once per entry, so it uses 128 bits only if 64 are not
/// enough.
#[inline]
fn times(a: u64, b: u64, n: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product % n,
        None => (u128::from(a) * u128::from(b) % u128::from(n)) as u64,
    }
}

fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// A bijection on numbers of `bits` bits: every step is reversible.
pub(crate) fn scatter(index: u64, bits: u32) -> u64 {
    let mask = mask(bits);
    let mut x = index.wrapping_add(OFFSET) & mask;
    for multiplier in MULTIPLIERS {
        x ^= x >> (bits / 2);
        x = x.wrapping_mul(multiplier) & mask;
    }
    x ^ (x >> (bits / 2))
}

/// Undoes [`scatter`].
fn gather(number: u64, bits: u32) -> u64 {
    let mask = mask(bits);
    // At least the upper half of the bits is unchanged, so the same step undoes itself.
    let mut x = number ^ (number >> (bits / 2));
    for multiplier in MULTIPLIERS.into_iter().rev() {
        x = x.wrapping_mul(inverse_of_odd(multiplier)) & mask;
        x ^= x >> (bits / 2);
    }
    x.wrapping_sub(OFFSET) & mask
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's method. The first guess has three correct
/// bits, and every step doubles their number.
const fn inverse_of_odd(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut right = 3;
    while right < 64 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        right *= 2;
    }
    inverse
}

/// Returns the inverse of `a` modulo `n` by Euclid's algorithm; 0 modulo 1. `a` must be coprime to `n`.
fn inverse(a: u64, n: u64) -> u64 {
    let (mut r, mut next_r) = (i128::from(n), i128::from(a));
    let (mut t, mut next_t) = (0i128, 1i128);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (t, next_t) = (next_t, t - quotient * next_t);
    }
    t.rem_euclid(i128::from(n)) as u64
}

/// Returns 32 bits that distinguish the values of different keys.
fn tag(index: u64) -> u64 {
    scatter(index, 64) >> 32
}

/// Returns a number coprime to `n`, near `n` divided by the golden ratio. Its multiples modulo `n` spread
/// evenly.
fn coprime_near_golden(n: u64) -> u64 {
    let mut candidate = (((u128::from(n) * u128::from(MULTIPLIERS[0])) >> 64) as u64).max(1);
    while gcd(candidate, n) != 1 {
        candidate += 1;
    }
    candidate
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keys(count: u64, size: usize, hot: HotKeys) -> Keys {
        Keys::new(count, size, hot).expect("legal keys")
    }

    fn bytes(keys: &Keys, index: u64) -> Vec<u8> {
        let mut key = vec![0xff; keys.key_size()];
        keys.write_key(index, &mut key);
        key
    }

    #[test]
    fn no_two_indexes_share_a_key() {
        for hot in [HotKeys::Scattered, HotKeys::Clustered] {
            for (count, size) in
                [(1, 1), (200, 1), (256, 1), (1, 8), (1000, 2), (5_000, 3), (5_000, 8), (5_000, 20)]
            {
                let keys = keys(count, size, hot);
                let indexes: Vec<u64> = (0..3 * count).filter(|&index| keys.has(index)).collect();
                assert!(indexes.len() as u64 >= count);
                let distinct: BTreeSet<Vec<u8>> = indexes.iter().map(|&index| bytes(&keys, index)).collect();
                assert_eq!(distinct.len(), indexes.len(), "{hot:?} {count} keys of {size}");
            }
        }
    }

    #[test]
    fn all_values_of_short_keys_can_be_used() {
        let keys = keys(10, 2, HotKeys::Scattered);
        let distinct: BTreeSet<u64> = (0..65_536).map(|index| keys.number(index)).collect();
        assert_eq!((distinct.len(), keys.has(65_535), keys.has(65_536)), (65_536, true, false));
    }

    #[test]
    fn scattered_keys_spread_over_the_whole_range_and_clustered_ones_ascend() {
        let scattered = keys(10_000, 8, HotKeys::Scattered);
        let mut sixteenths = [0; 16];
        (0..10_000).for_each(|index| sixteenths[(scattered.number(index) >> 60) as usize] += 1);
        assert!(sixteenths.iter().all(|count| (500..750).contains(count)), "{sixteenths:?}");
        let clustered = keys(10_000, 8, HotKeys::Clustered);
        assert!((1..10_000).all(|index| bytes(&clustered, index - 1) < bytes(&clustered, index)));
    }

    #[test]
    fn a_key_leads_back_to_its_index() {
        for hot in [HotKeys::Scattered, HotKeys::Clustered] {
            for (count, size) in
                [(1, 1), (200, 1), (256, 1), (1, 8), (1000, 2), (5_000, 3), (5_001, 8), (5_000, 20)]
            {
                let keys = keys(count, size, hot);
                for index in (0..3 * count).filter(|&index| keys.has(index)) {
                    let number = keys.number_in(&bytes(&keys, index));
                    assert_eq!(
                        (number, keys.index_of(number)),
                        (keys.number(index), Some(index)),
                        "{count} {size}"
                    );
                }
                let sorted: Vec<u64> = keys.sorted().collect();
                assert!(sorted.is_sorted_by(|a, b| a < b) && sorted.len() as u64 == count);
                assert!(
                    sorted.iter().all(|&number| keys.index_of(number).is_some_and(|index| index < count))
                );
            }
        }
    }

    #[test]
    fn even_keys_are_known_by_their_place() {
        for hot in [HotKeys::Scattered, HotKeys::Clustered] {
            for (count, size) in [(1, 1), (200, 1), (1, 8), (1000, 2), (5_001, 8), (5_000, 20)] {
                let keys = Keys::even(count, size, hot).expect("legal keys");
                let sorted: Vec<u64> = keys.sorted().collect();
                let distinct: BTreeSet<u64> =
                    (0..2 * count).filter(|&i| keys.has(i)).map(|i| keys.number(i)).collect();
                assert!(distinct.len() as u64 >= count);
                for nth in 0..count {
                    let index = keys.nth(nth);
                    assert_eq!(
                        (keys.number(index), keys.place(index)),
                        (sorted[nth as usize], nth),
                        "{hot:?} {count}"
                    );
                    let mut key = vec![0xff; size];
                    keys.write_nth(nth, &mut key);
                    assert_eq!(key, bytes(&keys, index));
                }
                for index in (0..3 * count).filter(|&index| keys.has(index)) {
                    assert_eq!(keys.index_of(keys.number(index)), Some(index), "{hot:?} {count} {size}");
                    let below = sorted.partition_point(|&number| number < keys.number(index)) as u64;
                    assert_eq!(keys.place(index), below);
                }
                let loaded: BTreeSet<u64> = (0..count).map(|nth| keys.loaded(nth)).collect();
                assert_eq!(loaded, (0..count).collect());
            }
        }
    }

    #[test]
    fn every_key_is_loaded_once() {
        for hot in [HotKeys::Scattered, HotKeys::Clustered] {
            for count in [1, 2, 6, 1000, 1024] {
                let keys = keys(count, 8, hot);
                let loaded: BTreeSet<u64> = (0..count).map(|nth| keys.loaded(nth)).collect();
                assert_eq!(loaded, (0..count).collect(), "{hot:?} {count}");
            }
        }
    }

    #[test]
    fn more_keys_than_values_are_refused() {
        assert_eq!(Keys::new(257, 1, HotKeys::Scattered), Err(KeysError::TooMany { asked: 257, limit: 256 }));
        assert_eq!(Keys::new(0, 8, HotKeys::Scattered), Err(KeysError::None));
        assert_eq!(Keys::new(1, 0, HotKeys::Scattered), Err(KeysError::Size { asked: 0 }));
        assert_eq!(Keys::new(1, 1025, HotKeys::Scattered), Err(KeysError::Size { asked: 1025 }));
        assert!(Keys::new(u64::MAX, 8, HotKeys::Clustered).is_ok());
    }

    #[test]
    fn a_value_identifies_its_key() {
        let keys = keys(100, 8, HotKeys::Scattered);
        for size in [8, 9, 100] {
            let mut value = vec![0; size];
            keys.write_value(7, 3, &mut value);
            let mut other = vec![0; size];
            keys.write_value(7, 4, &mut other);
            assert!(keys.value_fits(7, &value) && keys.value_fits(7, &other) && value != other);
            assert!((0..100).filter(|&index| keys.value_fits(index, &value)).eq([7]));
        }
        keys.write_value(7, 3, &mut []);
        assert!(keys.value_fits(8, &[]));
    }
}
