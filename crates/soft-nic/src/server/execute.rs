//! Lists of verbs, executed as they arrive.
//!
//! The server executes each verb as soon as all its bytes have arrived, directly from the receive buffer into
//! the send buffer. A list need not be atomic, so it may be executed in parts. Its reply is assembled as a
//! whole: the list may still fail, and then the reply is only the failure. All verbs that are available
//! execute in one **turn** ([`Turn`](sherman_embedded::host::Turn)), which ends before any of their replies
//! is sent.

use super::counters::{Reason, ShardCounters, Tally};
use super::greet::{goodbye, malformed};
use super::mailbox::Mailbox;
use super::out::Out;
use super::remote::Who;
use super::shared::{LINE, Shared};
use crate::verbs::{ListDecoder, Next, WireVerb};
use fastrand::Rng;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::{
    FrameHeader, FrameKind, Goodbye, GoodbyeCode, HEADER_BYTES, MAX_REPLY, WireError, errors,
};
use sherman_embedded::host::{Gate, Host, Turn};
use sherman_fabric::{FabricError, Space};
use std::sync::Arc;

/// The context of execution, besides the connection.
pub(super) struct Work<'a> {
    pub(super) shared: &'a Shared,
    /// The client that sent the verbs.
    pub(super) who: Who,
    pub(super) counters: &'a ShardCounters,
    pub(super) tally: &'a mut Tally,
    /// Decides how READs are torn, if the server tears them.
    pub(super) random: &'a mut Rng,
    /// Where the shard receives answers of the control plane.
    pub(super) mailbox: &'a Arc<Mailbox>,
}

/// A list that is being received.
#[derive(Debug)]
pub(super) struct List {
    tag: u64,
    decoder: ListDecoder,
    /// Whether its failure has been reported, so that the rest is only skipped.
    failed: bool,
}

/// Why the execution of lists stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// It needs this many bytes to continue.
    Need(usize),
    /// Enough bytes are ready to send.
    Full,
    /// The next frame is not a list, or for another memory.
    Other(FrameHeader),
    /// The session is over, and the reply says so.
    Fenced,
    /// The server must disconnect the client.
    Bye(Goodbye),
}

/// Executes the lists at the beginning of `input` on the memory of `host`, which is this `memory` of the
/// connection, up to the first list for another one. Returns how many bytes of `input` were used.
///
/// Prefetching the lines of the following READs, as the embedded backend does within a list, was tried here.
/// It gained nothing on cold memory (`examples/raw_reads`, 64 in flight: 515 against 501 ns of CPU for a READ
/// of 1 KiB), and cost 50 ns on hot memory.
pub(super) fn lists(
    work: &mut Work<'_>,
    host: &Host,
    gate: &mut Gate,
    memory: u8,
    list: &mut Option<List>,
    input: &[u8],
    out: &mut Out,
) -> (usize, Stop) {
    let shared = work.shared;
    let mut used = 0;
    // The turn ends at the end of this function.
    let mut turn = gate.enter(host);
    loop {
        let rest = &input[used..];
        let current = match list {
            Some(list) => list,
            None => match FrameHeader::decode(rest) {
                Ok(Some(header)) if header.kind == FrameKind::List && header.memory == memory => {
                    used += HEADER_BYTES;
                    out.open_frame();
                    list.insert(List { tag: header.tag, decoder: ListDecoder::new(&header), failed: false })
                }
                Ok(Some(header)) => return (used, Stop::Other(header)),
                Ok(None) => return (used, Stop::Need(HEADER_BYTES)),
                Err(error) => return (used, Stop::Bye(malformed(error))),
            },
        };
        let turn = match &mut turn {
            Ok(turn) => turn,
            Err(error) => {
                current.fail(work, out, error);
                return (used, Stop::Fenced);
            }
        };
        match current.run(work, turn, &input[used..], out) {
            Ok((more, Step::Done)) => {
                used += more;
                *list = None;
                if out.ready().len() >= shared.limits.high_water {
                    return (used, Stop::Full);
                }
            }
            Ok((more, Step::Need(needed))) => return (used + more, Stop::Need(needed)),
            Err(goodbye) => return (used, Stop::Bye(goodbye)),
        }
    }
}

/// How far a list was executed.
enum Step {
    /// To the end of the list.
    Done,
    /// It needs this many bytes to continue.
    Need(usize),
}

impl List {
    /// Executes the verbs at the beginning of `input`. Returns how many bytes of it were used.
    fn run(
        &mut self,
        work: &mut Work<'_>,
        turn: &mut Turn<'_>,
        input: &[u8],
        out: &mut Out,
    ) -> Result<(usize, Step), Goodbye> {
        let mut used = 0;
        loop {
            if self.failed {
                used += self.decoder.skip(input.len() - used);
                let left = self.decoder.bytes_left();
                return Ok((used, if left == 0 { Step::Done } else { Step::Need(1) }));
            }
            match self.decoder.next(&input[used..]).map_err(malformed)? {
                Next::Verb { verb, used: more } => {
                    used += more;
                    let asked = out.open_len() as u64 + u64::from(verb.result_bytes());
                    if asked > u64::from(MAX_REPLY) {
                        let limit = MAX_REPLY.into();
                        return Err(malformed(WireError::TooLarge {
                            what: "bytes of a reply",
                            asked,
                            limit,
                        }));
                    }
                    if let Err(error) = step(work, turn, verb, out) {
                        work.shared.refused(Reason::BadAddress, Some(work.who), &error);
                        self.fail(work, out, &error);
                    }
                }
                Next::Partial { needed } => return Ok((used, Step::Need(needed))),
                Next::End => {
                    out.close_frame(FrameKind::ListDone, self.tag);
                    work.tally.lists += 1;
                    return Ok((used, Step::Done));
                }
            }
        }
    }

    /// Replaces the list's results by a failure.
    #[cold]
    fn fail(&mut self, work: &mut Work<'_>, out: &mut Out, error: &FabricError) {
        out.drop_frame();
        let mut frame = Vec::new();
        // An error is much shorter than the limit of a frame.
        let _ = put_frame(&mut frame, FrameKind::ListFailed, self.tag, |out| errors::put_error(out, error));
        out.put(&frame);
        self.failed = true;
        work.tally.lists_failed += 1;
    }
}

/// Executes one verb.
#[inline]
fn step(
    work: &mut Work<'_>,
    turn: &mut Turn<'_>,
    verb: WireVerb<'_>,
    out: &mut Out,
) -> Result<(), FabricError> {
    let tally = &mut *work.tally;
    match verb {
        WireVerb::Read { space, offset, len } => {
            let into = out.room(len as usize);
            if work.shared.tear_reads {
                read_torn(turn, space, offset, into, work.random)?;
            } else {
                turn.read(space, offset, into)?;
            }
            tally.reads += 1;
            tally.bytes_read += u64::from(len);
        }
        // Verbs execute one after the other, so a fenced WRITE has nothing to wait for.
        WireVerb::Write { space, offset, data, fenced: _ } => {
            turn.write(space, offset, data)?;
            tally.writes += 1;
            tally.bytes_written += data.len() as u64;
        }
        WireVerb::Cas { space, offset, compare, swap, mask } => {
            let old = turn.cas(space, offset, compare, swap, mask)?;
            out.put(&old.to_le_bytes());
            tally.cas += 1;
            if (old ^ compare) & mask != 0 {
                tally.cas_failed += 1;
                if space == Space::OnChip {
                    work.counters.note_contention(offset, mask);
                }
            }
        }
        WireVerb::Faa { space, offset, add } => {
            let old = turn.faa(space, offset, add)?;
            out.put(&old.to_le_bytes());
            tally.faa += 1;
        }
    }
    Ok(())
}

/// A READ that guarantees F1 and F2 and nothing more: it copies its lines in random order, with pauses in
/// between.
#[cold]
fn read_torn(
    turn: &mut Turn<'_>,
    space: Space,
    offset: u64,
    into: &mut [u8],
    random: &mut Rng,
) -> Result<(), FabricError> {
    if space == Space::OnChip || into.len() <= 1 {
        return turn.read(space, offset, into);
    }
    // Checks the whole address range: a READ is refused as a whole or not at all.
    turn.read(space, offset, into)?;
    let first = LINE - (offset % LINE as u64) as usize;
    let mut pieces = Vec::with_capacity(into.len() / LINE + 2);
    let (head, tail) = into.split_at_mut(first.min(into.len()));
    pieces.push((offset, head));
    let lines = tail.chunks_mut(LINE).enumerate();
    pieces.extend(lines.map(|(index, line)| (offset + (first + index * LINE) as u64, line)));
    random.shuffle(&mut pieces);
    for (at, piece) in pieces {
        turn.read(space, at, piece)?;
        for _ in 0..random.u32(..64) {
            std::hint::spin_loop();
        }
        if random.u8(..32) == 0 {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// The goodbye to a peer that may not post verbs.
pub(super) fn not_allowed() -> Stop {
    Stop::Bye(goodbye(GoodbyeCode::NotAllowed))
}
