//! A host's node of the control group, without its I/O.
//!
//! The hosts of a replicated cluster form a group, which keeps the control state
//! (`docs/REPLICATION.md`). A [`Node`] is one host's part of it: the Raft node ([`sherman_consensus::Group`])
//! with the [`Machine`] that it replicates, the requests that wait for an answer, and the duties of the
//! leader. `sherman-host` runs a node with threads, sockets and clocks. The simulator runs the same node
//! under its scheduler.
//!
//! The crate is sans-IO and deterministic. The caller passes in the time, messages and requests. It takes
//! out writes, messages, answers and notices.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | [`Machine`]: the control state as the group's state machine, and commands as bytes |
//! | [`node`] | [`Node`]: messages, requests, the leader's duties |
//! | `mutant` | bugs planted on purpose |
//!
//! **What must hold.**
//!
//! - **Nothing is answered before it is committed.** Only the requests `Cluster` and `Alive` are answered
//!   from one node's memory.
//! - **A leader begins with `Lead`** (L3): the state's time passes as its clock does, and all leases restart.
//! - **Only a leader that listened declares hosts lost.** After a pause of its own process it begins anew.
#![forbid(unsafe_code)]

pub mod machine;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod node;

pub use machine::Machine;
pub use node::{HostId, MOST_HOSTS, Node, NodeOptions, NodeOutput, Notice, not_leader};
