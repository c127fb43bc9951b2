//! Experiments on locks alone, technique by technique (figure 16, §5.7).

use super::model::{Claim, Figure, Panel, Point};
use super::paper::hocl as paper;
use super::parts::{
    self, Metric, axis, bars, exact, judged, log_axis, names, over, paper_series, point, series,
};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, LockKind};

/// The figure.
pub(super) const SOURCE: Source = Source { name: "hocl", title: "HOCL, part by part", draw };

const KINDS: [(LockKind, &str); 5] = [
    (LockKind::Host, "host memory"),
    (LockKind::OnChip, "+on-chip"),
    (LockKind::Hierarchical, "+hierarchical"),
    (LockKind::Queue, "+wait-queue"),
    (LockKind::Handover, "+handover"),
];

fn job(scale: &Scale, kind: LockKind) -> Job {
    Job::Locks(parts::locks(scale, kind))
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let ours = |metric: Metric| {
        let bar =
            |(x, (kind, _)): (usize, (LockKind, _))| point(x as f64, outcomes.of(&job(scale, kind)), metric);
        series("model", KINDS.into_iter().enumerate().map(bar))
    };
    let panel =
        |title: &str, y, series| -> Panel { bars(title, names("", KINDS.map(|(_, name)| name)), y, series) };
    Figure {
        paper: "Figure 16, §5.7",
        about: "176 threads on 8 compute servers take and release 10,240 locks of one memory server, drawn \
                with zipf 0.99. The steps lead from locks in host memory, taken by CAS and released by \
                WRITE, to the complete hierarchical on-chip lock. On-chip memory makes an atomic verb \
                cheap. Local lock tables keep threads of one server from competing for it. Queues make the \
                competition fair, and a handover needs no atomic verb. The throughput of the step to \
                on-chip memory was used to set a parameter of the model. The paper's text states two of its \
                bars, both of the 99th percentile. The others are computed from these with the factors in \
                the text."
            .to_owned(),
        panels: vec![
            panel("Throughput", log_axis("Mops"), vec![ours(parts::mops)]),
            panel("Throughput over the step before", axis("times"), steps(scale, outcomes)),
            panel("Median latency", log_axis("µs"), vec![ours(parts::p50)]),
            panel(
                "99th percentile of latency",
                log_axis("µs"),
                vec![ours(parts::p99), paper_series("paper", paper_p99())],
            ),
        ],
        claims: claims(scale, outcomes),
        ..Figure::default()
    }
}

/// The throughput of each step relative to the one before it. The paper states none for queues.
fn steps(scale: &Scale, outcomes: &dyn Outcomes) -> Vec<super::model::Series> {
    let step =
        |at: usize| over(outcomes, &job(scale, KINDS[at].0), &job(scale, KINDS[at - 1].0), parts::mops);
    let theirs = [
        (1.0, paper::ON_CHIP_THROUGHPUT),
        (2.0, paper::HIERARCHICAL_THROUGHPUT),
        (4.0, paper::HANDOVER_THROUGHPUT),
    ];
    vec![
        series("model", (1..KINDS.len()).map(|at| exact(at as f64, step(at)))),
        paper_series("paper", theirs.map(|(x, factor)| exact(x, factor))),
    ]
}

/// The paper's 99th percentiles. The paper states those before and after queues; the others follow from its
/// factors.
fn paper_p99() -> [Point; 5] {
    let (before, after) = (paper::WAIT_QUEUE_P99_US_BEFORE, paper::WAIT_QUEUE_P99_US_AFTER);
    let on_chip = before * paper::HIERARCHICAL_P99_DOWN;
    let all = [on_chip * paper::ON_CHIP_P99_DOWN, on_chip, before, after, after / paper::HANDOVER_P99_DOWN];
    let mut x = -1.0;
    all.map(|y| {
        x += 1.0;
        exact(x, y)
    })
}

fn claims(scale: &Scale, outcomes: &dyn Outcomes) -> Vec<Claim> {
    use LockKind::{Handover, Hierarchical, Host, OnChip, Queue};
    let up = |kind, before| over(outcomes, &job(scale, kind), &job(scale, before), parts::mops);
    let down = |kind, before, metric: Metric| over(outcomes, &job(scale, before), &job(scale, kind), metric);
    let claim = |key: &str, what: &str, paper, measured| {
        judged(format!("hocl_micro.{key}"), what, paper, measured, "")
    };
    vec![
        claim(
            "on_chip.throughput",
            "+on-chip: throughput (the model was set by this)",
            paper::ON_CHIP_THROUGHPUT,
            up(OnChip, Host),
        ),
        claim(
            "on_chip.p50_down",
            "+on-chip: median down",
            paper::ON_CHIP_P50_DOWN,
            down(OnChip, Host, parts::p50),
        ),
        claim(
            "on_chip.p99_down",
            "+on-chip: 99th percentile down",
            paper::ON_CHIP_P99_DOWN,
            down(OnChip, Host, parts::p99),
        ),
        claim(
            "hierarchical.throughput",
            "+hierarchical: throughput (the model was set by this)",
            paper::HIERARCHICAL_THROUGHPUT,
            up(Hierarchical, OnChip),
        ),
        claim(
            "hierarchical.p50_down",
            "+hierarchical: median down",
            paper::HIERARCHICAL_P50_DOWN,
            down(Hierarchical, OnChip, parts::p50),
        ),
        claim(
            "hierarchical.p99_down",
            "+hierarchical: 99th percentile down",
            paper::HIERARCHICAL_P99_DOWN,
            down(Hierarchical, OnChip, parts::p99),
        ),
        claim(
            "wait_queue.p99_us_before/p99_us_after",
            "+wait-queue: 99th percentile down",
            paper::WAIT_QUEUE_P99_US_BEFORE / paper::WAIT_QUEUE_P99_US_AFTER,
            down(Queue, Hierarchical, parts::p99),
        ),
        claim(
            "handover.throughput",
            "+handover: throughput",
            paper::HANDOVER_THROUGHPUT,
            up(Handover, Queue),
        ),
        claim(
            "handover.p99_down",
            "+handover: 99th percentile down",
            paper::HANDOVER_P99_DOWN,
            down(Handover, Queue, parts::p99),
        ),
    ]
}
