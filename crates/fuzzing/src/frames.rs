//! Frames of the soft NIC: what comes over a connection may be anything, whatever side it comes from.
//!
//! An input is one or two frames: as they should be, with values that lie, damaged, cut, spliced, or no frames at all. They
//! are then followed byte by byte as the other side follows them. What must hold: nothing is read past what has arrived;
//! what is understood does not depend on how it was cut on the way; and every message that is understood is understood the
//! same when it is written again.

mod honest;

pub(crate) use honest::spec;
mod stream;

pub use stream::{Heard, Stream};

use crate::Reached;
use crate::source::Source;
use sherman_soft_nic::wire::bytes::WireError;
use sherman_soft_nic::wire::{
    FrameHeader, Goodbye, HEADER_BYTES, Hello, Introduce, Kind, Welcome, errors, requests, responses, verbs,
};
use std::fmt::Debug;

/// Whose frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those that a client sends.
    Client,
    /// Those of a client or of a memory server.
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

/// Some bytes that a connection may bring where a frame should be.
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

/// Damages a frame: bits, words, its length, its end, its middle.
fn hurt(source: &mut Source<'_>, frame: &mut Vec<u8>) {
    match source.below(6) {
        0 | 1 => source.damage(frame),
        2 => frame.truncate(source.below(frame.len() + 1)),
        3 => {
            // A length near the right one, or any.
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
    // A length that fits the damage, so that what lies behind it is reached.
    if frame.len() >= HEADER_BYTES && source.byte() & 1 == 0 {
        let len = (frame.len() - HEADER_BYTES) as u32;
        frame[..4].copy_from_slice(&len.to_le_bytes());
    }
}

/// Follows `bytes` as a server does, cut there; what was heard: how many frames, and a digest of all that they said.
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

/// Reads `bytes` as a client does, which has whole frames; says whether it understood all of them.
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

/// Whether a body is what its header says. If so, it is understood the same when it is written again.
fn understands(header: &FrameHeader, body: &[u8], source: &mut Source<'_>) -> bool {
    match header.kind {
        // Followed by `Stream`.
        Kind::List => true,
        // In the words of a data path, which are its own.
        Kind::Attach | Kind::Attached => true,
        Kind::Call => {
            let Ok(request) = requests::take_request(body) else { return false };
            let mut bytes = Vec::new();
            known(requests::put_request(&mut bytes, &request));
            assert_eq!(bytes, body, "there is one way to write {request:?}");
            true
        }
        Kind::Answer => again(
            responses::take_response(body),
            |out, it| known(responses::put_response(out, it)),
            responses::take_response,
        ),
        Kind::Refused | Kind::ListFailed => again(errors::take_error(body), errors::put_error, errors::take_error),
        Kind::Hello => again(Hello::take(body), |out, it| it.put(out), Hello::take),
        Kind::Goodbye => again(Goodbye::take(body), |out, it| it.put(out), Goodbye::take),
        Kind::Introduce => {
            let take = |bytes: &[u8]| Introduce::take(bytes).map(|signed| (signed.message, signed.mac));
            again(take(body), |out, (it, mac)| it.put(out, |_| *mac), take)
        }
        Kind::Welcome => {
            let take = |bytes: &[u8]| Welcome::take(bytes).map(|signed| (signed.message, signed.mac));
            again(take(body), |out, (it, mac)| it.put(out, |_| *mac), take)
        }
        Kind::ListDone => {
            let mut list = honest::work(source);
            verbs::take_results(body, &mut list).is_ok()
        }
    }
}

/// Whether there is a value; if so, it comes back when it is written and read.
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

/// What was read can be written.
fn known(put: Result<(), WireError>) {
    assert_eq!(put, Ok(()));
}
