//! Memory servers as processes: the **soft NIC**, one-sided verbs over TCP and Unix sockets
//! (`docs/FABRIC.md`).
//!
//! A NIC executes verbs on the memory of a server without involving its CPU. Where there is no such NIC, a
//! few threads of the memory server take its place. They receive verbs in frames and execute them in the
//! order of each connection, on memory that the embedded backend keeps ([`sherman_embedded::host`]). Then
//! they send the results. Lists travel on the connections of the control plane ([`sherman_control`]).
//!
//! | module | what |
//! |---|---|
//! | [`verbs`] | a work list as the body of a `List`; its results as the body of a `ListDone` |
//! | [`server`] | one memory server as a process (Linux) |
//! | [`client`] | lists on the connections of a compute server (Linux) |
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod client;
#[cfg(target_os = "linux")]
pub mod server;
pub mod verbs;

#[cfg(target_os = "linux")]
pub use client::{SocketLists, SoftNicEndpoint, SoftNicFabric};
