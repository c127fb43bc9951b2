//! A memory server's access to its own memory.

use crate::Space;

/// The memory of one memory server, as its own CPU sees it. The state machine in `sherman-memory-server` uses
/// only this trait, so the same code keeps the superblock under every backend.
///
/// Offsets and lengths come from the server itself and are in bounds. A backend may panic on others.
pub trait Memory {
    /// The size of a space in bytes.
    fn size(&self, space: Space) -> u64;

    /// Copies bytes out, unit-wise atomic (F1).
    fn load(&self, space: Space, offset: u64, into: &mut [u8]);

    /// Copies bytes in, unit-wise atomic (F1).
    fn store(&self, space: Space, offset: u64, from: &[u8]);

    /// Loads an aligned word.
    fn load_u64(&self, space: Space, offset: u64) -> u64 {
        let mut word = [0; 8];
        self.load(space, offset, &mut word);
        u64::from_le_bytes(word)
    }

    /// Stores an aligned word.
    fn store_u64(&self, space: Space, offset: u64, word: u64) {
        self.store(space, offset, &word.to_le_bytes());
    }
}
