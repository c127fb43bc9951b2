//! What each technique contributes, uniform (figure 11, §5.2.2).

use super::ablation;
use super::model::Figure;
use super::paper::sherman_over_fg_plus as gains;
use super::parts::UNIFORM;
use super::plan::{Outcomes, Scale, Source};
use crate::workload::Workload;

/// The figure.
pub(super) const SOURCE: Source =
    Source { name: "ablation-uniform", title: "What each technique contributes: uniform", draw };

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let gain = |workload, key, paper| ablation::gain(scale, outcomes, (workload, UNIFORM), key, paper);
    let write_only = gain(Workload::WriteOnly, "uniform_write_only", gains::UNIFORM_WRITE_ONLY);
    let write_intensive =
        gain(Workload::WriteIntensive, "uniform_write_intensive", gains::UNIFORM_WRITE_INTENSIVE);
    Figure {
        paper: "Figure 11, §5.2.2",
        about: "The same steps where all keys are equally likely, so that clients seldom compete. The \
                remaining gain comes from one round trip less per write and from small write-backs. Locks \
                are nearly always free, wherever they are."
            .to_owned(),
        panels: ablation::panels(scale, outcomes, UNIFORM),
        claims: write_only.into_iter().chain(write_intensive).collect(),
        ..Figure::default()
    }
}
