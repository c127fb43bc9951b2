//! The memory of the control state, on the heap.

use sherman_fabric::{Memory, Space};
use std::cell::RefCell;

/// Host memory in a vector, which one thread at a time uses. It has no on-chip memory.
#[derive(Clone, Debug)]
pub(super) struct ControlMemory(RefCell<Vec<u8>>);

impl ControlMemory {
    pub(super) fn new(bytes: u64) -> Self {
        Self(RefCell::new(vec![0; bytes as usize]))
    }
}

impl Memory for ControlMemory {
    fn size(&self, space: Space) -> u64 {
        match space {
            Space::Host => self.0.borrow().len() as u64,
            Space::OnChip => 0,
        }
    }

    fn load(&self, _space: Space, offset: u64, into: &mut [u8]) {
        let at = offset as usize;
        into.copy_from_slice(&self.0.borrow()[at..at + into.len()]);
    }

    fn store(&self, _space: Space, offset: u64, from: &[u8]) {
        let at = offset as usize;
        self.0.borrow_mut()[at..at + from.len()].copy_from_slice(from);
    }
}
