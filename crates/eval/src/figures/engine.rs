//! Runs the experiments that figures need, each once, on several threads, and draws the figures from the
//! results.
//!
//! The output depends on the experiments alone: not on the number of threads, the order, or which results an
//! earlier run kept.

use super::error::FiguresError;
use super::kept::Kept;
use super::model::Figure;
use super::plan::{Outcomes, Scale, Source};
use crate::error::BenchError;
use crate::experiment::{Job, Measured};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Operations of the experiments that are done or kept from an earlier run.
    pub done: u64,
    /// Operations of all experiments.
    pub total: u64,
    /// Experiments that are done or kept from an earlier run.
    pub experiments: usize,
    /// All experiments.
    pub of: usize,
    /// The estimated time left, once there is an estimate.
    pub left: Option<Duration>,
}

/// The function that runs an experiment.
pub(super) type Runner<'r> = &'r (dyn Fn(&Job) -> Result<Measured, BenchError> + Sync);

/// The function that receives the progress.
pub(super) type Watcher<'w> = &'w (dyn Fn(Progress) + Sync);

/// Runs the experiments of `sources` that `cache` does not have, on `threads` threads, and draws the figures.
/// After a failure, the other threads stop when their current experiments end.
pub fn run(
    sources: &[Source],
    scale: &Scale,
    threads: usize,
    cache: &Path,
    runner: Runner<'_>,
    progress: Watcher<'_>,
) -> Result<Vec<Figure>, FiguresError> {
    let kept = Kept::open(cache)?;
    let mut found = BTreeMap::new();
    let mut wanted = Vec::new();
    for (text, job) in distinct(sources, scale) {
        match kept.find(&text) {
            Some(measured) => {
                found.insert(text, (job.operations(), measured));
            }
            None => wanted.push((text, job)),
        }
    }
    // The longest first, so that at the end no single thread still runs a long one. The sort is stable.
    wanted.sort_by_key(|(_, job)| std::cmp::Reverse(job.operations()));
    let spent: u64 = found.values().map(|(operations, _)| operations).sum();
    let work = Work {
        total: spent + wanted.iter().map(|(_, job)| job.operations()).sum::<u64>(),
        of: found.len() + wanted.len(),
        spent,
        begun: Instant::now(),
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        state: Mutex::new(State { done: spent, found, failure: None }),
        wanted,
        kept,
        runner,
        progress,
    };
    work.tell(&work.state());
    std::thread::scope(|scope| {
        let workers = threads.clamp(1, work.wanted.len().max(1));
        for _ in 1..workers {
            // If the system starts fewer threads, the run only takes longer. The current thread always works.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || work.run());
        }
        work.run();
    });
    let State { found, failure, .. } = work.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some(failure) => Err(failure),
        None => Ok(draw(sources, scale, &found)),
    }
}

/// Returns every experiment once, with its JSON as key. An experiment without a seed is the same in every
/// run, so it appears once.
fn distinct(sources: &[Source], scale: &Scale) -> BTreeMap<String, Job> {
    let mut jobs = BTreeMap::new();
    for job in sources.iter().flat_map(|source| source.jobs(scale)) {
        for run in 0..scale.runs {
            let job = job.clone().with_seed(scale.seed.wrapping_add(run));
            jobs.insert(text(&job), job);
        }
    }
    jobs
}

/// Returns the experiment as JSON, which identifies it. Serialization does not fail for these types;
/// otherwise the debug form would serve.
fn text(job: &Job) -> String {
    serde_json::to_string(job).unwrap_or_else(|_| format!("{job:?}"))
}

/// State that the threads share.
struct Work<'r> {
    total: u64,
    of: usize,
    /// Operations of kept results, which took no time in this run.
    spent: u64,
    begun: Instant,
    next: AtomicUsize,
    stop: AtomicBool,
    state: Mutex<State>,
    wanted: Vec<(String, Job)>,
    kept: Kept,
    runner: Runner<'r>,
    progress: Watcher<'r>,
}

struct State {
    done: u64,
    found: BTreeMap<String, (u64, Measured)>,
    failure: Option<FiguresError>,
}

impl Work<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs experiments until none is left, or one failed.
    fn run(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let Some((text, job)) = self.wanted.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            let outcome = self.measure(text, job);
            let mut state = self.state();
            match outcome {
                Ok(measured) => {
                    state.done += job.operations();
                    state.found.insert(text.clone(), (job.operations(), measured));
                    self.tell(&state);
                }
                Err(failure) => {
                    self.stop.store(true, Ordering::Relaxed);
                    state.failure.get_or_insert(failure);
                }
            }
        }
    }

    fn measure(&self, text: &str, job: &Job) -> Result<Measured, FiguresError> {
        let failed = |error| FiguresError::Experiment { job: Box::new(job.clone()), error };
        let ran = catch_unwind(AssertUnwindSafe(|| (self.runner)(job)));
        let ran =
            ran.unwrap_or_else(|panic| Err(BenchError::Thread(format!("it panicked: {}", said(&*panic)))));
        let measured = ran.map_err(failed)?;
        self.kept.keep(text, &measured)?;
        Ok(measured)
    }

    fn tell(&self, state: &State) {
        let (ran, rest) = (state.done - self.spent, self.total - state.done);
        let left = (ran > 0).then(|| self.begun.elapsed().mul_f64(rest as f64 / ran as f64));
        let experiments = state.found.len();
        (self.progress)(Progress { done: state.done, total: self.total, experiments, of: self.of, left });
    }
}

/// Returns the message of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing")
}

/// The results for the figures: all runs of an experiment together.
struct Runs(BTreeMap<String, Vec<Measured>>);

impl Outcomes for Runs {
    fn of(&self, job: &Job) -> &[Measured] {
        self.0.get(&text(job)).map_or(&[], Vec::as_slice)
    }
}

fn draw(sources: &[Source], scale: &Scale, found: &BTreeMap<String, (u64, Measured)>) -> Vec<Figure> {
    let draw = |source: &Source| {
        let runs = source.jobs(scale).into_iter().map(|job| {
            let seeds = (0..scale.runs).map(|run| scale.seed.wrapping_add(run));
            let runs = seeds.filter_map(|seed| found.get(&text(&job.clone().with_seed(seed))));
            (text(&job), runs.map(|(_, measured)| measured.clone()).collect())
        });
        source.figure(scale, &Runs(runs.collect()))
    };
    sources.iter().map(draw).collect()
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
