//! The inputs of a figure: the scale of its experiments, the experiments, and their results.

use super::model::Figure;
use crate::experiment::{Job, Measured};
use serde::Serialize;
use std::cell::RefCell;

/// The scale of experiments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scale {
    /// Whether this is the small scale, whose results show shapes, not sizes.
    pub quick: bool,
    /// Keys loaded.
    pub keys: u64,
    /// Operations measured per experiment.
    pub operations: u64,
    /// The number of runs of each experiment, each with another seed.
    pub runs: u64,
    /// The seed of the first run. Each further run has the next seed.
    pub seed: u64,
}

impl Scale {
    /// Returns the small scale: a million keys, one run. It takes minutes on a laptop.
    pub fn quick(seed: u64) -> Self {
        Self { quick: true, keys: 1_000_000, operations: 40_000, runs: 1, seed }
    }

    /// Returns the paper's scale: a thousand million keys, three runs.
    pub fn full(seed: u64) -> Self {
        Self { quick: false, keys: 1_000_000_000, operations: 200_000, runs: 3, seed }
    }
}

/// The results of the experiments.
pub trait Outcomes {
    /// Returns the runs of a job, by ascending seed: `seed`, `seed + 1`, and so on. Empty before the
    /// experiments have run.
    fn of(&self, job: &Job) -> &[Measured];
}

/// The source of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its name on the command line, and the name of its files.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Draws the figure, without its name and its heading.
    pub draw: fn(&Scale, &dyn Outcomes) -> Figure,
}

impl Source {
    /// Returns the experiments of the figure, with the scale's seed: those that it asks for when it is drawn
    /// without results. Several figures may share an experiment, which is run once.
    pub fn jobs(&self, scale: &Scale) -> Vec<Job> {
        let asked = Asked::default();
        (self.draw)(scale, &asked);
        asked.0.into_inner()
    }

    /// Draws the figure from results.
    pub fn figure(&self, scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
        Figure { name: self.name, title: self.title, ..(self.draw)(scale, outcomes) }
    }
}

/// No results: remembers which were asked for.
#[derive(Default)]
struct Asked(RefCell<Vec<Job>>);

impl Outcomes for Asked {
    fn of(&self, job: &Job) -> &[Measured] {
        self.0.borrow_mut().push(job.clone());
        &[]
    }
}
