//! Tree suites that run on any cluster: what a tree must do is the same in one process, across processes and across hosts.
//!
//! Each takes a way to open compute servers (or one of them), drives trees of its own through the public library, and says in
//! an error what did not hold. Times and counts are bounded by what the caller asks for.
//!
//! | module | what must hold |
//! |---|---|
//! | [`costs`](mod@costs) | a fixed sequence of operations costs the same everywhere |
//! | [`model`](mod@model) | any sequence of operations has the outcomes it would have on a `BTreeMap` |
//! | [`stress`](mod@stress) | threads of several compute servers at once: nothing lost, nothing doubled, no update forgotten |
//! | [`ranges`](mod@ranges) | a range misses no key that is there throughout, gives none twice, and keeps its order |
//! | [`ledger`](mod@ledger) | what was acknowledged is there, whoever died; what was not may or may not be |
#![forbid(unsafe_code)]

pub mod costs;
pub mod ledger;
pub mod model;
pub mod ranges;
pub mod stress;

pub use costs::costs;
pub use ledger::{Ledger, Note};
pub use model::model;
pub use ranges::ranges;
pub use stress::{Stressed, stress};

/// What did not hold, in one line.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Fails with a text.
pub(crate) fn fail<T>(text: String) -> Result<T, Failure> {
    Err(text.into())
}

/// Checks a tree, and that nothing but what was tolerated is amiss.
pub(crate) fn sound(check: &sherman::Check) -> Result<(), Failure> {
    if check.is_clean() { Ok(()) } else { fail(format!("the tree is not sound: {check:?}")) }
}
