//! Bytes written per write operation (figure 14c, §5.5.3).

use super::internals::{self, job};
use super::model::Figure;
use super::paper::internals as paper;
use super::parts::{axis, exact, lines, log_axis, mean, paper_series, percentile, told};
use super::plan::{Outcomes, Scale, Source};
use crate::variant::Variant;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "write-bytes", title: "Bytes that writes write", draw };

/// The points of the distribution: at and just below every likely size.
const LIMITS: [u64; 15] = [8, 16, 17, 24, 32, 48, 64, 128, 256, 512, 1023, 1024, 2048, 4096, 8192];

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let mut series = internals::cumulative(scale, outcomes, |run| &run.write_bytes, &LIMITS);
    let without_split = exact(paper::SHERMAN_WITHOUT_SPLIT, 1.0 - paper::SPLIT_SHARE);
    series.push(paper_series("sherman, paper", [without_split]));
    let runs = outcomes.of(&job(scale, Variant::Sherman));
    Figure {
        paper: "Figure 14 (c), §5.5.3",
        about: "Write-intensive, zipf 0.99: the share of inserts and updates that write at most this many \
                bytes, without the release of the lock. FG+ writes the whole leaf. Sherman writes an entry \
                with its versions, 17 bytes. Ours writes the rest of the entry's line, 32 to 64 bytes. Only \
                a split, four in a thousand in the paper, writes more."
            .to_owned(),
        panels: vec![lines(
            "Writes by bytes",
            log_axis("bytes written"),
            axis("share of writes with at most this many"),
            series,
        )],
        claims: vec![
            told(
                "internals_write_intensive_skew.write_bytes.sherman_without_split",
                "sherman: bytes of a write without a split, the median",
                paper::SHERMAN_WITHOUT_SPLIT,
                mean(runs, |run| percentile(&run.write_bytes, 50)),
                "B",
            ),
            told(
                "internals_write_intensive_skew.write_bytes.split_share",
                "sherman: share of writes that split a node",
                paper::SPLIT_SHARE,
                mean(runs, |run| run.splits),
                "",
            ),
        ],
        ..Figure::default()
    }
}
