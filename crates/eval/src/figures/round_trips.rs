//! Round trips of writes (figure 14b, §5.5.2).

use super::internals::{self, job};
use super::model::Figure;
use super::paper::internals as paper;
use super::parts::{axis, exact, lines, log_axis, mean, paper_series, percentile, share, told};
use super::plan::{Outcomes, Scale, Source};
use crate::variant::Variant;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "round-trips", title: "Round trips of writes", draw };

/// The points of the distribution: every number at first, then in steps of about a quarter.
const LIMITS: [u64; 27] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200, 250, 320, 450, 640,
    1000,
];

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let mut series = internals::cumulative(scale, outcomes, |run| &run.write_round_trips, &LIMITS);
    // No write of FG+ takes fewer than four round trips, so the share at four equals the share up to four.
    series.push(paper_series(
        "fg+, paper",
        [exact(4.0, paper::FG_PLUS_SHARE_AT_4), exact(paper::FG_PLUS_P99, 0.99)],
    ));
    let up_to_3 = paper::SHERMAN_SHARE_AT_2 + paper::SHERMAN_SHARE_AT_3;
    series.push(paper_series(
        "sherman, paper",
        [exact(2.0, paper::SHERMAN_SHARE_AT_2), exact(3.0, up_to_3), exact(paper::SHERMAN_P99, 0.99)],
    ));
    let key = |name: &str| format!("internals_write_intensive_skew.write_round_trips.{name}");
    let at = |variant, trips| {
        mean(outcomes.of(&job(scale, variant)), |run| share(&run.write_round_trips, |number| number == trips))
    };
    let p99 = |variant| mean(outcomes.of(&job(scale, variant)), |run| percentile(&run.write_round_trips, 99));
    let (fg_plus, sherman) = (Variant::FgPlus, Variant::Sherman);
    Figure {
        paper: "Figure 14 (b), §5.5.2",
        about: "Write-intensive, zipf 0.99: the share of inserts and updates that take at most this many \
                round trips. Lock, read, write back and release are four. With write-back and release in \
                one list they are three, and a lock handover saves one more. Ours reads together with \
                taking the lock, and needs two. Every attempt at a lock that is held is one more round \
                trip, which causes the long tail of FG+."
            .to_owned(),
        panels: vec![lines(
            "Writes by round trips",
            log_axis("round trips"),
            axis("share of writes with at most this many"),
            series,
        )],
        claims: vec![
            told(
                key("fg_plus_share_at_4"),
                "fg+: share of writes with 4 round trips",
                paper::FG_PLUS_SHARE_AT_4,
                at(fg_plus, 4),
                "",
            ),
            told(
                key("sherman_share_at_3"),
                "sherman: share of writes with 3 round trips",
                paper::SHERMAN_SHARE_AT_3,
                at(sherman, 3),
                "",
            ),
            told(
                key("sherman_share_at_2"),
                "sherman: share of writes with 2 round trips",
                paper::SHERMAN_SHARE_AT_2,
                at(sherman, 2),
                "",
            ),
            told(
                key("fg_plus_p99"),
                "fg+: 99th percentile of round trips",
                paper::FG_PLUS_P99,
                p99(fg_plus),
                "trips",
            ),
            told(
                key("sherman_p99"),
                "sherman: 99th percentile of round trips",
                paper::SHERMAN_P99,
                p99(sherman),
                "trips",
            ),
        ],
        ..Figure::default()
    }
}
