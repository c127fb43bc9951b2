//! The laboratory: the paper's experiments on the simulator's NIC model, in virtual time.
//!
//! A [`Job`] is one experiment; [`run`] gives what was [`Measured`]. The same job gives the same numbers on every machine.

mod job;

pub use job::{Direction, Job, LockJob, LockKind, Measured, Quantiles, TreeJob, WriteJob};
