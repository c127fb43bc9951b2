//! On-chip memory: lock lanes (paper §4.3), in words of 64 bits.
//!
//! Every access lies inside one aligned word, and every change is one atomic operation on that *whole* word.
//! So accesses of different widths never mix, which the language leaves undefined. Neighbouring lanes cannot
//! lose each other's changes. A plain WRITE of a lane may therefore release a lane that a masked CAS took:
//! `caps.write_releases`.
//!
//! Changes are Release and loads are Acquire. So a client that sees a lane released sees the holder's earlier
//! writes (F3).

use sherman_pages::zeroed::Zeroed;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const WORD: usize = 8;

/// On-chip memory of one server.
#[derive(Debug)]
pub(crate) struct OnChip {
    words: Zeroed<AtomicU64>,
}

/// The bits that `len` bytes at byte `skip` occupy in a little-endian word.
fn lane_mask(skip: usize, len: usize) -> u64 {
    (u64::MAX >> (64 - 8 * len)) << (8 * skip)
}

/// All methods take accesses of 1, 2, 4 or 8 bytes inside one word, in bounds. `read` also takes several
/// whole words. [`Region`](crate::memory::Region) checks this.
impl OnChip {
    /// Allocates `bytes` bytes of zeroes, a multiple of 8. Returns `None` if the system does not have that
    /// much memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        Some(Self { words: Zeroed::new(bytes / WORD)? })
    }

    /// The given words, which lie in a file. Each change is one store, so it needs no journal.
    pub(crate) fn in_file(words: Zeroed<AtomicU64>) -> Self {
        Self { words }
    }

    /// The address and the size of the bytes.
    pub(crate) fn place(&self) -> (NonNull<u8>, usize) {
        (NonNull::from(&*self.words).cast(), self.bytes())
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * WORD
    }

    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let skip = offset % WORD;
        for (word, part) in self.words[offset / WORD..].iter().zip(into.chunks_mut(WORD)) {
            part.copy_from_slice(&word.load(Acquire).to_ne_bytes()[skip..skip + part.len()]);
        }
    }

    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let word = &self.words[offset / WORD];
        let skip = offset % WORD;
        let mut bytes = [0; WORD];
        bytes[skip..skip + from.len()].copy_from_slice(from);
        if from.len() == WORD {
            // An exchange, not a store: every change here is one read-modify-write (see `gate`).
            word.swap(u64::from_ne_bytes(bytes), AcqRel);
            return;
        }
        let mask = lane_mask(skip, from.len()).to_le();
        let bits = u64::from_ne_bytes(bytes);
        let mut now = word.load(Relaxed);
        // Lock-free: each retry means that another thread succeeded.
        while let Err(seen) = word.compare_exchange_weak(now, (now & !mask) | bits, AcqRel, Relaxed) {
            now = seen;
        }
    }

    /// As [`Lines::cas`](crate::line::Lines::cas). Fails as soon as the masked bits differ, and tries again
    /// if other bits change.
    pub(crate) fn cas(&self, offset: usize, compare: u64, swap: u64, mask: u64) -> u64 {
        let word = &self.words[offset / WORD];
        let mut now = word.load(Acquire);
        loop {
            let old = u64::from_le(now);
            if (old ^ compare) & mask != 0 {
                return old;
            }
            let new = (old & !mask) | (swap & mask);
            match word.compare_exchange_weak(now, new.to_le(), AcqRel, Acquire) {
                Ok(_) => return old,
                Err(seen) => now = seen,
            }
        }
    }

    /// As [`Lines::faa`](crate::line::Lines::faa).
    pub(crate) fn faa(&self, offset: usize, add: u64) -> u64 {
        let word = &self.words[offset / WORD];
        let mut now = word.load(Relaxed);
        loop {
            let old = u64::from_le(now);
            match word.compare_exchange_weak(now, old.wrapping_add(add).to_le(), AcqRel, Relaxed) {
                Ok(_) => return old,
                Err(seen) => now = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_write_leaves_its_neighbours_alone() {
        let chip = OnChip::new(16).unwrap();
        chip.write(8, &[1, 2, 3, 4, 5, 6, 7, 8]);
        chip.write(10, &[0xaa, 0xbb]);
        chip.write(15, &[0xcc]);
        chip.write(12, &[9, 9]);
        let mut word = [0; 8];
        chip.read(8, &mut word);
        assert_eq!(word, [1, 2, 0xaa, 0xbb, 9, 9, 7, 0xcc]);
        let mut half = [0; 4];
        chip.read(12, &mut half);
        assert_eq!(half, [9, 9, 7, 0xcc]);
    }

    #[test]
    fn a_masked_cas_looks_at_its_lane_only() {
        let chip = OnChip::new(8).unwrap();
        let lane = 0xffff << 16;
        assert_eq!(chip.cas(0, 0, 7 << 16, lane), 0);
        assert_eq!(chip.cas(0, 0, 8 << 16, lane), 7 << 16);
        assert_eq!(chip.cas(0, 0xdead << 32, 9, 0xffff), 7 << 16);
        assert_eq!(chip.faa(0, 1), (7 << 16) | 9);
        assert_eq!(chip.cas(0, 0, 0, 0), (7 << 16) | 10);
        chip.write(2, &[0, 0]);
        assert_eq!(chip.faa(0, u64::MAX), 10);
        assert_eq!(chip.faa(0, 0), 9);
    }
}
