//! The result for programs, which `--json` writes. [`crate::table`] shows the same to people.

use crate::drive::Pace;
use crate::error::Failure;
use crate::peers::OURS;
use crate::workload::{Distribution, Mix};
use serde::Serialize;

/// The settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Keys loaded.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// Runs per cell.
    pub runs: usize,
    /// The requested time of a run, in seconds.
    pub seconds: f64,
    /// The number of operations of a run, if one was given.
    pub operations: Option<usize>,
    /// The allocator of all indexes.
    pub allocator: &'static str,
    /// The time of the whole benchmark, in seconds.
    pub seconds_taken: f64,
}

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor, if the system reports it.
    pub processor: Option<String>,
    /// The number of threads that it runs at once.
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
    /// A short description.
    pub about: &'static str,
    /// The rate of the first load, in millions of inserts per second.
    pub load_mops: Option<f64>,
    /// Resident memory per key that the first load added.
    pub bytes_per_key: Option<f64>,
    /// Why it could not be loaded.
    pub failed: Option<String>,
}

/// One index under one mix and distribution.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The index.
    pub index: &'static str,
    /// The distribution of keys.
    pub distribution: Distribution,
    /// The mix of operations.
    pub mix: Mix,
    /// Operations that each run did.
    pub operations: Vec<u64>,
    /// Gets of loaded keys that found nothing, for an index that may miss a key while it is replaced.
    pub misses: u64,
    /// The rate of each run, in millions of operations per second.
    pub mops: Vec<f64>,
    /// Their median.
    pub median_mops: Option<f64>,
    /// Half the distance from the slowest run to the fastest, as a share of the median. A single run has
    /// none.
    pub spread: Option<f64>,
    /// Our median divided by this median.
    pub ours_over_this: Option<f64>,
    /// Why there is no result.
    pub unavailable: Option<String>,
}

impl Cell {
    /// Makes a cell without runs.
    pub fn open(
        index: &'static str,
        mix: Mix,
        distribution: Distribution,
        unavailable: Option<String>,
    ) -> Self {
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

    /// Adds a run. A failed run removes the cell's result: an index with an error is wrong, not slow.
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

    /// Computes median and spread after all runs.
    pub fn close(&mut self) {
        if self.unavailable.is_some() {
            return;
        }
        self.median_mops = median(&self.mops);
        let fastest = self.mops.iter().copied().reduce(f64::max);
        let slowest = self.mops.iter().copied().reduce(f64::min);
        let span =
            fastest.zip(slowest).filter(|_| self.mops.len() > 1).map(|(fastest, slowest)| fastest - slowest);
        self.spread = span.zip(self.median_mops).map(|(span, median)| span / 2.0 / median);
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
    /// The indexes.
    pub indexes: Vec<Entry>,
    /// The results.
    pub cells: Vec<Cell>,
}

impl Report {
    /// Collects the results and compares them with ours.
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

    /// Returns the cell of an index.
    pub fn cell(&self, index: &str, mix: Mix, distribution: Distribution) -> Option<&Cell> {
        let is = |cell: &&Cell| (cell.index, cell.mix, cell.distribution) == (index, mix, distribution);
        self.cells.iter().find(is)
    }
}

/// Returns the median: the middle number, or the mean of the two middle ones.
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

    /// Makes a report of one run per cell, from (index, mix, Mop/s), all uniform.
    pub(crate) fn report(results: &[(&'static str, Mix, Result<f64, &'static str>)]) -> Report {
        let cells = results.iter().map(|&(index, mix, result)| {
            let mut cell = Cell::open(index, mix, Distribution::Uniform, None);
            let pace = |mops: f64| Pace {
                operations: (mops * 1e6) as u64,
                elapsed: Duration::from_secs(1),
                misses: 0,
            };
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
        let ratio =
            |index, mix| report.cell(index, mix, Distribution::Uniform).and_then(|cell| cell.ours_over_this);
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
