//! The memory of the control state: words that only the server's own CPU uses.
//!
//! No verb reaches it, and the CPU's lock orders all accesses. A change is a sequence of stores of whole
//! words, each behind all earlier ones. So memory in a file is right after any store at which the process
//! dies: every change commits by one word.

use sherman_fabric::{Memory, Space};
use sherman_pages::zeroed::Zeroed;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

const WORD: usize = 8;

/// The memory of a control state, perhaps of no bytes.
#[derive(Debug)]
pub(crate) struct ControlMemory {
    words: Zeroed<AtomicU64>,
}

impl ControlMemory {
    /// Zeroed memory of `bytes` bytes, a multiple of 8. `None` if the system does not have that much.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        Some(Self { words: Zeroed::new(usize::try_from(bytes).ok()? / WORD)? })
    }

    /// The given words, which lie in a file.
    pub(crate) fn in_file(words: Zeroed<AtomicU64>) -> Self {
        Self { words }
    }
}

impl Memory for ControlMemory {
    fn size(&self, space: Space) -> u64 {
        match space {
            Space::Host => (self.words.len() * WORD) as u64,
            Space::OnChip => 0,
        }
    }

    fn load(&self, _: Space, offset: u64, into: &mut [u8]) {
        let (mut at, mut into) = (offset as usize, into);
        while !into.is_empty() {
            let skip = at % WORD;
            let part = into.len().min(WORD - skip);
            let (head, rest) = into.split_at_mut(part);
            head.copy_from_slice(&self.words[at / WORD].load(Acquire).to_ne_bytes()[skip..skip + part]);
            (at, into) = (at + part, rest);
        }
    }

    fn store(&self, _: Space, offset: u64, from: &[u8]) {
        debug_assert!((offset as usize).is_multiple_of(WORD) && from.len().is_multiple_of(WORD));
        for (bytes, word) in from.as_chunks::<WORD>().0.iter().zip(&self.words[offset as usize / WORD..]) {
            word.store(u64::from_ne_bytes(*bytes), Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded_from_any_byte() {
        let memory = ControlMemory::new(64).unwrap();
        let bytes: Vec<u8> = (1..=16).collect();
        memory.store(Space::Host, 8, &bytes);
        memory.store_u64(Space::Host, 56, 7);
        for (from, len) in [(0, 64), (9, 3), (15, 2), (8, 16), (63, 1)] {
            let mut found = vec![0; len];
            memory.load(Space::Host, from as u64, &mut found);
            let mut all = [0; 64];
            all[8..24].copy_from_slice(&bytes);
            all[56] = 7;
            assert_eq!(found, all[from..from + len]);
        }
        assert_eq!((memory.size(Space::Host), memory.size(Space::OnChip)), (64, 0));
    }
}
