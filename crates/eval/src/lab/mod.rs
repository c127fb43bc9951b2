//! The laboratory: the paper's experiments on the simulator's NIC model, in virtual time.
//!
//! A [`Job`] is one experiment; [`run`] gives what was [`Measured`]. The same job gives the same numbers on every machine.
//!
//! | module | what |
//! |---|---|
//! | `job` | experiments, and what is measured in them |
//! | `tree` | a cluster with a loaded tree, without having loaded it |
//! | `client` | what a client of the tree does, and what is noted of it |
//! | `locks` | taking and releasing locks |
//! | `writes` | WRITEs of one size |
//! | `tally` | from notes to measurements |

mod client;
mod job;
mod locks;
mod tally;
#[cfg(test)]
mod tests;
mod tree;
mod writes;

pub use tree::MAX_MACHINES;

pub use job::{Direction, Job, LockJob, LockKind, Measured, Quantiles, TreeJob, WriteJob};

use crate::error::BenchError;

/// Runs an experiment.
///
/// # Errors
/// [`BenchError::bad_option`] tells experiments that cannot be made from those that failed.
pub fn run(job: &Job) -> Result<Measured, BenchError> {
    match job {
        Job::Tree(job) => tree::run(job),
        Job::Locks(job) => locks::run(job),
        Job::Writes(job) => writes::run(job),
    }
}
