//! Round trips, verbs and bytes. Counted by [`execute`](crate::execute), so alike for every backend.

use std::cell::Cell;

/// Running totals. One sits in every endpoint; operations carry their own to say what *they* cost.
#[derive(Debug, Default)]
pub struct Counters {
    round_trips: Cell<u64>,
    reads: Cell<u64>,
    writes: Cell<u64>,
    atomics: Cell<u64>,
    calls: Cell<u64>,
    bytes_read: Cell<u64>,
    bytes_written: Cell<u64>,
}

/// A reading of [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Work lists posted.
    pub round_trips: u64,
    /// READ verbs.
    pub reads: u64,
    /// WRITE verbs.
    pub writes: u64,
    /// CAS and FAA verbs.
    pub atomics: u64,
    /// Control requests to a memory server's CPU.
    pub calls: u64,
    /// Bytes fetched by READs.
    pub bytes_read: u64,
    /// Bytes stored by WRITEs.
    pub bytes_written: u64,
}

impl Tally {
    /// All verbs.
    pub fn verbs(&self) -> u64 {
        self.reads + self.writes + self.atomics
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            round_trips: self.round_trips - earlier.round_trips,
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            atomics: self.atomics - earlier.atomics,
            calls: self.calls - earlier.calls,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}

fn bump(cell: &Cell<u64>, by: u64) {
    cell.set(cell.get().wrapping_add(by));
}

impl Counters {
    /// All totals as of now.
    pub fn read(&self) -> Tally {
        Tally {
            round_trips: self.round_trips.get(),
            reads: self.reads.get(),
            writes: self.writes.get(),
            atomics: self.atomics.get(),
            calls: self.calls.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
        }
    }

    pub(crate) fn add_round_trip(&self) {
        bump(&self.round_trips, 1);
    }

    pub(crate) fn add_read(&self, bytes: u64) {
        bump(&self.reads, 1);
        bump(&self.bytes_read, bytes);
    }

    pub(crate) fn add_write(&self, bytes: u64) {
        bump(&self.writes, 1);
        bump(&self.bytes_written, bytes);
    }

    pub(crate) fn add_atomic(&self) {
        bump(&self.atomics, 1);
    }

    pub(crate) fn add_call(&self) {
        bump(&self.calls, 1);
    }
}
