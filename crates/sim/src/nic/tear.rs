//! Torn READs: a READ that overlaps in time with a WRITE of several lines sees some of them new and some old.
//!
//! Both move line by line in address order, as NICs are observed to do. A WRITE proceeds as its bytes arrive
//! over the link. A READ proceeds at the speed of PCIe, which is a little faster. The model applies a WRITE
//! as a whole when its first line lands, and keeps the old bytes for a short time. A READ that passed a line
//! before the WRITE did gets the old line.

use super::machine::Timing;
use std::collections::VecDeque;
use std::ops::Range;

const LINE: u64 = 64;
/// A WRITE older than the time for this many bytes cannot overlap a READ that ends now, because the largest
/// transfers take less.
const MEMORABLE_BYTES: u64 = 256 << 10;

struct Write {
    at: u64,
    offset: u64,
    old: Vec<u8>,
}

/// Recent WRITEs of several lines, the latest last.
#[derive(Default)]
pub(super) struct Recent {
    writes: VecDeque<Write>,
    spare: Vec<Vec<u8>>,
}

fn lines(range: &Range<u64>) -> u64 {
    range.end.div_ceil(LINE) - range.start / LINE
}

impl Recent {
    /// Whether a WRITE of these bytes can tear.
    pub(super) fn concerns(offset: u64, len: u64) -> bool {
        len > 0 && lines(&(offset..offset + len)) > 1
    }

    /// Returns a buffer for the bytes that a WRITE replaces.
    pub(super) fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.resize(len, 0);
        buffer
    }

    /// Records a WRITE that starts to land now. `old` holds the bytes that it replaces.
    pub(super) fn note(&mut self, now: u64, offset: u64, old: Vec<u8>, timing: &Timing) {
        let memorable = timing.dma(MEMORABLE_BYTES);
        while self.writes.front().is_some_and(|write| write.at + memorable < now) {
            self.spare.extend(self.writes.pop_front().map(|write| write.old));
        }
        self.writes.push_back(Write { at: now, offset, old });
    }

    /// Restores old bytes in `image`, which a READ fetched from `offset` until now: the lines that the READ
    /// passed before a WRITE landed there.
    pub(super) fn tear(&self, now: u64, offset: u64, image: &mut [u8], timing: &Timing) {
        let read = offset..offset + image.len() as u64;
        let took = timing.dma(image.len() as u64);
        let began = now.saturating_sub(took);
        for write in self.writes.iter().rev() {
            let written = write.offset..write.offset + write.old.len() as u64;
            if write.at + timing.landing(write.old.len() as u64) <= began {
                // This WRITE landed before the READ began. Earlier WRITEs landed earlier still, or are too
                // long for the model to distinguish here.
                continue;
            }
            let (from, to) = (read.start.max(written.start), read.end.min(written.end));
            let mut at = from;
            while at < to {
                let end = to.min((at / LINE + 1) * LINE);
                // The READ passes its lines at one rate, whatever the headers between them.
                let passed = began + took * (end - read.start) / (read.end - read.start);
                let landed = write.at + timing.landing(end - written.start);
                if landed > passed {
                    let (into, from) = ((at - read.start) as usize, (at - written.start) as usize);
                    let len = (end - at) as usize;
                    image[into..into + len].copy_from_slice(&write.old[from..from + len]);
                }
                at = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Params;

    /// Returns what a READ of four lines that ends at `end` sees of a WRITE of four lines that begins to land
    /// at 1,000,000.
    fn seen(end: u64) -> Vec<u8> {
        let timing = Timing::new(Params::PAPER);
        let mut recent = Recent::default();
        recent.note(1_000_000, 4096, vec![0; 256], &timing);
        let mut image = vec![1; 256];
        recent.tear(end, 4096, &mut image, &timing);
        image.chunks(64).map(|line| line[0]).collect()
    }

    #[test]
    fn a_read_sees_what_it_passed_before_the_write_as_it_was() {
        let timing = Timing::new(Params::PAPER);
        // A READ that is ahead of the WRITE stays ahead. A READ that follows closely overtakes the WRITE and
        // is torn.
        assert_eq!(seen(1_000_000 + timing.dma(256) - 1), [0; 4]);
        assert_eq!(seen(2_000_000), [1; 4]);
        let mut recent = Recent::default();
        recent.note(1_000_000, 4096, vec![0; 1024], &timing);
        let mut image = vec![1; 1024];
        recent.tear(1_001_000 + timing.dma(1024), 4096, &mut image, &timing);
        assert_eq!((image[0], image[1023]), (1, 0));
    }

    #[test]
    fn only_writes_of_several_lines_tear() {
        assert!(!Recent::concerns(64, 64) && !Recent::concerns(70, 17) && !Recent::concerns(0, 0));
        assert!(Recent::concerns(120, 17) && Recent::concerns(0, 65));
    }
}
