//! Experiments, and what is measured in them.

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
    /// The mix.
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
    /// How full the load makes nodes, in percent.
    pub fill: u32,
    /// Compute servers.
    pub compute: u16,
    /// Memory servers. A machine has one of each, sharing a NIC, as far as there are.
    pub memory: u16,
    /// Threads of each compute server.
    pub threads: u16,
    /// Clients on each thread.
    pub coroutines: u16,
    /// Index cache of each compute server, in bytes of nodes that it has room for.
    pub cache_bytes: u64,
    /// Whether the cache is filled by lookups before the experiment. Otherwise it is taken to hold as many nodes as it has room for,
    /// each as likely as the others, which costs nothing; the hottest get there while warming up.
    pub fill_cache: bool,
    /// Entries of a range.
    pub range_size: u64,
    /// Operations to measure, all clients together, after a quarter as many to warm up.
    pub operations: u64,
    /// Decides what clients do.
    pub seed: u64,
    /// The NIC and the CPUs.
    pub params: Params,
}

/// How locks are taken and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LockKind {
    /// In host memory, by CAS and FAA: what FG does.
    HostFaa,
    /// In host memory, by CAS and WRITE.
    Host,
    /// In on-chip memory.
    OnChip,
    /// With a local lock table; whoever is quickest gets a lock.
    Hierarchical,
    /// With a local queue.
    Queue,
    /// With handover: HOCL complete.
    Handover,
}

/// Taking and releasing locks of one memory server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockJob {
    /// How.
    pub kind: LockKind,
    /// How many locks there are.
    pub locks: u32,
    /// The skew; 0 is uniform.
    pub zipf: f64,
    /// Compute servers. None shares the memory server's machine if there are fewer than eight, else one does.
    pub compute: u16,
    /// Threads of each.
    pub threads: u16,
    /// Pairs of taking and releasing to measure, after a quarter as many to warm up.
    pub operations: u64,
    /// Decides what clients do.
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

/// WRITEs of one size, as fast as they go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WriteJob {
    /// Bytes of each.
    pub bytes: u32,
    /// Which NIC is watched.
    pub direction: Direction,
    /// WRITEs to measure.
    pub operations: u64,
    /// The NIC and the CPUs.
    pub params: Params,
}

impl Job {
    /// Operations to measure: what a job costs, about.
    pub fn operations(&self) -> u64 {
        match self {
            Self::Tree(job) => job.operations,
            Self::Locks(job) => job.operations,
            Self::Writes(job) => job.operations,
        }
    }

    /// The same job with another seed.
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
    /// Nine in ten are faster.
    pub p90: f64,
    /// 99 in a hundred are.
    pub p99: f64,
    /// 999 in a thousand are.
    pub p999: f64,
}

/// What was measured in one experiment. Histograms are pairs of a number and how many operations had it, ascending.
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
    /// Verbs that were executed.
    pub verbs: u64,
    /// Round trips of inserts and updates.
    pub write_round_trips: Vec<(u64, u64)>,
    /// Bytes written by inserts and updates, without the release of the lock.
    pub write_bytes: Vec<(u64, u64)>,
    /// Times that lookups had to read again because what they had read was torn.
    pub read_retries: Vec<(u64, u64)>,
    /// The share of inserts and updates that split a node.
    pub splits: f64,
    /// The share of inserts and updates that got their lock by handover.
    pub handovers: f64,
    /// The share of descents that the index cache answered.
    pub hit_ratio: f64,
}
