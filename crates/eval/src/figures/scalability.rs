//! More clients (figure 13, §5.4).

use super::model::{Claim, Figure, Series};
use super::paper::{scalability as paper, setup};
use super::parts::{
    self, SKEW, UNIFORM, axis, exact, judged, lines, mean, mops, paper_series, point, series, told, tree,
};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, TreeJob};
use crate::variant::Variant;
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "scalability", title: "More clients", draw };

const VARIANTS: [Variant; 3] = [Variant::FgPlus, Variant::Sherman, Variant::Ours];
const SKEWS: [(f64, &str); 3] = [(UNIFORM, "uniform"), (0.9, "zipf 0.90"), (SKEW, "zipf 0.99")];
/// Threads per compute server, and coroutines per thread: first up to all cores, then several clients per
/// core.
const CLIENTS: [(u16, u16); 6] = [(2, 1), (5, 1), (11, 1), (22, 1), (22, 2), (22, 3)];

/// Returns the number of clients of all compute servers.
fn clients((threads, coroutines): (u16, u16)) -> f64 {
    f64::from(setup::COMPUTE_SERVERS) * f64::from(threads) * f64::from(coroutines)
}

fn job(scale: &Scale, variant: Variant, zipf: f64, (threads, coroutines): (u16, u16)) -> Job {
    Job::Tree(TreeJob { threads, coroutines, ..tree(scale, variant, Workload::WriteIntensive, zipf) })
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let at = |variant, zipf, number| outcomes.of(&job(scale, variant, zipf, number));
    let curve = |variant: Variant, zipf| {
        series(variant.name(), CLIENTS.map(|number| point(clients(number), at(variant, zipf, number), mops)))
    };
    let panel = |(zipf, title): (f64, &str)| {
        let mut curves: Vec<Series> = VARIANTS.map(|variant| curve(variant, zipf)).into();
        if zipf == UNIFORM {
            let (x, sherman) = (paper::CLIENTS_MAX as f64, paper::UNIFORM_SHERMAN_MOPS);
            curves.push(paper_series("fg+, paper", [exact(x, sherman / paper::UNIFORM_OVER_FG_PLUS)]));
            curves.push(paper_series("sherman, paper", [exact(x, sherman)]));
        }
        lines(title, axis("clients"), axis("Mops"), curves)
    };
    Figure {
        paper: "Figure 13, §5.4",
        about: "Write-intensive, from 16 to 528 clients. Up to 176 clients each have a core; beyond that, \
                two or three share one as coroutines. Without skew both systems grow with their clients. \
                With skew Sherman reaches a peak and stays there. FG+ reaches a lower peak and then falls, \
                because more clients only add failed attempts at the same locks. The paper states \
                throughputs at the peaks, but not the numbers of clients that reach them."
            .to_owned(),
        panels: SKEWS.map(panel).into(),
        claims: claims(&|variant, zipf| CLIENTS.map(|number| mean(at(variant, zipf, number), parts::mops))),
        ..Figure::default()
    }
}

/// Returns the claims about curves of throughput by number of clients.
fn claims(curve: &dyn Fn(Variant, f64) -> [f64; CLIENTS.len()]) -> Vec<Claim> {
    let last = |variant, zipf| curve(variant, zipf)[CLIENTS.len() - 1];
    let peak = |variant, zipf| curve(variant, zipf).into_iter().fold(0.0, f64::max);
    let key = |name: &str| format!("scalability_write_intensive.{name}");
    let (sherman, fg_plus) = (Variant::Sherman, Variant::FgPlus);
    let mut claims = vec![
        judged(
            key("uniform.sherman_mops"),
            "uniform, 528 clients: throughput of sherman",
            paper::UNIFORM_SHERMAN_MOPS,
            last(sherman, UNIFORM),
            "Mops",
        ),
        judged(
            key("uniform.over_fg_plus"),
            "uniform, 528 clients: throughput, sherman over fg+",
            paper::UNIFORM_OVER_FG_PLUS,
            last(sherman, UNIFORM) / last(fg_plus, UNIFORM),
            "",
        ),
    ];
    for (zipf, name, mops, ratio) in [
        (0.9, "zipf_0.90", paper::ZIPF_090_SHERMAN_PEAK_MOPS, paper::ZIPF_090_OVER_FG_PLUS_PEAK),
        (SKEW, "zipf_0.99", paper::ZIPF_099_SHERMAN_PEAK_MOPS, paper::ZIPF_099_OVER_FG_PLUS_PEAK),
    ] {
        claims.push(judged(
            key(&format!("{name}.sherman_peak_mops")),
            format!("zipf {zipf:.2}: peak of sherman"),
            mops,
            peak(sherman, zipf),
            "Mops",
        ));
        claims.push(judged(
            key(&format!("{name}.over_fg_plus_peak")),
            format!("zipf {zipf:.2}: peak of sherman over peak of fg+"),
            ratio,
            peak(sherman, zipf) / peak(fg_plus, zipf),
            "",
        ));
    }
    // The paper says that FG+ collapses, not by how much. Half of the peak is the limit here.
    let share = last(fg_plus, SKEW) / peak(fg_plus, SKEW);
    claims.push(told(
        key("zipf_0.99.fg_plus_collapses_with_more_clients"),
        format!(
            "zipf 0.99: whether 528 clients of fg+ stay below half of its peak; here {} of it",
            parts::cell(share)
        ),
        f64::from(u8::from(paper::ZIPF_099_FG_PLUS_COLLAPSES_WITH_MORE_CLIENTS)),
        f64::from(u8::from(share < 0.5)),
        "",
    ));
    claims
}
