//! How a change of each parameter of the model by a quarter affects the results (ours).

use super::model::Figure;
use super::parts::{self, Metric, SKEW, UNIFORM, cell, mean, table, tree};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, LockJob, LockKind, TreeJob};
use crate::variant::Variant;
use crate::workload::Workload;
use sherman_sim::nic::Params;

/// The figure.
pub(super) const SOURCE: Source =
    Source { name: "sensitivity", title: "How much each parameter of the model matters", draw };

/// A parameter of the model: its name, and the field.
type Field = (&'static str, fn(&mut Params) -> &mut u64);

/// Small integers, for which a quarter rounds to nothing: they change by one.
const BY_ONE: [&str; 3] = ["bucket_bits", "atomic_transactions", "failed_cas_transactions"];

/// Returns the value of a parameter, and both changed values if they are valid. Zero is not valid, for
/// example zero transactions.
fn values((name, field): Field) -> (u64, [Option<u64>; 2]) {
    let value = *field(&mut Params::PAPER.clone());
    let (less, more) = if BY_ONE.contains(&name) {
        (value.saturating_sub(1), value + 1)
    } else {
        ((value * 3 + 2) / 4, (value * 5 + 2) / 4)
    };
    (value, [less, more].map(|changed| (changed > 0 && changed != value).then_some(changed)))
}

/// Returns the model with one parameter changed.
fn with((_, field): Field, value: u64) -> Params {
    let mut params = Params::PAPER;
    *field(&mut params) = value;
    params
}

/// The experiments that are repeated with every change.
struct Set {
    fg_plus: Job,
    sherman: Job,
    uniform: Job,
    host: Job,
    on_chip: Job,
}

impl Set {
    fn new(scale: &Scale, params: Params) -> Self {
        let scale = Scale { keys: Scale::quick(scale.seed).keys, operations: scale.operations / 4, ..*scale };
        let tree = |variant, zipf| {
            Job::Tree(TreeJob { params, ..tree(&scale, variant, Workload::WriteIntensive, zipf) })
        };
        let locks = |kind| Job::Locks(LockJob { params, ..parts::locks(&scale, kind) });
        Self {
            fg_plus: tree(Variant::FgPlus, SKEW),
            sherman: tree(Variant::Sherman, SKEW),
            uniform: tree(Variant::Sherman, UNIFORM),
            host: locks(LockKind::Host),
            on_chip: locks(LockKind::OnChip),
        }
    }

    /// Returns the results in the order of [`RESULTS`].
    fn results(&self, outcomes: &dyn Outcomes) -> [f64; RESULTS.len()] {
        let mops = |job| mean(outcomes.of(job), parts::mops as Metric);
        let (fg_plus, sherman) = (mops(&self.fg_plus), mops(&self.sherman));
        [fg_plus, sherman, sherman / fg_plus, mops(&self.uniform), mops(&self.on_chip) / mops(&self.host)]
    }
}

/// The names of the results.
const RESULTS: [&str; 5] = [
    "fg+, skewed, Mops",
    "sherman, skewed, Mops",
    "sherman over fg+, skewed",
    "sherman, uniform, Mops",
    "locks: on-chip over host",
];

/// Formats a change in percent, with its sign.
fn percent(changed: f64, base: f64) -> String {
    let change = (changed / base - 1.0) * 100.0;
    match change {
        _ if !change.is_finite() => "–".to_owned(),
        _ if change.abs() < 0.05 => "0".to_owned(),
        _ => format!("{change:+.1}"),
    }
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let base = Set::new(scale, Params::PAPER).results(outcomes);
    let mut rows = Vec::new();
    for field in Params::FIELDS {
        let (value, changed) = values(field);
        for changed in changed.into_iter().flatten() {
            let results = Set::new(scale, with(field, changed)).results(outcomes);
            let changes = results.into_iter().zip(base).map(|(changed, base)| percent(changed, base));
            let what = [field.0.to_owned(), format!("{value} → {changed}")];
            rows.push(what.into_iter().chain(changes).collect());
        }
    }
    let columns: Vec<&str> = ["parameter", "from → to"].into_iter().chain(RESULTS).collect();
    Figure {
        paper: "ours",
        about: format!(
            "Each parameter of the model is changed alone, by a quarter down and up. The table shows the \
             change of five results in percent. Small whole numbers ({}) change by one, but never to zero. \
             All experiments use a million keys, even where the other figures use more, and a quarter of \
             their operations. That is enough for the sign and size of an effect, but not for its last \
             digit. The tree runs write-intensive mixes, with zipf 0.99 where skewed. Locks are as in the \
             figure of HOCL.",
            BY_ONE.join(", ")
        ),
        tables: vec![
            table("Unchanged", &RESULTS, vec![base.map(cell).into()]),
            table("Change in percent", &columns, rows),
        ],
        ..Figure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_changed_by_a_quarter_or_by_one() {
        let of = |name: &str| {
            values(Params::FIELDS.into_iter().find(|field| field.0 == name).expect("a parameter"))
        };
        assert_eq!(of("pcie_nanos"), (200, [Some(150), Some(250)]));
        assert_eq!(of("units"), (16, [Some(12), Some(20)]));
        assert_eq!(of("bucket_bits"), (12, [Some(11), Some(13)]));
        assert_eq!(of("failed_cas_transactions"), (1, [None, Some(2)]));
        for field in Params::FIELDS {
            assert!(values(field).1[1].is_some(), "{}", field.0);
        }
    }

    #[test]
    fn changes_have_a_sign_unless_they_are_nothing() {
        assert_eq!([percent(1.25, 1.0), percent(1.0, 1.25), percent(1.0, 1.0001)], ["+25.0", "-20.0", "0"]);
        assert_eq!(percent(1.0, 0.0), "–");
    }
}
