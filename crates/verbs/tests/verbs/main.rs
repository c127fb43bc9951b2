//! Tests on an RDMA device, real or soft. Without a device the tests say so and pass; with
//! `SHERMAN_VERBS_REQUIRED` set they fail. In a guest with soft-RoCE: `scripts/verbs-test`.
#![cfg(all(feature = "rdma", target_os = "linux"))]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod common;
mod contract;
mod faults;
mod links;
mod lists;
