//! HOCL, the hierarchical on-chip lock (paper §4.3).
//!
//! Only the holder of a node's **lane** changes the node. A lane is 16 or 64 bits in the memory server's lock
//! table. A client takes it by a CAS from 0 to the compute server's id, and releases it as the cluster's
//! geometry says. Threads of one compute server first queue at the **local** table, so only one of them at a
//! time contacts the memory server. They hand the lane over among themselves at most four times in a row, or
//! the holder executes the changes of those that wait ([`batch`]).
//!
//! Invariants: a thread hands a lane over or releases it locally only after the completion of the list that
//! carried the last change (F5). A thread that got a lane gives it back on every path, including errors and
//! deadlines.

pub mod batch;
pub mod global;
pub mod job;
pub mod local;
#[cfg(feature = "mutants")]
mod seam;
pub mod several;

pub use global::Held;
pub(crate) use global::Locked;
pub(crate) use several::{Lanes, LockedSeveral};
