//! Parses the bytes of a connection as a memory server does.

use sherman_control::wire::bytes::WireError;
use sherman_control::wire::{FrameHeader, FrameKind, HEADER_BYTES, requests};
use sherman_fabric::{Request, Space};
use sherman_soft_nic::verbs::{ListDecoder, Next, WireVerb};

/// One parsed item.
#[derive(Debug)]
pub enum Heard<'a> {
    /// One verb of a list.
    Verb(WireVerb<'a>),
    /// The end of a list.
    List,
    /// A control request.
    Call(Request),
    /// Any other frame, complete.
    Other(FrameHeader),
}

impl Heard<'_> {
    /// Mixes this item into the digest of the items before it.
    pub fn digest(&self, before: u64) -> u64 {
        let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let space = |space: &Space| u64::from(*space == Space::OnChip);
        match self {
            Self::Verb(WireVerb::Read { space: at, offset, len }) => {
                [1, space(at), *offset, u64::from(*len)].into_iter().fold(before, mix)
            }
            Self::Verb(WireVerb::Write { space: at, offset, data, fenced }) => {
                let head = [2, space(at), *offset, data.len() as u64, u64::from(*fenced)]
                    .into_iter()
                    .fold(before, mix);
                data.iter().fold(head, |sum, byte| mix(sum, u64::from(*byte)))
            }
            Self::Verb(WireVerb::Cas { space: at, offset, compare, swap, mask }) => {
                [3, space(at), *offset, *compare, *swap, *mask].into_iter().fold(before, mix)
            }
            Self::Verb(WireVerb::Faa { space: at, offset, add }) => {
                [4, space(at), *offset, *add].into_iter().fold(before, mix)
            }
            Self::List => mix(before, 5),
            Self::Call(_) => mix(before, 6),
            Self::Other(header) => {
                [7, header.kind as u64, header.tag, u64::from(header.len)].into_iter().fold(before, mix)
            }
        }
    }
}

/// The parser state of a connection.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Bytes that arrived and are not parsed yet.
    rest: Vec<u8>,
    list: Option<List>,
}

/// A list that is being parsed.
#[derive(Clone, Debug)]
struct List {
    decoder: ListDecoder,
    /// Verbs and bytes that the header announced and that have not arrived yet.
    verbs: u64,
    bytes: u64,
}

impl Stream {
    /// Parses `bytes` as the continuation of the bytes before, and passes each item to `hear`. After an error
    /// the stream must not be used again.
    pub fn feed(&mut self, bytes: &[u8], mut hear: impl FnMut(Heard<'_>)) -> Result<(), WireError> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(more) = self.step(&all[used..], &mut hear)? {
            used += more;
            assert!(used <= all.len(), "nothing is read past what has arrived");
        }
        self.rest = all.split_off(used);
        Ok(())
    }

    /// Parses the next verb, list header, list end or frame, if all of it has arrived. Returns how many bytes
    /// it took.
    fn step(&mut self, bytes: &[u8], hear: &mut impl FnMut(Heard<'_>)) -> Result<Option<usize>, WireError> {
        if let Some(list) = &mut self.list {
            return Ok(match list.decoder.next(bytes)? {
                Next::Verb { verb, used } => {
                    let left = list.verbs.checked_sub(1).zip(list.bytes.checked_sub(used as u64));
                    (list.verbs, list.bytes) = left.expect("a list has no more than its header says");
                    hear(Heard::Verb(verb));
                    Some(used)
                }
                Next::Partial { needed } => {
                    assert!(needed > bytes.len(), "more is asked for than is there, or it could go on");
                    None
                }
                Next::End => {
                    assert_eq!((list.verbs, list.bytes), (0, 0), "a list has no less than its header says");
                    self.list = None;
                    hear(Heard::List);
                    Some(0)
                }
            });
        }
        let Some(header) = FrameHeader::decode(bytes)? else { return Ok(None) };
        if header.kind == FrameKind::List {
            let (verbs, bytes) = (header.count.into(), header.len.into());
            self.list = Some(List { decoder: ListDecoder::new(&header), verbs, bytes });
            return Ok(Some(HEADER_BYTES));
        }
        let whole = HEADER_BYTES + header.len as usize;
        let Some(body) = bytes.get(HEADER_BYTES..whole) else { return Ok(None) };
        match header.kind {
            FrameKind::Call => hear(Heard::Call(requests::take_request(body)?)),
            _ => hear(Heard::Other(header)),
        }
        Ok(Some(whole))
    }
}
