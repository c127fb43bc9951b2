//! The paper's experiments on the simulator's NIC model, in virtual time.
//!
//! A [`Job`] is one experiment; [`run`] returns its [`Measured`] values. The same job gives the same numbers
//! on every machine.
//!
//! | module | what |
//! |---|---|
//! | `job` | experiments, and their measurements |
//! | `tree` | a cluster with a loaded tree, whose nodes are generated on demand |
//! | `client` | a client of the tree, and the statistics of its operations |
//! | `locks` | experiments on locks alone |
//! | `writes` | WRITEs of one size |
//! | `tally` | turns statistics into measurements |

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
/// [`BenchError::bad_option`] distinguishes experiments that are not possible from experiments that failed.
pub fn run(job: &Job) -> Result<Measured, BenchError> {
    match job {
        Job::Tree(job) => tree::run(job),
        Job::Locks(job) => locks::run(job),
        Job::Writes(job) => writes::run(job),
    }
}
