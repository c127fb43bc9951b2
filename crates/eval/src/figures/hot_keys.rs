//! Hot keys scattered and clustered (ours).

use super::model::Figure;
use super::paper::sherman_over_fg_plus as paper;
use super::parts::{self, Metric, SKEW, axis, bars, cell, log_axis, mean, names, point, series, table, tree};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, TreeJob};
use crate::keys::HotKeys;
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source =
    Source { name: "hot-keys", title: "Hot keys scattered and clustered", draw };

const VARIANTS: [Variant; 3] = [Variant::FgPlus, Variant::Sherman, Variant::Ours];
const PLACES: [HotKeys; 2] = [HotKeys::Scattered, HotKeys::Clustered];

fn job(scale: &Scale, variant: Variant, hot: HotKeys) -> Job {
    Job::Tree(TreeJob { hot, ..tree(scale, variant, Workload::WriteIntensive, SKEW) })
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let runs = |variant, hot| outcomes.of(&job(scale, variant, hot));
    let panel = |title: &str, y, metric: Metric| {
        let bar = |variant: Variant| {
            let at = |(x, hot): (usize, HotKeys)| point(x as f64, runs(variant, hot), metric);
            series(variant.name(), PLACES.into_iter().enumerate().map(at))
        };
        bars(title, names("hot keys", PLACES.map(HotKeys::name)), y, VARIANTS.map(bar).into())
    };
    let row = |variant: Variant| {
        let mops = |variant, hot| mean(runs(variant, hot), parts::mops);
        let rates = PLACES.map(|hot| mops(variant, hot));
        let gains = PLACES.map(|hot| mops(variant, hot) / mops(Variant::FgPlus, hot));
        let stated =
            if variant == Variant::Sherman { paper::SKEW_WRITE_INTENSIVE.throughput } else { f64::NAN };
        let numbers = [rates[0], rates[1], gains[0], gains[1], stated].map(cell);
        std::iter::once(variant.name().to_owned()).chain(numbers).collect()
    };
    let columns = [
        "system",
        "scattered, Mops",
        "clustered, Mops",
        "scattered, over fg+",
        "clustered, over fg+",
        "paper, over fg+",
    ];
    Figure {
        paper: "ours; the experiment of figure 10, §5.2.1",
        about: "Write-intensive, zipf 0.99. The paper does not say whether the most frequent keys are \
                neighbours. If they are scattered, each hot key has its own leaf. If they are clustered, \
                one leaf and one lock get a large part of all writes. All other figures scatter them, as \
                YCSB does."
            .to_owned(),
        panels: vec![
            panel("Throughput", log_axis("Mops"), parts::mops),
            panel("Median latency", axis("µs"), parts::p50),
            panel("99th percentile of latency", log_axis("µs"), parts::p99),
        ],
        tables: vec![table("Effect on throughput", &columns, VARIANTS.map(row).into())],
        ..Figure::default()
    }
}
