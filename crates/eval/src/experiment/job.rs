//! Experiments, and their measurements.

use crate::keys::HotKeys;
use crate::variant::Variant;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use sherman_sim::nic::Params;

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Job {
    /// A workload on a tree.
    Tree(TreeJob),
    /// Taking and releasing locks, without a tree.
    Locks(LockJob),
    /// WRITEs alone.
    Writes(WriteJob),
}

/// A workload on a tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeJob {
    /// The system.
    pub variant: Variant,
    /// The mix of operations.
    pub workload: Workload,
    /// Percent of operations that remove a key.
    pub removes: u32,
    /// The skew; 0 is uniform.
    pub zipf: f64,
    /// Where hot keys lie.
    pub hot: HotKeys,
    /// Keys loaded.
    pub keys: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Bytes of a leaf.
    pub leaf_size: usize,
    /// Bytes of an internal node.
    pub internal_size: usize,
    /// The fill of nodes after the load, in percent.
    pub fill: u32,
    /// Compute servers.
    pub compute: u16,
    /// Memory servers. Each machine runs one compute server and one memory server, which share a NIC, as far
    /// as the numbers allow.
    pub memory: u16,
    /// Copies of each volume, 1 or 2. The backup is on the machine of the next memory server.
    pub replicas: u16,
    /// Threads of each compute server.
    pub threads: u16,
    /// Clients on each thread.
    pub coroutines: u16,
    /// The most bytes of the index cache of each compute server, as the cache itself counts them. The paper's
    /// systems cache whole nodes, so for them a copy counts as its node.
    pub cache_bytes: u64,
    /// Whether lookups fill the cache before the experiment. Otherwise the cache is assumed to hold as many
    /// nodes as fit, each with the same probability, at no cost. The hottest nodes enter it during the
    /// warm-up.
    pub fill_cache: bool,
    /// Entries of a range.
    pub range_size: u64,
    /// Operations to measure, all clients together. A warm-up of a quarter as many comes before.
    pub operations: u64,
    /// The seed for the actions of clients.
    pub seed: u64,
    /// The NIC and the CPUs.
    pub params: Params,
}

/// How clients take and release locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LockKind {
    /// In host memory, by CAS and FAA, as FG does.
    HostFaa,
    /// In host memory, by CAS and WRITE.
    Host,
    /// In on-chip memory.
    OnChip,
    /// With a local lock table; the fastest client gets a lock.
    Hierarchical,
    /// With a local queue.
    Queue,
    /// With handover: the complete HOCL.
    Handover,
}

/// An experiment that takes and releases locks of one memory server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockJob {
    /// How clients take and release locks.
    pub kind: LockKind,
    /// The number of locks.
    pub locks: u32,
    /// The skew; 0 is uniform.
    pub zipf: f64,
    /// Compute servers. With fewer than eight, none shares the memory server's machine; otherwise one does.
    pub compute: u16,
    /// Threads of each compute server.
    pub threads: u16,
    /// Pairs of a take and a release to measure, after a quarter as many to warm up.
    pub operations: u64,
    /// The seed for the actions of clients.
    pub seed: u64,
    /// The NIC and the CPUs.
    pub params: Params,
}

/// Which NIC is the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Direction {
    /// Seven machines write to one.
    Inbound,
    /// One machine writes to seven.
    Outbound,
}

/// An experiment with WRITEs of one size at the highest rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WriteJob {
    /// Bytes of each WRITE.
    pub bytes: u32,
    /// Which NIC is measured.
    pub direction: Direction,
    /// WRITEs to measure.
    pub operations: u64,
    /// The NIC and the CPUs.
    pub params: Params,
}

impl Job {
    /// Returns the number of operations to measure, which is about the cost of the job.
    pub fn operations(&self) -> u64 {
        match self {
            Self::Tree(job) => job.operations,
            Self::Locks(job) => job.operations,
            Self::Writes(job) => job.operations,
        }
    }

    /// Returns the same job with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        match &mut self {
            Self::Tree(job) => job.seed = seed,
            Self::Locks(job) => job.seed = seed,
            Self::Writes(_) => {}
        }
        self
    }
}

/// Latencies, in microseconds of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
}

/// The measurements of one experiment. A histogram is a list of pairs, ascending: a number, and how many
/// operations had it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Operations measured.
    pub operations: u64,
    /// Nanoseconds of virtual time they took.
    pub nanos: u64,
    /// Millions of operations per second of virtual time.
    pub mops: f64,
    /// Millions of range queries per second, where there are any.
    pub range_mops: f64,
    /// Latencies of all operations.
    pub all: Quantiles,
    /// Latencies of lookups.
    pub lookups: Quantiles,
    /// Latencies of inserts and updates.
    pub writes: Quantiles,
    /// Latencies of ranges.
    pub ranges: Quantiles,
    /// Verbs executed.
    pub verbs: u64,
    /// Round trips of inserts and updates.
    pub write_round_trips: Vec<(u64, u64)>,
    /// Bytes written by inserts and updates, without the release of the lock.
    pub write_bytes: Vec<(u64, u64)>,
    /// How many times lookups had to read again after a torn READ.
    pub read_retries: Vec<(u64, u64)>,
    /// The share of inserts and updates that split a node.
    pub splits: f64,
    /// The share of inserts and updates that got their lock by handover.
    pub handovers: f64,
    /// The share of descents that hit the index cache.
    pub hit_ratio: f64,
}
