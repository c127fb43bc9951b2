//! The log of a node on disk: an append-only sequence of records in one of two segments.
//!
//! ```text
//! segment:  Begin(generation, owner) Snapshot Hard Entry* End | Entry* Hard Entry* Hard …
//!           \___________________ the base __________________/
//! record:   magic 4 | kind 1, zeros 3 | length 8 | durable 8 | checksum 8 | payload, zeros to 8 bytes
//! ```
//!
//! A snapshot replaces the log: the node writes a base of the next generation to the *other* segment. Once
//! that is durable, a record `Retired(generation)` replaces the old segment: damage to the new one can then
//! not pass for an older log, nor for none. So the log is bounded, and a crash at any point leaves a whole
//! segment.
//!
//! **What a crash may do.** It may lose, cut or garble the bytes after the last sync. [`recover`] cuts them
//! off at the first record that is not intact.
//!
//! **What is refused.** Each record says how many bytes of its segment were durable when the node made it.
//! If an intact record says that a damaged one before it was durable, the disk has lost something that the
//! node may have promised: that is [`LogCorrupt`]. Damage to the last records, with no later record to
//! witness, looks like a crash and is cut off. The other nodes of the group still have these entries.
//!
//! This module does no I/O: it makes and reads bytes.

mod record;
mod recover;
#[cfg(feature = "mutants")]
mod seam;

pub use recover::{Recovered, recover, recover_kept};

use crate::disk::{SEGMENTS, Write, WriteKind};
use crate::wire;
use raft::eraftpb::{Entry, HardState, Snapshot};
use record::{Kind, put_record};

/// Makes the bytes of a node's log.
#[derive(Debug)]
pub(crate) struct Journal {
    segment: usize,
    generation: u64,
    /// Whose log it is.
    owner: u64,
    /// Bytes in the segment, on the way to the disk included.
    length: u64,
    /// Bytes of its base.
    base: u64,
    /// Bytes in the segment that are durable.
    durable: u64,
}

impl Journal {
    /// A journal that continues after `segment` and `generation`, or begins. It writes a base first.
    pub(crate) fn new(after: Option<(usize, u64)>, owner: u64) -> Self {
        let (segment, generation) = after.unwrap_or((SEGMENTS - 1, 0));
        Self { segment, generation, owner, length: 0, base: 0, durable: 0 }
    }

    /// Bytes in the segment.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that were appended to the base.
    pub(crate) fn appended(&self) -> u64 {
        self.length - self.base
    }

    /// Notes that the bytes up to `length` of `generation` are durable.
    pub(crate) fn synced(&mut self, generation: u64, length: u64) {
        if generation == self.generation {
            self.durable = self.durable.max(length);
        }
    }

    /// The generation of the current segment.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Appends entries and, after them, the hard state: a cut log has no commit index beyond its entries.
    pub(crate) fn append(&mut self, entries: &[Entry], hard: Option<&HardState>) -> (WriteKind, Vec<u8>) {
        let mut bytes = Vec::new();
        for entry in entries {
            self.entry(&mut bytes, entry);
        }
        if let Some(hard) = hard {
            self.hard(&mut bytes, hard);
        }
        self.length += bytes.len() as u64;
        (WriteKind::Append, bytes)
    }

    /// Begins the other segment with everything that the node must keep.
    pub(crate) fn replace<'a>(
        &mut self,
        snapshot: &Snapshot,
        hard: &HardState,
        tail: impl Iterator<Item = &'a Entry>,
    ) -> (WriteKind, Vec<u8>) {
        self.segment = (self.segment + 1) % SEGMENTS;
        self.generation += 1;
        (self.length, self.durable) = (0, 0);
        let mut bytes = Vec::new();
        let mut begin = crate::bytes::Writer::default();
        begin.u64(self.generation).u64(self.owner);
        self.record(&mut bytes, Kind::Begin, &begin.0);
        let mut payload = crate::bytes::Writer::default();
        wire::put_snapshot(&mut payload, snapshot);
        self.record(&mut bytes, Kind::Snapshot, &payload.0);
        for entry in tail {
            self.entry(&mut bytes, entry);
        }
        self.hard(&mut bytes, hard);
        self.record(&mut bytes, Kind::End, &[]);
        (self.length, self.base) = (bytes.len() as u64, bytes.len() as u64);
        let mut other = Vec::new();
        put_record(&mut other, Kind::Retired, 0, 0, 0, &self.generation.to_le_bytes());
        (WriteKind::Replace { other }, bytes)
    }

    /// The write of these bytes to the current segment.
    pub(crate) fn write(&self, number: u64, sync: bool, (kind, bytes): (WriteKind, Vec<u8>)) -> Write {
        Write { number, segment: self.segment, kind, sync, bytes }
    }

    fn entry(&self, bytes: &mut Vec<u8>, entry: &Entry) {
        let mut payload = crate::bytes::Writer::default();
        wire::put_entry(&mut payload, entry);
        self.record(bytes, Kind::Entry, &payload.0);
    }

    fn hard(&self, bytes: &mut Vec<u8>, hard: &HardState) {
        let mut payload = crate::bytes::Writer::default();
        payload.u64(hard.term).u64(vote_to_keep(hard)).u64(hard.commit);
        self.record(bytes, Kind::Hard, &payload.0);
    }

    /// Appends a record to `bytes`, which go to the end of the segment.
    fn record(&self, bytes: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
        let offset = self.length + bytes.len() as u64;
        put_record(bytes, kind, self.generation, offset, self.durable, payload);
    }
}

/// The vote that the log keeps, so that the node votes once in a term.
fn vote_to_keep(hard: &HardState) -> u64 {
    seam!(journal::vote_to_keep());
    hard.vote
}
