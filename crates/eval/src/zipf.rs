//! Draws skewed ranks as YCSB does: the generator of Gray et al., "Quickly Generating Billion-Record
//! Synthetic Databases" (SIGMOD'94).
//!
//! Rank 0 is the hottest. Rank `r` of `n` is drawn with a probability proportional to `1 / (r + 1)^theta`.
//! Ranks 0 and 1 are exact. The others come from one power of a uniform number. That is accurate enough to
//! compare with published results, and costs a few tens of nanoseconds. [`Keys`](crate::Keys) decides which
//! key has which rank.
//!
//! The code uses `libm` instead of the platform's mathematics, so that the same seed gives the same ranks on
//! every machine.

use fastrand::Rng;

/// Terms of the zeta sum that are added one by one. The rest is an integral with corrections, exact to 12
/// digits.
const SUMMED: u64 = 4096;

/// Draws ranks. Its sums are computed once, and copies are cheap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zipf {
    n: u64,
    theta: f64,
    zeta_n: f64,
    alpha: f64,
    eta: f64,
    /// A scaled draw below this is rank 1: `1 + 1/2^theta`.
    two: f64,
}

sherman_fabric::errors! {
    /// Why a distribution is not possible.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[non_exhaustive]
    pub enum ZipfError {
        /// The method needs an exponent from 0 to below 1.
        Theta {
            /// The exponent asked for.
            asked: f64,
        } => "the skew must be at least 0 (uniform) and below 1, not {asked}; 0.99 is usual",
        /// There must be at least one rank.
        Empty => "there must be at least one rank to draw",
    }
}

impl Zipf {
    /// Makes ranks 0 to `n - 1` with exponent `theta`; 0 is uniform.
    pub fn new(n: u64, theta: f64) -> Result<Self, ZipfError> {
        if !(0.0..1.0).contains(&theta) {
            return Err(ZipfError::Theta { asked: theta });
        }
        if n == 0 {
            return Err(ZipfError::Empty);
        }
        let zeta_n = zeta(n, theta);
        let two = 1.0 + libm::pow(0.5, theta);
        // Both numerator and denominator are zero for two ranks, which never use eta.
        let eta = (1.0 - libm::pow(2.0 / n as f64, 1.0 - theta)) / (1.0 - two / zeta_n);
        Ok(Self { n, theta, zeta_n, alpha: 1.0 / (1.0 - theta), eta, two })
    }

    /// Returns the number of ranks.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The exponent.
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// Returns the probability of the first `ranks` ranks together.
    pub fn share_of_first(&self, ranks: u64) -> f64 {
        zeta(ranks.min(self.n), self.theta) / self.zeta_n
    }

    /// Returns how many of the first ranks have the probability `share` together, or a little more; at least
    /// one.
    pub fn ranks_of_share(&self, share: f64) -> u64 {
        let (mut few, mut enough) = (0, self.n);
        while enough - few > 1 {
            let middle = few + (enough - few) / 2;
            if self.share_of_first(middle) < share { few = middle } else { enough = middle }
        }
        enough
    }

    /// Draws a rank.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        if self.theta == 0.0 {
            return rng.u64(0..self.n);
        }
        let u = rng.f64();
        let scaled = u * self.zeta_n;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.two {
            return 1.min(self.n - 1);
        }
        let rank = self.n as f64 * libm::pow(self.eta * u - self.eta + 1.0, self.alpha);
        (rank as u64).min(self.n - 1)
    }
}

/// Returns the sum of `1 / i^theta` for `i` from 1 to `n`, with `theta` below 1.
fn zeta(n: u64, theta: f64) -> f64 {
    let summed: f64 = (1..=n.min(SUMMED)).map(|i| libm::pow(i as f64, -theta)).sum();
    if n <= SUMMED {
        return summed;
    }
    // Euler–Maclaurin: the integral over the rest, half the difference of its ends, and the term of the first
    // derivative.
    let (from, to) = (SUMMED as f64, n as f64);
    let power = |x: f64, exponent: f64| libm::pow(x, exponent);
    let integral = (power(to, 1.0 - theta) - power(from, 1.0 - theta)) / (1.0 - theta);
    let ends = (power(to, -theta) - power(from, -theta)) / 2.0;
    let slopes = theta * (power(from, -theta - 1.0) - power(to, -theta - 1.0)) / 12.0;
    summed + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 400_000;

    fn histogram(zipf: &Zipf, seed: u64) -> Vec<u64> {
        let mut rng = Rng::with_seed(seed);
        let mut counts = vec![0; zipf.n() as usize];
        for _ in 0..DRAWS {
            counts[zipf.sample(&mut rng) as usize] += 1;
        }
        counts
    }

    /// Returns whether `count` of `DRAWS` is within five standard deviations of probability `p`.
    fn plausible(count: u64, p: f64) -> bool {
        let expected = p * DRAWS as f64;
        (count as f64 - expected).abs() <= 5.0 * (expected * (1.0 - p)).sqrt()
    }

    #[test]
    fn the_sum_is_the_sum_of_its_terms() {
        for theta in [0.0, 0.5, 0.9, 0.99, 0.999] {
            for n in [1, 2, 4096, 4097, 100_000, 1_000_000] {
                let direct: f64 = (1..=n).rev().map(|i| libm::pow(i as f64, -theta)).sum();
                let off = (zeta(n, theta) / direct - 1.0).abs();
                assert!(off < 1e-12, "theta {theta}, n {n}: off by {off:e}");
            }
        }
    }

    #[test]
    fn the_two_hottest_ranks_are_exact() {
        for theta in [0.3, 0.5, 0.9, 0.99] {
            let zipf = Zipf::new(10_000, theta).expect("a legal skew");
            let counts = histogram(&zipf, 7);
            assert!(plausible(counts[0], zipf.share_of_first(1)), "theta {theta}: {}", counts[0]);
            let second = zipf.share_of_first(2) - zipf.share_of_first(1);
            assert!(plausible(counts[1], second), "theta {theta}: {}", counts[1]);
        }
    }

    #[test]
    fn the_share_of_the_hottest_ranks_is_the_theory_s() {
        for theta in [0.5, 0.9, 0.99] {
            let zipf = Zipf::new(10_000, theta).expect("a legal skew");
            let counts = histogram(&zipf, 11);
            for ranks in [10, 100, 1_000, 5_000] {
                let share = counts[..ranks].iter().sum::<u64>() as f64 / DRAWS as f64;
                let theory = zipf.share_of_first(ranks as u64);
                // The method itself deviates by up to two hundredths between ranks 2 and 100.
                assert!((share - theory).abs() < 0.02, "theta {theta}, first {ranks}: {share} for {theory}");
            }
        }
    }

    #[test]
    fn a_share_is_that_of_so_many_ranks() {
        for theta in [0.0, 0.5, 0.99] {
            let zipf = Zipf::new(1_000_000_000, theta).expect("a legal skew");
            for share in [0.1, 2.0 / 3.0, 0.99] {
                let ranks = zipf.ranks_of_share(share);
                assert!(
                    zipf.share_of_first(ranks) >= share && zipf.share_of_first(ranks - 1) < share,
                    "{theta} {share}"
                );
            }
            assert_eq!((zipf.ranks_of_share(0.0), zipf.ranks_of_share(1.0)), (1, 1_000_000_000));
        }
    }

    #[test]
    fn no_skew_is_uniform_by_chi_square() {
        let zipf = Zipf::new(1000, 0.0).expect("a legal skew");
        let expected = DRAWS as f64 / 1000.0;
        let chi: f64 =
            histogram(&zipf, 3).iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
        // 999 degrees of freedom: mean 999, standard deviation 45.
        assert!((999.0 - 5.0 * 45.0..999.0 + 5.0 * 45.0).contains(&chi), "{chi}");
    }

    #[test]
    fn every_rank_is_legal_however_few_there_are() {
        for n in [1, 2, 3, 10] {
            for theta in [0.0, 0.01, 0.99] {
                let zipf = Zipf::new(n, theta).expect("a legal skew");
                let counts = histogram(&zipf, 5);
                assert!(counts.iter().all(|&count| count > 0), "n {n}, theta {theta}: {counts:?}");
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_ranks_on_every_machine() {
        let zipf = Zipf::new(1_000_000, 0.99).expect("a legal skew");
        let mut rng = Rng::with_seed(42);
        let ranks: Vec<u64> = (0..8).map(|_| zipf.sample(&mut rng)).collect();
        assert_eq!(ranks, GOLDEN);
    }

    const GOLDEN: [u64; 8] = [55_428, 783, 67_123, 0, 1_587, 450, 238_239, 166];

    #[test]
    fn a_skew_that_the_method_cannot_draw_is_refused() {
        for asked in [1.0, 1.5, -0.1, f64::INFINITY] {
            assert_eq!(Zipf::new(10, asked), Err(ZipfError::Theta { asked }));
        }
        assert!(Zipf::new(10, f64::NAN).is_err());
        assert_eq!(Zipf::new(0, 0.5), Err(ZipfError::Empty));
    }
}
