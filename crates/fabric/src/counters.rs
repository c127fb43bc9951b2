//! Round trips, verbs and bytes. [`execute`](crate::execute) counts them, so they mean the same for every
//! backend.

use std::cell::Cell;

/// Running totals. Every endpoint has one. Each operation has its own too, for its own cost.
#[derive(Debug, Default)]
pub struct Counters(Cell<Tally>);

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

    /// Joins each count of both.
    #[inline]
    fn with(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            round_trips: join(self.round_trips, other.round_trips),
            reads: join(self.reads, other.reads),
            writes: join(self.writes, other.writes),
            atomics: join(self.atomics, other.atomics),
            calls: join(self.calls, other.calls),
            bytes_read: join(self.bytes_read, other.bytes_read),
            bytes_written: join(self.bytes_written, other.bytes_written),
        }
    }

    /// The counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, |now, then| now - then)
    }
}

impl Counters {
    /// All current totals.
    #[inline]
    pub fn read(&self) -> Tally {
        self.0.get()
    }

    /// Adds `done` to the totals.
    #[inline]
    pub(crate) fn add(&self, done: &Tally) {
        self.0.set(self.0.get().with(done, u64::wrapping_add));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_what_was_counted_since() {
        let one = Tally {
            round_trips: 1,
            reads: 2,
            writes: 3,
            atomics: 4,
            calls: 5,
            bytes_read: 6,
            bytes_written: 7,
        };
        let counters = Counters::default();
        counters.add(&one);
        let before = counters.read();
        assert_eq!(before, one);
        counters.add(&one);
        assert_eq!(counters.read().since(&before), one);
        assert_eq!(counters.read().verbs(), 18);
    }
}
