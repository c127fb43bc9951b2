//! Sherman's memory servers: sans-IO state machines, each over its own memory.
//!
//! A memory server is passive (paper §3, §4.2.1; `ARCHITECTURE.md`). Clients read and change its memory by
//! one-sided verbs, and its CPU answers only a few control requests about memory, members and the catalog.
//! This crate is that CPU's part: a [`Volume`] answers requests about its memory, and the [`Control`] state
//! those about members and the catalog, once in a cluster. The embedded backend, the simulator and the
//! network servers all run it. Each gives it a [`Memory`](sherman_fabric::Memory), passes it every
//! [`Request`](sherman_fabric::Request) together with the time, and sends back its answer. The crate does no
//! I/O, reads no clock, starts no thread and draws no random number. So the same requests at the same times
//! always leave the same bytes.
//!
//! What must hold:
//!
//! - **All state that matters is in memory.** [`Volume::open`] and [`Control::open`] rebuild the same state
//!   from the bytes alone.
//! - **A crash between any two aligned 8-byte stores leaves memory that opens.** Each change commits by one
//!   word; stores before that word are invisible without it.
//! - **A chunk keeps its class permanently**, so that a stale pointer into it meets the node size and format
//!   it expects.
//! - **Root words belong to the clients.** They change them by CAS, and a server's CPU must not store to a
//!   word that NIC atomics work on. Format zeroes them.
//! - **A fenced client gets no answer but a refusal** (F6). The backend asks [`Volume::is_fenced`] and stops
//!   the client's verbs; this crate cannot do that half of a fence. Nor can it tell an id's holder from its
//!   next one. When a member is retired, its fence is lifted here, and the backend continues to refuse that
//!   incarnation.
//! - **An id is free only when nothing of its holder remains**: it left, or was fenced everywhere, recovered
//!   and retired. Until then it has at most one recoverer.
//! - **A memory belongs to one cluster permanently.** The control state knows the identity of every volume's
//!   memory, and every volume knows its cluster. Neither changes once it is set. The control state alone
//!   declares a server lost.
//!
//! `docs/LAYOUT.md` shows the layout of the bytes, and `sherman-layout` has their codecs.
//!
//! | module | what |
//! |---|---|
//! | [`volume`] | [`Volume`]: format, open, handle |
//! | [`chunks`] | the chunk table: the class of each chunk |
//! | [`spans`] | the span table: the owner of each part of a chunk, and where there may be free places |
//! | [`clients`] | the client table: fences and redo areas |
//! | [`control`] | [`Control`]: format, open, apply, snapshot |
//! | [`members`] | the member table |
//! | [`leases`] | which members are alive, which are dead, and which member recovers them |
//! | [`servers`] | the server table: the memories of the cluster, and the servers declared lost |
//! | [`catalog`] | the named trees |
//! | [`server`] | [`MemoryServer`]: a volume, and perhaps the control state beside it |
//! | [`cluster`] | [`ClusterState`]: the control state of a cluster of hosts, with the table of volumes |

#![forbid(unsafe_code)]

mod bytes;
pub mod catalog;
pub mod chunks;
pub mod clients;
pub mod cluster;
pub mod control;
pub mod leases;
pub mod members;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod server;
pub mod servers;
pub mod spans;
pub mod volume;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod testing;

pub use cluster::{ClusterSettings, ClusterState, Command};
pub use control::Control;
pub use server::{Census, Memories, MemoryServer, OpenError};
pub use volume::Volume;
