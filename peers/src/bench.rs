//! Measures every cell of the tables. A cell is one mix and one distribution on all indexes.
//!
//! All indexes are in memory at once. In a cell, each run draws its operations once and gives them to every
//! index in turn, each time starting with another index. So drift of the machine affects all indexes alike.
//! Calibration sets the number of operations of a run: as many as the median index performs in the requested
//! time. The number is the same for all indexes. Faster indexes end earlier and slower ones later (a run is
//! cut off at [`PATIENCE`] times that time), and all grow alike.
//!
//! Inserts of new keys make the indexes grow. Before a cell, all indexes are loaded again if they may have
//! grown by more than [`GROWTH`] since the last load. Within a cell they keep growing, all by the same keys.

use crate::drive::{Pace, Subject};
use crate::error::Failure;
use crate::peers::{self, Peer};
use crate::progress::Progress;
use crate::report::{Cell, Entry, Report, Settings, median};
use crate::workload::{Dice, Distribution, Mix};
use sherman_eval::Keys;
use std::time::Duration;

/// The highest share of new keys, relative to the loaded keys, before a cell.
const GROWTH: f64 = 0.1;
/// A run may take this many times the requested time.
const PATIENCE: f64 = 4.0;
/// Operations of a calibration, and of a calibration with ranges.
const CALIBRATION: (usize, usize) = (200_000, 20_000);
/// The most operations of a run: 9 bytes each.
const MAX_OPERATIONS: f64 = 200e6;

/// The parameters of the benchmark.
#[derive(Clone)]
pub struct Options {
    /// Keys to load.
    pub keys: u64,
    /// Threads that load and that run.
    pub threads: usize,
    /// Runs per cell.
    pub runs: usize,
    /// The approximate time of a run, in seconds.
    pub seconds: f64,
    /// The number of operations of a run, instead of a time.
    pub operations: Option<usize>,
    /// The indexes.
    pub peers: Vec<Peer>,
    /// The mixes.
    pub mixes: Vec<Mix>,
    /// The distributions.
    pub distributions: Vec<Distribution>,
}

/// An index in the benchmark.
struct Contestant {
    peer: Peer,
    subject: Box<dyn Subject>,
    load: Option<Pace>,
    resident: Option<u64>,
    /// Why it could not be loaded.
    failed: Option<String>,
}

/// Runs the benchmark.
pub fn run(options: &Options, progress: &mut Progress) -> Result<Report, Failure> {
    let mut bench = Bench::new(options, progress)?;
    bench.load(false);
    let mut cells = Vec::new();
    for mix in Mix::BY_GROWTH.into_iter().filter(|mix| options.mixes.contains(mix)) {
        for distribution in Distribution::ALL.into_iter().filter(|one| options.distributions.contains(one)) {
            if bench.new as f64 > GROWTH * options.keys as f64 {
                bench.load(true);
            }
            cells.extend(bench.cell(mix, distribution)?);
        }
    }
    bench.progress.clear();
    let settings = Settings {
        keys: options.keys,
        threads: options.threads,
        runs: options.runs,
        seconds: options.seconds,
        operations: options.operations,
        allocator: crate::ALLOCATOR_NAME,
        seconds_taken: bench.progress.elapsed().as_secs_f64(),
    };
    let indexes = bench.contestants.iter().map(|contestant| contestant.entry(options.keys)).collect();
    // Freeing a hundred million entries one by one would take minutes, and the process is about to end.
    std::mem::forget(bench.contestants);
    Ok(Report::new(settings, indexes, cells))
}

struct Bench<'a> {
    options: &'a Options,
    progress: &'a mut Progress,
    keys: Keys,
    dice: Dice,
    contestants: Vec<Contestant>,
    /// An upper bound on the new keys since the last load.
    new: u64,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, progress: &'a mut Progress) -> Result<Self, Failure> {
        let contestant = |peer: &Peer| Contestant {
            peer: *peer,
            subject: (peer.subject)(),
            load: None,
            resident: None,
            failed: None,
        };
        Ok(Self {
            options,
            progress,
            keys: crate::workload::keys(options.keys)?,
            dice: Dice::new(options.keys, options.threads)?,
            contestants: options.peers.iter().map(contestant).collect(),
            new: 0,
        })
    }

    /// Loads every index, for the first time or again.
    fn load(&mut self, again: bool) {
        let indexes = self.contestants.len();
        for (nth, contestant) in
            self.contestants.iter_mut().enumerate().filter(|(_, one)| one.failed.is_none())
        {
            let verb = if again { "loading again" } else { "loading" };
            self.progress.load(&format!("{verb} {}", contestant.peer.name), indexes - nth - 1);
            let before = resident_bytes();
            match contestant.subject.load(&self.keys, self.options.threads) {
                Ok(pace) if !again => {
                    contestant.load = Some(pace);
                    contestant.resident =
                        resident_bytes().zip(before).map(|(now, then)| now.saturating_sub(then));
                }
                Ok(_) => {}
                Err(failure) => contestant.failed = Some(failure.to_string()),
            }
        }
        self.new = 0;
    }

    /// Measures a cell on every index.
    fn cell(&mut self, mix: Mix, distribution: Distribution) -> Result<Vec<Cell>, Failure> {
        let name = format!("{} {}", distribution.name(), mix.name());
        self.progress.cell(&name);
        let mut cells: Vec<Cell> = self.contestants.iter().map(|c| c.cell(mix, distribution)).collect();
        let count = self.calibrate(mix, distribution, &mut cells)?;
        let limit =
            limit(self.options.seconds * if self.options.operations.is_some() { f64::MAX } else { PATIENCE });
        for run in 0..self.options.runs {
            let operations = self.dice.draw(mix, distribution, count)?;
            self.new += operations.new;
            let indexes = cells.len();
            for at in (0..indexes).map(|at| (at + run) % indexes) {
                let (contestant, cell) = (&self.contestants[at], &mut cells[at]);
                if cell.unavailable.is_none() {
                    let nth =
                        format!("{name}, run {} of {}: {}", run + 1, self.options.runs, contestant.peer.name);
                    self.progress.run(&nth);
                    cell.add(contestant.subject.execute(&operations, self.options.threads, limit));
                }
            }
        }
        cells.iter_mut().for_each(Cell::close);
        Ok(cells)
    }

    /// Returns the number of operations per run. Excludes indexes that do not support the mix.
    fn calibrate(
        &mut self,
        mix: Mix,
        distribution: Distribution,
        cells: &mut [Cell],
    ) -> Result<usize, Failure> {
        let count = if mix.ranges() { CALIBRATION.1 } else { CALIBRATION.0 };
        let operations = self.dice.draw(mix, distribution, count)?;
        self.new += operations.new;
        let limit = limit(self.options.seconds * PATIENCE);
        let mut rates = Vec::new();
        for (contestant, cell) in
            self.contestants.iter().zip(cells).filter(|(_, cell)| cell.unavailable.is_none())
        {
            match contestant.subject.execute(&operations, self.options.threads, limit) {
                Ok(pace) => rates.push(pace.per_second()),
                Err(failure) => {
                    cell.unavailable = Some(failure.to_string());
                    self.progress.skip(self.options.runs);
                }
            }
        }
        let calibrated = median(&rates).unwrap_or(1.0) * self.options.seconds;
        Ok(self.options.operations.unwrap_or(calibrated.clamp(1.0, MAX_OPERATIONS) as usize))
    }
}

impl Contestant {
    fn cell(&self, mix: Mix, distribution: Distribution) -> Cell {
        Cell::open(self.peer.name, mix, distribution, self.failed.clone())
    }

    fn entry(&self, keys: u64) -> Entry {
        Entry {
            name: self.peer.name,
            package: self.peer.package,
            version: peers::version_of(self.peer.package),
            about: self.peer.about,
            load_mops: self.load.map(|pace| pace.per_second() / 1e6),
            bytes_per_key: self.resident.map(|bytes| bytes as f64 / keys as f64),
            failed: self.failed.clone(),
        }
    }
}

fn limit(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Returns the resident memory of this process in bytes, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(peers: &[&str]) -> Options {
        Options {
            keys: 2000,
            threads: 2,
            runs: 2,
            seconds: 0.001,
            operations: None,
            peers: peers.iter().map(|name| peers::named(name).expect("a peer")).collect(),
            mixes: vec![Mix::Insert, Mix::ReadOnly],
            distributions: Distribution::ALL.to_vec(),
        }
    }

    #[test]
    fn every_cell_has_every_index_and_as_many_runs_as_asked_for() {
        let options = options(&["sherman", "ferntree"]);
        let report = run(&options, &mut Progress::new(16, 0.001, true)).expect("a report");
        assert_eq!(report.cells.len(), 8);
        for cell in &report.cells {
            assert_eq!((cell.mops.len(), cell.unavailable.as_deref()), (2, None), "{cell:?}");
            assert!(cell.median_mops.is_some_and(|mops| mops > 0.0) && cell.ours_over_this.is_some());
        }
    }

    #[test]
    fn a_fixed_number_of_operations_is_executed_however_long_it_takes() {
        let mut options = options(&["rwlock-btreemap"]);
        options.operations = Some(300_000);
        let report = run(&options, &mut Progress::new(8, 0.001, true)).expect("a report");
        assert!(report.cells.iter().all(|cell| cell.operations == [300_000, 300_000]));
    }
}
