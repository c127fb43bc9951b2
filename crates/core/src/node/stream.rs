//! Byte strings inside a node: flat, or laid across stamped lines.
//!
//! In the lined formats the last two bytes of every line are its stamp. So a long byte string (wide fences,
//! the entries of a sorted body) uses 62 bytes of one line and continues in the next. A [`Stream`] hides
//! that.

use super::header::AT_STAMP;
use super::{LINE, get_u16};
use std::cmp::Ordering;
use std::ops::Range;

/// A run of bytes in a node, addressed by logical position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    base: usize,
    lined: bool,
}

impl Stream {
    /// Bytes from `base` on without gaps.
    pub(super) const fn flat(base: usize) -> Self {
        Self { base, lined: false }
    }

    /// The first 62 bytes of each line, from line number `line` on.
    pub(super) const fn lined(line: usize) -> Self {
        Self { base: line * LINE, lined: true }
    }

    /// The physical byte ranges of the logical range `pos..pos + len`, in order.
    pub(super) fn segments(self, pos: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
        let (mut pos, mut left) = (pos, len);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (at, room) = if self.lined {
                (self.base + pos / AT_STAMP * LINE + pos % AT_STAMP, AT_STAMP - pos % AT_STAMP)
            } else {
                (self.base + pos, left)
            };
            let take = room.min(left);
            pos += take;
            left -= take;
            Some(at..at + take)
        })
    }

    /// Copies `into.len()` bytes out.
    pub(super) fn load(self, image: &[u8], pos: usize, into: &mut [u8]) {
        let mut done = 0;
        for range in self.segments(pos, into.len()) {
            let n = range.len();
            into[done..done + n].copy_from_slice(&image[range]);
            done += n;
        }
    }

    /// Copies `from` in.
    pub(super) fn store(self, image: &mut [u8], pos: usize, from: &[u8]) {
        let mut done = 0;
        for range in self.segments(pos, from.len()) {
            let n = range.len();
            image[range].copy_from_slice(&from[done..done + n]);
            done += n;
        }
    }

    /// Compares the stored bytes at `pos` with `key`.
    #[inline]
    pub(super) fn compare(self, image: &[u8], pos: usize, key: &[u8]) -> Ordering {
        // A fast path: most keys are one word, and most fences lie flat in the header.
        if !self.lined
            && let Ok(word) = key.try_into()
            && let Some(stored) = image.get(self.base + pos..).and_then(|bytes| bytes.first_chunk())
        {
            return u64::from_be_bytes(*stored).cmp(&u64::from_be_bytes(word));
        }
        self.compare_pieces(image, pos, key)
    }

    fn compare_pieces(self, image: &[u8], pos: usize, key: &[u8]) -> Ordering {
        let mut done = 0;
        for range in self.segments(pos, key.len()) {
            let n = range.len();
            match image[range].cmp(&key[done..done + n]) {
                Ordering::Equal => done += n,
                unequal => return unequal,
            }
        }
        Ordering::Equal
    }
}

/// The stamp of a line.
pub(super) fn stamp_of(line: &[u8; LINE]) -> u16 {
    get_u16(line, AT_STAMP)
}

/// Sets the stamp of line `line`.
pub(super) fn set_stamp(image: &mut [u8], line: usize, stamp: u16) {
    super::put_u16(image, line * LINE + AT_STAMP, stamp);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lined_stream_skips_every_stamp() {
        let mut image = vec![0xee; 4 * LINE];
        let bytes: Vec<u8> = (0..150).map(|i| i as u8).collect();
        let stream = Stream::lined(1);
        stream.store(&mut image, 5, &bytes);
        for line in image.as_chunks().0 {
            assert_eq!(stamp_of(line), 0xeeee);
        }
        let mut back = vec![0; 150];
        stream.load(&image, 5, &mut back);
        assert_eq!(back, bytes);
        assert_eq!(stream.compare(&image, 5, &bytes), Ordering::Equal);
        let mut larger = bytes.clone();
        larger[149] += 1;
        assert_eq!(stream.compare(&image, 5, &larger), Ordering::Less);
    }
}
