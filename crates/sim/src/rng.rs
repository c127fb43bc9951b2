//! The simulator's own random numbers: SplitMix64.
//!
//! A seed must always name the same schedule. So the generator is written here and does not come from a
//! dependency whose next version might draw differently.

/// A SplitMix64 generator: 64 bits of state, every seed is good, about one nanosecond per draw.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator whose whole sequence follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. It uses multiplication: the bias is below 2^-32
    /// for the small bounds used here.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Returns true once in `n` draws on average, and never if `n` is 0.
    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n as usize) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_names_the_same_sequence() {
        let mut rng = Rng::new(1234567);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn draws_stay_below_their_bound_and_reach_every_value() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 5];
        (0..200).for_each(|_| seen[rng.below(5)] = true);
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
        assert!(!rng.one_in(0));
    }
}
