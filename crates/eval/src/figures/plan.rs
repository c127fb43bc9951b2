//! What a figure is made from: how large its experiments are, which they are, and what they gave.

use super::model::Figure;
use crate::lab::{Job, Measured};
use serde::Serialize;

/// How large experiments are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scale {
    /// Whether this is the small scale, whose numbers show shapes rather than sizes.
    pub quick: bool,
    /// Keys loaded.
    pub keys: u64,
    /// Operations measured in an experiment.
    pub operations: u64,
    /// How often each experiment is run, each time with another seed.
    pub runs: u64,
    /// The seed of the first run; each further run has the next.
    pub seed: u64,
}

impl Scale {
    /// A million keys, one run: minutes on a laptop.
    pub fn quick(seed: u64) -> Self {
        Self { quick: true, keys: 1_000_000, operations: 40_000, runs: 1, seed }
    }

    /// The paper's thousand million keys, three runs.
    pub fn full(seed: u64) -> Self {
        Self { quick: false, keys: 1_000_000_000, operations: 200_000, runs: 3, seed }
    }
}

/// What the experiments gave.
pub trait Outcomes {
    /// The runs of a job, by ascending seed: `seed`, `seed + 1`, and so on. The job is one that the figure asked for.
    fn of(&self, job: &Job) -> &[Measured];
}

/// A figure's source: which experiments it needs, and how it is drawn from them.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its name on the command line and of its files.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The experiments, with the scale's seed. Figures may ask for the same one; it is run once.
    pub jobs: fn(&Scale) -> Vec<Job>,
    /// Draws it.
    pub draw: fn(&Scale, &dyn Outcomes) -> Figure,
}
