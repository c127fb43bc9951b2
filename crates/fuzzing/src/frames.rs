//! Frames of the soft NIC: either side of a connection may send arbitrary bytes.
//!
//! An input is one or two frames: correct, with false values, damaged, cut, spliced, or random bytes. The
//! target parses them byte by byte, as the receiver does. Three properties must hold:
//!
//! - The parser reads nothing past the bytes that arrived.
//! - The result does not depend on how the bytes were cut on the way.
//! - Every message that parses also parses to the same value after it is encoded again.

mod honest;

pub(crate) use honest::spec;
mod stream;

pub use stream::{Heard, Stream};

use crate::Reached;
use crate::source::Source;
use sherman_control::wire::bytes::WireError;
use sherman_control::wire::group::Fill;
use sherman_control::wire::{
    Also, FrameHeader, FrameKind, Goodbye, HEADER_BYTES, Hello, Introduce, Welcome, errors, requests,
    responses,
};
use sherman_soft_nic::verbs;
use std::fmt::Debug;

/// Which side sends the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Frames that a client sends.
    Client,
    /// Frames that a client or a memory server sends.
    Either,
}

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let mut bytes = any(&mut source, Side::Either);
    if source.byte() & 1 == 0 {
        bytes.extend(any(&mut source, Side::Either));
    }
    let as_client = answers(&bytes, &mut source);
    let whole = follow(&bytes, &[]);
    let cuts: Vec<usize> = (0..source.below(6)).map(|_| source.below(bytes.len() + 1)).collect();
    assert_eq!(follow(&bytes, &cuts), whole, "frames are understood the same however they arrive");
    if as_client || whole.0.is_ok_and(|heard| heard > 0) { Reached::Taken } else { Reached::Refused }
}

/// Returns bytes that a connection may deliver in place of a frame.
pub fn any(source: &mut Source<'_>, side: Side) -> Vec<u8> {
    let how = source.below(16);
    let mut frame = match how {
        0 => {
            let len = source.below(120);
            return source.bytes(len);
        }
        1..=7 => honest::message(source, side),
        _ => honest::list(source),
    };
    if how < 12 && how % 2 == 1 {
        hurt(source, &mut frame);
    }
    frame
}

/// Damages a frame: its bits, its words, its length, its end or its middle.
fn hurt(source: &mut Source<'_>, frame: &mut Vec<u8>) {
    match source.below(6) {
        0 | 1 => source.damage(frame),
        2 => frame.truncate(source.below(frame.len() + 1)),
        3 => {
            // A length near the correct one, or an arbitrary one.
            let near = (frame.len() - HEADER_BYTES) as u32;
            let len = match source.below(4) {
                0 => near.wrapping_add(1),
                1 => near.wrapping_sub(1),
                2 => u32::from(source.u16()),
                _ => source.u64() as u32,
            };
            frame[..4].copy_from_slice(&len.to_le_bytes());
        }
        4 => {
            let (at, len) = (source.below(frame.len()), source.below(40));
            let more = source.bytes(len);
            frame.splice(at..at, more);
        }
        _ => {
            let at = source.below(frame.len());
            let mut other = honest::message(source, Side::Either);
            frame.truncate(at);
            frame.extend(other.drain(source.below(other.len())..));
        }
    }
    // Make the length fit the damage, so that the parser reaches the bytes behind the length.
    if frame.len() >= HEADER_BYTES && source.byte() & 1 == 0 {
        let len = (frame.len() - HEADER_BYTES) as u32;
        frame[..4].copy_from_slice(&len.to_le_bytes());
    }
}

/// Parses `bytes` as a server does, cut at `cuts`. Returns the number of frames, and a digest of their
/// contents.
fn follow(bytes: &[u8], cuts: &[usize]) -> (Result<u64, WireError>, u64) {
    let mut cuts = cuts.to_vec();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let (mut stream, mut digest, mut frames, mut start) = (Stream::default(), 0, 0, 0);
    let mut note = |heard: Heard<'_>| {
        frames += u64::from(!matches!(heard, Heard::Verb(_)));
        digest = heard.digest(digest);
    };
    for cut in cuts {
        if let Err(error) = stream.feed(&bytes[start..cut], &mut note) {
            return (Err(error), digest);
        }
        start = cut;
    }
    (Ok(frames), digest)
}

/// Parses `bytes` as a client does, which always has whole frames. Returns whether all of them parse.
fn answers(bytes: &[u8], source: &mut Source<'_>) -> bool {
    let mut rest = bytes;
    while let Ok(Some(header)) = FrameHeader::decode(rest) {
        let whole = HEADER_BYTES + header.len as usize;
        let Some(body) = rest.get(HEADER_BYTES..whole) else { return false };
        if !understands(&header, body, source) {
            return false;
        }
        rest = &rest[whole..];
    }
    rest.is_empty() && !bytes.is_empty()
}

/// Whether a body is what its header says. If so, asserts that the body parses to the same value after it is
/// encoded again.
fn understands(header: &FrameHeader, body: &[u8], source: &mut Source<'_>) -> bool {
    match header.kind {
        // `Stream` parses it.
        FrameKind::List => true,
        // Each data path defines its own body format, and so does the group.
        FrameKind::Attach | FrameKind::Attached | FrameKind::Group => true,
        FrameKind::Fill => {
            let Ok(fill) = Fill::take(body) else { return false };
            let mut bytes = Vec::new();
            fill.put(&mut bytes);
            assert_eq!(bytes, body, "there is one way to write {fill:?}");
            true
        }
        FrameKind::Call => {
            let Ok(request) = requests::take_request(body) else { return false };
            let mut bytes = Vec::new();
            known(requests::put_request(&mut bytes, &request));
            assert_eq!(bytes, body, "there is one way to write {request:?}");
            true
        }
        FrameKind::Answer => again(
            responses::take_response(body),
            |out, it| known(responses::put_response(out, it)),
            responses::take_response,
        ),
        FrameKind::Refused | FrameKind::ListFailed => {
            again(errors::take_error(body), errors::put_error, errors::take_error)
        }
        FrameKind::Hello => again(Hello::take(body), |out, it| it.put(out), Hello::take),
        FrameKind::Goodbye => again(Goodbye::take(body), |out, it| it.put(out), Goodbye::take),
        FrameKind::Also => again(Also::take(body), |out, it| it.put(out), Also::take),
        FrameKind::Introduce => {
            let take = |bytes: &[u8]| Introduce::take(bytes).map(|signed| (signed.message, signed.mac));
            again(take(body), |out, (it, mac)| it.put(out, |_| *mac), take)
        }
        FrameKind::Welcome => {
            let take = |bytes: &[u8]| Welcome::take(bytes).map(|signed| (signed.message, signed.mac));
            again(take(body), |out, (it, mac)| it.put(out, |_| *mac), take)
        }
        FrameKind::ListDone => {
            let mut list = honest::work(source);
            verbs::take_results(body, &mut list).is_ok()
        }
    }
}

/// Whether `value` is `Ok`. If so, asserts that encoding and decoding it returns the same value.
fn again<T: PartialEq + Debug>(
    value: Result<T, WireError>,
    put: impl FnOnce(&mut Vec<u8>, &T),
    take: impl FnOnce(&[u8]) -> Result<T, WireError>,
) -> bool {
    let Ok(value) = value else { return false };
    let mut bytes = Vec::new();
    put(&mut bytes, &value);
    assert_eq!(take(&bytes), Ok(value));
    true
}

/// Asserts that a value that was decoded can be encoded.
fn known(put: Result<(), WireError>) {
    assert_eq!(put, Ok(()));
}
