//! Shared by the two figures of contributions: three mixes, each with one technique after another added
//! (§5.2).

use super::model::{Claim, Panel};
use super::paper::sherman_over_fg_plus::Gain;
use super::parts::{self, Metric, axis, bars, judged, log_axis, names, over, point, series, tree};
use super::plan::{Outcomes, Scale};
use crate::experiment::Job;
use crate::variant::Variant;
use crate::workload::Workload;

/// The paper's mixes without ranges.
const MIXES: [Workload; 3] = [Workload::WriteOnly, Workload::WriteIntensive, Workload::ReadIntensive];
/// FG+, the paper's steps, and ours. `Sherman` is the step that the paper calls +2-level-ver.
const VARIANTS: [Variant; 6] = [
    Variant::FgPlus,
    Variant::Combine,
    Variant::OnChip,
    Variant::Hierarchical,
    Variant::Sherman,
    Variant::Ours,
];
/// The paper's steps, with its names for them.
pub(super) const STEPS: [(Variant, &str); 5] = [
    (Variant::FgPlus, "fg+"),
    (Variant::Combine, "+combine"),
    (Variant::OnChip, "+on-chip"),
    (Variant::Hierarchical, "+hierarchical"),
    (Variant::Sherman, "+2-level-ver"),
];

/// Returns the job of one bar.
pub(super) fn job(scale: &Scale, variant: Variant, workload: Workload, zipf: f64) -> Job {
    Job::Tree(tree(scale, variant, workload, zipf))
}

/// Returns the panels: throughput, median and 99th percentile.
pub(super) fn panels(scale: &Scale, outcomes: &dyn Outcomes, zipf: f64) -> Vec<Panel> {
    let panel = |title: &str, y, metric: Metric| {
        let bar = |variant: Variant| {
            let runs = |mix| outcomes.of(&job(scale, variant, mix, zipf));
            series(
                variant.name(),
                MIXES.iter().enumerate().map(|(x, &mix)| point(x as f64, runs(mix), metric)),
            )
        };
        bars(title, names("", MIXES.map(Workload::name)), y, VARIANTS.map(bar).into())
    };
    vec![
        panel("Throughput", axis("Mops"), parts::mops),
        panel("Median latency", axis("µs"), parts::p50),
        panel("99th percentile of latency", log_axis("µs"), parts::p99),
    ]
}

/// Compares Sherman with FG+ for one mix, with the paper's numbers. `key` is the mix's key in the list of the
/// paper's numbers.
pub(super) fn gain(
    scale: &Scale,
    outcomes: &dyn Outcomes,
    (workload, zipf): (Workload, f64),
    key: &str,
    paper: Gain,
) -> [Claim; 3] {
    let sherman = job(scale, Variant::Sherman, workload, zipf);
    let fg_plus = job(scale, Variant::FgPlus, workload, zipf);
    let skew = if zipf > 0.0 { "skewed" } else { "uniform" };
    let claim = |number: &str, what: &str, paper, measured| {
        let key = format!("sherman_over_fg_plus.{key}.{number}");
        judged(key, format!("{skew}, {}: {what}", workload.name()), paper, measured, "")
    };
    [
        claim(
            "throughput",
            "throughput, sherman over fg+",
            paper.throughput,
            over(outcomes, &sherman, &fg_plus, parts::mops),
        ),
        claim(
            "p50_down",
            "median, fg+ over sherman",
            paper.p50_down,
            over(outcomes, &fg_plus, &sherman, parts::p50),
        ),
        claim(
            "p99_down",
            "99th percentile, fg+ over sherman",
            paper.p99_down,
            over(outcomes, &fg_plus, &sherman, parts::p99),
        ),
    ]
}
