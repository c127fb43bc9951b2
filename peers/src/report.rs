//! The result, for programs: what `--json` writes. [`crate::table`] shows the same to people.

use crate::drive::Pace;
use crate::error::Failure;
use crate::peers::OURS;
use crate::workload::{Distribution, Mix};
use serde::Serialize;

/// How it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Keys loaded.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// Runs per cell.
    pub runs: usize,
    /// What a run should take.
    pub seconds: f64,
    /// Operations of a run, if they were given.
    pub operations: Option<usize>,
    /// The allocator of all indexes.
    pub allocator: &'static str,
    /// What everything took.
    pub seconds_taken: f64,
}

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor, if the system says.
    pub processor: Option<String>,
    /// How many threads it runs at once.
    pub cores: usize,
}

/// An index.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Its crate.
    pub package: &'static str,
    /// The crate's version.
    pub version: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Millions of inserts per second of the first load.
    pub load_mops: Option<f64>,
    /// Resident memory that the first load added, per key.
    pub bytes_per_key: Option<f64>,
    /// Why it could not be loaded.
    pub failed: Option<String>,
}

/// One index under one mix and distribution.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The index.
    pub index: &'static str,
    /// Which keys.
    pub distribution: Distribution,
    /// Which operations.
    pub mix: Mix,
    /// Operations that each run did.
    pub operations: Vec<u64>,
    /// Gets of loaded keys that found none, of an index that may miss a key while it is replaced.
    pub misses: u64,
    /// Millions of operations per second of each run.
    pub mops: Vec<f64>,
    /// Their median.
    pub median_mops: Option<f64>,
    /// Half the distance from the slowest run to the fastest, as a part of the median. One run has none.
    pub spread: Option<f64>,
    /// Our median divided by this one.
    pub ours_over_this: Option<f64>,
    /// Why there is no result.
    pub unavailable: Option<String>,
}

impl Cell {
    /// A cell without runs.
    pub fn open(index: &'static str, mix: Mix, distribution: Distribution, unavailable: Option<String>) -> Self {
        let (operations, mops) = (Vec::new(), Vec::new());
        Self {
            index,
            distribution,
            mix,
            operations,
            misses: 0,
            mops,
            median_mops: None,
            spread: None,
            ours_over_this: None,
            unavailable,
        }
    }

    /// Adds a run. One that failed takes the cell's result away: an index that errs is not slow, it is wrong.
    pub fn add(&mut self, run: Result<Pace, Failure>) {
        match run {
            Ok(pace) => {
                self.operations.push(pace.operations);
                self.misses += pace.misses;
                self.mops.push(pace.per_second() / 1e6);
            }
            Err(failure) => self.unavailable = Some(failure.to_string()),
        }
    }

    /// Computes median and spread, when all runs are in.
    pub fn close(&mut self) {
        if self.unavailable.is_some() {
            return;
        }
        self.median_mops = median(&self.mops);
        let fastest = self.mops.iter().copied().reduce(f64::max);
        let slowest = self.mops.iter().copied().reduce(f64::min);
        let span = fastest.zip(slowest).filter(|_| self.mops.len() > 1).map(|(fastest, slowest)| fastest - slowest);
        self.spread = span.zip(self.median_mops).map(|(span, median)| span / 2.0 / median);
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How.
    pub settings: Settings,
    /// Where.
    pub machine: Machine,
    /// What.
    pub indexes: Vec<Entry>,
    /// The results.
    pub cells: Vec<Cell>,
}

impl Report {
    /// Puts results together and compares them with ours.
    pub fn new(settings: Settings, indexes: Vec<Entry>, mut cells: Vec<Cell>) -> Self {
        let ours = |cells: &[Cell], cell: &Cell| {
            let same = |other: &&Cell| (other.distribution, other.mix) == (cell.distribution, cell.mix);
            cells.iter().filter(same).find(|other| other.index == OURS)?.median_mops
        };
        let ratios = cells.iter().map(|cell| Some(ours(&cells, cell)? / cell.median_mops?));
        let ratios: Vec<Option<f64>> = ratios.collect();
        cells.iter_mut().zip(ratios).for_each(|(cell, ratio)| cell.ours_over_this = ratio);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { settings, machine: Machine { processor: processor(), cores }, indexes, cells }
    }

    /// The cell of an index.
    pub fn cell(&self, index: &str, mix: Mix, distribution: Distribution) -> Option<&Cell> {
        let is = |cell: &&Cell| (cell.index, cell.mix, cell.distribution) == (index, mix, distribution);
        self.cells.iter().find(is)
    }
}

/// The number in the middle, or the mean of the two there.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Duration;

    /// A report of one run per cell, from (index, mix, Mop/s), all uniform.
    pub(crate) fn report(results: &[(&'static str, Mix, Result<f64, &'static str>)]) -> Report {
        let cells = results.iter().map(|&(index, mix, result)| {
            let mut cell = Cell::open(index, mix, Distribution::Uniform, None);
            let pace = |mops: f64| Pace { operations: (mops * 1e6) as u64, elapsed: Duration::from_secs(1), misses: 0 };
            cell.add(result.map(pace).map_err(Failure::Unsupported));
            cell.close();
            cell
        });
        let settings = Settings {
            keys: 1000,
            threads: 2,
            runs: 1,
            seconds: 1.0,
            operations: None,
            allocator: "none",
            seconds_taken: 1.0,
        };
        let mut names: Vec<&'static str> = Vec::new();
        results.iter().for_each(|(name, ..)| {
            if !names.contains(name) {
                names.push(name)
            }
        });
        let entry = |name| Entry {
            name,
            package: name,
            version: "1.0",
            about: "made up",
            load_mops: Some(1.0),
            bytes_per_key: Some(32.0),
            failed: None,
        };
        Report::new(settings, names.into_iter().map(entry).collect(), cells.collect())
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_are_ours_over_theirs_in_the_same_cell() {
        let report = report(&[
            ("sherman", Mix::Insert, Ok(3.0)),
            ("scc", Mix::Insert, Ok(2.0)),
            ("sherman", Mix::Range, Err("pending")),
            ("scc", Mix::Range, Ok(1.0)),
        ]);
        let ratio = |index, mix| report.cell(index, mix, Distribution::Uniform).and_then(|cell| cell.ours_over_this);
        assert_eq!(ratio("scc", Mix::Insert), Some(1.5));
        assert_eq!(ratio("sherman", Mix::Insert), Some(1.0));
        assert_eq!(ratio("scc", Mix::Range), None);
    }

    #[test]
    fn a_failed_run_takes_the_result_away() {
        let mut cell = Cell::open("scc", Mix::Half, Distribution::Zipf, None);
        cell.add(Ok(Pace { operations: 5, elapsed: Duration::from_secs(1), misses: 0 }));
        cell.add(Err(Failure::Panicked));
        cell.close();
        assert_eq!((cell.median_mops, cell.unavailable.as_deref()), (None, Some("panicked")));
    }

    #[test]
    fn the_spread_is_half_of_what_lies_between_the_extremes() {
        let mut cell = Cell::open("scc", Mix::Half, Distribution::Zipf, None);
        for operations in [9_000_000, 10_000_000, 12_000_000] {
            cell.add(Ok(Pace { operations, elapsed: Duration::from_secs(1), misses: 0 }));
        }
        cell.close();
        assert_eq!((cell.median_mops, cell.spread), (Some(10.0), Some(0.15)));
    }
}
