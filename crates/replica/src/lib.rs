//! Volumes in several copies.
//!
//! A **volume** is what the server bits of a pointer name. A **copy** is a volume's memory on one **host**.
//! To a backend a copy is what one memory server is: its own memory, its own lanes, its own fences.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | [`VolumeTable`]: which copies a volume has, and which part each plays |
//! | [`mod@judge`] | what became of a change whose list failed, after the table has changed (rule E3) |
//! | [`endpoint`] | [`ReplicatedEndpoint`]: an endpoint for volumes over a backend's endpoint for copies |
//!
//! `docs/REPLICATION.md` has the rules that the code cites (T, I, L, W, R, E, X), and why they hold. In
//! short: a client uses one table from its start to its end (rule E). It writes the backup first, waits, and
//! then writes the primary and releases the lane there (W1). So the primary's states are a prefix of the
//! backup's, and a promoted backup has every change that a reader can have seen.

#![forbid(unsafe_code)]

pub mod endpoint;
pub mod judge;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod table;

pub use endpoint::{LaneTable, ReplicatedEndpoint};
pub use judge::{Judgement, judge};
pub use table::{CopySite, TableError, VolumeEntry, VolumeTable};
