//! HOCL, the hierarchical on-chip lock (paper §4.3).
//!
//! A node is changed only by whoever holds its **lane**: 16 or 64 bits in its memory server's lock table, taken by CAS from
//! 0 to the compute server's id and released as the cluster's geometry says. Threads of one compute server first queue at
//! the **local** table, so that only one of them at a time bothers the memory server, and hand the lane over among
//! themselves at most four times in a row.
//!
//! What must hold: a lane is handed over or released locally only after the completion of the list that carried the last
//! change (F5); whoever got a lane gives it back on every path, errors and deadlines included.

pub mod global;
pub mod local;
pub mod several;

pub use global::Held;
pub(crate) use global::Locked;
pub(crate) use several::{Lanes, LockedSeveral};
