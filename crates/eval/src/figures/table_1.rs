//! FG with an index cache, and how it collapses (table 1, §3.1.1).

use super::model::{Claim, Figure};
use super::paper::table_1::{self as paper, Column};
use super::parts::{
    self, Metric, SKEW, UNIFORM, bars, cell, exact, log_axis, mean, names, point, told, tree,
};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::Job;
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source =
    Source { name: "table-1", title: "One-sided verbs alone: FG with an index cache", draw };

/// Columns: key, heading, mix, skew, the paper's numbers.
const COLUMNS: [(&str, &str, Workload, f64, Column); 4] = [
    (
        "read_intensive_uniform",
        "read-intensive, uniform",
        Workload::ReadIntensive,
        UNIFORM,
        paper::READ_INTENSIVE_UNIFORM,
    ),
    (
        "read_intensive_skew",
        "read-intensive, skewed",
        Workload::ReadIntensive,
        SKEW,
        paper::READ_INTENSIVE_SKEW,
    ),
    (
        "write_intensive_uniform",
        "write-intensive, uniform",
        Workload::WriteIntensive,
        UNIFORM,
        paper::WRITE_INTENSIVE_UNIFORM,
    ),
    (
        "write_intensive_skew",
        "write-intensive, skewed",
        Workload::WriteIntensive,
        SKEW,
        paper::WRITE_INTENSIVE_SKEW,
    ),
];

/// Numbers of a column: key, name, unit, the paper's, ours.
type Number = (&'static str, &'static str, &'static str, fn(&Column) -> f64, Metric);
const NUMBERS: [Number; 4] = [
    ("mops", "throughput", "Mops", |column| column.mops, parts::mops),
    ("p50_us", "50th percentile", "µs", |column| column.p50_us, parts::p50),
    ("p90_us", "90th percentile", "µs", |column| column.p90_us, parts::p90),
    ("p99_us", "99th percentile", "µs", |column| column.p99_us, parts::p99),
];

fn job(scale: &Scale, workload: Workload, zipf: f64) -> Job {
    Job::Tree(tree(scale, Variant::FgCache, workload, zipf))
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let mut rows = Vec::new();
    let mut claims = Vec::new();
    for (key, heading, workload, zipf, column) in COLUMNS {
        let runs = outcomes.of(&job(scale, workload, zipf));
        for (number, name, unit, stated, metric) in NUMBERS {
            let claim: Claim = told(
                format!("fg_with_cache_table1.{key}.{number}"),
                format!("FG with a cache, {heading}: {name}"),
                stated(&column),
                mean(runs, metric),
                unit,
            );
            let what = [heading.to_owned(), format!("{name}, {unit}")];
            let numbers = [claim.paper, claim.measured, claim.factor()].map(cell);
            rows.push(what.into_iter().chain(numbers).collect());
            claims.push(claim);
        }
    }
    let panel = |title: &str, label: &str, stated: fn(&Column) -> f64, metric: Metric| {
        let ours = COLUMNS.iter().enumerate().map(|(x, &(_, _, workload, zipf, _))| {
            point(x as f64, outcomes.of(&job(scale, workload, zipf)), metric)
        });
        let theirs =
            COLUMNS.iter().enumerate().map(|(x, (_, _, _, _, column))| exact(x as f64, stated(column)));
        let headings = names("", COLUMNS.iter().map(|column| column.1));
        bars(
            title,
            headings,
            log_axis(label),
            vec![parts::series("model", ours), parts::paper_series("paper", theirs)],
        )
    };
    Figure {
        paper: "Table 1, §3.1.1",
        about: "FG is the design that Sherman starts from: locks in host memory, taken by CAS and released \
                by FAA, and whole leaves written back. Here it also caches internal nodes. Reads are fast \
                with any skew, and writes are fast without skew. With many writes to few keys the paper \
                sees throughput fall by a factor of fifty and the tail grow to 20 ms."
            .to_owned(),
        panels: vec![
            panel("Throughput", "Mops", |column| column.mops, parts::mops),
            panel("99th percentile of latency", "µs", |column| column.p99_us, parts::p99),
        ],
        tables: vec![parts::table(
            "FG with an index cache",
            &["workload", "what", "paper", "model", "factor"],
            rows,
        )],
        claims,
        ..Figure::default()
    }
}
