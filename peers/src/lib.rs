//! Sherman beside the in-memory ordered indexes of crates.io, on one machine, by one command.
//!
//! | module | what |
//! |---|---|
//! | [`index`] | what an index must do to take part |
//! | [`peers`] | the indexes: ours first, one file each |
//! | [`workload`] | mixes, distributions, and the operations of a run, drawn before it starts |
//! | [`drive`] | threads that load an index or execute a run's operations on it |
//! | [`bench`](mod@bench) | every cell: calibrate, then runs in turn over all indexes |
//! | [`report`] | the result: medians, spreads and ratios, for programs |
//! | [`table`] | the same for people |
//! | [`check`] | the bars that our tree must pass |
//! | [`progress`] | what is running and how long it will take |
//! | [`error`] | what may go wrong |
//!
//! What makes the comparison fair is said in the README of this package; the code that does it is in [`bench`](mod@bench)
//! and [`drive`].

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

/// One allocator for every index. Several peers allocate and free a node per insert, from any thread; the system's
/// allocator would charge them for its locks, so the same fast one serves all. Ours allocates next to nothing while it runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator's name, for reports.
pub const ALLOCATOR_NAME: &str = "mimalloc";
