//! The numbers that the paper states in its text and tables, by name. Source: Sherman, SIGMOD'22.
//!
//! The paper's plots have no readable numbers, so numbers that appear only in plots are not here. Latencies
//! and factors of latencies are of all operations of a workload.

/// The machines, the tree and the clients (§4.2.4, §4.3, §5.1).
pub mod setup {
    /// Memory servers; each machine is one memory server and one compute server.
    pub const MEMORY_SERVERS: u16 = 8;
    /// Compute servers.
    pub const COMPUTE_SERVERS: u16 = 8;
    /// Client threads of a compute server.
    pub const THREADS_PER_COMPUTE_SERVER: u16 = 22;
    /// Bytes of a node, leaf or internal.
    pub const NODE_BYTES: usize = 1024;
    /// Bytes of a key.
    pub const KEY_BYTES: usize = 8;
    /// Bytes of a value.
    pub const VALUE_BYTES: usize = 8;
    /// Entries loaded.
    pub const BULK_LOADED_ENTRIES: u64 = 1_000_000_000;
    /// The fill of nodes after the load, in percent.
    pub const FILL: u32 = 80;
    /// Bytes of index cache of a compute server.
    pub const INDEX_CACHE_BYTES: u64 = 524_288_000;
    /// Bytes of a chunk.
    pub const CHUNK_BYTES: u64 = 8_388_608;
    /// Locks per memory server.
    pub const LOCKS_PER_MEMORY_SERVER: u32 = 131_072;
    /// Bits of a lock.
    pub const LOCK_BITS: u32 = 16;
    /// Bytes of on-chip memory per NIC.
    pub const ON_CHIP_BYTES: u64 = 262_144;
    /// The most handovers of a lock in a row.
    pub const MAX_HANDOVERS: u32 = 4;
    /// The share of inserts whose key already exists: two thirds.
    pub const UPDATE_SHARE_OF_INSERTS: f64 = 0.667;
    /// The skew of a workload that the paper calls skewed.
    pub const ZIPF_DEFAULT: f64 = 0.99;
}

/// The paper's statements on the NIC alone (§3.1.2, §3.2, §4.3, §5.1.1).
pub mod nic {
    /// Link speed, in gigabits per second.
    pub const LINK_GBPS: f64 = 100.0;
    /// The longest round trip of a READ or WRITE, in microseconds.
    pub const ROUND_TRIP_US_MAX: f64 = 2.0;
    /// The rate of CAS in on-chip memory, in millions per second.
    pub const ON_CHIP_CAS_MOPS: f64 = 110.0;
    /// WRITEs of up to 128 bytes exceed this rate, in millions per second.
    pub const WRITE_MOPS_AT_OR_BELOW_128B: f64 = 50.0;
    /// WRITEs of at least this many bytes are bound by bandwidth.
    pub const WRITE_BANDWIDTH_BOUND_FROM_BYTES: f64 = 256.0;
    /// The number of buckets into which a NIC sorts atomics.
    pub const ATOMIC_BUCKETS: u64 = 4096;
    /// The number of low address bits that choose the bucket.
    pub const ATOMIC_BUCKET_LSB: u64 = 12;
    /// PCIe transactions per atomic in host memory.
    pub const PCIE_TRANSACTIONS_PER_HOST_ATOMIC: u64 = 2;
    /// PCIe transactions per failed CAS in host memory.
    pub const PCIE_TRANSACTIONS_PER_FAILED_HOST_CAS: u64 = 1;
}

/// FG with an index cache (table 1, §3.1.1).
pub mod table_1 {
    /// A column of the table.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Column {
        /// Throughput.
        pub mops: f64,
        /// The median latency.
        pub p50_us: f64,
        /// The 90th percentile of latency.
        pub p90_us: f64,
        /// The 99th percentile of latency.
        pub p99_us: f64,
    }

    /// Read-intensive, uniform.
    pub const READ_INTENSIVE_UNIFORM: Column = Column { mops: 31.8, p50_us: 4.9, p90_us: 6.4, p99_us: 14.9 };
    /// Read-intensive, skewed.
    pub const READ_INTENSIVE_SKEW: Column = Column { mops: 32.9, p50_us: 4.7, p90_us: 6.2, p99_us: 15.3 };
    /// Write-intensive, uniform.
    pub const WRITE_INTENSIVE_UNIFORM: Column =
        Column { mops: 18.7, p50_us: 9.5, p90_us: 14.3, p99_us: 19.0 };
    /// Write-intensive, skewed: the collapse.
    pub const WRITE_INTENSIVE_SKEW: Column =
        Column { mops: 0.34, p50_us: 10.0, p90_us: 68.7, p99_us: 19890.0 };
}

/// What each technique adds, write-intensive and skewed (figure 10, §5.2.1). In order: fg+, +combine,
/// +on-chip, +hierarchical, +2-level-ver. Each is compared with the one before it.
pub mod ablation {
    /// Throughput relative to the step before.
    pub const THROUGHPUT_STEP: [f64; 5] = [1.0, 3.37, 3.06, 2.22, 1.03];
    /// The median of the step before, divided by that of this step, where the paper states it.
    pub const P50_STEP_DOWN: [Option<f64>; 5] = [Some(1.0), Some(1.14), None, Some(1.12), None];
    /// The 99th percentile of the step before, divided by that of this step, where the paper states it.
    pub const P99_STEP_DOWN: [Option<f64>; 5] = [Some(1.0), Some(3.18), Some(3.48), Some(2.68), None];
    /// The median before and after two-level versions.
    pub const P50_US_BEFORE_AND_AFTER_2_LEVEL: [f64; 2] = [7.3, 6.9];
}

/// Sherman against FG+ (figures 10 and 11, §5.2).
pub mod sherman_over_fg_plus {
    /// The factors by which Sherman is better.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Gain {
        /// Throughput, Sherman over FG+.
        pub throughput: f64,
        /// The median latency, FG+ over Sherman.
        pub p50_down: f64,
        /// The 99th percentile, FG+ over Sherman.
        pub p99_down: f64,
    }

    /// Skewed, write-only.
    pub const SKEW_WRITE_ONLY: Gain = Gain { throughput: 24.7, p50_down: 1.2, p99_down: 35.8 };
    /// Skewed, write-intensive.
    pub const SKEW_WRITE_INTENSIVE: Gain = Gain { throughput: 23.6, p50_down: 1.4, p99_down: 30.2 };
    /// Skewed, read-intensive: the 99th percentile of FG+.
    pub const SKEW_READ_INTENSIVE_P99_US_FG_PLUS: f64 = 15.3;
    /// The same with command combination.
    pub const SKEW_READ_INTENSIVE_P99_US_WITH_COMBINE: f64 = 12.9;
    /// The difference between Sherman's median and FG+'s there.
    pub const SKEW_READ_INTENSIVE_P50_UP_US: f64 = 0.1;
    /// Uniform, write-only.
    pub const UNIFORM_WRITE_ONLY: Gain = Gain { throughput: 1.24, p50_down: 1.24, p99_down: 2.01 };
    /// Uniform, write-intensive.
    pub const UNIFORM_WRITE_INTENSIVE: Gain = Gain { throughput: 1.15, p50_down: 1.19, p99_down: 1.27 };
}

/// Range queries (figure 12, §5.3).
pub mod range {
    /// Range-only, 100 entries: throughput of FG+ over Sherman's.
    pub const RANGE_ONLY_100_FG_PLUS_OVER_SHERMAN: f64 = 1.02;
    /// Range-only, 1000 entries: almost the same.
    pub const RANGE_ONLY_1000_RATIO: f64 = 1.0;
    /// Range-write: throughput of ranges, Sherman over FG+, at most.
    pub const RANGE_WRITE_SHERMAN_OVER_FG_PLUS_MAX: f64 = 1.82;
}

/// More clients, write-intensive (figure 13, §5.4).
pub mod scalability {
    /// The most clients.
    pub const CLIENTS_MAX: u64 = 528;
    /// Uniform, most clients: Sherman's throughput.
    pub const UNIFORM_SHERMAN_MOPS: f64 = 44.0;
    /// The same relative to FG+'s.
    pub const UNIFORM_OVER_FG_PLUS: f64 = 1.14;
    /// Skew 0.90: Sherman's peak.
    pub const ZIPF_090_SHERMAN_PEAK_MOPS: f64 = 21.0;
    /// The same relative to FG+'s peak.
    pub const ZIPF_090_OVER_FG_PLUS_PEAK: f64 = 1.44;
    /// Skew 0.99: Sherman's peak.
    pub const ZIPF_099_SHERMAN_PEAK_MOPS: f64 = 9.0;
    /// The same relative to FG+'s peak.
    pub const ZIPF_099_OVER_FG_PLUS_PEAK: f64 = 1.4;
    /// Whether FG+ gets slower with more clients there.
    pub const ZIPF_099_FG_PLUS_COLLAPSES_WITH_MORE_CLIENTS: bool = true;
}

/// Inside operations, write-intensive and skewed (figure 14, §5.5).
pub mod internals {
    /// The share of lookups that need no second READ, the same for FG+ and Sherman.
    pub const LOOKUPS_WITHOUT_RETRY: f64 = 0.9998;
    /// The share of writes that take four round trips in FG+.
    pub const FG_PLUS_SHARE_AT_4: f64 = 0.94;
    /// The share that takes three in Sherman.
    pub const SHERMAN_SHARE_AT_3: f64 = 0.936;
    /// The share that takes two in Sherman.
    pub const SHERMAN_SHARE_AT_2: f64 = 0.036;
    /// The 99th percentile of round trips of a write in FG+.
    pub const FG_PLUS_P99: f64 = 453.0;
    /// The same in Sherman.
    pub const SHERMAN_P99: f64 = 11.0;
    /// Bytes that a write without a split writes back in Sherman.
    pub const SHERMAN_WITHOUT_SPLIT: f64 = 17.0;
    /// The share of writes that split a node.
    pub const SPLIT_SHARE: f64 = 0.004;
}

/// Sizes of keys and of the index cache (figure 15, §5.6).
pub mod sensitivity {
    /// Entries of a leaf while keys grow.
    pub const ENTRIES_PER_LEAF: usize = 32;
    /// Entries loaded while keys grow.
    pub const KEY_SIZE_ENTRIES: u64 = 200_000_000;
    /// Uniform, keys of 16 bytes: throughput of Sherman over FG+'s.
    pub const UNIFORM_SHERMAN_OVER_FG_PLUS_AT_16B: f64 = 1.17;
    /// Uniform, keys of 1 KB.
    pub const UNIFORM_SHERMAN_OVER_FG_PLUS_AT_1KB: f64 = 1.47;
    /// Skewed, keys of 1 KB.
    pub const SKEW_SHERMAN_OVER_FG_PLUS_AT_1KB: f64 = 1.4;
    /// Bytes of index cache for which the hit ratio is stated.
    pub const INDEX_CACHE_BYTES: u64 = 419_430_400;
    /// Entries loaded for it.
    pub const INDEX_CACHE_ENTRIES: u64 = 1_000_000_000;
    /// The hit ratio.
    pub const INDEX_CACHE_HIT_RATIO: f64 = 0.98;
}

/// Experiments on locks alone (figure 16, §5.7). In order: host memory, +on-chip, +hierarchical, +wait-queue,
/// +handover. Each is compared with the one before it.
pub mod hocl {
    /// Threads of all compute servers together.
    pub const THREADS: u16 = 176;
    /// Compute servers they run on.
    pub const COMPUTE_SERVERS: u16 = 8;
    /// Locks.
    pub const LOCKS: u32 = 10_240;
    /// Memory servers that hold the locks.
    pub const MEMORY_SERVERS: u16 = 1;
    /// The skew.
    pub const ZIPF: f64 = 0.99;
    /// +on-chip: throughput.
    pub const ON_CHIP_THROUGHPUT: f64 = 2.89;
    /// +on-chip: median.
    pub const ON_CHIP_P50_DOWN: f64 = 3.01;
    /// +on-chip: 99th percentile.
    pub const ON_CHIP_P99_DOWN: f64 = 2.88;
    /// +hierarchical: throughput.
    pub const HIERARCHICAL_THROUGHPUT: f64 = 3.85;
    /// +hierarchical: median.
    pub const HIERARCHICAL_P50_DOWN: f64 = 5.39;
    /// +hierarchical: 99th percentile.
    pub const HIERARCHICAL_P99_DOWN: f64 = 3.65;
    /// The 99th percentile without queues.
    pub const WAIT_QUEUE_P99_US_BEFORE: f64 = 414.0;
    /// The 99th percentile with them.
    pub const WAIT_QUEUE_P99_US_AFTER: f64 = 372.0;
    /// +handover: throughput.
    pub const HANDOVER_THROUGHPUT: f64 = 2.34;
    /// +handover: 99th percentile.
    pub const HANDOVER_P99_DOWN: f64 = 3.19;
}
