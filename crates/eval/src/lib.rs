//! Workloads, variants and measurements for Sherman: the paper's evaluation (§5), repeatable on one machine.
//!
//! | module | what |
//! |---|---|
//! | [`zipf`] | skewed ranks, as in YCSB |
//! | [`keys`] | the bytes of key `i` of `n`; values that can be checked |
//! | [`workload`] | the paper's and YCSB's mixes; the next action of a client |
//! | [`variant`] | FG, FG+, each technique of the paper, the complete paper, ours |
//! | [`options`] | the options of a run, and their checks |
//! | [`bench`](mod@bench) | load, warm up, measure |
//! | [`check`] | verify a tree, or a tree created for it while writers change it |
//! | [`spread`] | sorted keys without memory, for large trees |
//! | [`cache_curve`] | hit ratio of the index cache against its bound |
//! | [`scaling`] | cost of a lookup and bytes of an entry, in small trees and large |
//! | [`experiment`] | the paper's experiments on the NIC model |
//! | [`simulated`] | a benchmark on the NIC model |
//! | [`figures`] | every figure of the paper, with ours beside |
//! | [`report`] | the result, for programs and for people |
//! | [`error`] | why a run has no result |
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

/// Implements `FromStr` for an enum of `named!`. The error is a text that ends with the available names.
macro_rules! parsed_by_name {
    ($type:ty, $error:literal) => {
        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let known = || Self::ALL.map(Self::name).join(", ");
                Self::from_name(name).ok_or_else(|| format!(concat!($error, "{}"), known()))
            }
        }
    };
}
pub(crate) use parsed_by_name;

mod access;
mod audit_report;
mod batches;
pub mod bench;
pub mod cache_curve;
pub mod check;
mod check_report;
mod churn;
mod drive;
pub mod error;
pub mod experiment;
pub mod figures;
pub mod keys;
mod load;
pub mod options;
mod record;
pub mod report;
pub mod scaling;
pub mod sensitivity;
pub mod simulated;
pub mod spread;
#[cfg(test)]
mod testing;
mod threads;
pub mod variant;
pub mod workload;
pub mod zipf;

pub use bench::Progress;
pub use check::{AuditReport, CheckOptions, CheckReport};
pub use error::BenchError;
pub use keys::{HotKeys, Keys};
pub use options::{BenchOptions, Length, Load};
pub use report::{Percentiles, Ranges, Report};
pub use variant::Variant;
pub use workload::{Action, Demand, Generator, Workload};
pub use zipf::Zipf;
