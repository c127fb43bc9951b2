//! Shared by all figures: the paper's default experiment, numbers from runs, panels, claims.

use super::model::{Axis, Claim, Panel, PanelKind, Point, Series, Table};
use super::paper::{hocl, setup};
use super::plan::{Outcomes, Scale};
use crate::experiment::{Job, LockJob, LockKind, Measured, TreeJob};
use crate::keys::HotKeys;
use crate::variant::Variant;
use crate::workload::Workload;
use sherman_sim::nic::Params;

/// No skew.
pub(super) const UNIFORM: f64 = 0.0;
/// The paper's skew.
pub(super) const SKEW: f64 = setup::ZIPF_DEFAULT;
/// The least cache size. A small tree's share of the paper's cache would hold almost nothing besides the
/// cache's own tables.
const LEAST_CACHE: u64 = 1 << 20;

/// Returns the paper's default experiment (§5.1.3) with one system, mix and skew.
pub(super) fn tree(scale: &Scale, variant: Variant, workload: Workload, zipf: f64) -> TreeJob {
    TreeJob {
        variant,
        workload,
        removes: 0,
        zipf,
        hot: HotKeys::Scattered,
        keys: scale.keys,
        key_size: setup::KEY_BYTES,
        value_size: setup::VALUE_BYTES,
        leaf_size: setup::NODE_BYTES,
        internal_size: setup::NODE_BYTES,
        fill: setup::FILL,
        compute: setup::COMPUTE_SERVERS,
        memory: setup::MEMORY_SERVERS,
        replicas: 1,
        threads: setup::THREADS_PER_COMPUTE_SERVER,
        coroutines: 1,
        cache_bytes: cache_share(scale, setup::INDEX_CACHE_BYTES).max(LEAST_CACHE),
        fill_cache: false,
        range_size: 100,
        operations: scale.operations,
        seed: scale.seed,
        params: Params::PAPER,
    }
}

/// Scales `bytes` from the paper's tree to the tree of this scale.
pub(super) fn cache_share(scale: &Scale, bytes: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(scale.keys) / u128::from(setup::BULK_LOADED_ENTRIES);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Returns the paper's experiment on locks alone (§5.7).
pub(super) fn locks(scale: &Scale, kind: LockKind) -> LockJob {
    LockJob {
        kind,
        locks: hocl::LOCKS,
        zipf: hocl::ZIPF,
        compute: hocl::COMPUTE_SERVERS,
        threads: hocl::THREADS / hocl::COMPUTE_SERVERS,
        operations: scale.operations,
        seed: scale.seed,
        params: Params::PAPER,
    }
}

/// Selects a number of a run.
pub(super) type Metric = fn(&Measured) -> f64;

/// Throughput, in millions of operations per second.
pub(super) fn mops(run: &Measured) -> f64 {
    run.mops
}

/// The median latency of all operations, in microseconds.
pub(super) fn p50(run: &Measured) -> f64 {
    run.all.p50
}

/// The 90th percentile of latency.
pub(super) fn p90(run: &Measured) -> f64 {
    run.all.p90
}

/// The 99th percentile of latency.
pub(super) fn p99(run: &Measured) -> f64 {
    run.all.p99
}

/// Makes a point of several runs. Without a run its value is NaN, which is not drawn.
pub(super) fn point(x: f64, runs: &[Measured], metric: impl Fn(&Measured) -> f64) -> Point {
    let mut point = Point { x, y: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY };
    for run in runs {
        let value = metric(run);
        point.y += value;
        point.least = point.least.min(value);
        point.most = point.most.max(value);
    }
    point.y /= runs.len() as f64;
    point
}

/// Makes a point without a spread, such as one of the paper's.
pub(super) fn exact(x: f64, y: f64) -> Point {
    Point { x, y, least: y, most: y }
}

/// Returns the mean of several runs.
pub(super) fn mean(runs: &[Measured], metric: impl Fn(&Measured) -> f64) -> f64 {
    point(0.0, runs, metric).y
}

/// Returns the mean of one job's runs divided by the mean of another job's runs.
pub(super) fn over(outcomes: &dyn Outcomes, job: &Job, base: &Job, metric: Metric) -> f64 {
    mean(outcomes.of(job), metric) / mean(outcomes.of(base), metric)
}

/// Returns the percentile of a histogram: the value that `percent` percent of the operations do not exceed. 0
/// if the histogram is empty.
pub(super) fn percentile(histogram: &[(u64, u64)], percent: u64) -> f64 {
    let total = count(histogram);
    let mut below = 0u128;
    for &(value, count) in histogram {
        below += u128::from(count);
        if below * 100 >= total * u128::from(percent) {
            return value as f64;
        }
    }
    0.0
}

/// Returns the share of a histogram's operations whose value `within` accepts; NaN if the histogram is empty.
pub(super) fn share(histogram: &[(u64, u64)], within: impl Fn(u64) -> bool) -> f64 {
    let inside = histogram.iter().filter(|(value, _)| within(*value)).map(|(_, count)| u128::from(*count));
    inside.sum::<u128>() as f64 / count(histogram) as f64
}

fn count(histogram: &[(u64, u64)]) -> u128 {
    histogram.iter().map(|(_, count)| u128::from(*count)).sum()
}

/// Makes a linear axis.
pub(super) fn axis(label: &str) -> Axis {
    Axis { label: label.to_owned(), log: false, categories: Vec::new() }
}

/// Makes a logarithmic axis.
pub(super) fn log_axis(label: &str) -> Axis {
    Axis { log: true, ..axis(label) }
}

/// Makes an axis of names.
pub(super) fn names(label: &str, names: impl IntoIterator<Item = impl Into<String>>) -> Axis {
    Axis { categories: names.into_iter().map(Into::into).collect(), ..axis(label) }
}

/// Makes a panel of bars.
pub(super) fn bars(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
    Panel { title: title.into(), kind: PanelKind::Bars, x, y, series }
}

/// Makes a panel of lines.
pub(super) fn lines(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
    Panel { title: title.into(), kind: PanelKind::Lines, x, y, series }
}

/// Makes a series of measured values.
pub(super) fn series(name: impl Into<String>, points: impl IntoIterator<Item = Point>) -> Series {
    Series { name: name.into(), paper: false, points: points.into_iter().collect() }
}

/// Makes a series of the paper's values.
pub(super) fn paper_series(name: impl Into<String>, points: impl IntoIterator<Item = Point>) -> Series {
    Series { paper: true, ..series(name, points) }
}

/// Makes a table.
pub(super) fn table(title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { title: title.to_owned(), columns: columns.iter().map(|&name| name.to_owned()).collect(), rows }
}

/// Makes a claim by which the model is judged; `unit` is empty for a ratio.
pub(super) fn judged(
    key: impl Into<String>,
    what: impl Into<String>,
    paper: f64,
    ours: f64,
    unit: &'static str,
) -> Claim {
    Claim { judged: true, ..told(key, what, paper, ours, unit) }
}

/// Makes a claim that is reported but not judged.
pub(super) fn told(
    key: impl Into<String>,
    what: impl Into<String>,
    paper: f64,
    ours: f64,
    unit: &'static str,
) -> Claim {
    Claim { key: key.into(), what: what.into(), paper, measured: ours, unit, judged: false }
}

/// Formats a number for a table: about three digits, a dash for none.
pub(super) fn cell(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if !size.is_finite() => "–".to_owned(),
        _ if size >= 100.0 => format!("{number:.0}"),
        _ if size >= 10.0 => format!("{number:.1}"),
        _ if size >= 1.0 || size == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_the_mean_of_its_runs_with_their_spread() {
        let runs = [1.0, 3.0, 2.0].map(|mops| Measured { mops, ..Measured::default() });
        assert_eq!(point(7.0, &runs, mops), Point { x: 7.0, y: 2.0, least: 1.0, most: 3.0 });
        assert!(point(7.0, &[], mops).y.is_nan());
    }

    #[test]
    fn percentiles_and_shares_count_operations() {
        let histogram = [(2, 4), (3, 94), (9, 1), (500, 1)];
        assert_eq!([50, 98, 99, 100].map(|percent| percentile(&histogram, percent)), [3.0, 3.0, 9.0, 500.0]);
        assert_eq!(share(&histogram, |value| value == 3), 0.94);
        assert_eq!(percentile(&[], 50), 0.0);
        assert!(share(&[], |_| true).is_nan());
    }

    #[test]
    fn the_paper_s_cache_belongs_to_the_paper_s_tree() {
        assert_eq!(cache_share(&Scale::full(1), setup::INDEX_CACHE_BYTES), setup::INDEX_CACHE_BYTES);
        assert_eq!(cache_share(&Scale::quick(1), setup::INDEX_CACHE_BYTES), 524_288);
        let job = |scale: &Scale| tree(scale, Variant::Sherman, Workload::WriteOnly, UNIFORM);
        assert_eq!(job(&Scale::full(1)).cache_bytes, 524_288_000);
        assert_eq!(job(&Scale::quick(1)).cache_bytes, 1 << 20);
    }

    #[test]
    fn cells_have_about_three_digits() {
        let cells = [19890.0, 68.72, 4.9, 0.34, 0.0, f64::INFINITY].map(cell);
        assert_eq!(cells, ["19890", "68.7", "4.90", "0.340", "0.00", "–"]);
    }
}
