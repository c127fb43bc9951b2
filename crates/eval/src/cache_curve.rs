//! Measures how often the index cache knows the leaf, against the memory it may take.
//!
//! A tree of evenly spread keys is loaded in bulk. For every bound, a new compute server joins with an empty
//! cache of that size. It warms the cache with lookups. Then it counts how many further lookups find the
//! leaf's parent in the cache.
//!
//! Bounds are counted in nodes of level 1, the parents of leaves, and reported in bytes. One bound has room
//! for every internal node. From that bound on, the ratio must be at least [`CLAIM`].
//!
//! Beside each ratio stand those of other policies of eviction on the same lookups ([`Policies`]).

mod policies;

pub use policies::Policies;

use crate::error::BenchError;
use crate::keys::scatter;
use crate::options::{halves_bytes, memory_for};
use crate::report::{grouped, ratio};
use crate::spread::Spread;
use crate::zipf::Zipf;
use fastrand::Rng;
use serde::Serialize;
use sherman::{BulkOptions, Client, Cluster, ClusterOptions, Error, Tree, TreeOptions};
use std::fmt;
use std::time::Instant;

/// The least share of lookups that an index cache with room for all internal nodes answers.
pub const CLAIM: f64 = 0.999;
/// The skews of the keys: none, and YCSB's.
const SKEWS: [f64; 2] = [0.0, 0.99];
/// Lookups to warm up, per node that the cache may hold.
const WARM_UP: u64 = 20;
const NAME: &str = "curve";

/// The parameters of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurveOptions {
    /// Keys to load.
    pub keys: u64,
    /// Lookups to count for every bound and skew.
    pub gets: u64,
    /// The seed that decides which keys are looked up.
    pub seed: u64,
}

impl Default for CurveOptions {
    fn default() -> Self {
        Self { keys: 10_000_000, gets: 1_000_000, seed: 1 }
    }
}

/// The result for one bound and one skew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The skew; 0 is uniform.
    pub zipf: f64,
    /// Bytes the cache may take.
    pub bound_bytes: usize,
    /// Nodes it may hold, if they take as much as the tree's nodes do on average.
    pub room: u64,
    /// The same room as a share of all nodes of level 1.
    pub share_of_level_1: f64,
    /// Whether the cache has room for every internal node.
    pub holds_all: bool,
    /// Nodes it held at the end.
    pub held: usize,
    /// Lookups that found the leaf's parent in the cache.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Hits among lookups.
    pub hit_ratio: f64,
    /// Hits among lookups with other policies of eviction and as many parents of leaves.
    pub policies: Policies,
    /// The mean time of a lookup, in nanoseconds.
    pub nanos: f64,
}

/// The hit ratio against the bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Keys loaded.
    pub keys: u64,
    /// Nodes of level 1.
    pub level_1_nodes: u64,
    /// Nodes of level 1 and above.
    pub internal_nodes: u64,
    /// Bytes that the copy of a node takes in the cache, on average.
    pub copy_bytes: u64,
    /// Lookups per point.
    pub gets: u64,
    /// The points, by skew, then by bound.
    pub points: Vec<Point>,
}

impl Curve {
    /// Returns whether every cache with room for all internal nodes answers at least [`CLAIM`] of the
    /// lookups.
    pub fn claim_holds(&self) -> bool {
        self.points.iter().filter(|point| point.holds_all).all(|point| point.hit_ratio >= CLAIM)
    }
}

fn failed(error: Error) -> BenchError {
    BenchError::Operation { phase: "measuring", error }
}

/// Measures the curve. Calls `progress` with a description of each step.
pub fn run(options: &CurveOptions, progress: &dyn Fn(&str)) -> Result<Curve, BenchError> {
    let CurveOptions { keys, gets, seed } = *options;
    if keys == 0 || gets == 0 {
        let option = if keys == 0 { "keys" } else { "gets" };
        return Err(BenchError::option(option, "there must be at least one"));
    }
    let zipf = |theta| Zipf::new(keys, theta).map_err(|error| BenchError::option("zipf", error));
    let bytes = halves_bytes(&TreeOptions::new(), keys, 1024).map_err(BenchError::Create)?;
    let cluster = Cluster::open(&memory_for(bytes)).map_err(BenchError::Open)?;
    let tree = cluster.tree::<u64, u64>(NAME).map_err(BenchError::Create)?;
    let spread = Spread::new(keys);
    progress(&format!("loading {} keys", grouped(keys)));
    let loaded = tree.bulk_load(spread.keys().map(|key| (key, !key)), &BulkOptions::new().threads(2));
    loaded.map_err(|error| BenchError::Operation { phase: "loading", error })?;
    let levels = tree.check().map_err(failed)?.levels;
    let level_1_nodes = levels.get(1).map_or(0, |level| level.nodes);
    let internal_nodes = levels.iter().skip(1).map(|level| level.nodes).sum();
    let all_bytes = all_bytes(&cluster, &spread, internal_nodes)?;
    let mut points = Vec::new();
    for theta in SKEWS {
        let zipf = zipf(theta)?;
        for room in rooms(level_1_nodes, internal_nodes) {
            let bound = (all_bytes * room).div_ceil(internal_nodes.max(1)) as usize;
            progress(&format!("zipf {theta}, room for {} nodes", grouped(room)));
            let options = ClusterOptions::new().cache_bytes(bound);
            let computer = cluster.join_with(options).map_err(BenchError::Open)?;
            let tree = computer.open_tree(NAME).map_err(BenchError::Create)?;
            let lookups = Lookups { spread, zipf, rng: Rng::with_seed(seed) };
            let parents = Parents { count: level_1_nodes, above: internal_nodes - level_1_nodes };
            let point = point(&tree, lookups, parents, gets.max(WARM_UP * room), gets)?;
            let (share, holds_all) = (ratio(room as f64, level_1_nodes as f64), room >= internal_nodes);
            points.push(Point { room, share_of_level_1: share, holds_all, ..point });
        }
    }
    let copy_bytes = all_bytes / internal_nodes.max(1);
    Ok(Curve { keys, level_1_nodes, internal_nodes, copy_bytes, gets, points })
}

/// Returns the bytes of a cache that holds all internal nodes.
fn all_bytes(cluster: &Cluster, spread: &Spread, internal_nodes: u64) -> Result<u64, BenchError> {
    let tree = cluster.open_tree::<u64, u64>(NAME).map_err(BenchError::Create)?;
    let options = ClusterOptions::new().cache_bytes(tree.cache_bytes_for(internal_nodes));
    let computer = cluster.join_with(options).map_err(BenchError::Open)?;
    let tree = computer.open_tree::<u64, u64>(NAME).map_err(BenchError::Create)?;
    let client = tree.client().map_err(failed)?;
    // Fewer keys than a leaf has, so that no leaf and no parent is left out.
    for key in spread.keys().step_by(16) {
        client.get(key).map_err(failed)?;
    }
    Ok(tree.cache_usage().bytes as u64)
}

/// Returns the bounds in nodes: a 64th of level 1, doubled up to twice level 1, and all internal nodes.
fn rooms(level_1: u64, internal: u64) -> Vec<u64> {
    let mut rooms: Vec<u64> =
        (0..=7).map(|doubled| (level_1 << doubled).div_ceil(64).max(1)).chain([internal]).collect();
    rooms.sort_unstable();
    rooms.dedup();
    rooms
}

/// Draws the keys to look up. Ranks follow the skew, and hot keys are scattered over the tree.
struct Lookups {
    spread: Spread,
    zipf: Zipf,
    rng: Rng,
}

impl Lookups {
    /// Draws a key, by its number in order.
    fn number(&mut self) -> u64 {
        let rank = self.zipf.sample(&mut self.rng);
        // Two ranks may map to the same key, which does no harm.
        scatter(rank, 64) % self.spread.count()
    }

    /// Looks up `gets` keys, and returns the parents of their leaves.
    fn run(
        &mut self,
        client: &Client<u64, u64>,
        gets: u64,
        parents: Parents,
    ) -> Result<Vec<u32>, BenchError> {
        let mut used = Vec::with_capacity(gets as usize);
        for _ in 0..gets {
            let number = self.number();
            let key = self.spread.key(number);
            used.push(parents.of(number, self.spread.count()));
            if client.get(key).map_err(failed)? != Some(!key) {
                return Err(BenchError::Wrong {
                    what: "a loaded key was not found with its value",
                    index: key,
                });
            }
        }
        Ok(used)
    }
}

/// The parents of leaves.
#[derive(Clone, Copy)]
struct Parents {
    count: u64,
    /// Nodes above them.
    above: u64,
}

impl Parents {
    /// Returns the parent of the leaf of key `number` of `keys`. A bulk load gives each parent as many keys,
    /// except the last.
    fn of(self, number: u64, keys: u64) -> u32 {
        (u128::from(number) * u128::from(self.count) / u128::from(keys.max(1))) as u32
    }

    fn policies(self, held: usize, warm_up: &[u32], counted: &[u32]) -> Policies {
        let held = held.saturating_sub(self.above as usize);
        let Policies { two_choices, random, best } =
            Policies::of(held, self.count as usize, warm_up, counted);
        let [two_choices, random, best] = [two_choices, random, best].map(|share| ratio(share, 1.0));
        Policies { two_choices, random, best }
    }
}

fn point(
    tree: &Tree<u64, u64>,
    mut lookups: Lookups,
    parents: Parents,
    warm_up: u64,
    gets: u64,
) -> Result<Point, BenchError> {
    let before = lookups.run(&tree.client().map_err(failed)?, warm_up, parents)?;
    // A new client starts its counters at zero. The cache belongs to the compute server.
    let client = tree.client().map_err(failed)?;
    let began = Instant::now();
    let counted = lookups.run(&client, gets, parents)?;
    let nanos = ratio(began.elapsed().as_nanos() as f64, gets as f64);
    let (stats, usage) = (client.stats(), tree.cache_usage());
    Ok(Point {
        zipf: lookups.zipf.theta(),
        bound_bytes: usage.limit,
        room: 0,
        share_of_level_1: 0.0,
        holds_all: false,
        held: usage.nodes,
        hits: stats.cache_hits,
        misses: stats.cache_misses,
        hit_ratio: ratio(stats.cache_hits as f64, (stats.cache_hits + stats.cache_misses) as f64),
        policies: parents.policies(usage.nodes, &before, &counted),
        nanos,
    })
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, level_1, internal) =
            (grouped(self.keys), grouped(self.level_1_nodes), grouped(self.internal_nodes));
        writeln!(
            f,
            "{keys} keys | {level_1} nodes of level 1, {internal} internal ones, {} B each",
            self.copy_bytes
        )?;
        writeln!(f, "{} lookups for each line, after as many or more to warm up", grouped(self.gets))?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<10}{:>14}{:>12}{:>12}{:>14}{:>14}{:>12}{:>12}{:>12}",
            "skew",
            "bound, KiB",
            "nodes",
            "of level 1",
            "hit ratio",
            "two choices",
            "random",
            "best",
            "ns/lookup"
        )?;
        for point in &self.points {
            let skew = if point.zipf == 0.0 { "uniform".to_owned() } else { format!("zipf {}", point.zipf) };
            let (bound, room) = (grouped(point.bound_bytes as u64 >> 10), grouped(point.room));
            let share = format!("{:.3}", point.share_of_level_1);
            let hits = format!("{:.4} %", point.hit_ratio * 100.0);
            write!(f, "{skew:<10}{bound:>14}{room:>12}{share:>12}{hits:>14}")?;
            let [two, random, best] =
                [point.policies.two_choices, point.policies.random, point.policies.best]
                    .map(|share| format!("{:.2} %", share * 100.0));
            write!(f, "{two:>14}{random:>12}{best:>12}{:>12.0}", point.nanos)?;
            writeln!(f, "{}", if point.holds_all { "  all internal nodes" } else { "" })?;
        }
        let verdict = if self.claim_holds() { "yes" } else { "NO" };
        write!(f, "\n{} % or more wherever there is room for all internal nodes: {verdict}", CLAIM * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_with_room_for_all_internal_nodes_knows_nearly_every_leaf_and_a_small_one_does_not() {
        let options = CurveOptions { keys: 200_000, gets: 20_000, seed: 1 };
        let curve = run(&options, &|_| ()).expect("a curve");
        assert!(curve.claim_holds(), "{curve}");
        assert!(curve.points.iter().filter(|point| point.holds_all).count() >= 4, "{curve}");
        assert!(curve.points.iter().all(|point| point.hits + point.misses >= 20_000));
        let (smallest, largest) = (&curve.points[0], &curve.points[curve.points.len() / 2 - 1]);
        assert!(smallest.hit_ratio < 0.5 && smallest.room < largest.room, "{curve}");
        for point in &curve.points {
            let Policies { two_choices, random, best } = point.policies;
            assert!(random <= best && two_choices <= best && point.hit_ratio <= best + 0.02, "{curve}");
        }
        assert!(curve.to_string().ends_with("all internal nodes: yes"), "{curve}");
    }

    #[test]
    fn bounds_double_from_a_64th_of_level_1_to_two_of_it() {
        assert_eq!(rooms(640, 660), [10, 20, 40, 80, 160, 320, 640, 660, 1280]);
        assert_eq!(rooms(1, 1), [1, 2]);
    }

    #[test]
    fn nothing_cannot_be_measured() {
        let none = CurveOptions { keys: 0, ..CurveOptions::default() };
        assert_eq!(run(&none, &|_| ()).expect_err("no keys").bad_option(), Some("keys"));
    }
}
