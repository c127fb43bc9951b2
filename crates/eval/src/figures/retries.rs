//! How often lookups read again (figure 14a, §5.5.1).

use super::internals::{self, job};
use super::model::Figure;
use super::paper::internals::LOOKUPS_WITHOUT_RETRY;
use super::parts::{bars, exact, log_axis, mean, names, paper_series, share, told};
use super::plan::{Outcomes, Scale, Source};
use crate::variant::Variant;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "retries", title: "Lookups that read again", draw };

/// The ranges of retry counts that are grouped.
const GROUPS: [(&str, u64, u64); 6] =
    [("0", 0, 0), ("1", 1, 1), ("2", 2, 2), ("3", 3, 3), ("4 to 8", 4, 8), ("9 or more", 9, u64::MAX)];

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let groups: Vec<_> = GROUPS.iter().enumerate().map(|(x, &(_, from, to))| (x as f64, from, to)).collect();
    let mut series = internals::shares(scale, outcomes, |run| &run.read_retries, &groups);
    series.push(paper_series("fg+ and sherman, paper", [exact(0.0, LOOKUPS_WITHOUT_RETRY)]));
    let claim = |variant: Variant| {
        told(
            format!("internals_write_intensive_skew.lookups_without_retry.{}", variant.name()),
            format!("{}: share of lookups without a second READ", variant.name()),
            LOOKUPS_WITHOUT_RETRY,
            mean(outcomes.of(&job(scale, variant)), |run| share(&run.read_retries, |retries| retries == 0)),
            "",
        )
    };
    Figure {
        paper: "Figure 14 (a), §5.5.1",
        about: "Write-intensive, zipf 0.99. A lookup takes no lock. If the leaf was written while the \
                lookup read it, the lookup reads again. The paper finds that this almost never happens. \
                FG+, which writes whole leaves, sometimes needs many attempts."
            .to_owned(),
        panels: vec![bars(
            "Lookups by number of retries",
            names("retries", GROUPS.map(|(name, _, _)| name)),
            log_axis("share of lookups"),
            series,
        )],
        claims: [Variant::FgPlus, Variant::Sherman].map(claim).into(),
        ..Figure::default()
    }
}
