//! The steps from the paper's system to this project's defaults, and the defaults without one technique
//! (ours).

use super::model::Figure;
use super::parts::{self, Metric, SKEW, UNIFORM, cell, mean, table, tree};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, TreeJob};
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "steps", title: "From the paper's system to ours", draw };

/// The steps. Each contains the ones before it.
const STEPS: [Variant; 6] = [
    Variant::Sherman,
    Variant::Stamped,
    Variant::Lines,
    Variant::Combining,
    Variant::SharedReads,
    Variant::Fair,
];

/// The defaults, and the defaults without one technique.
const ONE_OFF: [Variant; 5] = [
    Variant::Ours,
    Variant::OursNoLines,
    Variant::OursNoCombining,
    Variant::OursNoSharedReads,
    Variant::OursNoFair,
];

/// A column of the tables: its heading, workload, skew and clients on each thread.
type Column = (&'static str, Workload, f64, u16);

/// The columns.
const COLUMNS: [Column; 6] = [
    ("write-intensive, skewed", Workload::WriteIntensive, SKEW, 1),
    ("the same, 8 coroutines", Workload::WriteIntensive, SKEW, 8),
    ("read-only, skewed, 8 coroutines", Workload::ReadOnly, SKEW, 8),
    ("write-intensive, uniform, 8 coroutines", Workload::WriteIntensive, UNIFORM, 8),
    ("read-only, uniform, 8 coroutines", Workload::ReadOnly, UNIFORM, 8),
    ("ranges, uniform", Workload::RangeOnly, UNIFORM, 1),
];

/// Returns one row for each variant: its name and a number for each column.
fn rows(scale: &Scale, outcomes: &dyn Outcomes, variants: &[Variant], metric: Metric) -> Vec<Vec<String>> {
    let of = |variant, (_, workload, zipf, coroutines): Column| {
        let job = TreeJob { coroutines, ..tree(scale, variant, workload, zipf) };
        cell(mean(outcomes.of(&Job::Tree(job)), metric))
    };
    let row = |&variant: &Variant| {
        std::iter::once(variant.name().to_owned()).chain(COLUMNS.map(|column| of(variant, column))).collect()
    };
    variants.iter().map(row).collect()
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let headings: Vec<&str> =
        std::iter::once("variant").chain(COLUMNS.iter().map(|(heading, ..)| *heading)).collect();
    let part = |title: &str, variants: &[Variant], metric: Metric| {
        table(title, &headings, rows(scale, outcomes, variants, metric))
    };
    Figure {
        paper: "ours",
        about: "Each step from the paper's system to the defaults contains the ones before it. The other \
                tables take one technique at a time away from the defaults. Without lines, changes are not \
                combined and READs are not shared, because both work on lines."
            .to_owned(),
        tables: vec![
            part("Steps: throughput, Mops", &STEPS, parts::mops),
            part("Steps: 99th percentile of latency, µs", &STEPS, parts::p99),
            part("One technique off: throughput, Mops", &ONE_OFF, parts::mops),
            part("One technique off: 99th percentile of latency, µs", &ONE_OFF, parts::p99),
        ],
        ..Figure::default()
    }
}
