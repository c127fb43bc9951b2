//! Sherman's memory server: a sans-IO state machine over its own memory.
//!
//! A memory server is passive (paper §3, §4.2.1; `ARCHITECTURE.md`): clients read and change its memory by one-sided
//! verbs, and its CPU answers only a few control requests about memory, members and the catalog. That CPU's part is
//! this crate. The embedded backend, the simulator and the network servers all run it: each gives it a
//! [`Memory`](sherman_fabric::Memory), hands it every [`Request`](sherman_fabric::Request) together with the time, and
//! sends back what it answers. It does no I/O, reads no clock, starts no thread and draws no random number, so the same
//! requests at the same times always leave the same bytes.
//!
//! What must hold:
//!
//! - **Everything that matters is in memory.** [`MemoryServer::open`] rebuilds the same state from the bytes alone.
//! - **A crash of the server between any two aligned 8-byte stores leaves memory that opens.** Each change commits by
//!   one word; whatever is stored before that word is invisible without it.
//! - **A chunk keeps its class for ever**, so that a stale pointer into it meets the node size and format it expects.
//! - **A root word belongs to the clients** once its tree exists: they change it by CAS, and a server's CPU must not
//!   store to a word that NIC atomics work on.
//! - **A fenced client gets no answer but a refusal** (F6). The backend asks [`MemoryServer::is_fenced`] and stops its
//!   verbs; that is the half of a fence which this crate cannot do. Nor can it know an id's holder from its next one:
//!   when a member is retired its fence is lifted here, and the backend goes on refusing that incarnation.
//! - **An id is free only when nothing of its holder is left**: it left, or was fenced everywhere, recovered and retired.
//!   Until then it has at most one recoverer.
//!
//! - **A memory belongs to one cluster for ever.** Server 0 knows the identity of every server's memory, and every server
//!   knows its cluster. Neither changes once it is set. Server 0 alone declares a server lost.
//!
//! The bytes are drawn in `docs/LAYOUT.md`.
//!
//! | module | what |
//! |---|---|
//! | [`geometry`] | where everything lies, and the arithmetic clients need: lanes, root words, table entries |
//! | [`superblock`] | the first 256 bytes: identity, version, features, geometry, checksum |
//! | [`format`](mod@format) | options of a new server, and the geometry that follows from them |
//! | [`server`] | [`MemoryServer`]: format, open, handle |
//! | [`chunks`] | the chunk table: which chunk has which class |
//! | [`spans`] | the span table: who owns which part of a chunk, and where there may be free places |
//! | [`clients`] | the client table: fences and redo areas, on every server |
//! | [`members`] | the member table, on server 0 |
//! | [`servers`] | the server table, on server 0: whose memory belongs to the cluster, and what is declared lost |
//! | [`leases`] | who is alive, who is dead, who recovers whom |
//! | [`catalog`] | the named trees, on server 0 |
//! | [`testing`] | a plain memory for tests and simulators |

#![forbid(unsafe_code)]

mod bytes;
pub mod catalog;
pub mod chunks;
pub mod clients;
pub mod format;
pub mod geometry;
pub mod leases;
pub mod members;
pub mod server;
pub mod servers;
pub mod spans;
pub mod superblock;
pub mod testing;

#[cfg(test)]
mod model_tests;

pub use chunks::ChunkEntry;
pub use clients::ClientWord;
pub use format::{FormatError, FormatOptions, LockOptions};
pub use geometry::{Geometry, LaneWidth, LockGeometry, ReleaseMode};
pub use members::{MemberEntry, MemberState};
pub use server::{Census, MemoryServer, OpenError};
pub use servers::ServerEntry;
pub use spans::{HINT_FREE, SpanWord};
pub use superblock::{SUPERBLOCK_BYTES, Superblock, SuperblockError};
