//! Shared by the three figures of internal metrics: the write-intensive, skewed runs, and the drawing of
//! histograms (§5.5).

use super::model::{Point, Series};
use super::parts::{SKEW, point, series, share, tree};
use super::plan::{Outcomes, Scale};
use crate::experiment::{Job, Measured};
use crate::variant::Variant;
use crate::workload::Workload;

/// The systems.
pub(super) const VARIANTS: [Variant; 3] = [Variant::FgPlus, Variant::Sherman, Variant::Ours];

/// Selects a histogram of a run.
pub(super) type Histogram = fn(&Measured) -> &[(u64, u64)];

/// Returns the experiment of a system: the same as in the figure of contributions.
pub(super) fn job(scale: &Scale, variant: Variant) -> Job {
    Job::Tree(tree(scale, variant, Workload::WriteIntensive, SKEW))
}

/// Returns for every system the share of operations that `within` accepts, at each `x`. Omits shares of zero,
/// which a logarithmic axis cannot show.
pub(super) fn shares(
    scale: &Scale,
    outcomes: &dyn Outcomes,
    histogram: Histogram,
    at: &[(f64, u64, u64)],
) -> Vec<Series> {
    let of = |variant: Variant| {
        let runs = outcomes.of(&job(scale, variant));
        let point = |&(x, from, to): &(f64, u64, u64)| {
            point(x, runs, |run| share(histogram(run), |value| (from..=to).contains(&value)))
        };
        series(variant.name(), at.iter().map(point).filter(|point: &Point| point.y > 0.0))
    };
    VARIANTS.map(of).into()
}

/// Returns for every system the share of operations with at most this value, at each of `limits`.
pub(super) fn cumulative(
    scale: &Scale,
    outcomes: &dyn Outcomes,
    histogram: Histogram,
    limits: &[u64],
) -> Vec<Series> {
    let at: Vec<_> = limits.iter().map(|&limit| (limit as f64, 0, limit)).collect();
    shares(scale, outcomes, histogram, &at)
}
