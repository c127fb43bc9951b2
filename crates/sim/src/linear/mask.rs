//! Fixed-size sets of slots, with one bit per operation that is open at the same time.
//!
//! One word serves up to 64 open operations per key, which is enough for every history of the simulator.
//! Wider masks use the same code with more words. All operations are branch-free over the words, so `Mask<1>`
//! compiles to plain `u64`.

/// A set of slots below `64 * N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask<const N: usize>([u64; N]);

impl<const N: usize> Mask<N> {
    pub(super) const EMPTY: Self = Self([0; N]);
    pub(super) const FULL: Self = Self([u64::MAX; N]);

    pub(super) fn has(&self, slot: usize) -> bool {
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, slot: usize) {
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.0[slot / 64] &= !(1 << (slot % 64));
    }

    pub(super) fn with(mut self, slot: usize) -> Self {
        self.insert(slot);
        self
    }

    pub(super) fn without(mut self, slot: usize) -> Self {
        self.remove(slot);
        self
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub(super) fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|&word| word != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }

    pub(super) fn words(&self) -> &[u64; N] {
        &self.0
    }
}

/// Iterates over the slots, ascending.
impl<const N: usize> Iterator for Mask<N> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.remove(slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_every_word_are_kept_apart() {
        let mask = Mask::<3>::EMPTY.with(0).with(63).with(64).with(191);
        assert_eq!(mask.collect::<Vec<_>>(), [0, 63, 64, 191]);
        assert_eq!(mask.without(63).and(Mask::EMPTY.with(63).with(64)).collect::<Vec<_>>(), [64]);
        assert_eq!(Mask::<3>::FULL.minus(mask).count(), 192 - 4);
        assert!(!mask.is_empty() && Mask::<3>::EMPTY.is_empty() && mask.has(191) && !mask.has(190));
    }
}
