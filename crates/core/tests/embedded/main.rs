//! The tree on embedded memory, also with endpoints that complete late or lie.
#![cfg(not(loom))]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod damage;
mod detached;
mod leases;
mod lies;
mod model;
mod nonsense;
mod properties;
mod proportion;
mod refill;
#[path = "../support/mod.rs"]
mod support;
mod values;
mod waiting;
mod wrapped;

use sherman_core::{ComputeOptions, ComputeServer, TreeState, Worker};
use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedFabric, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{Endpoint, Memory, Space};
use sherman_layout::{FormatOptions, LockOptions};
use std::sync::Arc;

const LANES: u32 = 16;

/// Makes a cluster of one memory server with few lanes.
fn cluster() -> Arc<EmbeddedCluster> {
    cluster_with(FormatOptions::default().lease_nanos)
}

/// Makes the same cluster, with another lease for its members.
fn cluster_with(lease_nanos: u64) -> Arc<EmbeddedCluster> {
    let locks = LockOptions { lanes: Some(LANES), ..LockOptions::default() };
    let format = FormatOptions { locks, lease_nanos, ..FormatOptions::default() };
    EmbeddedCluster::new(EmbeddedOptions { memory_bytes: 64 << 20, format, ..EmbeddedOptions::default() })
        .expect("a cluster")
}

/// Makes a compute server and its worker, on an endpoint that is made from a plain one.
fn worker<E: Endpoint>(
    fabric: &EmbeddedFabric,
    options: ComputeOptions,
    wrap: impl FnOnce(EmbeddedEndpoint) -> E,
) -> Worker<E> {
    let endpoint = fabric.endpoint();
    let compute = block_on(&endpoint, ComputeServer::open(&endpoint, options)).expect("a compute server");
    Worker::new(wrap(endpoint), compute)
}

/// Makes a tree of four-entry leaves.
fn tree<E: Endpoint>(worker: &Worker<E>) -> Arc<TreeState> {
    let spec = TreeSpec { format: 1, key_len: 19, value_len: 12, leaf_bytes: 320, internal_bytes: 256 };
    block_on(worker.endpoint(), worker.tree("t", &spec)).expect("a tree")
}

fn key(number: u8) -> [u8; 19] {
    let mut key = [0x5a; 19];
    key[0] = number;
    key
}

fn value(number: u8) -> [u8; 12] {
    [number; 12]
}

fn lanes_are_free(cluster: &EmbeddedCluster) -> bool {
    let memory = cluster.memory(0).expect("server 0");
    (0..u64::from(LANES) * 2 / 8).all(|word| memory.load_u64(Space::OnChip, 8 * word) == 0)
}
