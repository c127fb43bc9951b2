//! Compares Sherman with the in-memory ordered indexes of crates.io, on one machine, by one command.
//!
//! | module | what |
//! |---|---|
//! | [`index`] | the operations that an index must provide |
//! | [`peers`] | the indexes: ours first, one file each |
//! | [`workload`] | mixes, distributions, and the operations of a run, drawn before it starts |
//! | [`drive`] | threads that load an index or execute a run's operations on it |
//! | [`bench`](mod@bench) | every cell: calibrate, then runs in turn over all indexes |
//! | [`report`] | the result: medians, spreads and ratios, for programs |
//! | [`table`] | the same for people |
//! | [`check`] | the minimum ratios that our tree must reach |
//! | [`progress`] | the current step and the estimated time left |
//! | [`error`] | errors of the benchmark |
//!
//! The README of this package explains why the comparison is fair. The code for that is in
//! [`bench`](mod@bench) and [`drive`].

pub mod args;
pub mod bench;
pub mod check;
pub mod drive;
pub mod error;
pub mod index;
pub mod peers;
pub mod progress;
pub mod report;
pub mod table;
pub mod workload;

/// One allocator for every index. Several peers allocate and free a node per insert, from any thread. The
/// system's allocator would charge them for its locks, so all indexes use the same fast one. Our tree
/// allocates almost nothing while it runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator's name, for reports.
pub const ALLOCATOR_NAME: &str = "mimalloc";
