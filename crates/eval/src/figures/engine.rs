//! Runs the experiments that figures need, each once, on several threads, and draws the figures from what they gave.
//!
//! What comes out depends on the experiments alone: not on the number of threads, the order, or which results were kept from an
//! earlier run.

use super::error::FiguresError;
use super::kept::Kept;
use super::model::Figure;
use super::plan::{Outcomes, Scale, Source};
use crate::error::BenchError;
use crate::lab::{Job, Measured};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Operations of the experiments that are done or were kept.
    pub done: u64,
    /// Operations of all.
    pub total: u64,
    /// Experiments that are done or were kept.
    pub experiments: usize,
    /// All experiments.
    pub of: usize,
    /// How long it may take from now on, once that can be guessed.
    pub left: Option<Duration>,
}

/// What runs an experiment.
pub type Runner<'r> = &'r (dyn Fn(&Job) -> Result<Measured, BenchError> + Sync);

/// Who wants to know how far it is.
pub type Watcher<'w> = &'w (dyn Fn(Progress) + Sync);

/// Runs what `sources` need, as far as `cache` does not have it, on so many threads, and draws them. The first failure stops the
/// others as soon as the experiments under way are done.
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
    // The longest first, so that no thread is left alone with one at the end. The sort is stable.
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
            // Fewer threads than asked for only take longer: this one works in any case.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || work.run());
        }
        work.run();
    });
    let State { found, failure, .. } = work.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some(failure) => Err(failure),
        None => draw(sources, scale, found),
    }
}

/// Every experiment once, as its JSON and itself. One without a seed is the same in every run, and is run once.
fn distinct(sources: &[Source], scale: &Scale) -> BTreeMap<String, Job> {
    let mut jobs = BTreeMap::new();
    for job in sources.iter().flat_map(|source| (source.jobs)(scale)) {
        for run in 0..scale.runs {
            let job = job.clone().with_seed(scale.seed.wrapping_add(run));
            jobs.insert(text(&job), job);
        }
    }
    jobs
}

/// An experiment as JSON, by which it is known. That cannot fail for what it is made of; if it did, its debug form would do.
fn text(job: &Job) -> String {
    serde_json::to_string(job).unwrap_or_else(|_| format!("{job:?}"))
}

/// What the threads share.
struct Work<'r> {
    total: u64,
    of: usize,
    /// Operations of results that were kept: they took no time.
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

    /// Takes experiments until there are no more, or one failed.
    fn run(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let Some((text, job)) = self.wanted.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
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
        let ran = ran.unwrap_or_else(|panic| Err(BenchError::Thread(format!("it panicked: {}", said(&*panic)))));
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

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing")
}

/// Results as figures see them: those of all runs of an experiment together.
struct Runs {
    by_first: BTreeMap<String, Vec<Measured>>,
    /// An experiment that was asked for but not planned.
    unplanned: RefCell<Option<Job>>,
}

impl Outcomes for Runs {
    fn of(&self, job: &Job) -> &[Measured] {
        let runs = self.by_first.get(&text(job));
        runs.map_or_else(
            || {
                self.unplanned.borrow_mut().get_or_insert_with(|| job.clone());
                &[][..]
            },
            Vec::as_slice,
        )
    }
}

fn draw(
    sources: &[Source],
    scale: &Scale,
    found: BTreeMap<String, (u64, Measured)>,
) -> Result<Vec<Figure>, FiguresError> {
    let mut figures = Vec::new();
    for source in sources {
        let mut by_first = BTreeMap::new();
        for job in (source.jobs)(scale) {
            let seeds = (0..scale.runs).map(|run| scale.seed.wrapping_add(run));
            let runs = seeds.filter_map(|seed| found.get(&text(&job.clone().with_seed(seed))));
            by_first.insert(text(&job), runs.map(|(_, measured)| measured.clone()).collect());
        }
        let runs = Runs { by_first, unplanned: RefCell::new(None) };
        let figure = (source.draw)(scale, &runs);
        if let Some(job) = runs.unplanned.into_inner() {
            return Err(FiguresError::Unplanned { figure: source.name, job: Box::new(job) });
        }
        figures.push(figure);
    }
    Ok(figures)
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
