//! The inputs of a figure: the scale of its experiments, the experiments, and their results.

use super::model::Figure;
use crate::experiment::{Job, Measured};
use serde::Serialize;

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
    /// Returns the runs of a job, by ascending seed: `seed`, `seed + 1`, and so on. The figure must have
    /// planned the job.
    fn of(&self, job: &Job) -> &[Measured];
}

/// The source of a figure: its experiments, and the function that draws it.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its name on the command line, and the name of its files.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The experiments, with the scale's seed. Several figures may share an experiment, which is run once.
    pub jobs: fn(&Scale) -> Vec<Job>,
    /// Draws the figure.
    pub draw: fn(&Scale, &dyn Outcomes) -> Figure,
}
