//! The statistics of clients: the number of operations, and the latency of some.

use crate::error::BenchError;
use hdrhistogram::Histogram;
use std::time::Instant;

/// The longest latency that is recorded exactly: longer than the deadline of any operation.
const LONGEST_NANOS: u64 = 60_000_000_000;

sherman_fabric::named! {
    /// Operations whose latency is reported separately.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(usize)]
    pub(crate) enum Timed {
        Get => "get",
        Insert => "insert",
        Update => "update",
        ReadModifyWrite => "read_modify_write",
        Range => "range",
        Remove => "remove",
    }
}

/// The work of the clients of a thread, or, after merging, of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    latencies: Vec<Histogram<u64>>,
    /// Operations of the workload. A read-modify-write is one operation, and so is a range.
    pub operations: u64,
    /// Entries that inserts added.
    pub added: u64,
    /// Entries that removes removed.
    pub removed: u64,
    /// Ranges read.
    pub ranges: u64,
    /// Entries that the ranges returned.
    pub range_entries: u64,
}

impl Recorder {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NANOS, 3);
        let latencies = Timed::ALL.iter().map(|_| histogram()).collect::<Result<_, _>>();
        let latencies = latencies.map_err(|error| BenchError::Thread(format!("no histogram: {error:?}")))?;
        Ok(Self { latencies, operations: 0, added: 0, removed: 0, ranges: 0, range_entries: 0 })
    }

    pub(crate) fn record(&mut self, timed: Timed, from: Instant, to: Instant) {
        let nanos = u64::try_from(to.duration_since(from).as_nanos()).unwrap_or(LONGEST_NANOS);
        self.latencies[timed as usize].saturating_record(nanos.max(1));
    }

    pub(crate) fn latencies(&self, timed: Timed) -> &Histogram<u64> {
        &self.latencies[timed as usize]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            // All histograms have the same bounds, so this cannot fail.
            let _ = mine.add(theirs);
        }
        self.operations += other.operations;
        self.added += other.added;
        self.removed += other.removed;
        self.ranges += other.ranges;
        self.range_entries += other.range_entries;
    }
}
