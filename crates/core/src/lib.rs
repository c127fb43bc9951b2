//! The Sherman tree over one-sided verbs, in the paper's reading order.
//!
//! The crate is generic over a [`sherman_fabric::Endpoint`]: no I/O, no clock, no ambient randomness and no
//! `unsafe`. So one source runs inline on embedded memory, over a network, and unit by unit under the
//! simulator's adversary.
//!
//! | module | what | paper |
//! |---|---|---|
//! | [`tree`] | lookup, insert, split, root | §4.2 |
//! | [`lock`] | HOCL: lanes, local table, handover | §4.3 |
//! | [`node`] | node formats, versions | §4.4 |
//! | [`tree::write`] | command combination | §4.5 |
//! | [`cache`] | index cache | §4.2.3 |
//! | [`alloc`] | chunks and nodes | §4.2.4 |
//! | [`redo`] | redo records of clients that may die | not in it |
//! | [`doubt`] | changes whose outcome is unknown | not in it |
//! | [`recovery`] | leases, and repairing what dead clients left behind | not in it |
//! | `replicas` | volumes in several copies: closed volumes, leases of readers | not in it |
//! | [`audit`] | finding damage in the whole cluster | not in it |
//! | [`compute`], [`worker`], [`op`], [`session`] | a compute server, its threads, their operations | |
//! | [`techniques`] | every part switchable | §5.2 |
//! | `mutant`, `seam` | bugs planted on purpose, with the cargo feature `mutants` | |
#![forbid(unsafe_code)]

#[macro_use]
mod seam;

pub mod alloc;
pub mod audit;
pub mod cache;
pub mod cause;
pub mod compute;
pub mod doubt;
mod ended;
pub mod error;
pub mod lock;
mod membership;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod node;
pub mod op;
pub mod recovery;
pub mod redo;
mod replicas;
pub mod root;
pub mod session;
mod share;
pub mod survey;
mod sync;
pub mod techniques;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod worker;

pub use alloc::Census;
pub use audit::{Audit, Finding, Part, Places};
pub use cause::{Cause, Retries};
pub use compute::{ComputeOptions, ComputeServer};
pub use doubt::{Doubt, Fate};
pub use error::Error;
pub use membership::Participation;
pub use node::Format;
pub use op::Op;
pub use recovery::Recovery;
pub use share::SharedReads;
pub use techniques::Techniques;
pub use tree::bulk::{Batch, Loading, Written};
pub use tree::check::{Broken, Check, Level};
pub use tree::clear::Clearing;
pub use tree::drop::Dropped;
pub use tree::range::{Direction, Scan};
pub use tree::remove::Exchange;
pub use tree::walk::Walk;
pub use tree::{Creation, TreeState};
pub use worker::Worker;
