//! Superblocks with false contents.

use crate::cluster;
use sherman_core::{ComputeOptions, ComputeServer, Error};
use sherman_executor::block_on;
use sherman_fabric::{Memory, Space};
use sherman_layout::{SUPERBLOCK_BYTES, Superblock};

#[test]
fn more_lanes_than_there_is_memory_for_are_refused_before_room_is_made_for_them() {
    let cluster = cluster();
    let memory = cluster.memory(0).expect("server 0");
    let mut bytes = [0; SUPERBLOCK_BYTES];
    memory.load(Space::Host, 0, &mut bytes);
    let mut superblock = Superblock::decode(&bytes).expect("a sound one");
    superblock.geometry.lock.count = 1 << 31;
    memory.store(Space::Host, 0, &superblock.encode());
    let endpoint = cluster.join().expect("a compute server").endpoint();
    let opened = block_on(&endpoint, ComputeServer::open(&endpoint, ComputeOptions::default()));
    assert!(matches!(opened, Err(Error::Unsupported { .. })), "{opened:?}");
}
