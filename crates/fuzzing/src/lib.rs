//! Memory and connections that lie: the bodies of the fuzz targets in `fuzz/`, as plain functions over a string of bytes.
//!
//! What another machine wrote may be anything: it died in the middle, it has a bug, its memory rots. Whoever reads it gets
//! a typed error (`Corrupt`, a refused open, a timeout) and never a panic, an endless loop or an access out of bounds.
//! Each target turns its input into a lie and then asks everything that a client may ask. An input decides all: which
//! shape, which questions, whether the bytes are raw or those of something valid that was then damaged, and whether the
//! damage is *sealed* afterwards: a checksum or stamp that fits it, so that what lies behind the seal is reached.
//!
//! | module | what is lied about |
//! |---|---|
//! | [`node`] | the bytes of one node, in every format |
//! | [`superblock`] | the first bytes of a memory server |
//! | [`server`] | a memory server's tables: chunks, clients, members, catalog |
//! | [`redo`] | redo records |
//! | [`replay`] | what a dead compute server left behind: records, lanes, nodes, for another to recover |
//! | [`tree`] | the nodes, lanes and root word of a whole tree |
//! | [`frames`] | what comes over a connection of the soft NIC: frames of either side |
//! | [`source`] | how an input is read |
//! | [`hasty`] | an endpoint in virtual time, on which every deadline passes at once |
//!
//! The targets run under `cargo fuzz` (`fuzz/README.md`) and, on inputs of a seeded generator, under `cargo test`
//! (`tests/seeded.rs`). Each returns how far its input got, so that the tests can tell whether inputs get anywhere.
#![forbid(unsafe_code)]

pub mod frames;
pub mod hasty;
mod lab;
pub mod node;
pub mod redo;
pub mod replay;
pub mod server;
pub mod source;
pub mod superblock;
pub mod tree;

/// How far an input got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The lie was seen through at once.
    Refused,
    /// It was taken for the truth, and every question got an answer.
    Taken,
}

/// A fuzz target.
pub type Target = fn(&[u8]) -> Reached;

/// Every target by the name it has in `fuzz/`.
pub const TARGETS: [(&str, Target); 7] = [
    ("node", node::run),
    ("superblock", superblock::run),
    ("server", server::run),
    ("redo", redo::run),
    ("replay", replay::run),
    ("tree", tree::run),
    ("frames", frames::run),
];
