//! Volumes in two copies beside volumes in one (ours).

use super::model::Figure;
use super::parts::{
    self, Metric, SKEW, UNIFORM, axis, bars, cell, mean, names, over, point, series, table, tree,
};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, Measured, TreeJob};
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "replicas", title: "Two copies of every volume", draw };

/// A row: its name, workload, skew, clients on each thread, and the ratio that is the aim, if there is one.
type Row = (&'static str, Workload, f64, u16, Option<f64>);

const ROWS: [Row; 8] = [
    ("write-intensive, uniform", Workload::WriteIntensive, UNIFORM, 1, Some(0.65)),
    ("write-intensive, skewed", Workload::WriteIntensive, SKEW, 1, Some(0.8)),
    ("the same, uniform, 8 coroutines", Workload::WriteIntensive, UNIFORM, 8, None),
    ("the same, skewed, 8 coroutines", Workload::WriteIntensive, SKEW, 8, None),
    ("write-only, uniform", Workload::WriteOnly, UNIFORM, 1, None),
    ("write-only, skewed", Workload::WriteOnly, SKEW, 1, None),
    ("read-intensive, uniform", Workload::ReadIntensive, UNIFORM, 1, None),
    ("read-only, uniform", Workload::ReadOnly, UNIFORM, 1, None),
];

fn job(scale: &Scale, (_, workload, zipf, coroutines, _): Row, replicas: u16) -> Job {
    Job::Tree(TreeJob { replicas, coroutines, ..tree(scale, Variant::Ours, workload, zipf) })
}

/// The median latency of writes, in microseconds.
fn write_p50(run: &Measured) -> f64 {
    run.writes.p50
}

/// The 99th percentile of the latency of writes.
fn write_p99(run: &Measured) -> f64 {
    run.writes.p99
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let of = |row, replicas| outcomes.of(&job(scale, row, replicas));
    let panel = |title: &str, y, rows: &[Row], metric: Metric| {
        let bar = |replicas: u16| {
            let at = |(x, row): (usize, &Row)| point(x as f64, of(*row, replicas), metric);
            let name = if replicas == 1 { "one copy" } else { "two copies" };
            series(name, rows.iter().enumerate().map(at))
        };
        bars(title, names("", rows.iter().map(|row| row.0)), y, vec![bar(1), bar(2)])
    };
    let row = |row: Row| {
        let both = |metric: Metric| [1, 2].map(|replicas| mean(of(row, replicas), metric));
        let (mops, p50, p99) = (both(parts::mops), both(write_p50), both(write_p99));
        let ratio = over(outcomes, &job(scale, row, 2), &job(scale, row, 1), parts::mops);
        let numbers = [mops[0], mops[1], ratio, row.4.unwrap_or(f64::NAN), p50[0], p50[1], p99[0], p99[1]];
        // Without writes there are no latencies of writes.
        let numbers = numbers.map(|number| cell(if number == 0.0 { f64::NAN } else { number }));
        std::iter::once(row.0.to_owned()).chain(numbers).collect()
    };
    let columns = [
        "workload",
        "one copy, Mops",
        "two copies, Mops",
        "ratio",
        "aim",
        "median of writes, one copy, µs",
        "two",
        "99th percentile, one copy, µs",
        "two",
    ];
    Figure {
        paper: "ours",
        about: "With two copies a change writes the backup, waits, and then writes the primary and releases \
                the lock. It takes three round trips instead of two, and its bytes are written twice. Gets \
                read the primary alone. The backup of each volume is on the machine of the next one, so \
                every machine has as many backups as primaries. Under skew the lock is held for a round trip \
                longer, but the changes that wait for it share one batch."
            .to_owned(),
        panels: vec![
            panel("Throughput", axis("Mops"), &ROWS[..4], parts::mops),
            panel("Median latency of writes", axis("µs"), &ROWS[..2], write_p50),
            panel("99th percentile of writes", axis("µs"), &ROWS[..2], write_p99),
        ],
        tables: vec![table("One copy and two", &columns, ROWS.map(row).into())],
        ..Figure::default()
    }
}
