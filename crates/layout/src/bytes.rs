//! Little-endian fields at constant offsets.
//!
//! Offsets passed to `get` and `put` are constants. `const` assertions check them against the size of their
//! record, so slicing cannot fail on bytes from outside.

/// Bytes of a cache line: the unit that is read and written atomically in host memory (F1).
pub const LINE: u64 = 64;
/// Bytes of a word: a crash of the server never tears a word.
pub const WORD: u64 = 8;

/// The `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The 16-bit field at `at`.
pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// The 32-bit field at `at`.
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The 64-bit field at `at`.
pub fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Copies a field's bytes to `at`.
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}
