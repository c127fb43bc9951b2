//! Range queries, alone and together with writes (figure 12, §5.3).

use super::model::{Figure, Panel};
use super::paper::range as paper;
use super::parts::{self, Metric, SKEW, axis, bars, judged, mean, names, point, series, tree};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, Measured, TreeJob};
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "range", title: "Range queries", draw };

const SIZES: [u64; 2] = [100, 1000];
const VARIANTS: [Variant; 3] = [Variant::FgPlus, Variant::Sherman, Variant::Ours];

fn job(scale: &Scale, variant: Variant, workload: Workload, range_size: u64) -> Job {
    Job::Tree(TreeJob { range_size, ..tree(scale, variant, workload, SKEW) })
}

/// The throughput of ranges alone, in millions per second.
fn range_mops(run: &Measured) -> f64 {
    run.range_mops
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let panel = |title: &str, mix: Workload, metric: Metric| -> Panel {
        let bar = |variant: Variant| {
            let runs = |size| outcomes.of(&job(scale, variant, mix, size));
            series(
                variant.name(),
                SIZES.iter().enumerate().map(|(x, &size)| point(x as f64, runs(size), metric)),
            )
        };
        bars(
            title,
            names("entries of a range", SIZES.map(|size| size.to_string())),
            axis("Mops"),
            VARIANTS.map(bar).into(),
        )
    };
    let of = |variant, mix, size, metric: Metric| mean(outcomes.of(&job(scale, variant, mix, size)), metric);
    let alone = |size| {
        let of = |variant| of(variant, Workload::RangeOnly, size, parts::mops);
        of(Variant::FgPlus) / of(Variant::Sherman)
    };
    let among_writes = |size| {
        let of = |variant| of(variant, Workload::RangeWrite, size, range_mops);
        of(Variant::Sherman) / of(Variant::FgPlus)
    };
    Figure {
        paper: "Figure 12, §5.3",
        about: "Ranges that begin at skewed keys, in two mixes: ranges alone, and ranges while every second \
                client only inserts. The second panel shows the rate of the ranges. Alone, Sherman pays a \
                little for leaves that are not sorted, and nothing where bandwidth is the limit. Among \
                writes it wins, because its writes leave more of the NIC to ranges."
            .to_owned(),
        panels: vec![
            panel("Range-only", Workload::RangeOnly, parts::mops),
            panel("Range-write: ranges", Workload::RangeWrite, range_mops),
        ],
        claims: vec![
            judged(
                "range.range_only_100_fg_plus_over_sherman",
                "range-only, 100 entries: throughput, fg+ over sherman",
                paper::RANGE_ONLY_100_FG_PLUS_OVER_SHERMAN,
                alone(100),
                "",
            ),
            judged(
                "range.range_only_1000_ratio",
                "range-only, 1000 entries: throughput, fg+ over sherman",
                paper::RANGE_ONLY_1000_RATIO,
                alone(1000),
                "",
            ),
            judged(
                "range.range_write_sherman_over_fg_plus_max",
                "range-write: ranges, sherman over fg+, the larger of both sizes",
                paper::RANGE_WRITE_SHERMAN_OVER_FG_PLUS_MAX,
                SIZES.into_iter().map(among_writes).fold(0.0, f64::max),
                "",
            ),
        ],
        ..Figure::default()
    }
}
