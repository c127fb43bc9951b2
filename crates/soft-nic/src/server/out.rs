//! Bytes to send: the replies of one receive, assembled before the first of their bytes leaves.
//!
//! The bytes lie in an arena that is filled once and never cleared, so the room for a READ costs nothing but
//! the READ. A frame in progress (a list that may still fail) is *open*. The bytes before it may be sent, its
//! own bytes may not, and it can be taken back. A connection with nothing to send has no arena. A shard lends
//! its own arena to one connection at a time, and a connection keeps it only while bytes remain.

use sherman_control::wire::{FrameHeader, FrameKind, HEADER_BYTES};

/// Bytes to send.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: Vec<u8>,
    /// How many of the bytes are sent.
    sent: usize,
    /// How many of the bytes are filled.
    used: usize,
    /// Where the frame in progress begins.
    open: Option<usize>,
}

/// The least length of an arena.
const LEAST: usize = 4 << 10;

impl Out {
    /// Appends `len` bytes, and returns them for filling.
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let start = self.used;
        self.used += len;
        if self.used > self.bytes.len() {
            self.bytes.resize((self.used * 2).max(LEAST), 0);
        }
        &mut self.bytes[start..self.used]
    }

    /// Appends bytes: whole frames, or results of the frame in progress.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// Adds whole frames before the frame in progress, if there is one.
    pub(super) fn put_before(&mut self, frames: &[u8]) {
        let (end, len) = (self.used, frames.len());
        self.room(len);
        let at = self.open.unwrap_or(end);
        self.bytes.copy_within(at..end, at + len);
        self.bytes[at..at + len].copy_from_slice(frames);
        self.open = self.open.map(|open| open + len);
    }

    /// Begins a frame that can still be taken back.
    #[inline]
    pub(super) fn open_frame(&mut self) {
        self.open = Some(self.used);
        self.room(HEADER_BYTES);
    }

    /// Bytes in the body of the frame in progress.
    #[inline]
    pub(super) fn open_len(&self) -> usize {
        self.open.map_or(0, |open| self.used - open - HEADER_BYTES)
    }

    /// Ends the frame in progress, which may be sent now.
    #[inline]
    pub(super) fn close_frame(&mut self, kind: FrameKind, tag: u64) {
        let len = self.open_len() as u32;
        if let Some(open) = self.open.take() {
            let header = FrameHeader { len, kind, memory: 0, count: 0, tag };
            self.bytes[open..open + HEADER_BYTES].copy_from_slice(&header.encode());
        }
    }

    /// Takes the frame in progress back.
    pub(super) fn drop_frame(&mut self) {
        if let Some(open) = self.open.take() {
            self.used = open;
        }
    }

    /// The bytes that may be sent.
    #[inline]
    pub(super) fn ready(&self) -> &[u8] {
        &self.bytes[self.sent..self.open.unwrap_or(self.used)]
    }

    /// Records that `len` more bytes are sent.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        self.sent += len;
        if self.sent == self.used {
            (self.sent, self.used) = (0, 0);
        }
    }

    /// Whether it holds no bytes.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.used && self.open.is_none()
    }

    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Discards its content, and the arena if it is longer than `most`.
    pub(super) fn reset(&mut self, most: usize) {
        (self.sent, self.used, self.open) = (0, 0, None);
        if self.bytes.len() > most {
            *self = Self::default();
        }
    }

    /// Moves the unsent bytes to an arena of their own, if that is much smaller than the current one.
    pub(super) fn split_off(&mut self) -> Option<Self> {
        let left = self.used - self.sent;
        if left.max(LEAST) * 4 > self.bytes.len() {
            return None;
        }
        let mut bytes = vec![0; left.max(LEAST)];
        bytes[..left].copy_from_slice(&self.bytes[self.sent..self.used]);
        let open = self.open.map(|open| open - self.sent);
        Some(Self { bytes, sent: 0, used: left, open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(bytes: &[u8]) -> FrameHeader {
        FrameHeader::decode(bytes).unwrap().unwrap()
    }

    #[test]
    fn a_frame_in_progress_is_not_sent_and_can_be_taken_back() {
        let mut out = Out::default();
        out.put(b"first");
        out.open_frame();
        out.room(3).copy_from_slice(b"abc");
        assert_eq!(out.ready(), b"first");
        assert_eq!(out.open_len(), 3);
        out.drop_frame();
        assert_eq!(out.ready(), b"first");
        out.open_frame();
        out.room(2).copy_from_slice(b"xy");
        out.close_frame(FrameKind::ListDone, 9);
        let frame = &out.ready()[5..];
        let kind = FrameKind::ListDone;
        assert_eq!(header(frame), FrameHeader { len: 2, kind, memory: 0, count: 0, tag: 9 });
        assert_eq!(&frame[HEADER_BYTES..], b"xy");
    }

    #[test]
    fn frames_of_others_go_before_the_frame_in_progress() {
        let mut out = Out::default();
        out.put_before(b"first");
        out.open_frame();
        out.put(b"abc");
        out.put_before(b"second");
        out.put(b"de");
        assert_eq!((out.ready(), out.open_len()), (&b"firstsecond"[..], 5));
        out.close_frame(FrameKind::ListDone, 9);
        let frame = &out.ready()[11..];
        assert_eq!((header(frame).len, &frame[HEADER_BYTES..]), (5, &b"abcde"[..]));
    }

    #[test]
    fn sent_bytes_are_gone_and_a_sent_arena_starts_again() {
        let mut out = Out::default();
        out.put(&[7; 100]);
        out.advance(40);
        assert_eq!((out.ready().len(), out.is_empty()), (60, false));
        out.open_frame();
        out.advance(60);
        assert!(out.ready().is_empty() && !out.is_empty());
        out.close_frame(FrameKind::ListDone, 1);
        out.advance(HEADER_BYTES);
        assert!(out.is_empty() && out.ready().is_empty());
        out.put(&[8; 10]);
        assert_eq!(out.ready(), [8; 10]);
    }

    #[test]
    fn a_little_left_in_a_large_arena_moves_out_with_its_open_frame() {
        let mut out = Out::default();
        out.put(&[1; 1 << 20]);
        assert!(out.split_off().is_none());
        out.advance((1 << 20) - 5);
        out.open_frame();
        out.room(3).copy_from_slice(b"abc");
        let mut small = out.split_off().unwrap();
        assert!(small.held() < 3 * LEAST);
        assert_eq!((small.ready(), small.open_len()), (&[1; 5][..], 3));
        small.close_frame(FrameKind::ListDone, 4);
        assert_eq!(&small.ready()[5 + HEADER_BYTES..], b"abc");
        out.reset(LEAST);
        assert!(out.is_empty() && out.held() <= LEAST);
    }
}
