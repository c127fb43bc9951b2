//! RDMA: one-sided verbs through libibverbs (`docs/FABRIC.md`).
//!
//! Clients reach a memory server's memory through its NIC; its CPU does not take part. Everything else (joining, leases, fences,
//! requests) goes over the soft NIC's control connections, which also carry the two cards that connect a queue pair
//! ([`card`]).
//!
//! | module | what |
//! |---|---|
//! | [`options`] | device, port, address, as a URL names them |
//! | [`address`] | which port and address to use, chosen from a description |
//! | [`facts`] | what a device can do, and what clients may expect of it |
//! | [`card`] | what the two ends tell each other, as bytes |
//! | [`plan`](mod@plan) | a work list, checked and turned into work requests |
//! | [`slab`] | registered memory, given out by list |
//! | [`fault`] | what a failed completion means |
//! | [`wire`] | what an endpoint asked of its NIC |
//! | `rdma` | all that talks to a device: only with the feature `rdma` |
//!
//! Without the feature `rdma` only the first eight are there, which need no library and are tested everywhere. With it the crate
//! is built on `rdma-mummy-sys`, which looks for libibverbs when the program starts: one binary runs with and without it.
//!
//! **What was tested where** is in `docs/FABRIC.md`. No RDMA NIC has been at hand: the device is soft-RoCE in a guest.

pub mod address;
pub mod card;
pub mod error;
pub mod facts;
pub mod fault;
pub mod options;
pub mod plan;
#[cfg(all(feature = "rdma", target_os = "linux"))]
mod rdma;
pub mod slab;
pub mod wire;

pub use error::VerbsError;
pub use options::VerbsOptions;
#[cfg(all(feature = "rdma", target_os = "linux"))]
pub use rdma::{Device, VerbsEndpoint, VerbsFabric, VerbsJoinError, VerbsPath};
