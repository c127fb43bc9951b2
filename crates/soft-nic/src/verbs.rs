//! Work lists as bytes: the body of a `List`, and of the `ListDone` that answers it.
//!
//! ```text
//!  0    1       2       3   4      8          16
//!  | op | space | flags | 0 | len  | offset   |  WRITE: len bytes · CAS: compare, swap, mask · FAA: add · READ: nothing
//! ```
//! Results follow the order of the verbs, with nothing in between: the bytes of a READ, the old word of a CAS
//! or FAA, nothing for a WRITE.
//!
//! The server executes each verb as soon as all its bytes have arrived, directly from the receive buffer. A
//! [`ListDecoder`] borrows a WRITE's data. It remembers only how much of the list is still to come.

use sherman_control::wire::bytes::{Put, WireError, space_number, space_of};
use sherman_control::wire::frame::{
    FrameHeader, FrameKind, HEADER_BYTES, MAX_FRAME, MAX_REPLY, MAX_TRANSFER, MAX_VERBS,
};
use sherman_fabric::{FabricError, Space, Verb, WorkList};

/// Bytes of a verb's head.
pub const VERB_BYTES: usize = 16;
/// The most bytes of one verb. A remainder of a list that cannot be executed yet is at least one byte
/// shorter.
pub const MAX_VERB: usize = VERB_BYTES + MAX_TRANSFER as usize;
const READ: u8 = 1;
const WRITE: u8 = 2;
const CAS: u8 = 3;
const FAA: u8 = 4;
/// A WRITE that waits for earlier READs and atomics (F3).
const FENCED: u8 = 1;
const WORD: u32 = 8;

/// A received verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireVerb<'a> {
    /// Fetch `len` bytes.
    Read {
        /// Memory to read.
        space: Space,
        /// First byte.
        offset: u64,
        /// How many bytes, at most [`MAX_TRANSFER`].
        len: u32,
    },
    /// Store bytes.
    Write {
        /// Memory to write.
        space: Space,
        /// First byte.
        offset: u64,
        /// What to store, at most [`MAX_TRANSFER`] bytes.
        data: &'a [u8],
        /// Wait for earlier READs and atomics (F3).
        fenced: bool,
    },
    /// Compare and swap the bits under `mask`.
    Cas {
        /// Memory of the word.
        space: Space,
        /// Its offset.
        offset: u64,
        /// Expected bits.
        compare: u64,
        /// New bits.
        swap: u64,
        /// The bits that take part.
        mask: u64,
    },
    /// Add to a word.
    Faa {
        /// Memory of the word.
        space: Space,
        /// Its offset.
        offset: u64,
        /// The addend.
        add: u64,
    },
}

impl WireVerb<'_> {
    /// Bytes of its result.
    #[inline]
    pub fn result_bytes(&self) -> u32 {
        match self {
            Self::Read { len, .. } => *len,
            Self::Write { .. } => 0,
            Self::Cas { .. } | Self::Faa { .. } => WORD,
        }
    }
}

/// The result of a [`ListDecoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A verb, and the number of its bytes.
    Verb {
        /// The verb.
        verb: WireVerb<'a>,
        /// Its bytes.
        used: usize,
    },
    /// The next verb is not complete. It cannot be decoded before `needed` bytes have arrived, and may then
    /// need more.
    Partial {
        /// How many bytes must have arrived.
        needed: usize,
    },
    /// The list has no more verbs.
    End,
}

/// Cuts the body of a `List` into verbs, in whatever pieces it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListDecoder {
    /// Verbs still to come.
    verbs: u16,
    /// Bytes still to come.
    bytes: u32,
}

impl ListDecoder {
    /// Makes the decoder of the list that `header` announces.
    #[inline]
    pub fn new(header: &FrameHeader) -> Self {
        Self { verbs: header.count, bytes: header.len }
    }

    /// Bytes of the list still to come.
    #[inline]
    pub fn bytes_left(&self) -> u32 {
        self.bytes
    }

    /// Decodes the next verb. `bytes` are the bytes after the previous verb that have arrived, perhaps with
    /// bytes after the list. Each verb is returned once: the caller continues after its bytes.
    #[inline]
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Next<'a>, WireError> {
        if self.verbs == 0 {
            return if self.bytes == 0 { Ok(Next::End) } else { Err(WireError::Leftover) };
        }
        if (self.bytes as usize) < VERB_BYTES {
            return Err(WireError::Truncated);
        }
        let Some((head, rest)) = bytes.split_first_chunk::<VERB_BYTES>() else {
            return Ok(Next::Partial { needed: VERB_BYTES });
        };
        let (head, body) = Head::decode(head)?;
        let used = VERB_BYTES + body;
        if used > self.bytes as usize {
            return Err(WireError::Truncated);
        }
        let Some(body) = rest.get(..body) else { return Ok(Next::Partial { needed: used }) };
        let verb = head.with(body)?;
        self.verbs -= 1;
        self.bytes -= used as u32;
        Ok(Next::Verb { verb, used })
    }

    /// Skips up to `len` more bytes of a list that has failed. Returns how many it skipped.
    #[inline]
    pub fn skip(&mut self, len: usize) -> usize {
        let skipped = self.bytes.min(u32::try_from(len).unwrap_or(u32::MAX));
        self.bytes -= skipped;
        self.verbs = 0;
        skipped as usize
    }
}

/// The first bytes of a verb.
struct Head {
    op: u8,
    space: Space,
    fenced: bool,
    len: u32,
    offset: u64,
}

impl Head {
    /// Decodes the head. Also returns how many bytes follow it.
    #[inline]
    fn decode(bytes: &[u8; VERB_BYTES]) -> Result<(Self, usize), WireError> {
        let [op, space, flags, zero, l0, l1, l2, l3, o0, o1, o2, o3, o4, o5, o6, o7] = *bytes;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let (limit, body, flag) = match op {
            READ => (MAX_TRANSFER, 0, 0),
            WRITE => (MAX_TRANSFER, len as usize, FENCED),
            CAS => (WORD, 24, 0),
            FAA => (WORD, 8, 0),
            _ => return Err(WireError::Unknown { what: "verb", found: op.into() }),
        };
        if flags & !flag != 0 || zero != 0 {
            return Err(WireError::Unknown { what: "flag of a verb", found: flags.max(zero).into() });
        }
        if len > limit {
            return Err(WireError::TooLarge {
                what: "bytes of a verb",
                asked: len.into(),
                limit: limit.into(),
            });
        }
        if matches!(op, CAS | FAA) && len != WORD {
            return Err(WireError::Unknown { what: "width of an atomic", found: len.into() });
        }
        let offset = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        Ok((Self { op, space: space_of(space)?, fenced: flags & FENCED != 0, len, offset }, body))
    }

    #[inline]
    fn with<'a>(&self, body: &'a [u8]) -> Result<WireVerb<'a>, WireError> {
        let &Self { op, space, fenced, len, offset } = self;
        let word = |index: usize| match body.get(8 * index..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => Ok(u64::from_le_bytes(*bytes)),
            None => Err(WireError::Truncated),
        };
        Ok(match op {
            READ => WireVerb::Read { space, offset, len },
            WRITE => WireVerb::Write { space, offset, data: body, fenced },
            CAS => WireVerb::Cas { space, offset, compare: word(0)?, swap: word(1)?, mask: word(2)? },
            _ => WireVerb::Faa { space, offset, add: word(0)? },
        })
    }
}

/// The size of a list on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListSize {
    /// Bytes of its body.
    pub body: u32,
    /// Bytes of its results.
    pub results: u32,
}

/// The size of `list`, if the protocol can carry it.
#[inline]
pub fn list_size(list: &WorkList) -> Result<ListSize, FabricError> {
    let too_large = |asked: u64, limit: u32| Err(FabricError::TooLarge { asked, limit: limit.into() });
    if list.len() > MAX_VERBS as usize {
        return too_large(list.len() as u64, MAX_VERBS);
    }
    let (mut body, mut results) = (0u64, 0u64);
    for verb in list.verbs() {
        body += VERB_BYTES as u64;
        match *verb {
            Verb::Read { len, .. } | Verb::Write { len, .. } if len > MAX_TRANSFER => {
                return too_large(len.into(), MAX_TRANSFER);
            }
            Verb::Read { len, .. } => results += u64::from(len),
            Verb::Write { len, .. } => body += u64::from(len),
            Verb::Cas { .. } => (body, results) = (body + 24, results + 8),
            Verb::Faa { .. } => (body, results) = (body + 8, results + 8),
        }
    }
    if body > u64::from(MAX_FRAME) {
        return too_large(body, MAX_FRAME);
    }
    if results > u64::from(MAX_REPLY) {
        return too_large(results, MAX_REPLY);
    }
    Ok(ListSize { body: body as u32, results: results as u32 })
}

/// Appends `list` as a frame for the connection's first memory.
///
/// # Errors
/// As [`put_list_to`].
pub fn put_list(out: &mut Vec<u8>, tag: u64, list: &mut WorkList) -> Result<ListSize, FabricError> {
    put_list_to(out, 0, tag, list)
}

/// Appends `list` as a frame for a memory of the connection. Appends nothing if the list is too large.
///
/// The list does not change. It is borrowed as a backend borrows it, to reach its bytes.
pub fn put_list_to(
    out: &mut Vec<u8>,
    memory: u8,
    tag: u64,
    list: &mut WorkList,
) -> Result<ListSize, FabricError> {
    let size = list_size(list)?;
    out.reserve(HEADER_BYTES + size.body as usize);
    let (kind, count) = (FrameKind::List, list.len() as u16);
    let header = FrameHeader { len: size.body, kind, memory, count, tag };
    out.put(&header.encode());
    for index in 0..list.len() {
        let (verb, arena) = list.parts_mut(index);
        match verb {
            Verb::Read { space, offset, at: _, len } => put_head(out, READ, space, 0, len, offset),
            Verb::Write { space, offset, at, len, fenced } => {
                put_head(out, WRITE, space, if fenced { FENCED } else { 0 }, len, offset);
                out.put(&arena[at as usize..][..len as usize]);
            }
            Verb::Cas { space, offset, compare, swap, mask, old: _ } => {
                put_head(out, CAS, space, 0, WORD, offset);
                [compare, swap, mask].into_iter().for_each(|word| out.put_u64(word));
            }
            Verb::Faa { space, offset, add, old: _ } => {
                put_head(out, FAA, space, 0, WORD, offset);
                out.put_u64(add);
            }
        }
    }
    Ok(size)
}

#[inline]
fn put_head(out: &mut Vec<u8>, op: u8, space: Space, flags: u8, len: u32, offset: u64) {
    let mut head = [0; VERB_BYTES];
    head[..3].copy_from_slice(&[op, space_number(space), flags]);
    head[4..8].copy_from_slice(&len.to_le_bytes());
    head[8..].copy_from_slice(&offset.to_le_bytes());
    out.put(&head);
}

/// Puts the results from a `ListDone` into the list that it answers. If they do not fit the list, the
/// connection can no longer be trusted. Some of the list's results may already be set then.
#[inline]
pub fn take_results(body: &[u8], list: &mut WorkList) -> Result<(), WireError> {
    let mut rest = body;
    for index in 0..list.len() {
        let (verb, arena) = list.parts_mut(index);
        match verb {
            Verb::Read { at, len, .. } => {
                let (bytes, left) = rest.split_at_checked(len as usize).ok_or(WireError::Truncated)?;
                arena[at as usize..][..len as usize].copy_from_slice(bytes);
                rest = left;
            }
            Verb::Write { .. } => {}
            Verb::Cas { .. } | Verb::Faa { .. } => {
                let (word, left) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
                list.set_old(index, u64::from_le_bytes(*word));
                rest = left;
            }
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(WireError::Leftover) }
}

#[cfg(test)]
#[path = "verbs_tests.rs"]
mod tests;
