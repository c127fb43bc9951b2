//! Index caches of several sizes (figure 15c, §5.6.2).

use super::model::Figure;
use super::paper::sensitivity as paper;
use super::parts::{
    self, Metric, UNIFORM, axis, cache_share, exact, judged, lines, mean, paper_series, point, series, tree,
};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, Measured, TreeJob};
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "cache-size", title: "Size of the index cache", draw };

const MEGABYTES: [u64; 6] = [100, 200, 300, 400, 500, 600];
const STATED: u64 = paper::INDEX_CACHE_BYTES >> 20;
const VARIANTS: [Variant; 2] = [Variant::Sherman, Variant::Ours];

fn job(scale: &Scale, variant: Variant, megabytes: u64) -> Job {
    // Only the part of the index that fits matters, so this figure has no minimum cache size, unlike the
    // others.
    let cache_bytes = cache_share(scale, megabytes << 20);
    Job::Tree(TreeJob {
        cache_bytes,
        fill_cache: true,
        ..tree(scale, variant, Workload::WriteIntensive, UNIFORM)
    })
}

/// The share of descents that hit the cache.
fn hit_ratio(run: &Measured) -> f64 {
    run.hit_ratio
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let curves = |metric: Metric| {
        let curve = |variant: Variant| {
            let at =
                |megabytes| point(megabytes as f64, outcomes.of(&job(scale, variant, megabytes)), metric);
            series(variant.name(), MEGABYTES.map(at))
        };
        VARIANTS.map(curve).to_vec()
    };
    let mut hits = curves(hit_ratio);
    hits.push(paper_series("sherman, paper", [exact(STATED as f64, paper::INDEX_CACHE_HIT_RATIO)]));
    let size = || axis("MB of index cache for 1000 million entries");
    Figure {
        paper: "Figure 15 (c), §5.6.2",
        about: "Write-intensive, uniform. A descent that finds the leaf's parent in the cache needs no \
                round trip for it. Any other descent reads the parent first. Sizes are those of the paper \
                for its 1000 million entries; with fewer entries the cache is smaller in proportion. The \
                paper has a hit ratio of about 0.98 with 400 MB."
            .to_owned(),
        panels: vec![
            lines("Throughput", size(), axis("Mops"), curves(parts::mops)),
            lines("Hit ratio", size(), axis("share of descents"), hits),
        ],
        claims: vec![judged(
            "sensitivity.index_cache.hit_ratio",
            format!("sherman, {STATED} MB: hit ratio"),
            paper::INDEX_CACHE_HIT_RATIO,
            mean(outcomes.of(&job(scale, Variant::Sherman, STATED)), hit_ratio),
            "",
        )],
        ..Figure::default()
    }
}
