//! A small cluster, and verbs one at a time.
#![allow(dead_code)]

use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::{Call, Counters, Endpoint, FabricError, Peer, Space, WorkList, call, execute};
use sherman_layout::FormatOptions;
use std::sync::Arc;

/// Bytes of host memory per server. Small under Miri, where the cost of a borrow grows with the memory
/// borrowed.
pub const MEMORY: u64 = if cfg!(miri) { 32 << 10 } else { 4 << 20 };
/// An offset behind the superblock and the tables, in chunks that no client allocates.
pub const SCRATCH: u64 = MEMORY / 2;

/// Bytes of on-chip memory per server.
pub const CHIP: u64 = if cfg!(miri) { 128 } else { 1 << 10 };
/// The number of client ids.
pub const MEMBERS: u32 = if cfg!(miri) { 8 } else { 4096 };

pub fn options(servers: u16) -> EmbeddedOptions {
    let format = FormatOptions {
        chunk_bytes: if cfg!(miri) { 4 << 10 } else { 64 << 10 },
        redo_slot_bytes: 1 << 10,
        redo_area_bytes: 4 << 10,
        member_capacity: MEMBERS,
        catalog_capacity: 4,
        // No client renews its lease in these tests.
        lease_nanos: 3_600_000_000_000,
        ..FormatOptions::default()
    };
    EmbeddedOptions { servers, memory_bytes: MEMORY, on_chip_bytes: CHIP, format, atomicity: Atomicity::Line }
}

pub fn cluster(servers: u16) -> Arc<EmbeddedCluster> {
    EmbeddedCluster::new(options(servers)).unwrap()
}

pub fn run(endpoint: &EmbeddedEndpoint, list: WorkList) -> Result<WorkList, FabricError> {
    block_on(endpoint, execute(endpoint, list, &Counters::default()))
}

pub fn ask<C: Call>(endpoint: &EmbeddedEndpoint, peer: Peer, request: C) -> Result<C::Reply, FabricError> {
    block_on(endpoint, call(endpoint, peer, request, &Counters::default()))
}

pub fn write(endpoint: &EmbeddedEndpoint, space: Space, offset: u64, data: &[u8]) -> Result<(), FabricError> {
    let mut list = endpoint.list(0);
    list.write(space, offset, data);
    run(endpoint, list).map(|list| endpoint.recycle(list))
}

pub fn read_word(endpoint: &EmbeddedEndpoint, space: Space, offset: u64) -> Result<u64, FabricError> {
    let mut list = endpoint.list(0);
    let read = list.read(space, offset, 8);
    let list = run(endpoint, list)?;
    let word = u64::from_le_bytes(list.bytes(read).try_into().unwrap());
    endpoint.recycle(list);
    Ok(word)
}
