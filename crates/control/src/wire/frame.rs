//! The frame header, the kinds of frames, and the limits of the protocol.
//!
//! ```text
//!  0        4      5       6       8                16
//!  | len    | kind | memory | count | tag           |  body: len bytes
//! ```
//! `memory` says which of the connection's memories a `List` or `Call` is for, else it is 0. The memory of
//! the `Introduce` is 0, that of the first `Also` is 1, and so on. `count` is the number of verbs of a
//! `List`, else 0. The client chooses the `tag` of a `List`, `Call`, `Attach` or `Fill`, and the answer
//! repeats it; else it is 0.

use super::bytes::WireError;
use super::group::FILL_HEAD;
use sherman_fabric::control::MOST_FREED;

/// The version of the protocol that this build speaks. It speaks no other.
pub const VERSION: u16 = 8;
/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 16;

/// The most verbs in one list.
pub const MAX_VERBS: u32 = 64;
/// The most bytes that one READ or WRITE moves: twice the largest node, so that the redo record of a node
/// fits too.
pub const MAX_TRANSFER: u32 = 128 << 10;
/// The most bytes that the results of one list may have together.
pub const MAX_REPLY: u32 = 4 << 20;
/// The most bytes of a frame's body: as much data as results, and the verbs around it.
pub const MAX_FRAME: u32 = MAX_REPLY + (4 << 10);
/// The most bytes of a `Call`'s body. The longest request gives back [`MOST_FREED`] spans, with 9 bytes each.
pub const MAX_CALL: u32 = SHORT + 9 * MOST_FREED as u32;
/// The most bytes of memory that one `Fill` carries.
pub const MAX_FILL: u32 = 1 << 20;
/// The most bytes of the body of any frame that has no limit of its own.
const SHORT: u32 = 4 << 10;
/// The most memories of one connection.
pub const MAX_MEMORIES: usize = 256;
/// The most memory servers of a cluster that speaks this protocol. A client that joins reports its findings
/// at each of them.
pub const MAX_SERVERS: usize = 1024;
/// The most bytes of an `Introduce` or a `Welcome`: a fixed part, and at most 17 for each server.
pub const MAX_HANDSHAKE: u32 = SHORT + 17 * MAX_SERVERS as u32;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameKind {
    /// Client: verbs to execute.
    List = 1,
    /// Client: a control request.
    Call = 2,
    /// Client: its identity and role.
    Introduce = 3,
    /// Client: a request for a link of another data path, in that path's own format.
    Attach = 4,
    /// Another host: a message of the group.
    Group = 5,
    /// The host of a primary: bytes for a copy that is being made. It is answered like a call.
    Fill = 6,
    /// Client: a further memory for this connection.
    Also = 7,
    /// Server: the results of a list.
    ListDone = 0x81,
    /// Server: why a list failed.
    ListFailed = 0x82,
    /// Server: the answer to a call.
    Answer = 0x83,
    /// Server: why a call was refused.
    Refused = 0x84,
    /// Server: the first frame of a connection.
    Hello = 0x85,
    /// Server: accepts the client, or a further memory.
    Welcome = 0x86,
    /// Server: the last frame of a connection, and why.
    Goodbye = 0x87,
    /// Server: the link, in the path's own format.
    Attached = 0x88,
}

impl FrameKind {
    /// Every kind.
    pub const ALL: [Self; 15] = [
        Self::List,
        Self::Call,
        Self::Introduce,
        Self::Attach,
        Self::Group,
        Self::Fill,
        Self::Also,
        Self::ListDone,
        Self::ListFailed,
        Self::Answer,
        Self::Refused,
        Self::Hello,
        Self::Welcome,
        Self::Goodbye,
        Self::Attached,
    ];

    /// The kind that `number` means.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::List,
            2 => Self::Call,
            3 => Self::Introduce,
            4 => Self::Attach,
            5 => Self::Group,
            6 => Self::Fill,
            7 => Self::Also,
            0x81 => Self::ListDone,
            0x82 => Self::ListFailed,
            0x83 => Self::Answer,
            0x84 => Self::Refused,
            0x85 => Self::Hello,
            0x86 => Self::Welcome,
            0x87 => Self::Goodbye,
            0x88 => Self::Attached,
            _ => return None,
        })
    }

    /// The longest body that such a frame may have.
    #[inline]
    pub fn max_len(self) -> u32 {
        match self {
            // Answers may list all members or trees.
            Self::List | Self::ListDone | Self::Answer | Self::Group => MAX_FRAME,
            Self::Introduce | Self::Welcome => MAX_HANDSHAKE,
            Self::Call => MAX_CALL,
            Self::Fill => FILL_HEAD + MAX_FILL,
            _ => SHORT,
        }
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the body.
    pub len: u32,
    /// The kind of the frame.
    pub kind: FrameKind,
    /// Which of the connection's memories a `List` or `Call` is for, else 0.
    pub memory: u8,
    /// Verbs of a `List`, else 0.
    pub count: u16,
    /// Identifies the list or call; chosen by the client.
    pub tag: u64,
}

impl FrameHeader {
    /// Its bytes.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.memory;
        bytes[6..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    /// Decodes the header at the beginning of `bytes`, and checks it against the limits of its kind; `None`
    /// if it is not complete.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let kind = head[4];
        let kind = FrameKind::from_number(kind)
            .ok_or(WireError::Unknown { what: "kind of frame", found: kind.into() })?;
        let header = Self {
            len: number(0),
            kind,
            memory: head[5],
            count: u16::from_le_bytes([head[6], head[7]]),
            tag: u64::from(number(8)) | u64::from(number(12)) << 32,
        };
        header.check()?;
        Ok(Some(header))
    }

    fn check(&self) -> Result<(), WireError> {
        let limit = self.kind.max_len();
        if self.len > limit {
            return Err(WireError::TooLarge {
                what: "bytes of a frame",
                asked: self.len.into(),
                limit: limit.into(),
            });
        }
        if self.memory != 0 && !matches!(self.kind, FrameKind::List | FrameKind::Call) {
            return Err(WireError::Unknown { what: "memory of a frame", found: self.memory.into() });
        }
        match self.kind {
            FrameKind::List if u32::from(self.count) > MAX_VERBS => {
                let (asked, limit) = (self.count.into(), MAX_VERBS.into());
                Err(WireError::TooLarge { what: "verbs of a list", asked, limit })
            }
            FrameKind::List => Ok(()),
            _ if self.count != 0 => {
                Err(WireError::Unknown { what: "count of a frame", found: self.count.into() })
            }
            _ => Ok(()),
        }
    }
}

/// Appends a frame. `write` appends its body.
///
/// Returns the first byte of the frame in `out`. If the body exceeds the limit of its kind, nothing is
/// appended.
pub fn put_frame(
    out: &mut Vec<u8>,
    kind: FrameKind,
    tag: u64,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let asked = (out.len() - start - HEADER_BYTES) as u64;
    let limit = kind.max_len();
    if asked > u64::from(limit) {
        out.truncate(start);
        return Err(WireError::TooLarge { what: "bytes of a frame", asked, limit: limit.into() });
    }
    let header = FrameHeader { len: asked as u32, kind, memory: 0, count: 0, tag };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
    Ok(())
}

/// Addresses the frame at the beginning of `frame`, a `List` or `Call`, to a memory of the connection.
pub fn set_memory(frame: &mut [u8], memory: u8) {
    if let Some(at) = frame.get_mut(5) {
        *at = memory;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_decoded_to_what_was_encoded() {
        for kind in FrameKind::ALL {
            let count = if kind == FrameKind::List { 64 } else { 0 };
            let memory = if matches!(kind, FrameKind::List | FrameKind::Call) { 255 } else { 0 };
            let header = FrameHeader { len: kind.max_len(), kind, memory, count, tag: 0x0102_0304_0506_0708 };
            let bytes = header.encode();
            assert_eq!(FrameHeader::decode(&bytes), Ok(Some(header)));
            assert_eq!(FrameKind::from_number(kind as u8), Some(kind));
            for end in 0..HEADER_BYTES {
                assert_eq!(FrameHeader::decode(&bytes[..end]), Ok(None));
            }
        }
        let known = (0..=u8::MAX).filter(|number| FrameKind::from_number(*number).is_some()).count();
        assert_eq!(known, FrameKind::ALL.len());
    }

    #[test]
    fn the_header_s_bytes_are_as_the_protocol_says() {
        let header = FrameHeader { len: 0x0102, kind: FrameKind::List, memory: 6, count: 3, tag: 0x0405 };
        assert_eq!(header.encode(), [2, 1, 0, 0, 1, 6, 3, 0, 5, 4, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_header_beyond_its_limits_is_refused() {
        let good = FrameHeader { len: 8, kind: FrameKind::List, memory: 0, count: 1, tag: 7 };
        let bad = [
            FrameHeader { len: MAX_FRAME + 1, ..good },
            FrameHeader { len: u32::MAX, ..good },
            FrameHeader { count: MAX_VERBS as u16 + 1, ..good },
            FrameHeader { kind: FrameKind::Call, count: 1, ..good },
            FrameHeader { kind: FrameKind::Call, count: 0, len: MAX_CALL + 1, ..good },
            FrameHeader { kind: FrameKind::Introduce, count: 0, len: MAX_HANDSHAKE + 1, ..good },
            FrameHeader { kind: FrameKind::Also, count: 0, memory: 1, ..good },
            FrameHeader { kind: FrameKind::ListDone, count: 0, memory: 1, ..good },
        ];
        for header in bad {
            assert!(FrameHeader::decode(&header.encode()).is_err(), "{header:?}");
        }
        for (at, byte) in [(4, 0), (4, 8), (4, 0xff)] {
            let mut bytes = good.encode();
            bytes[at] = byte;
            assert!(matches!(FrameHeader::decode(&bytes), Err(WireError::Unknown { .. })));
        }
    }

    #[test]
    fn a_body_that_is_too_long_leaves_nothing_behind() {
        let mut out = vec![9];
        let long =
            put_frame(&mut out, FrameKind::Call, 1, |out| out.resize(out.len() + MAX_CALL as usize + 1, 0));
        assert!(matches!(long, Err(WireError::TooLarge { .. })));
        assert_eq!(out, [9]);
        put_frame(&mut out, FrameKind::Call, 1, |out| out.push(5)).unwrap();
        set_memory(&mut out[1..], 3);
        let header = FrameHeader::decode(&out[1..]).unwrap().unwrap();
        assert_eq!((header.len, header.memory), (1, 3));
        assert_eq!(out.len(), 1 + HEADER_BYTES + 1);
    }
}
