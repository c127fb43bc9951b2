//! Mixes, distributions, and the operations of a run.
//!
//! A run's operations are drawn before it starts, and stored as plain arrays that are read in order, nine
//! bytes per operation. So the timed part is the index, not the random generator. All indexes execute the
//! same operations.
//!
//! Keys are [`Keys`] of eight bytes: a bijective hash of `0..n`, spread over all of `u64`, the same in every
//! run of the program. Hot keys of the skewed distribution are therefore scattered. Inserts of new keys use
//! the hashes of `n` and above, none twice. All other operations draw from the `n` loaded keys.

use crate::error::Failure;
use fastrand::Rng;
use sherman_eval::{HotKeys, Keys, Zipf};

/// Of this many inserts, one inserts a new key; the others update loaded keys.
const ONE_NEW_IN: u8 = 3;
/// Skew of [`Distribution::Zipf`], as in YCSB.
pub const THETA: f64 = 0.99;
/// Entries of a range.
pub const RANGE: usize = 100;

/// The mix of operations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Inserts only.
    Insert,
    /// Half inserts, half gets.
    Half,
    /// 5 % inserts, 95 % gets.
    ReadIntensive,
    /// Gets only.
    ReadOnly,
    /// Ranges only.
    Range,
    /// Half ranges, half inserts.
    RangeInsert,
}

impl Mix {
    /// Every mix, in the order of the tables.
    pub const ALL: [Self; 6] =
        [Self::Insert, Self::Half, Self::ReadIntensive, Self::ReadOnly, Self::Range, Self::RangeInsert];

    /// Every mix, in the order of measurement: mixes that grow the index little come first.
    pub const BY_GROWTH: [Self; 6] =
        [Self::ReadOnly, Self::Range, Self::RangeInsert, Self::ReadIntensive, Self::Half, Self::Insert];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Half => "half",
            Self::ReadIntensive => "read-intensive",
            Self::ReadOnly => "read-only",
            Self::Range => "range",
            Self::RangeInsert => "range-insert",
        }
    }

    /// Returns the percentage of inserts.
    const fn inserts(self) -> u8 {
        match self {
            Self::Insert => 100,
            Self::Half | Self::RangeInsert => 50,
            Self::ReadIntensive => 5,
            Self::ReadOnly | Self::Range => 0,
        }
    }

    /// Returns the kind of the operations that are not inserts.
    const fn reads(self) -> Kind {
        match self {
            Self::Range | Self::RangeInsert => Kind::Range,
            _ => Kind::Get,
        }
    }

    /// Returns whether the mix writes.
    pub const fn writes(self) -> bool {
        self.inserts() > 0
    }

    /// Returns whether the mix has ranges.
    pub const fn ranges(self) -> bool {
        matches!(self.reads(), Kind::Range)
    }
}

/// How operations choose among the loaded keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// All keys with equal probability.
    Uniform,
    /// Zipfian of skew 0.99, hot keys scattered.
    Zipf,
}

impl Distribution {
    /// Both distributions.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Zipf];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        }
    }

    const fn theta(self) -> f64 {
        match self {
            Self::Uniform => 0.0,
            Self::Zipf => THETA,
        }
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Puts a value.
    Insert,
    /// Looks up a loaded key.
    Get,
    /// Reads [`RANGE`] entries from a loaded key on.
    Range,
}

/// The operations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// The kind of each operation.
    pub kinds: Vec<Kind>,
    /// The key of each operation.
    pub keys: Vec<u64>,
    /// The number of inserts of new keys.
    pub new: u64,
}

impl Operations {
    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Draws the operations of one run after another.
pub struct Dice {
    keys: Keys,
    threads: usize,
    /// The first index that no run has used for a new key.
    unused: u64,
    /// Runs drawn, each from its own seed.
    runs: u64,
}

impl Dice {
    /// Makes a generator for runs on `loaded` keys, with `threads` threads.
    pub fn new(loaded: u64, threads: usize) -> Result<Self, Failure> {
        let keys = keys(loaded)?;
        Ok(Self { keys, threads: threads.max(1), unused: loaded, runs: 0 })
    }

    /// Draws `count` operations.
    pub fn draw(
        &mut self,
        mix: Mix,
        distribution: Distribution,
        count: usize,
    ) -> Result<Operations, Failure> {
        let zipf = Zipf::new(self.keys.count(), distribution.theta());
        let zipf = zipf.map_err(|error| Failure::Workload(error.to_string()))?;
        let mut operations = Operations { kinds: vec![Kind::Get; count], keys: vec![0; count], new: 0 };
        let share = count.div_ceil(self.threads).max(1);
        let (keys, first_unused, runs) = (self.keys, self.unused, self.runs);
        operations.new = std::thread::scope(|scope| {
            let shares = operations.kinds.chunks_mut(share).zip(operations.keys.chunks_mut(share));
            let threads = shares.enumerate().map(|(nth, (kinds, chosen))| {
                // Every operation reserves an index, used or not. So indexes are unique without coordination
                // between threads.
                let unused = first_unused + (nth * share) as u64;
                let rng = Rng::with_seed(runs << 16 | nth as u64);
                scope.spawn(move || fill(mix, &keys, &zipf, rng, unused, kinds, chosen))
            });
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| Failure::Panicked))
                .sum::<Result<u64, _>>()
        })?;
        self.unused += count as u64;
        self.runs += 1;
        Ok(operations)
    }
}

/// Returns the keys of a benchmark on `loaded` keys.
pub fn keys(loaded: u64) -> Result<Keys, Failure> {
    Keys::new(loaded, 8, HotKeys::Scattered).map_err(|error| Failure::Workload(error.to_string()))
}

/// Draws one thread's share, and returns its number of new keys.
fn fill(
    mix: Mix,
    keys: &Keys,
    zipf: &Zipf,
    mut rng: Rng,
    unused: u64,
    kinds: &mut [Kind],
    chosen: &mut [u64],
) -> u64 {
    let mut new = 0;
    for (nth, (kind, key)) in kinds.iter_mut().zip(chosen).enumerate() {
        let insert = rng.u8(0..100) < mix.inserts();
        *kind = if insert { Kind::Insert } else { mix.reads() };
        let index = if insert && rng.u8(0..ONE_NEW_IN) == 0 {
            new += 1;
            unused + nth as u64
        } else {
            zipf.sample(&mut rng)
        };
        *key = keys.number(index);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LOADED: u64 = 1000;

    fn draw(mix: Mix, distribution: Distribution, count: usize) -> Operations {
        let mut dice = Dice::new(LOADED, 3).expect("legal keys");
        dice.draw(mix, distribution, count).expect("a legal skew")
    }

    fn loaded() -> BTreeSet<u64> {
        let keys = keys(LOADED).expect("legal keys");
        (0..LOADED).map(|index| keys.number(index)).collect()
    }

    #[test]
    fn a_mix_has_its_shares_of_inserts_and_of_new_keys() {
        let loaded = loaded();
        for mix in Mix::ALL {
            let operations = draw(mix, Distribution::Uniform, 60_000);
            let of = |kind| operations.kinds.iter().filter(|&&other| other == kind).count() as f64 / 60_000.0;
            assert!((of(Kind::Insert) - f64::from(mix.inserts()) / 100.0).abs() < 0.01, "{mix:?}");
            assert!((of(mix.reads()) - (1.0 - of(Kind::Insert))).abs() < 1e-9, "{mix:?}");
            let new = operations.keys.iter().filter(|key| !loaded.contains(key)).count();
            assert_eq!(new as u64, operations.new, "{mix:?}");
            assert!((new as f64 / 60_000.0 - of(Kind::Insert) / 3.0).abs() < 0.01, "{mix:?}: {new}");
        }
    }

    #[test]
    fn only_inserts_name_new_keys_and_none_twice() {
        let loaded = loaded();
        let mut dice = Dice::new(LOADED, 2).expect("legal keys");
        let mut seen = BTreeSet::new();
        for mix in [Mix::Half, Mix::RangeInsert, Mix::Insert] {
            let operations = dice.draw(mix, Distribution::Zipf, 5001).expect("a legal skew");
            for (kind, key) in
                operations.kinds.iter().zip(&operations.keys).filter(|(_, key)| !loaded.contains(key))
            {
                assert_eq!(*kind, Kind::Insert);
                assert!(seen.insert(*key), "{key} is not new");
            }
        }
    }

    #[test]
    fn a_skewed_run_has_a_hottest_key_and_a_uniform_one_has_none() {
        let hottest = keys(LOADED).expect("legal keys").number(0);
        let share = |distribution| {
            let operations = draw(Mix::ReadOnly, distribution, 50_000);
            operations.keys.iter().filter(|&&key| key == hottest).count() as f64 / 50_000.0
        };
        assert!(share(Distribution::Uniform) < 0.005);
        assert!(share(Distribution::Zipf) > 0.1);
    }

    #[test]
    fn no_two_runs_are_the_same_and_the_first_run_always_is() {
        let mut dice = Dice::new(LOADED, 2).expect("legal keys");
        let mut next = || dice.draw(Mix::Half, Distribution::Zipf, 1000).expect("a legal skew");
        let (first, second) = (next(), next());
        assert_ne!(first, second);
        let mut again = Dice::new(LOADED, 2).expect("legal keys");
        assert_eq!(again.draw(Mix::Half, Distribution::Zipf, 1000).expect("a legal skew"), first);
    }

    #[test]
    fn mixes_are_measured_in_the_order_of_how_much_they_insert() {
        assert!(
            Mix::BY_GROWTH.map(Mix::inserts)[4..] == [50, 100]
                && Mix::BY_GROWTH.map(Mix::inserts)[..2] == [0, 0]
        );
        assert!(Mix::ALL.iter().all(|mix| Mix::BY_GROWTH.contains(mix)));
    }
}
