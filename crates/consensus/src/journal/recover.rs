//! Reads a node's log from its two segments.

use super::record::{ALIGN, Kind, Record, record};
use crate::NodeId;
use crate::bytes::Reader;
use crate::disk::SEGMENTS;
use crate::error::LogCorrupt;
use crate::log::place;
use crate::wire;
use raft::eraftpb::{Entry, HardState, Snapshot};

/// What a node's disk has.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    pub(crate) segment: usize,
    pub(crate) generation: u64,
    pub(crate) owner: u64,
    pub(crate) hard: HardState,
    pub(crate) snapshot: Snapshot,
    pub(crate) entries: Vec<Entry>,
    /// How many bytes at the end of the segment were not a whole record.
    pub(crate) cut: usize,
}

impl Recovered {
    /// The log of every voter of a group that begins with these voters and this state. For simulators, which
    /// begin in the middle of a cluster's life: real nodes join one by one.
    #[doc(hidden)]
    pub fn founded(voters: Vec<NodeId>, state: Vec<u8>) -> Self {
        let mut hard = HardState::default();
        (hard.term, hard.commit) = (1, 1);
        let snapshot = wire::snapshot_of((1, 1), wire::conf_state(voters, Vec::new()), state);
        Self { segment: 0, generation: 0, owner: 0, hard, snapshot, entries: Vec::new(), cut: 0 }
    }

    /// How many bytes at the end of the log a crash had left unfinished. They are dropped.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Whose log it is: what [`Settings::owner`](crate::Settings::owner) was when it was written. A caller
    /// refuses the log of somebody else, whose promises it must neither keep nor forget.
    pub fn owner(&self) -> u64 {
        self.owner
    }
}

/// What one segment has.
enum Found {
    Nothing,
    /// Something that is not readable from its beginning: a base that a crash cut, or damage.
    Unreadable,
    /// The other segment has the log, of this generation at least. Where the record ends.
    Retired(u64, usize),
    /// A whole base and what follows it.
    Whole(Box<Recovered>),
}

/// Reads the log of a node. Returns `None` if the disk has none: nothing that the node has promised.
///
/// # Errors
/// [`LogCorrupt`] if something that was durable is not readable.
pub fn recover(segments: &[Vec<u8>; SEGMENTS]) -> Result<Option<Recovered>, LogCorrupt> {
    recover_kept(segments, [0; SEGMENTS])
}

/// As [`recover`], where the caller knows that so many bytes of each segment were written completely. So
/// damage to the last records is found, too.
///
/// # Errors
/// [`LogCorrupt`] if something that was durable is not readable.
pub fn recover_kept(
    segments: &[Vec<u8>; SEGMENTS],
    kept: [u64; SEGMENTS],
) -> Result<Option<Recovered>, LogCorrupt> {
    let [first, second] = segments;
    let found = [scan(first, 0)?, scan(second, 1)?];
    for (segment, (found, kept)) in found.iter().zip(kept).enumerate() {
        let intact = match found {
            Found::Nothing | Found::Unreadable => 0,
            Found::Retired(_, end) => *end,
            Found::Whole(log) => segments[segment].len() - log.cut,
        };
        if (intact as u64) < kept {
            return Err(LogCorrupt::Damaged { segment, offset: intact as u64 });
        }
    }
    match found.into() {
        (Found::Whole(one), Found::Whole(other)) => {
            Ok(Some(if one.generation > other.generation { *one } else { *other }))
        }
        (Found::Whole(one), Found::Retired(least, _)) | (Found::Retired(least, _), Found::Whole(one)) => {
            // An older log than the one that was promised.
            if one.generation < least { Err(LogCorrupt::NoBeginning) } else { Ok(Some(*one)) }
        }
        (Found::Whole(one), _) | (_, Found::Whole(one)) => Ok(Some(*one)),
        (Found::Retired(..), _) | (_, Found::Retired(..)) => Err(LogCorrupt::NoBeginning),
        (Found::Unreadable, Found::Unreadable) => Err(LogCorrupt::NoBeginning),
        // A crash cut the first base of the node, which has promised nothing yet.
        (Found::Nothing, _) | (_, Found::Nothing) => Ok(None),
    }
}

fn scan(segment: &[u8], number: usize) -> Result<Found, LogCorrupt> {
    if segment.iter().all(|byte| *byte == 0) {
        return Ok(Found::Nothing);
    }
    let Some(begin) = record(segment, 0, 0) else { return Ok(Found::Unreadable) };
    let mut reader = Reader(begin.payload);
    let (first, generation, owner) = (begin.next, reader.u64(), reader.u64());
    let (generation, owner) = match (begin.kind, generation, owner) {
        (Kind::Begin, Some(generation), Some(owner)) => (generation, owner),
        (Kind::Retired, Some(generation), _) => return Ok(Found::Retired(generation, first)),
        _ => return Ok(Found::Unreadable),
    };
    let mut found = Builder::default();
    let mut offset = first;
    while let Some(next) = record(segment, offset, generation) {
        found.take(&next)?;
        offset = next.next;
    }
    if let Some(offset) = damaged(segment, offset, generation) {
        return Err(LogCorrupt::Damaged { segment: number, offset });
    }
    if !found.whole {
        return Ok(Found::Unreadable);
    }
    let cut = segment.len() - offset;
    let (snapshot, mut hard) = found.snapshot.zip(found.hard).ok_or(INCOMPLETE)?;
    // A crash may cut between entries and the term that came with them. The node has not voted in that term:
    // a vote is durable before its answer leaves.
    let newest = found.entries.last().map_or(0, |entry| entry.term);
    if newest > hard.term {
        (hard.term, hard.vote) = (newest, 0);
    }
    let entries = found.entries;
    let recovered = Recovered { segment: number, generation, owner, hard, snapshot, entries, cut };
    check(&recovered)?;
    Ok(Found::Whole(Box::new(recovered)))
}

const INCOMPLETE: LogCorrupt = LogCorrupt::Inconsistent { what: "a base without snapshot or hard state" };

/// The first byte that is no record although a later record says that it was durable.
fn damaged(segment: &[u8], end: usize, generation: u64) -> Option<u64> {
    let offsets = (end..segment.len()).step_by(ALIGN).skip(1);
    let mut later = offsets.filter_map(|offset| record(segment, offset, generation));
    later.any(|later| later.durable > end as u64).then_some(end as u64)
}

/// Refuses what would stop Raft.
fn check(recovered: &Recovered) -> Result<(), LogCorrupt> {
    let (index, _) = place(&recovered.snapshot);
    let last = index + recovered.entries.len() as u64;
    if recovered.hard.commit < index || recovered.hard.commit > last {
        return Err(LogCorrupt::Inconsistent { what: "the commit index is outside of the log" });
    }
    Ok(())
}

/// The log, record by record.
#[derive(Default)]
struct Builder {
    snapshot: Option<Snapshot>,
    hard: Option<HardState>,
    entries: Vec<Entry>,
    whole: bool,
}

impl Builder {
    fn take(&mut self, record: &Record<'_>) -> Result<(), LogCorrupt> {
        let mut reader = Reader(record.payload);
        let taken = match record.kind {
            Kind::Begin | Kind::Retired => None,
            Kind::Snapshot => wire::snapshot(&mut reader).map(|snapshot| self.snapshot = Some(snapshot)),
            Kind::Entry => wire::entry(&mut reader).and_then(|entry| self.entry(entry)),
            Kind::Hard => hard(&mut reader).map(|hard| self.hard = Some(hard)),
            Kind::End => {
                self.whole = true;
                Some(())
            }
        };
        taken.ok_or(LogCorrupt::Inconsistent { what: "a record does not fit the ones before" })
    }

    /// Takes an entry in place of those with the same or a higher index.
    fn entry(&mut self, entry: Entry) -> Option<()> {
        let (index, _) = place(self.snapshot.as_ref()?);
        let at = usize::try_from(entry.index.checked_sub(index + 1)?).ok()?;
        if at > self.entries.len() {
            return None;
        }
        if replaces(&self.entries, at) {
            self.entries.truncate(at);
            self.entries.push(entry);
        }
        Some(())
    }
}

/// Whether an entry read at place `at` replaces what was there: later records count.
fn replaces(entries: &[Entry], at: usize) -> bool {
    seam!(journal::replaces(entries.len(), at));
    at <= entries.len()
}

fn hard(reader: &mut Reader<'_>) -> Option<HardState> {
    let mut hard = HardState::default();
    (hard.term, hard.vote, hard.commit) = (reader.u64()?, reader.u64()?, reader.u64()?);
    Some(hard)
}
