//! A plain memory for tests and simulators, and options small enough to run out of memory.

use crate::{FormatOptions, LaneWidth, LockOptions, ReleaseMode};
use sherman_fabric::{Memory, Space};
use std::cell::RefCell;

/// A memory server's memory in two vectors: single-threaded, exact, cheap to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VecMemory {
    host: RefCell<Vec<u8>>,
    on_chip: RefCell<Vec<u8>>,
}

impl VecMemory {
    /// Zeroed memory of these sizes.
    pub fn new(host_bytes: usize, on_chip_bytes: usize) -> Self {
        Self { host: RefCell::new(vec![0; host_bytes]), on_chip: RefCell::new(vec![0; on_chip_bytes]) }
    }

    fn space(&self, space: Space) -> &RefCell<Vec<u8>> {
        match space {
            Space::Host => &self.host,
            Space::OnChip => &self.on_chip,
        }
    }
}

impl Memory for VecMemory {
    fn size(&self, space: Space) -> u64 {
        self.space(space).borrow().len() as u64
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        let at = offset as usize;
        into.copy_from_slice(&self.space(space).borrow()[at..at + into.len()]);
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        let at = offset as usize;
        self.space(space).borrow_mut()[at..at + from.len()].copy_from_slice(from);
    }
}

/// The identity of memories in tests.
pub const MEMORY_ID: u64 = 0x5eed;

/// The defaults with a fixed identity. Outside of tests, the caller draws a random one.
pub fn numbered_options() -> FormatOptions {
    FormatOptions { memory_id: MEMORY_ID, ..FormatOptions::default() }
}

/// Options of a server that fills up after a few requests. Chunks have 4 KiB, and spans at most 4 places.
/// There are 16 members, 4 trees, 64 lanes in host memory, and redo areas of two 512-byte slots.
pub fn small_options() -> FormatOptions {
    FormatOptions {
        memory_id: MEMORY_ID,
        chunk_bytes: 4096,
        span_places: 4,
        redo_slot_bytes: 512,
        redo_area_bytes: 1024,
        member_capacity: 16,
        catalog_capacity: 4,
        locks: LockOptions {
            space: Space::Host,
            width: LaneWidth::Bits16,
            lanes: Some(64),
            release: ReleaseMode::Write,
        },
        ..FormatOptions::default()
    }
}
