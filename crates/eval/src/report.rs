//! The result of a run: fields for programs, a table for people.

use crate::drive::SAMPLE_EVERY;
use crate::options::{BenchOptions, Load};
use crate::record::{Recorder, Timed};
use serde::Serialize;
use sherman::{OpKind, Stats};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Latencies of one kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
}

/// The costs of ranges, if there were any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ranges {
    /// Ranges read.
    pub ranges: u64,
    /// Mean number of entries per range.
    pub entries: f64,
    /// Mean number of reads per range; one read covers one or more leaves. `round_trips` counts these reads
    /// as `range`.
    pub reads: f64,
    /// Mean number of round trips per range. A read takes one round trip for every memory server that it
    /// asks, and one for each internal node that is not in the cache.
    pub round_trips: f64,
}

/// The result of a run. The field names are those of the JSON. Operations are `get`, `insert`, `update`,
/// `remove`, `range` and, for latencies, `read_modify_write`. The latency of a range is that of the whole
/// range. Its costs are those of each read of a few leaves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The system.
    pub variant: &'static str,
    /// The mix.
    pub workload: &'static str,
    /// Percent of operations that remove a key.
    pub removes: u32,
    /// The skew; 0 is uniform.
    pub zipf: f64,
    /// Keys loaded.
    pub keys: u64,
    /// How the keys were loaded: `bulk` or `insert`.
    pub load: &'static str,
    /// The fill of nodes after a bulk load, in percent.
    pub fill: Option<u32>,
    /// Seconds of loading, including sorting.
    pub load_seconds: f64,
    /// Operating system threads.
    pub threads: usize,
    /// Operations in flight on each thread.
    pub coroutines: usize,
    /// Operations in each call of a client.
    pub batch: usize,
    /// Millions of operations per second, all clients together. A read-modify-write is one operation.
    pub throughput_mops: f64,
    /// Latencies by operation, of one operation in `latency_sample`.
    pub latency_us: BTreeMap<&'static str, Percentiles>,
    /// For each operation, a histogram of round trips. The highest number, 64, includes all larger ones.
    pub round_trips: BTreeMap<&'static str, BTreeMap<usize, u64>>,
    /// Mean bytes of WRITEs by operation. They include the release of a lane (2 bytes, or 8) if it is a
    /// WRITE. Atomics count as zero bytes.
    pub bytes_written: BTreeMap<&'static str, f64>,
    /// Mean bytes of READs by operation.
    pub bytes_read: BTreeMap<&'static str, f64>,
    /// The share of descents that found the leaf's parent in the index cache; 0 without a cache.
    pub cache_hit_ratio: f64,
    /// Descents that found it there.
    pub cache_hits: u64,
    /// Descents that had to read internal nodes despite a cache.
    pub cache_misses: u64,
    /// What ranges cost, if there were any.
    pub ranges: Option<Ranges>,
    /// Retries by cause. Causes that never occurred are left out.
    pub retries: BTreeMap<&'static str, u64>,
    /// Lanes handed over from one client to the next inside a compute server.
    pub handovers: u64,
    /// Entries of the tree at the end.
    pub entries: u64,
    /// Bytes of all chunks in use on memory servers at the end.
    pub far_memory_bytes: u64,
    /// Operations measured.
    pub operations: u64,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// The seed for the actions of clients.
    pub seed: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Bytes of a node.
    pub node_size: usize,
    /// The format of nodes.
    pub format: &'static str,
    /// Where hot keys lie.
    pub hot_keys: &'static str,
    /// Bytes of index cache allowed.
    pub cache_bytes: usize,
    /// Entries of a range query, if there are any. For YCSB's ranges, the most.
    pub range_size: Option<u64>,
    /// The cluster's URL, with the parameters that the variant added.
    pub cluster: String,
    /// One operation in this many was timed.
    pub latency_sample: u64,
    /// The throughput of every run, if this is the median of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs_mops: Vec<f64>,
}

/// The measured values.
#[derive(Debug)]
pub(crate) struct Measured {
    pub stats: Stats,
    pub recorder: Recorder,
    pub elapsed: Duration,
    pub entries: u64,
    pub far_memory_bytes: u64,
    pub load: Duration,
}

/// Returns `a / b`, or 0 if `b` is 0, to six digits: more would be noise.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { (a / b * 1e6).round() / 1e6 }
}

impl Report {
    pub(crate) fn new(options: &BenchOptions, cluster: String, measured: &Measured) -> Self {
        let Measured { stats, recorder, elapsed, .. } = measured;
        let kinds = || OpKind::ALL.into_iter().filter(|&kind| stats.kind(kind).operations > 0);
        let mean = |bytes: fn(&sherman::KindStats) -> u64| {
            let of = |kind| ratio(bytes(stats.kind(kind)) as f64, stats.kind(kind).operations as f64);
            kinds().map(|kind| (kind.name(), of(kind))).collect()
        };
        Self {
            variant: options.variant.name(),
            workload: options.workload.name(),
            removes: options.removes,
            zipf: options.zipf,
            keys: options.keys,
            load: options.load.name(),
            fill: (options.load == Load::Bulk).then_some(options.fill),
            load_seconds: ratio(measured.load.as_secs_f64(), 1.0),
            threads: options.threads,
            coroutines: options.coroutines,
            batch: options.batch,
            throughput_mops: ratio(recorder.operations as f64, elapsed.as_secs_f64() * 1e6),
            latency_us: percentiles(recorder),
            round_trips: kinds().map(|kind| (kind.name(), stats.kind(kind).round_trips())).collect(),
            bytes_written: mean(|kind| kind.bytes_written),
            bytes_read: mean(|kind| kind.bytes_read),
            cache_hit_ratio: ratio(stats.cache_hits as f64, (stats.cache_hits + stats.cache_misses) as f64),
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
            ranges: ranges(recorder, stats),
            retries: stats.retries(),
            handovers: stats.handovers,
            entries: measured.entries,
            far_memory_bytes: measured.far_memory_bytes,
            operations: recorder.operations,
            seconds: ratio(elapsed.as_secs_f64(), 1.0),
            seed: options.seed,
            key_size: options.key_size,
            value_size: options.value_size,
            node_size: options.node_size,
            format: options.format().name(),
            hot_keys: options.hot.name(),
            cache_bytes: options.cache_bytes,
            range_size: options.workload.has_ranges().then_some(options.range_size),
            cluster,
            latency_sample: SAMPLE_EVERY,
            runs_mops: Vec::new(),
        }
    }
}

fn ranges(recorder: &Recorder, stats: &Stats) -> Option<Ranges> {
    let mean = |total: u64| ratio(total as f64, recorder.ranges as f64);
    let reads = stats.kind(OpKind::Range);
    let round_trips = reads.round_trips().into_iter().map(|(trips, reads)| trips as u64 * reads).sum();
    (recorder.ranges > 0).then(|| Ranges {
        ranges: recorder.ranges,
        entries: mean(recorder.range_entries),
        reads: mean(reads.operations),
        round_trips: mean(round_trips),
    })
}

fn percentiles(recorder: &Recorder) -> BTreeMap<&'static str, Percentiles> {
    let timed = Timed::ALL.into_iter().filter(|&timed| !recorder.latencies(timed).is_empty());
    timed
        .map(|timed| {
            let at = |quantile| recorder.latencies(timed).value_at_quantile(quantile) as f64 / 1000.0;
            (timed.name(), Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) })
        })
        .collect()
}

/// Formats a number with separated thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a share, as in `4.5 %`.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skew = if self.zipf == 0.0 { "uniform".to_owned() } else { format!("zipf {}", self.zipf) };
        let removes = if self.removes == 0 { String::new() } else { format!(", {} % removes", self.removes) };
        let Self { variant, workload, hot_keys, seed, .. } = self;
        writeln!(f, "{variant} | {workload}{removes} | {skew}, hot keys {hot_keys} | seed {seed}")?;
        writeln!(
            f,
            "{} keys of {} B, values of {} B, {} nodes of {} B | {} threads x {} in flight",
            grouped(self.keys),
            self.key_size,
            self.value_size,
            self.format,
            self.node_size,
            self.threads,
            self.coroutines
        )?;
        writeln!(f, "{}", self.cluster)?;
        let how = self.fill.map_or("one by one".to_owned(), |fill| format!("in bulk to {fill} %"));
        writeln!(f, "loaded {how} in {:.2} s", self.load_seconds)?;
        writeln!(f)?;
        write!(f, "throughput  {:.3} Mop/s", self.throughput_mops)?;
        writeln!(f, "  ({} operations in {:.2} s)", grouped(self.operations), self.seconds)?;
        if !self.runs_mops.is_empty() {
            let runs: Vec<String> = self.runs_mops.iter().map(|mops| format!("{mops:.3}")).collect();
            writeln!(f, "            the median of {} runs: {}", runs.len(), runs.join(", "))?;
        }
        self.latency_table(f)?;
        self.cost_table(f)?;
        self.rest(f)
    }
}

impl Report {
    fn latency_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(f, "{:<20}{:>10}{:>10}{:>10}{:>10}", "latency, us", "p50", "p90", "p99", "p99.9")?;
        for (operation, latency) in &self.latency_us {
            let Percentiles { p50, p90, p99, p999 } = latency;
            writeln!(f, "  {operation:<18}{p50:>10.2}{p90:>10.2}{p99:>10.2}{p999:>10.2}")?;
        }
        Ok(())
    }

    fn cost_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(
            f,
            "{:<20}{:>12}{:>10}{:>10}  round trips (share of operations)",
            "cost of each", "operations", "B read", "B written"
        )?;
        for (operation, round_trips) in &self.round_trips {
            let total: u64 = round_trips.values().sum();
            let read = self.bytes_read.get(operation).copied().unwrap_or(0.0);
            let written = self.bytes_written.get(operation).copied().unwrap_or(0.0);
            write!(f, "  {operation:<18}{:>12}{read:>10.1}{written:>10.1} ", grouped(total))?;
            let mut others = 0;
            for (&trips, &count) in round_trips {
                if count * 1000 >= total {
                    write!(f, " {trips}: {}", percent(count as f64 / total as f64))?;
                } else {
                    others += count;
                }
            }
            if others > 0 {
                write!(f, " other: {:.3} %", others as f64 * 100.0 / total as f64)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        if let Some(Ranges { ranges, entries, reads, round_trips }) = self.ranges {
            let ranges = grouped(ranges);
            writeln!(
                f,
                "ranges      {ranges}, each {entries:.1} entries in {reads:.2} reads and {round_trips:.2} \
                 round trips"
            )?;
        }
        let (hits, misses) = (grouped(self.cache_hits), grouped(self.cache_misses));
        writeln!(f, "cache hits  {:.2} %  ({hits} hits, {misses} misses)", self.cache_hit_ratio * 100.0)?;
        writeln!(f, "handovers   {}", grouped(self.handovers))?;
        let retries: Vec<String> =
            self.retries.iter().map(|(cause, count)| format!("{cause} {}", grouped(*count))).collect();
        writeln!(
            f,
            "retries     {}",
            if retries.is_empty() { "none".to_owned() } else { retries.join(", ") }
        )?;
        writeln!(f, "entries     {}", grouped(self.entries))?;
        write!(f, "far memory  {} MiB", grouped(self.far_memory_bytes >> 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BenchOptions, Length, Workload, bench};

    fn report() -> Report {
        let options = BenchOptions {
            keys: 2_000,
            workload: Workload::YcsbF,
            length: Length::Operations(8_000),
            ..BenchOptions::default()
        };
        bench::run(&options, &|_| ()).expect("a run")
    }

    #[test]
    fn a_program_finds_every_promised_field() {
        let json = serde_json::to_value(report()).expect("JSON");
        for field in [
            "variant",
            "workload",
            "zipf",
            "keys",
            "threads",
            "coroutines",
            "batch",
            "throughput_mops",
            "latency_us",
            "round_trips",
            "bytes_written",
            "bytes_read",
            "cache_hit_ratio",
            "cache_hits",
            "cache_misses",
            "load",
            "load_seconds",
            "retries",
            "handovers",
            "entries",
            "far_memory_bytes",
        ] {
            assert!(json.get(field).is_some_and(|value| !value.is_null()), "{field}");
        }
        let update = &json["round_trips"]["update"];
        assert!(update.as_object().is_some_and(|counts| counts.contains_key("2")), "{update}");
        assert!(
            json["latency_us"]["read_modify_write"]["p999"].as_f64()
                >= json["latency_us"]["get"]["p50"].as_f64()
        );
    }

    #[test]
    fn a_person_finds_aligned_columns() {
        let report = report();
        let text = report.to_string();
        assert!(text.contains(&format!("throughput  {:.3} Mop/s", report.throughput_mops)), "{text}");
        let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("latency")).take(4).collect();
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
        assert!(
            text.contains("ours | ycsb-f | zipf 0.99, hot keys scattered | seed 1\n2,000 keys of 8 B"),
            "{text}"
        );
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
