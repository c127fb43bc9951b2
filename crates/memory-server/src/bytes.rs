//! Bulk work on a [`Memory`].

use sherman_fabric::{Memory, Space};
use sherman_layout::bytes::WORD;

/// A copy of `len` bytes of host memory.
pub(crate) fn load_host(memory: &dyn Memory, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    memory.load(Space::Host, offset, &mut bytes);
    bytes
}

/// Zeroes a region whose ends are multiples of a word. On-chip memory accepts whole words only.
pub(crate) fn zero(memory: &dyn Memory, space: Space, offset: u64, len: u64) {
    const BLOCK: [u8; 4096] = [0; 4096];
    let step = match space {
        Space::Host => BLOCK.len() as u64,
        Space::OnChip => WORD,
    };
    let mut done = 0;
    while done < len {
        let part = step.min(len - done);
        memory.store(space, offset + done, &BLOCK[..part as usize]);
        done += part;
    }
}
