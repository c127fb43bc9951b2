//! WRITEs of all sizes (figure 3, §3.2.3).

use super::model::Figure;
use super::paper::nic;
use super::parts::{self, axis, lines, log_axis, mean, mops, point, series, told};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Direction, Job, Measured, WriteJob};
use sherman_sim::nic::Params;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "write-size", title: "A NIC prefers small WRITEs", draw };

const SIZES: [u32; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const DIRECTIONS: [(Direction, &str); 2] =
    [(Direction::Inbound, "inbound"), (Direction::Outbound, "outbound")];
/// From this share of the link on, WRITEs count as bound by bandwidth.
const BOUND: f64 = 0.8;

fn job(scale: &Scale, direction: Direction, bytes: u32) -> Job {
    Job::Writes(WriteJob { bytes, direction, operations: scale.operations, params: Params::PAPER })
}

/// Returns the payload rate in bits per nanosecond.
fn gbps(run: &Measured, bytes: u32) -> f64 {
    run.mops * f64::from(bytes) * 8.0 / 1000.0
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let runs = |direction, bytes| outcomes.of(&job(scale, direction, bytes));
    let curves = |metric: fn(&Measured, u32) -> f64| {
        let curve = |&(direction, name): &(Direction, &str)| {
            let at = |&bytes: &u32| point(f64::from(bytes), runs(direction, bytes), |run| metric(run, bytes));
            series(name, SIZES.iter().map(at))
        };
        DIRECTIONS.iter().map(curve).collect::<Vec<_>>()
    };
    let mut claims = Vec::new();
    for (direction, name) in DIRECTIONS {
        claims.push(told(
            format!("nic.write_mops_at_or_below_128B.{name}"),
            format!("{name} WRITEs of 128 bytes: rate (a lower bound in the paper)"),
            nic::WRITE_MOPS_AT_OR_BELOW_128B,
            mean(runs(direction, 128), mops),
            "Mops",
        ));
        let full =
            |&&bytes: &&u32| mean(runs(direction, bytes), |run| gbps(run, bytes)) >= BOUND * nic::LINK_GBPS;
        claims.push(told(
            format!("nic.write_bandwidth_bound_from_bytes.{name}"),
            format!("{name} WRITEs that fill four fifths of the link: the smallest"),
            nic::WRITE_BANDWIDTH_BOUND_FROM_BYTES,
            SIZES.iter().find(full).map_or(f64::INFINITY, |&bytes| f64::from(bytes)),
            "B",
        ));
    }
    let bytes = || log_axis("bytes of a WRITE");
    Figure {
        paper: "Figure 3, §3.2.3",
        about: "Seven machines write to one (inbound), and one machine writes to seven (outbound), as fast \
                as they can. The paper has more than 50 million a second up to 128 bytes. From 256 bytes \
                on, the bandwidth of the link is the limit. So the write-back of a whole leaf takes several \
                times the NIC time of an entry."
            .to_owned(),
        panels: vec![
            lines("Rate", bytes(), axis("Mops"), curves(|run, _| parts::mops(run))),
            lines("Payload", bytes(), axis("Gbit/s"), curves(gbps)),
        ],
        claims,
        ..Figure::default()
    }
}
