//! The options of a run, and their checks. Everything is checked before any memory is allocated.

use crate::error::BenchError;
use crate::keys::{HotKeys, Keys, KeysError};
use crate::simulated::is_simulated;
use crate::variant::Variant;
use crate::workload::{Demand, Workload};
use crate::zipf::Zipf;
use sherman::{Error, Format, ShapeError, TreeOptions};
use sherman_sim::nic::Params;
use std::time::Duration;

/// The most threads, and the most coroutines on each.
pub const MAX_THREADS: usize = 1024;
/// The longest run, in seconds.
pub const MAX_SECONDS: f64 = 1_000_000.0;
/// The most entries of a range.
pub const MAX_RANGE: u64 = 1_000_000;
/// The number of memory servers, unless a cluster is named.
const SERVERS: u64 = 2;
/// The most operations per second of a core, for sizing memory.
const FASTEST_CORE: f64 = 2_000_000.0;
/// The most memory reserved for new keys. Pages cost nothing until they are written.
const MOST_GROWTH: u64 = 4 << 30;
/// The library's default chunk size. The other data of a server fits into four chunks.
const CHUNK: u64 = 8 << 20;

/// The length of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// This many seconds.
    Seconds(f64),
    /// This many operations, all clients together.
    Operations(u64),
}

sherman_fabric::named! {
    /// How the keys are loaded.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Load {
        /// As one sorted sequence, in bulk.
        #[default]
        Bulk => "bulk",
        /// One by one, in a shuffled order.
        Insert => "insert",
    }
}

crate::parsed_by_name!(Load, "available are ");

/// The options of a run.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The cluster; by default embedded servers with memory for the keys.
    pub cluster: Option<String>,
    /// The system.
    pub variant: Variant,
    /// The mix.
    pub workload: Workload,
    /// Percent of operations that remove a key. The mix applies to the other operations.
    pub removes: u32,
    /// The skew; 0 is uniform.
    pub zipf: f64,
    /// Where hot keys lie.
    pub hot: HotKeys,
    /// Keys to load.
    pub keys: u64,
    /// How the keys are loaded.
    pub load: Load,
    /// The fill of nodes after a bulk load, in percent.
    pub fill: u32,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Bytes of a node.
    pub node_size: usize,
    /// The format of nodes, if it is not the variant's.
    pub format: Option<Format>,
    /// Operating system threads.
    pub threads: usize,
    /// Operations in flight on each thread.
    pub coroutines: usize,
    /// Operations in each call of a client. From 2 on, each thread has one client that calls `get_many` or
    /// `insert_many`. Then the workload must have gets alone or inserts alone, and no latency is measured.
    pub batch: usize,
    /// How long to measure.
    pub length: Length,
    /// Bytes of index cache.
    pub cache_bytes: usize,
    /// Entries of a range query, for workloads that have them.
    pub range_size: u64,
    /// The seed for the actions of clients.
    pub seed: u64,
    /// Whether to walk the tree afterwards and verify its invariants and number of entries.
    pub check: bool,
    /// The parameters of the NIC model, for a simulated cluster.
    pub params: Params,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            cluster: None,
            variant: Variant::Ours,
            workload: Workload::WriteIntensive,
            removes: 0,
            zipf: 0.99,
            hot: HotKeys::Scattered,
            keys: 1_000_000,
            load: Load::Bulk,
            fill: 80,
            key_size: 8,
            value_size: 8,
            node_size: 1024,
            format: None,
            threads: cores(),
            coroutines: 1,
            batch: 1,
            length: Length::Seconds(5.0),
            cache_bytes: 64 << 20,
            range_size: 100,
            seed: 1,
            check: false,
            params: Params::PAPER,
        }
    }
}

/// Returns the number of cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Options that fit together, and derived values.
#[derive(Clone, Debug)]
pub(crate) struct BenchPlan {
    pub keys: Keys,
    pub zipf: Zipf,
    pub tree: TreeOptions,
    pub url: String,
    /// The lowest number of bytes that the nodes of the loaded keys can take.
    pub least_bytes: u64,
    /// The highest number among loaded keys, if the workload has ranges to check.
    pub last: u64,
}

impl BenchOptions {
    /// Returns the format of nodes.
    pub fn format(&self) -> Format {
        self.format.unwrap_or(self.variant.format())
    }

    /// Returns the demand on the clients.
    pub(crate) fn demand(&self) -> Demand {
        Demand { workload: self.workload, removes: self.removes, range_size: self.range_size, updated: None }
    }

    /// Returns the number of clients. Each has one operation in flight.
    pub fn clients(&self) -> usize {
        self.threads * self.coroutines
    }

    /// Returns whether a run leaves the tree with the keys it had.
    pub(crate) fn keeps_keys(&self) -> bool {
        self.removes == 0 && self.workload.new_keys() == 0.0
    }

    /// Returns the length of the warm-up.
    pub(crate) fn warm_up(&self) -> Length {
        match self.length {
            Length::Seconds(seconds) => Length::Seconds((seconds / 5.0).min(1.0)),
            Length::Operations(operations) => Length::Operations((operations / 10).min(100_000)),
        }
    }

    /// Checks everything that can be checked without a cluster.
    pub(crate) fn plan(&self) -> Result<BenchPlan, BenchError> {
        for (option, number) in [("threads", self.threads), ("coroutines", self.coroutines)] {
            if !(1..=MAX_THREADS).contains(&number) {
                return Err(BenchError::option(
                    option,
                    format!("write a number from 1 to {MAX_THREADS}, not {number}"),
                ));
            }
        }
        match self.length {
            Length::Seconds(seconds) if !(seconds > 0.0 && seconds <= MAX_SECONDS) => {
                let reason = format!("write a number above 0 and at most {MAX_SECONDS}, not {seconds}");
                return Err(BenchError::option("seconds", reason));
            }
            Length::Operations(0) => {
                return Err(BenchError::option("ops", "there must be at least one operation"));
            }
            _ => {}
        }
        if !(1..=MAX_RANGE).contains(&self.range_size) {
            return Err(BenchError::option("range-size", format!("a range has 1 to {MAX_RANGE} entries")));
        }
        if self.removes > 100 {
            return Err(BenchError::option(
                "removes",
                format!("{} percent is more than 100 percent", self.removes),
            ));
        }
        if self.params != Params::PAPER && !self.cluster.as_deref().is_some_and(is_simulated) {
            return Err(BenchError::option(
                "param",
                "only a simulated cluster has parameters: --cluster sim:",
            ));
        }
        self.check_batch()?;
        if !(50..=100).contains(&self.fill) {
            return Err(BenchError::option("fill", "write a percentage from 50 to 100"));
        }
        let keys = Keys::new(self.keys, self.key_size, self.hot).map_err(|error| {
            let option = if matches!(error, KeysError::Size { .. }) { "key-size" } else { "keys" };
            BenchError::option(option, error)
        })?;
        let zipf = Zipf::new(self.keys, self.zipf).map_err(|error| BenchError::option("zipf", error))?;
        let format = self.format();
        let tree = TreeOptions::new()
            .format(format)
            .node_bytes(self.node_size)
            .sizes(self.key_size, self.value_size);
        let (leaf, internal) = tree.entries_per_node().map_err(|error| {
            let option = match error {
                Error::Shape(ShapeError::KeyLength { .. }) => "key-size",
                _ => "node-size",
            };
            BenchError::option(option, error)
        })?;
        let full =
            |entries: u64, leaf: usize, internal: usize| node_bytes(entries, leaf, internal, self.node_size);
        let least_bytes = full(self.keys, leaf, internal);
        // Splits leave half-full nodes, so the tree may take twice the minimum.
        let loaded = full(self.keys, few(leaf), internal / 2);
        let grown = full(self.keys.saturating_add(self.new_keys()), few(leaf), internal / 2);
        let url = match &self.cluster {
            Some(url) => url.clone(),
            None => memory_for(loaded.saturating_add((grown - loaded).min(MOST_GROWTH))),
        };
        let url = self.variant.cluster_url(&url, format);
        let ranges = self.workload.has_ranges() && !self.cluster.as_deref().is_some_and(is_simulated);
        let last = if ranges { (0..self.keys).map(|index| keys.number(index)).max() } else { None };
        Ok(BenchPlan { keys, zipf, tree, url, least_bytes, last: last.unwrap_or(0) })
    }

    fn check_batch(&self) -> Result<(), BenchError> {
        let refuse = |reason: &str| Err(BenchError::option("batch", reason));
        match self.batch {
            1 => Ok(()),
            0 | 1_000_001.. => refuse("a batch has 1 to 1000000 operations"),
            _ if self.coroutines > 1 => refuse("a thread with several operations in flight has no batches"),
            _ if self.cluster.as_deref().is_some_and(is_simulated) => refuse("sim: has no batches"),
            _ if self.removes > 0 || !self.workload.is_of_one_kind() => refuse(
                "batches need a workload of gets alone or inserts alone: read-only, write-only, ycsb-c",
            ),
            _ => Ok(()),
        }
    }

    /// Returns a generous limit on the new keys that a run may insert, including the warm-up.
    fn new_keys(&self) -> u64 {
        let operations = match (self.length, self.warm_up()) {
            (Length::Seconds(run), Length::Seconds(warm_up)) => {
                (run + warm_up) * FASTEST_CORE * self.threads.min(cores()) as f64
            }
            (Length::Operations(run), Length::Operations(warm_up)) => run as f64 + warm_up as f64,
            _ => 0.0,
        };
        // The cast saturates. The limit is a tenth above the expected number, plus a constant for small
        // numbers.
        (operations * self.workload.new_keys() * 1.1) as u64 + 1000
    }
}

/// Returns the bytes of a tree of `entries` with the nodes of `tree`, each half full, because splits leave
/// half-full nodes.
pub(crate) fn halves_bytes(tree: &TreeOptions, entries: u64, node_size: usize) -> Result<u64, Error> {
    let (leaf, internal) = tree.entries_per_node()?;
    Ok(node_bytes(entries, few(leaf), internal / 2, node_size))
}

/// Returns how many entries leaves of a capacity have if they are half full. Leaves whose keys are far apart
/// hold three quarters of the capacity.
fn few(capacity: usize) -> usize {
    capacity * 3 / 8
}

/// Returns the bytes of a tree of `entries` with `leaf` entries per leaf and `internal` children per internal
/// node.
fn node_bytes(entries: u64, leaf: usize, internal: usize, node_size: usize) -> u64 {
    let leaves = entries.div_ceil(leaf.max(1) as u64);
    let parents = leaves.div_ceil(internal.max(2) as u64 - 1);
    leaves.saturating_add(parents).saturating_mul(node_size as u64)
}

/// Returns the URL of a cluster in this process with room for this many bytes of nodes.
pub(crate) fn memory_for(bytes: u64) -> String {
    let mebibytes = (bytes / SERVERS).saturating_add(5 * CHUNK) >> 20;
    format!("embedded:?servers={SERVERS}&memory={}MiB", mebibytes + 1)
}

/// Returns a duration of this many seconds, which are already checked.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: BenchOptions) -> (&'static str, String) {
        let error = options.plan().expect_err("a bad option");
        (error.bad_option().expect("an option"), error.to_string())
    }

    #[test]
    fn a_bad_option_is_named_and_what_is_allowed_is_said() {
        let good = BenchOptions::default;
        for (options, option, word) in [
            (BenchOptions { threads: 0, ..good() }, "threads", "1 to 1024"),
            (BenchOptions { coroutines: 1025, ..good() }, "coroutines", "1 to 1024"),
            (BenchOptions { length: Length::Seconds(0.0), ..good() }, "seconds", "above 0"),
            (BenchOptions { length: Length::Seconds(f64::NAN), ..good() }, "seconds", "above 0"),
            (BenchOptions { length: Length::Operations(0), ..good() }, "ops", "at least one"),
            (BenchOptions { range_size: 0, ..good() }, "range-size", "1 to 1000000"),
            (BenchOptions { removes: 101, ..good() }, "removes", "more than 100"),
            (BenchOptions { fill: 49, ..good() }, "fill", "50 to 100"),
            (BenchOptions { batch: 0, ..good() }, "batch", "1 to 1000000"),
            (BenchOptions { batch: 8, ..good() }, "batch", "gets alone"),
            (BenchOptions { batch: 8, coroutines: 2, ..good() }, "batch", "in flight"),
            (BenchOptions { keys: 0, ..good() }, "keys", "at least one"),
            (BenchOptions { keys: 70_000, key_size: 2, ..good() }, "keys", "65536"),
            (BenchOptions { key_size: 0, ..good() }, "key-size", "1 to 1024"),
            (BenchOptions { key_size: 2000, ..good() }, "key-size", "1 to 1024"),
            (BenchOptions { zipf: 1.0, ..good() }, "zipf", "below 1"),
            (BenchOptions { node_size: 1000, ..good() }, "node-size", "multiples of 64"),
            (BenchOptions { value_size: 400, ..good() }, "node-size", "entries"),
        ] {
            let (found, reason) = refused(options);
            assert!(found == option && reason.contains(word), "{option}: {found}: {reason}");
        }
        assert!(good().plan().is_ok());
    }

    #[test]
    fn memory_grows_with_the_keys_up_to_a_bound_for_new_ones() {
        let megabytes = |options: BenchOptions| {
            let url = options.plan().expect("good options").url;
            let memory =
                url.split_once("memory=").and_then(|(_, rest)| rest.split_once("MiB")).map(|(n, _)| n);
            memory.and_then(|n| n.parse::<u64>().ok()).expect("a size in MiB")
        };
        let read_only = |keys| BenchOptions { workload: Workload::ReadOnly, keys, ..BenchOptions::default() };
        assert!((41..45).contains(&megabytes(read_only(1000))));
        assert!((60..80).contains(&megabytes(read_only(1_000_000))));
        let long = BenchOptions { length: Length::Seconds(MAX_SECONDS), ..read_only(1000) };
        assert!(megabytes(long.clone()) < 45);
        let writing = megabytes(BenchOptions { workload: Workload::WriteOnly, ..long });
        assert!((2048..2200).contains(&writing), "{writing}");
    }
}
