//! Little-endian fields at constant offsets, and bulk work on a [`Memory`].
//!
//! Offsets passed to `get` and `put` are constants of this crate, checked by `const` assertions against the size of the
//! record they index, so slicing cannot fail on bytes that came from outside.

use sherman_fabric::{Memory, Space};

/// The line of F1: what is read and written atomically in host memory.
pub(crate) const LINE: u64 = 64;
/// Bytes of a word: what a crash of the server cannot cut.
pub(crate) const WORD: u64 = 8;

/// The `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Copies a field's bytes to `at`.
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// A copy of `len` bytes of host memory.
pub(crate) fn load_host<M: Memory + ?Sized>(memory: &M, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    memory.load(Space::Host, offset, &mut bytes);
    bytes
}

/// Zeroes a region whose ends are multiples of a word. On-chip memory takes words only.
pub(crate) fn zero<M: Memory + ?Sized>(memory: &M, space: Space, offset: u64, len: u64) {
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
