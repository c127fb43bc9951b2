//! Locks in host memory against skew (figure 2, §3.2.2).

use super::model::Figure;
use super::paper::hocl;
use super::parts::{self, Metric, lines, log_axis, names, point, series};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, LockJob, LockKind};

/// The figure.
pub(super) const SOURCE: Source =
    Source { name: "lock-collapse", title: "RDMA locks collapse under contention", draw };

/// Seven compute servers, so that none shares the memory server's machine.
const COMPUTE: u16 = 7;
const SKEWS: [f64; 6] = [0.0, 0.5, 0.8, 0.9, 0.95, 0.99];
const KINDS: [(LockKind, &str); 4] = [
    (LockKind::HostFaa, "host memory, CAS and FAA"),
    (LockKind::Host, "host memory, CAS and WRITE"),
    (LockKind::OnChip, "on-chip memory"),
    (LockKind::Handover, "HOCL"),
];

fn job(scale: &Scale, kind: LockKind, zipf: f64) -> Job {
    Job::Locks(LockJob { zipf, compute: COMPUTE, ..parts::locks(scale, kind) })
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let panel = |title: &str, label: &str, metric: Metric| {
        let curve = |&(kind, name): &(LockKind, &str)| {
            let runs = |zipf| outcomes.of(&job(scale, kind, zipf));
            series(name, SKEWS.iter().enumerate().map(|(x, &zipf)| point(x as f64, runs(zipf), metric)))
        };
        let skews = names("skew (zipf)", SKEWS.map(|zipf| zipf.to_string()));
        lines(title, skews, log_axis(label), KINDS.iter().map(curve).collect())
    };
    Figure {
        paper: "Figure 2, §3.2.2",
        about: format!(
            "{} threads on {COMPUTE} compute servers take and release {} locks of one memory server, as \
             fast as they can. The paper plots locks in host memory that are taken by CAS and released by \
             FAA. It says that they collapse as skew grows. Its text gives no number, so there is none to \
             compare. The other three curves are our addition: they show what each part of the remedy does \
             to the same experiment.",
            COMPUTE * (hocl::THREADS / hocl::COMPUTE_SERVERS),
            hocl::LOCKS
        ),
        panels: vec![
            panel("Throughput", "Mops", parts::mops),
            panel("Median latency", "µs", parts::p50),
            panel("99th percentile of latency", "µs", parts::p99),
        ],
        ..Figure::default()
    }
}
