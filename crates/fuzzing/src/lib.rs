//! Corrupt memory and corrupt connections: the bodies of the fuzz targets in `fuzz/`, as plain functions over
//! a string of bytes.
//!
//! Another machine may have written anything: it died in the middle, it has a bug, or its memory decays. The
//! reader gets a typed error (`Corrupt`, a refused open, a timeout). It never panics, loops endlessly or
//! accesses memory out of bounds.
//!
//! Each target turns its input into corrupt data and then runs every operation that a client may run. The
//! input decides everything: the shape, the operations, and whether the bytes are raw or valid bytes that
//! were then damaged. It also decides whether the target *seals* the damage afterwards. To seal is to write a
//! checksum or stamp that fits the damage, so that the code behind the check is reached.
//!
//! | module | what is corrupt |
//! |---|---|
//! | [`node`] | the bytes of one node, in every format |
//! | [`superblock`] | the first bytes of a memory server |
//! | [`server`] | a memory server's tables: chunks, clients, members, catalog |
//! | [`redo`] | redo records |
//! | [`replay`] | the state of a dead compute server (records, lanes, nodes), which another compute server recovers |
//! | [`tree`] | the nodes, lanes and root word of a whole tree |
//! | [`frames`] | the bytes on a connection of the soft NIC: frames of either side |
//! | [`source`] | how an input is read |
//! | [`virtual_time`] | an endpoint in virtual time, on which every deadline passes at once |
//!
//! The targets run under `cargo fuzz` (`fuzz/README.md`). They also run under `cargo test`, on inputs of a
//! seeded generator (`tests/seeded.rs`). Each target returns how far its input got, so that the tests can see
//! whether inputs pass the first checks.
#![forbid(unsafe_code)]

mod fixture;
pub mod frames;
pub mod node;
pub mod redo;
pub mod replay;
pub mod server;
pub mod source;
pub mod superblock;
pub mod tree;
pub mod virtual_time;

/// How far an input got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The first check detected the corruption.
    Refused,
    /// The data was accepted, and every operation returned.
    Taken,
}

/// A fuzz target.
pub type Target = fn(&[u8]) -> Reached;

/// Every target, with its name in `fuzz/`.
pub const TARGETS: [(&str, Target); 7] = [
    ("node", node::run),
    ("superblock", superblock::run),
    ("server", server::run),
    ("redo", redo::run),
    ("replay", replay::run),
    ("tree", tree::run),
    ("frames", frames::run),
];
