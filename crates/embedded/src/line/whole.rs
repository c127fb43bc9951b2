//! Verbs that are atomic as a whole ([`Atomicity::Verb`](super::Atomicity::Verb)): all their lines are held, or looked at, at once.
//! In one process only: a [`Holder`](super::Holder) that keeps something keeps it of one line.

use super::{Alone, Backoff, Lines, OPTIMISM, lines_of, pieces, unstalled};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

/// Lines that a whole-verb READ tries optimistically: the largest node, 64 KiB. A longer one takes its lines.
const SNAPSHOT: usize = 1024;
/// Lines of a READ whose samples fit a small array.
const SMALL_SNAPSHOT: usize = 32;

impl Lines {
    pub(super) fn read_verb(&self, offset: usize, into: &mut [u8]) {
        let lines = lines_of(offset, into.len());
        if lines.len() <= SNAPSHOT {
            let mut backoff = Backoff::default();
            for _ in 0..OPTIMISM {
                // Two sizes, so that a common node does not pay for clearing the samples of the largest.
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

    /// One optimistic attempt at a whole verb.
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

    /// Takes lines in ascending order, the order of everybody who takes more than one. Their sequence words, odd
    /// and ours, remember what to release them from.
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
