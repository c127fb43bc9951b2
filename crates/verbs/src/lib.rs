//! RDMA: one-sided verbs through libibverbs (`docs/FABRIC.md`).
//!
//! Clients reach a memory server's memory through its NIC; its CPU does not take part. Everything else
//! (joining, leases, fences, requests) uses the soft NIC's control connections. They also carry the
//! queue-pair information of the two ends ([`qp_info`]).
//!
//! | module | what |
//! |---|---|
//! | [`options`] | device, port, address, as a URL names them |
//! | [`address`] | which port and address to use, chosen from a description |
//! | [`facts`] | the features of a device, and what clients may expect of it |
//! | [`qp_info`] | the queue-pair information that the two ends exchange, as bytes |
//! | [`plan`](mod@plan) | a work list, checked and turned into work requests |
//! | [`slab`] | registered memory, allocated per list |
//! | [`fault`] | what a failed completion means |
//! | [`wire`] | counters of an endpoint's use of its NIC |
//! | `rdma` | all code that talks to a device: only with the feature `rdma` |
//!
//! Without the feature `rdma` only the first eight modules exist. They need no library and are tested
//! everywhere. With it the crate is built on `rdma-mummy-sys`, which looks for libibverbs when the program
//! starts: one binary runs with and without it.
//!
//! `docs/FABRIC.md` says **what was tested where**. No RDMA NIC was available: the device is soft-RoCE in a
//! guest.

pub mod address;
pub mod error;
pub mod facts;
pub mod fault;
pub mod options;
pub mod plan;
pub mod qp_info;
#[cfg(all(feature = "rdma", target_os = "linux"))]
mod rdma;
pub mod slab;
pub mod wire;

pub use error::VerbsError;
pub use options::VerbsOptions;
#[cfg(all(feature = "rdma", target_os = "linux"))]
pub use rdma::{Device, VerbsEndpoint, VerbsFabric, VerbsJoinError, VerbsPath};
