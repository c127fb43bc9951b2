//! Sorted keys that need no memory. They are evenly spaced over all 64-bit numbers, and each is moved by a
//! small amount that its number decides. So a search cannot guess the position of a key.

use crate::keys::scatter;

/// Strictly ascending keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    count: u64,
    step: u64,
}

impl Spread {
    /// Makes `count` keys, at least one.
    pub fn new(count: u64) -> Self {
        let count = count.max(1);
        Self { count, step: u64::MAX / count }
    }

    /// Returns the number of keys.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns key number `nth`, which must be below the count.
    #[inline]
    pub fn key(&self, nth: u64) -> u64 {
        debug_assert!(nth < self.count);
        nth * self.step + scatter(nth, 64) % self.step
    }

    /// Returns all keys, ascending.
    pub fn keys(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |nth| self.key(nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_over_the_whole_range_in_uneven_steps() {
        for count in [1, 2, 1000, 100_000] {
            let keys: Vec<u64> = Spread::new(count).keys().collect();
            assert!(keys.len() as u64 == count && keys.is_sorted_by(|a, b| a < b));
        }
        let keys: Vec<u64> = Spread::new(1000).keys().collect();
        assert!(keys[0] < u64::MAX / 999 && keys[999] > u64::MAX / 1000 * 998);
        let steps: std::collections::BTreeSet<u64> = keys.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(steps.len(), 999);
        assert!(Spread::new(u64::MAX).key(u64::MAX - 1) == u64::MAX - 1);
    }
}
