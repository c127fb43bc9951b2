//! Verbs that are atomic as a whole ([`Atomicity::Verb`](super::Atomicity::Verb)): they hold, or sample, all
//! their lines at once. Only in one process, because a [`Holder`](super::Holder) saves state for only one
//! line.

use super::{Alone, Backoff, Lines, OPTIMISM, lines_of, pieces, unstalled};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

/// Maximum number of lines that a whole-verb READ tries optimistically: the largest node, 64 KiB. A longer
/// READ takes its lines.
const SNAPSHOT: usize = 1024;
/// Maximum number of lines whose samples fit the small array.
const SMALL_SNAPSHOT: usize = 32;

impl Lines {
    pub(super) fn read_verb(&self, offset: usize, into: &mut [u8]) {
        let lines = lines_of(offset, into.len());
        if lines.len() <= SNAPSHOT {
            let mut backoff = Backoff::default();
            for _ in 0..OPTIMISM {
                // Two sizes, so that a READ of a common node does not clear the samples of the largest node.
                let accepted = match lines.len() {
                    ..=SMALL_SNAPSHOT => self.try_snapshot::<SMALL_SNAPSHOT>(lines.clone(), offset, into),
                    _ => self.try_snapshot::<SNAPSHOT>(lines.clone(), offset, into),
                };
                if accepted {
                    return;
                }
                backoff.wait();
            }
        }
        self.take_all(lines.clone());
        self.copy_out(offset, into);
        for line in lines {
            let odd = self.seqs[line].load(Relaxed);
            self.release_unchanged(line, odd & !1);
        }
    }

    /// Makes one optimistic attempt at a whole verb.
    fn try_snapshot<const N: usize>(&self, lines: Range<usize>, offset: usize, into: &mut [u8]) -> bool {
        let mut before = [0u32; N];
        let before = &mut before[..lines.len()];
        let seqs = &self.seqs[lines];
        let mut odd = 0;
        for (sample, seq) in before.iter_mut().zip(seqs) {
            *sample = seq.load(Acquire);
            odd |= *sample & 1;
        }
        if odd != 0 {
            return false;
        }
        self.copy_out(offset, into);
        fence(Acquire);
        before.iter().zip(seqs).all(|(sample, seq)| seq.load(Relaxed) == *sample)
    }

    /// Takes lines in ascending order. All code that takes more than one line uses this order. The odd
    /// sequence words keep the even words that the release needs.
    pub(super) fn take_all(&self, lines: Range<usize>) {
        for line in lines {
            unstalled(self.take(&Alone, line));
        }
    }

    pub(super) fn release_all_changed(&self, lines: Range<usize>) {
        for line in lines {
            let odd = self.seqs[line].load(Relaxed);
            self.release_changed(line, odd & !1);
        }
    }

    pub(super) fn write_verb(&self, offset: usize, from: &[u8]) {
        let lines = lines_of(offset, from.len());
        self.take_all(lines.clone());
        for piece in pieces(offset, from.len()) {
            self.copy_piece_in(piece.line, piece.skip, &from[piece.bytes]);
        }
        self.release_all_changed(lines);
    }
}
