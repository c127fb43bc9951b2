//! Turns statistics into measurements.

use super::job::{Measured, Quantiles};
use crate::error::BenchError;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// The longest latency that is recorded exactly; longer ones count as this.
const LONGEST_NANOS: u64 = 60_000_000_000;

/// Latencies of one kind of operation.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Result<Self, BenchError> {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NANOS, 3);
        histogram.map(Self).map_err(|error| BenchError::Thread(format!("no histogram: {error:?}")))
    }

    pub(super) fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos.max(1));
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Quantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }
}

/// A histogram: how many operations had each number.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<u64, u64>);

impl Counts {
    pub(super) fn add(&mut self, number: u64) {
        *self.0.entry(number).or_default() += 1;
    }

    pub(super) fn pairs(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(&number, &count)| (number, count)).collect()
    }
}

/// Returns `a / b`, or 0 if `b` is 0.
pub(super) fn share(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Decides when the measurement begins and ends, by the number of operations of all clients.
#[derive(Debug)]
pub(super) struct Meter {
    warm_up: u64,
    measured: u64,
    done: u64,
    began: u64,
    ended: u64,
    verbs: (u64, u64),
}

impl Meter {
    /// Measures `operations` after a warm-up of a quarter as many.
    pub(super) fn new(operations: u64) -> Self {
        let operations = operations.max(1);
        Self { warm_up: operations / 4, measured: operations, done: 0, began: 0, ended: 0, verbs: (0, 0) }
    }

    /// Returns whether clients must stop.
    pub(super) fn is_over(&self) -> bool {
        self.done >= self.warm_up + self.measured
    }

    /// Counts a completed operation, and returns whether it is measured. Calls `verbs` when the measurement
    /// begins or ends.
    pub(super) fn count(&mut self, now: u64, verbs: impl FnOnce() -> u64) -> bool {
        if self.is_over() {
            return false;
        }
        self.done += 1;
        let counts = self.done > self.warm_up;
        if self.done == self.warm_up {
            self.began = now;
            self.verbs.0 = verbs();
        } else if self.is_over() {
            self.ended = now;
            self.verbs.1 = verbs();
        }
        counts
    }

    /// Returns the throughput. Other fields are not filled in.
    pub(super) fn measured(&self) -> Measured {
        let nanos = self.ended.saturating_sub(self.began).max(1);
        Measured {
            operations: self.measured,
            nanos,
            mops: self.measured as f64 * 1e3 / nanos as f64,
            verbs: self.verbs.1.saturating_sub(self.verbs.0),
            ..Measured::default()
        }
    }
}
