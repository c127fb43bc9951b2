//! Workloads, variants and measurements for Sherman: the paper's evaluation (§5), repeatable on one machine.
//!
//! | module | what |
//! |---|---|
//! | [`zipf`] | skewed ranks, YCSB's way |
//! | [`keys`] | which bytes are key `i` of `n`; values that can be checked |
//! | [`workload`] | the paper's and YCSB's mixes; what a client does next |
//! | [`variant`] | FG, FG+, each technique of the paper, the paper complete, ours |
//! | [`options`] | what a run is made of, and whether it can be |
//! | [`bench`](mod@bench) | load, warm up, measure |
//! | [`report`] | the result, for programs and for people |
//! | [`error`] | why there is none |
//!
//! ```
//! use sherman_eval::{BenchOptions, Length, bench};
//! let options = BenchOptions { keys: 1000, length: Length::Operations(1000), ..BenchOptions::default() };
//! let report = bench::run(&options, &|_| ())?;
//! assert_eq!(report.operations, 1000);
//! println!("{report}");
//! # Ok::<(), sherman_eval::BenchError>(())
//! ```
#![forbid(unsafe_code)]

pub mod bench;
mod drive;
pub mod error;
pub mod keys;
pub mod options;
pub mod report;
pub mod variant;
pub mod workload;
pub mod zipf;

pub use bench::Progress;
pub use error::BenchError;
pub use keys::{HotKeys, Keys};
pub use options::{BenchOptions, Length};
pub use report::{Percentiles, Report};
pub use variant::Variant;
pub use workload::{Action, Generator, Workload};
pub use zipf::Zipf;
