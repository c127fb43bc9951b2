//! Tree suites that run on any cluster: a tree must behave the same in one process, across processes and
//! across hosts.
//!
//! Each suite takes a way to open compute servers (or one of them), and runs trees of its own through the
//! public library. Its error says what did not hold. The caller limits times and counts.
//!
//! | module | what must hold |
//! |---|---|
//! | [`costs`](mod@costs) | a fixed sequence of operations costs the same everywhere |
//! | [`model`](mod@model) | any sequence of operations has the same outcomes as on a `BTreeMap` |
//! | [`stress`](mod@stress) | threads of several compute servers at once: no entry is lost or duplicated, and no update is lost |
//! | [`one_key`](mod@one_key) | many threads of several compute servers on one key: all updates and gets have a legal order |
//! | [`ranges`](mod@ranges) | a range misses no key that is there throughout, returns none twice, and keeps its order |
//! | [`ledger`](mod@ledger) | an acknowledged change is there, whichever writer died; any other change may or may not be |

pub mod costs;
pub mod ledger;
pub mod model;
pub mod one_key;
mod preempted;
pub mod ranges;
pub mod stress;

pub use costs::costs;
pub use ledger::{Ledger, Note};
pub use model::model;
pub use one_key::{OneKey, one_key};
pub use ranges::ranges;
pub use stress::{Stressed, stress};

/// The property that did not hold, in one line.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Fails with a text.
pub(crate) fn fail<T>(text: String) -> Result<T, Failure> {
    Err(text.into())
}

/// Checks that a tree has no defects except tolerated ones.
pub(crate) fn sound(check: &sherman::Check) -> Result<(), Failure> {
    if check.is_clean() { Ok(()) } else { fail(format!("the tree is not sound: {check:?}")) }
}
