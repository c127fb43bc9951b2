//! The control plane between compute servers and memory servers that are processes: how a client joins, asks,
//! renews and leaves, whatever moves its verbs (`docs/FABRIC.md`).
//!
//! Every backend whose memory servers are processes uses it. `sherman-soft-nic` sends lists in frames on the
//! same connections. `sherman-shm` and `sherman-verbs` have data paths of their own.
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | frames, control requests and the handshake as bytes: pure functions, no I/O |
//! | [`auth`] | the cluster's secret, and how two sides prove that they know it |
//! | [`client`] | a compute server's identity, and its threads' connections (Linux) |
//! | [`path`] | what a server asks of a data path besides lists in frames (Linux) |
//! | [`plane`] | what a host's sockets ask of its part of the control state |
//! | [`pace`] | how long a thread polls before it sleeps (Linux) |
//!
//! **What it does not do.** The secret is never sent, and neither side talks to a peer that does not know it.
//! But frames are neither encrypted nor signed: an attacker that can change packets on the way can change
//! memory. Use it on a trusted network, or inside a tunnel.
#![forbid(unsafe_code)]

pub mod auth;
#[cfg(target_os = "linux")]
pub mod client;
#[cfg(target_os = "linux")]
pub mod pace;
#[cfg(target_os = "linux")]
pub mod path;
pub mod plane;
pub mod wire;

pub use auth::{Secret, SecretError};
#[cfg(target_os = "linux")]
pub use client::{
    Address, AdminError, Attachment, ConnectError, ControlEndpoint, ControlFabric, CopyPlan, JoinError,
    JoinOptions, Lists, NoLists, Operator,
};
