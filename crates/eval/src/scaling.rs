//! Compares a small and a large tree: the cost of a lookup, and the bytes of an entry.
//!
//! Both trees are loaded in bulk, with nodes four fifths full and keys that are generated on the fly. One
//! thread looks up uniform keys in both trees by turns, so that other load on the machine affects both.
//! Caches have room for all internal nodes. The report has the best and the median round. The best shows what
//! the machine can do.

use crate::error::BenchError;
use crate::options::{halves_bytes, memory_for};
use crate::report::{grouped, ratio};
use crate::spread::Spread;
use crate::variant::Variant;
use fastrand::Rng;
use serde::Serialize;
use sherman::{BulkOptions, Client, Cluster, ClusterOptions, Error, Format, Tree, TreeOptions};
use std::fmt;
use std::time::Instant;

const NAME: &str = "scaling";
/// Bytes of a key and a value together.
const ENTRY: f64 = 16.0;

/// The parameters of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalingOptions {
    /// Keys of the small tree.
    pub small: u64,
    /// Keys of the large tree.
    pub large: u64,
    /// Rounds of lookups in each tree.
    pub rounds: usize,
    /// Lookups of a round.
    pub gets: u64,
    /// The seed that decides which keys are looked up.
    pub seed: u64,
}

impl Default for ScalingOptions {
    fn default() -> Self {
        Self { small: 10_000_000, large: 100_000_000, rounds: 9, gets: 1_000_000, seed: 1 }
    }
}

/// The cost of a lookup in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Keys.
    pub keys: u64,
    /// Levels.
    pub height: usize,
    /// Seconds of loading.
    pub load_seconds: f64,
    /// Nanoseconds of a lookup in the best round.
    pub best_nanos: f64,
    /// The same in the median round.
    pub median_nanos: f64,
    /// The share of lookups that found the leaf's parent in the cache.
    pub cache_hit_ratio: f64,
}

/// The memory that entries take on memory servers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Footprint {
    /// The format of nodes.
    pub format: &'static str,
    /// Entries.
    pub entries: u64,
    /// Entries a leaf can hold.
    pub entries_per_leaf: usize,
    /// How full leaves are, from 0 to 1.
    pub fill: f64,
    /// Bytes of all nodes.
    pub bytes: u64,
    /// The same per entry of 16 bytes.
    pub bytes_per_entry: f64,
    /// The same as a multiple of the entry's size.
    pub overhead: f64,
}

/// The measured values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scaling {
    /// The small tree.
    pub small: Cost,
    /// The large tree.
    pub large: Cost,
    /// The cost of a lookup in the large tree divided by that in the small tree, best rounds.
    pub ratio_of_best: f64,
    /// The same, median rounds.
    pub ratio_of_median: f64,
    /// The memory of entries, by format and number of entries.
    pub footprints: Vec<Footprint>,
}

fn failed(error: Error) -> BenchError {
    BenchError::Operation { phase: "measuring", error }
}

/// A loaded tree.
struct Loaded {
    tree: Tree<u64, u64>,
    spread: Spread,
    load_seconds: f64,
    height: usize,
    footprint: Footprint,
}

fn load(keys: u64, format: Format) -> Result<Loaded, BenchError> {
    let options = TreeOptions::new().format(format);
    // More than enough. Unused memory costs nothing.
    let bytes = halves_bytes(&options, keys, 1024).map_err(BenchError::Create)?;
    let url = Variant::Ours.cluster_url(&memory_for(bytes), format);
    // Copies are about as large as nodes, and at most one node in twenty is internal.
    let cache = usize::try_from(bytes / 8).unwrap_or(usize::MAX).max(1 << 20);
    let cluster =
        Cluster::open_with(&url, ClusterOptions::new().cache_bytes(cache)).map_err(BenchError::Open)?;
    let tree = cluster.tree_with::<u64, u64>(NAME, &options).map_err(BenchError::Create)?;
    let spread = Spread::new(keys);
    let began = Instant::now();
    let loaded =
        tree.bulk_load(spread.keys().map(|key| (key, !key)), &BulkOptions::new().fill(0.8).threads(2));
    loaded.map_err(|error| BenchError::Operation { phase: "loading", error })?;
    let load_seconds = ratio(began.elapsed().as_secs_f64(), 1.0);
    let check = tree.check().map_err(failed)?;
    if let Some(broken) = check.broken.first() {
        return Err(BenchError::Broken { count: check.broken_count, first: broken.invariant });
    }
    let per_entry = ratio(check.bytes() as f64, check.entries as f64);
    let footprint = Footprint {
        format: format.name(),
        entries: check.entries,
        entries_per_leaf: options.entries_per_node().map_err(BenchError::Create)?.0,
        fill: ratio(check.fill(), 1.0),
        bytes: check.bytes(),
        bytes_per_entry: per_entry,
        overhead: ratio(per_entry, ENTRY),
    };
    Ok(Loaded { tree, spread, load_seconds, height: check.height(), footprint })
}

impl Loaded {
    /// Runs one round. Returns the nanoseconds of a lookup.
    fn round(&self, client: &Client<u64, u64>, rng: &mut Rng, gets: u64) -> Result<f64, BenchError> {
        let began = Instant::now();
        for _ in 0..gets {
            let key = self.spread.key(rng.u64(0..self.spread.count()));
            if client.get(key).map_err(failed)? != Some(!key) {
                return Err(BenchError::Wrong {
                    what: "a loaded key was not found with its value",
                    index: key,
                });
            }
        }
        Ok(ratio(began.elapsed().as_nanos() as f64, gets as f64))
    }

    fn cost(&self, client: &Client<u64, u64>, mut rounds: Vec<f64>) -> Cost {
        rounds.sort_by(f64::total_cmp);
        let stats = client.stats();
        Cost {
            keys: self.spread.count(),
            height: self.height,
            load_seconds: self.load_seconds,
            best_nanos: rounds.first().copied().unwrap_or(0.0),
            median_nanos: rounds.get(rounds.len() / 2).copied().unwrap_or(0.0),
            cache_hit_ratio: ratio(stats.cache_hits as f64, (stats.cache_hits + stats.cache_misses) as f64),
        }
    }
}

/// Measures. Calls `progress` with a description of each step.
pub fn run(options: &ScalingOptions, progress: &dyn Fn(&str)) -> Result<Scaling, BenchError> {
    let ScalingOptions { small, large, rounds, gets, seed } = *options;
    for (option, number) in [("small", small), ("large", large), ("rounds", rounds as u64), ("gets", gets)] {
        if number == 0 {
            return Err(BenchError::option(option, "there must be at least one"));
        }
    }
    progress(&format!("loading {} keys of the two-level format", grouped(small)));
    let two_level = load(small, Format::TwoLevel)?.footprint;
    progress(&format!("loading {} keys", grouped(small)));
    let small = load(small, Format::LineStamped)?;
    progress(&format!("loading {} keys", grouped(large)));
    let large = load(large, Format::LineStamped)?;
    let trees = [&small, &large];
    let mut rng = Rng::with_seed(seed);
    for tree in trees {
        // Every node of level 1 covers many hundreds of keys. With one lookup per thirty keys, the lookups
        // meet every such node.
        let gets = (tree.spread.count() / 30).max(gets);
        progress(&format!("warming up {} keys", grouped(tree.spread.count())));
        tree.round(&tree.tree.client().map_err(failed)?, &mut rng, gets)?;
    }
    let clients = [small.tree.client().map_err(failed)?, large.tree.client().map_err(failed)?];
    let mut nanos = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        progress(&format!("round {} of {rounds}", round + 1));
        for ((tree, client), nanos) in trees.into_iter().zip(&clients).zip(&mut nanos) {
            nanos.push(tree.round(client, &mut rng, gets)?);
        }
    }
    let [of_small, of_large] = nanos;
    let (of_small, of_large) = (small.cost(&clients[0], of_small), large.cost(&clients[1], of_large));
    Ok(Scaling {
        small: of_small,
        large: of_large,
        ratio_of_best: ratio(of_large.best_nanos, of_small.best_nanos),
        ratio_of_median: ratio(of_large.median_nanos, of_small.median_nanos),
        footprints: vec![two_level, small.footprint, large.footprint],
    })
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16}{:>8}{:>10}{:>14}{:>14}{:>12}",
            "keys", "height", "load, s", "best ns/get", "median", "cache hits"
        )?;
        for Cost { keys, height, load_seconds, best_nanos, median_nanos, cache_hit_ratio } in
            [self.small, self.large]
        {
            let (keys, hits) = (grouped(keys), format!("{:.2} %", cache_hit_ratio * 100.0));
            writeln!(
                f,
                "{keys:<16}{height:>8}{load_seconds:>10.1}{best_nanos:>14.0}{median_nanos:>14.0}{hits:>12}"
            )?;
        }
        writeln!(f, "{:<34}{:>14.2}{:>14.2}", "large by small", self.ratio_of_best, self.ratio_of_median)?;
        writeln!(f)?;
        write!(
            f,
            "{:<16}{:>16}{:>12}{:>8}{:>16}{:>12}",
            "format", "entries", "per leaf", "fill", "bytes", "B/entry"
        )?;
        for of in &self.footprints {
            let (entries, bytes) = (grouped(of.entries), grouped(of.bytes));
            let fill = format!("{:.0} %", of.fill * 100.0);
            let (format, per_leaf, per_entry) = (of.format, of.entries_per_leaf, of.bytes_per_entry);
            write!(f, "\n{format:<16}{entries:>16}{per_leaf:>12}{fill:>8}{bytes:>16}{per_entry:>12.2}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_take_no_more_than_leaves_four_fifths_full_and_their_parents() {
        let options = ScalingOptions { small: 20_000, large: 100_000, rounds: 3, gets: 5_000, seed: 1 };
        let scaling = run(&options, &|_| ()).expect("a measurement");
        assert_eq!((scaling.small.keys, scaling.large.keys), (20_000, 100_000));
        assert!(scaling.ratio_of_best > 0.0 && scaling.small.best_nanos <= scaling.small.median_nanos);
        assert!(scaling.small.cache_hit_ratio > 0.99 && scaling.large.cache_hit_ratio > 0.99, "{scaling}");
        for of in &scaling.footprints {
            let leaves_alone = 1024.0 / (0.8 * of.entries_per_leaf as f64);
            assert!((0.95..1.15).contains(&(of.bytes_per_entry / leaves_alone)), "{scaling}");
        }
        assert_eq!(scaling.footprints[0].format, "two-level");
    }

    #[test]
    fn nothing_cannot_be_measured() {
        let none = ScalingOptions { rounds: 0, ..ScalingOptions::default() };
        assert_eq!(run(&none, &|_| ()).expect_err("no rounds").bad_option(), Some("rounds"));
    }
}
