//! What each technique contributes, skewed (figure 10, §5.2.1).

use super::ablation::{self, STEPS, job};
use super::model::{Claim, Figure, Panel};
use super::paper::{ablation as steps, sherman_over_fg_plus as gains, table_1};
use super::parts::{
    self, SKEW, bars, exact, judged, log_axis, mean, names, over, paper_series, series, told,
};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::Job;
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source =
    Source { name: "ablation-skewed", title: "What each technique contributes: skewed", draw };

/// Returns the job of a step, write-intensive.
fn step(scale: &Scale, variant: Variant) -> Job {
    job(scale, variant, Workload::WriteIntensive, SKEW)
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let mut panels = ablation::panels(scale, outcomes, SKEW);
    panels.push(gains_panel(scale, outcomes));
    let mut claims = step_claims(scale, outcomes);
    let gain = |workload, key, paper| ablation::gain(scale, outcomes, (workload, SKEW), key, paper);
    claims.extend(gain(Workload::WriteOnly, "skew_write_only", gains::SKEW_WRITE_ONLY));
    claims.extend(gain(Workload::WriteIntensive, "skew_write_intensive", gains::SKEW_WRITE_INTENSIVE));
    claims.extend(read_intensive(scale, outcomes));
    claims.extend(absolutes(scale, outcomes));
    Figure {
        paper: "Figure 10, §5.2.1",
        about: "From FG+ (FG with a cache and locks released by WRITE) to Sherman, one technique at a time: \
                write-back and release in one list; locks in on-chip memory; local lock tables with queue \
                and handover; two-level versions, so that an entry is written back alone (sherman). 176 \
                clients draw keys with zipf 0.99, and hot keys are scattered. The paper finds that every \
                step but the last multiplies throughput and cuts the tail. The last step saves 0.4 µs of \
                the median, and a mix of reads gains little. Latencies are those of all operations. Ours is \
                this project's default: it takes the lock together with the READ, has a stamp in every \
                line, pauses between attempts at a lock, and writes records from which other clients repair \
                what a dead client left."
            .to_owned(),
        panels,
        claims,
        ..Figure::default()
    }
}

/// Throughput relative to FG+, next to the paper's: the product of its steps.
fn gains_panel(scale: &Scale, outcomes: &dyn Outcomes) -> Panel {
    let base = step(scale, Variant::FgPlus);
    let ours = STEPS
        .iter()
        .enumerate()
        .map(|(x, &(variant, _))| exact(x as f64, over(outcomes, &step(scale, variant), &base, parts::mops)));
    let theirs = steps::THROUGHPUT_STEP.iter().scan(1.0, |product, factor| {
        *product *= factor;
        Some(*product)
    });
    let theirs = theirs.enumerate().map(|(x, product)| exact(x as f64, product));
    bars(
        "Throughput over fg+, write-intensive",
        names("", STEPS.map(|(_, name)| name)),
        log_axis("times"),
        vec![series("model", ours), paper_series("paper", theirs)],
    )
}

/// Compares each step with the one before it.
fn step_claims(scale: &Scale, outcomes: &dyn Outcomes) -> Vec<Claim> {
    let key = |number: &str, name: &str| format!("ablation_write_intensive_skew.{number}.{name}");
    let mut claims = Vec::new();
    for at in 1..STEPS.len() {
        let ((before, old), (after, name)) = (STEPS[at - 1], STEPS[at]);
        let (before, after) = (step(scale, before), step(scale, after));
        claims.push(judged(
            key("throughput_step", name),
            format!("{name}: throughput over that of {old}"),
            steps::THROUGHPUT_STEP[at],
            over(outcomes, &after, &before, parts::mops),
            "",
        ));
        if let Some(paper) = steps::P50_STEP_DOWN[at] {
            let measured = over(outcomes, &before, &after, parts::p50);
            claims.push(told(
                key("p50_step_down", name),
                format!("{name}: median of {old} over this"),
                paper,
                measured,
                "",
            ));
        }
        if let Some(paper) = steps::P99_STEP_DOWN[at] {
            let measured = over(outcomes, &before, &after, parts::p99);
            let what = format!("{name}: 99th percentile of {old} over this");
            claims.push(told(key("p99_step_down", name), what, paper, measured, ""));
        }
    }
    for ((variant, name), paper) in
        [STEPS[3], STEPS[4]].into_iter().zip(steps::P50_US_BEFORE_AND_AFTER_2_LEVEL)
    {
        let measured = mean(outcomes.of(&step(scale, variant)), parts::p50);
        let key = key("p50_us_before_and_after_2_level", name);
        claims.push(told(key, format!("{name}: median"), paper, measured, "µs"));
    }
    claims
}

/// The small effect of the techniques on reads.
fn read_intensive(scale: &Scale, outcomes: &dyn Outcomes) -> [Claim; 4] {
    let runs = |variant| outcomes.of(&job(scale, variant, Workload::ReadIntensive, SKEW));
    let fg_plus = mean(runs(Variant::FgPlus), parts::p99);
    let combine = mean(runs(Variant::Combine), parts::p99);
    let up = mean(runs(Variant::Sherman), parts::p50) - mean(runs(Variant::FgPlus), parts::p50);
    let (paper, with) =
        (gains::SKEW_READ_INTENSIVE_P99_US_FG_PLUS, gains::SKEW_READ_INTENSIVE_P99_US_WITH_COMBINE);
    let key = |number: &str| format!("sherman_over_fg_plus.skew_read_intensive.{number}");
    let what = |what: &str| format!("skewed, read-intensive: {what}");
    [
        judged(
            key("p99_us_fg_plus/p99_us_with_combine"),
            what("99th percentile, fg+ over +combine"),
            paper / with,
            fg_plus / combine,
            "",
        ),
        told(key("p99_us_fg_plus"), what("99th percentile of fg+"), paper, fg_plus, "µs"),
        told(key("p99_us_with_combine"), what("99th percentile of +combine"), with, combine, "µs"),
        told(
            key("p50_up_us"),
            what("median, sherman above fg+"),
            gains::SKEW_READ_INTENSIVE_P50_UP_US,
            up,
            "µs",
        ),
    ]
}

/// Throughputs that the paper implies for this figure, but does not state.
fn absolutes(scale: &Scale, outcomes: &dyn Outcomes) -> [Claim; 2] {
    let runs = |variant| mean(outcomes.of(&step(scale, variant)), parts::mops);
    let fg_plus = table_1::WRITE_INTENSIVE_SKEW.mops;
    let sherman = fg_plus * gains::SKEW_WRITE_INTENSIVE.throughput;
    let key = |name: &str| format!("ablation_write_intensive_skew.implied.{name}");
    [
        told(
            key("fg_plus_mops"),
            "fg+, write-intensive: throughput, if as table 1 has it for FG with a cache",
            fg_plus,
            runs(Variant::FgPlus),
            "Mops",
        ),
        told(
            key("sherman_mops"),
            "sherman, write-intensive: throughput, if 23.6 times that",
            sherman,
            runs(Variant::Sherman),
            "Mops",
        ),
    ]
}
