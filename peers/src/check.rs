//! The minimum ratios that our tree must reach, for `--check`.

use crate::peers::OURS;
use crate::report::{Cell, Report};

/// In every cell, or every cell that writes, the rate of our tree must be at least `at_least` times that of
/// the peer.
struct Bar {
    peer: &'static str,
    at_least: f64,
    writing_only: bool,
}

const BARS: [Bar; 4] = [
    Bar { peer: "crossbeam-skiplist", at_least: 1.0, writing_only: false },
    Bar { peer: "scc", at_least: 1.0, writing_only: false },
    Bar { peer: "rwlock-btreemap", at_least: 1.0, writing_only: true },
    Bar { peer: "ferntree", at_least: 0.7, writing_only: false },
];

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The number of cells compared with a bar.
    pub checked: usize,
    /// A line per cell that is below its bar or has no result.
    pub failed: Vec<String>,
}

impl Findings {
    /// Returns whether at least one cell was checked and all passed.
    pub fn passed(&self) -> bool {
        self.checked > 0 && self.failed.is_empty()
    }
}

/// Compares every measured cell of a peer that has a bar with that bar.
pub fn check(report: &Report) -> Findings {
    let mut findings = Findings::default();
    for bar in &BARS {
        for theirs in report.cells.iter().filter(|cell| cell.index == bar.peer) {
            if bar.writing_only && !theirs.mix.writes() {
                continue;
            }
            findings.checked += 1;
            let ours = report.cell(OURS, theirs.mix, theirs.distribution);
            findings.failed.extend(shortfall(bar, ours, theirs));
        }
    }
    findings
}

/// Returns why a cell fails, if it does.
fn shortfall(bar: &Bar, ours: Option<&Cell>, theirs: &Cell) -> Option<String> {
    let cell = format!("{} {}", theirs.distribution.name(), theirs.mix.name());
    let bar_text = format!("{OURS} must be at least {:.1} x {}", bar.at_least, bar.peer);
    let none = |index: &str, cell: Option<&Cell>| {
        let reason = cell.and_then(|cell| cell.unavailable.as_deref()).unwrap_or("not measured");
        format!("{index} has no result ({reason})")
    };
    match (ours.and_then(|ours| ours.median_mops), theirs.median_mops) {
        (None, _) => Some(format!("{cell}: {bar_text}, but {}", none(OURS, ours))),
        (_, None) => Some(format!("{cell}: {bar_text}, but {}", none(bar.peer, Some(theirs)))),
        (Some(ours), Some(peer)) if ours < bar.at_least * peer => Some(format!(
            "{cell}: {bar_text}, but it is {:.2} x ({ours:.3} and {peer:.3} Mop/s)",
            ours / peer
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;
    use crate::workload::Mix;

    fn failed(results: &[(&'static str, Mix, Result<f64, &'static str>)]) -> (usize, usize) {
        let findings = check(&report(results));
        assert_eq!(findings.passed(), findings.checked > 0 && findings.failed.is_empty());
        (findings.checked, findings.failed.len())
    }

    #[test]
    fn ours_must_reach_every_bar() {
        for (peer, mix, bar) in [
            ("crossbeam-skiplist", Mix::Range, 1.0),
            ("scc", Mix::ReadOnly, 1.0),
            ("rwlock-btreemap", Mix::Half, 1.0),
            ("ferntree", Mix::Insert, 0.7),
        ] {
            assert_eq!(failed(&[(OURS, mix, Ok(bar)), (peer, mix, Ok(1.0))]), (1, 0), "{peer}");
            assert_eq!(failed(&[(OURS, mix, Ok(bar - 0.01)), (peer, mix, Ok(1.0))]), (1, 1), "{peer}");
        }
    }

    #[test]
    fn a_lock_around_a_map_need_not_be_beaten_where_nobody_writes() {
        for mix in [Mix::ReadOnly, Mix::Range] {
            assert_eq!(failed(&[(OURS, mix, Ok(0.1)), ("rwlock-btreemap", mix, Ok(1.0))]), (0, 0));
        }
    }

    #[test]
    fn a_cell_without_a_result_does_not_pass() {
        let mix = Mix::Range;
        assert_eq!(failed(&[(OURS, mix, Err("pending")), ("scc", mix, Ok(1.0))]), (1, 1));
        assert_eq!(failed(&[("scc", mix, Ok(1.0))]), (1, 1));
        assert_eq!(failed(&[(OURS, mix, Ok(1.0)), ("scc", mix, Err("panicked"))]), (1, 1));
    }

    #[test]
    fn peers_without_a_bar_are_not_held_against_ours() {
        assert_eq!(failed(&[(OURS, Mix::Half, Ok(0.1)), ("masstree", Mix::Half, Ok(9.0))]), (0, 0));
    }
}
