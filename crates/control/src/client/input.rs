//! Received bytes, cut into frames.
//!
//! Each connection has one buffer, made when the first bytes arrive. Frames are decoded in place, so the data
//! of a READ is copied once, into its list. The buffer grows only for a frame that is longer than the buffer,
//! and by no more than the frame. The kind of a frame bounds its length. Once that frame is consumed, the
//! buffer shrinks again.

use crate::wire::{FrameHeader, HEADER_BYTES, WireError};

/// Bytes of the buffer: one receive takes many small replies, or some nodes.
const BUFFER: usize = 256 << 10;
/// If the room after the received bytes is smaller than this, they move to the front.
const LEAST_ROOM: usize = 16 << 10;

/// The received bytes of one connection that are not decoded yet.
#[derive(Debug, Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the frame at `start`, if its header is known.
    need: usize,
}

impl Input {
    /// Room to receive into; never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() != BUFFER {
                self.buffer.resize(BUFFER, 0);
                self.buffer.shrink_to(BUFFER);
            }
        }
        let behind = self.buffer.len() - self.end;
        if self.start + self.need > self.buffer.len() || behind < LEAST_ROOM {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Grows only for a frame: without a known header, there are fewer bytes than a header has.
            let least = self.need.max(self.end + HEADER_BYTES);
            if least > self.buffer.len() {
                self.buffer.resize(least, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// Records that `bytes` bytes were received into [`Input::room`].
    pub(crate) fn received(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.buffer.len());
    }

    /// The next frame, if it is complete.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(FrameHeader, &[u8])>, WireError> {
        let there = &self.buffer[self.start..self.end];
        let Some(header) = FrameHeader::decode(there)? else {
            self.need = 0;
            return Ok(None);
        };
        let len = HEADER_BYTES + header.len as usize;
        if there.len() < len {
            self.need = len;
            return Ok(None);
        }
        let body = self.start + HEADER_BYTES..self.start + len;
        (self.start, self.need) = (body.end, 0);
        Ok(Some((header, &self.buffer[body])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::put_frame;
    use crate::wire::{FrameKind, MAX_FRAME};

    fn frames() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tag, len) in
            [0, 1, 100, MAX_FRAME as usize, 64 << 10, 3, MAX_FRAME as usize - 1, 0].into_iter().enumerate()
        {
            let body = |out: &mut Vec<u8>| out.resize(out.len() + len, tag as u8);
            put_frame(&mut bytes, FrameKind::ListDone, tag as u64, body).unwrap();
        }
        bytes
    }

    #[test]
    fn frames_are_the_same_however_they_arrive() {
        let bytes = frames();
        for piece in [7919, 65_536, 1 << 20, usize::MAX] {
            let (mut input, mut rest, mut tag) = (Input::default(), bytes.as_slice(), 0);
            while !rest.is_empty() {
                let room = input.room();
                let len = room.len().min(rest.len()).min(piece);
                assert_ne!(len, 0);
                room[..len].copy_from_slice(&rest[..len]);
                rest = &rest[len..];
                input.received(len);
                while let Some((header, body)) = input.next().unwrap() {
                    assert_eq!(header.tag, tag);
                    assert!(body.len() == header.len as usize && body.iter().all(|byte| *byte == tag as u8));
                    tag += 1;
                }
            }
            assert_eq!(tag, 8);
            input.room();
            assert_eq!(input.buffer.len(), BUFFER, "the buffer did not shrink again");
        }
    }

    #[test]
    fn the_buffer_grows_by_no_more_than_a_frame() {
        let header = FrameHeader { len: MAX_FRAME, kind: FrameKind::ListDone, memory: 0, count: 0, tag: 0 };
        let mut input = Input::default();
        input.room()[..HEADER_BYTES].copy_from_slice(&header.encode());
        input.received(HEADER_BYTES);
        while input.next().unwrap().is_none() {
            let len = input.room().len().min(LEAST_ROOM);
            input.received(len);
            assert!(input.buffer.len() <= HEADER_BYTES + MAX_FRAME as usize);
        }
        assert!(input.buffer.len() > BUFFER, "it never had to grow: nothing was tested");
    }

    #[test]
    fn a_malformed_frame_is_reported() {
        let mut input = Input::default();
        input.room()[..HEADER_BYTES].fill(0xff);
        input.received(HEADER_BYTES);
        assert!(input.next().is_err());
    }
}
