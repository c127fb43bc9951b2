//! Memory servers as processes: the **soft NIC**, one-sided verbs over TCP and Unix sockets (`docs/FABRIC.md`).
//!
//! A NIC executes verbs on the memory of a server whose CPU does not know of them. Where there is no such NIC, a few
//! threads of the memory server take its place: they receive verbs in frames, execute them in the order of each
//! connection on memory that the embedded backend keeps ([`sherman_embedded::host`]), and send what they found.
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | frames, verbs, control requests and the handshake as bytes: pure functions, no I/O |
//! | [`auth`] | the cluster's secret, and how two sides prove that they know it |
//! | [`server`] | one memory server as a process (Linux) |
//! | [`client`] | a compute server's identity, and its threads' endpoints (Linux) |
//! | [`metrics`] | counters as text for Prometheus, and a listener that answers with them |
//!
//! **What it does not do.** The secret is never sent and neither side talks to one that does not know it, but frames are
//! neither encrypted nor signed: whoever can change packets on the way can change memory. Use it on a network that is
//! trusted, or inside a tunnel.
#![forbid(unsafe_code)]

pub mod auth;
#[cfg(target_os = "linux")]
pub mod client;
pub mod metrics;
#[cfg(target_os = "linux")]
mod pace;
#[cfg(target_os = "linux")]
pub mod server;
pub mod wire;

pub use auth::{Secret, SecretError};
#[cfg(target_os = "linux")]
pub use client::{
    Address, AdminError, Attachment, ConnectError, JoinError, JoinOptions, SoftNicAdmin, SoftNicEndpoint, SoftNicFabric,
};
