//! The log of a node in memory: the newest snapshot and the entries since.
//!
//! Raft reads it at any time, so it holds entries from the moment they are appended. The journal makes them
//! durable later. Some entries before the snapshot stay here for followers that are a little behind.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::Cell;
use std::collections::VecDeque;

/// The log in memory.
#[derive(Debug)]
pub(crate) struct Log {
    /// What the node started with: Raft asks for it once.
    hard: HardState,
    snapshot: Snapshot,
    /// The last entry that was dropped: its index and term.
    dropped: (u64, u64),
    entries: VecDeque<Entry>,
    /// Bytes of the commands after the snapshot.
    bytes: usize,
    /// Whether a follower needs a newer snapshot than there is.
    wanted: Cell<bool>,
}

impl Log {
    /// The log that a node opens. `entries` follow the snapshot without a gap.
    pub(crate) fn new(hard: HardState, snapshot: Snapshot, entries: Vec<Entry>) -> Self {
        let at = place(&snapshot);
        let bytes = entries.iter().map(size).sum();
        Self { hard, snapshot, dropped: at, entries: entries.into(), bytes, wanted: Cell::new(false) }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The members as of the snapshot.
    pub(crate) fn members(&self) -> &ConfState {
        self.snapshot.get_metadata().get_conf_state()
    }

    /// Index of the last entry.
    pub(crate) fn last(&self) -> u64 {
        self.dropped.0 + self.entries.len() as u64
    }

    /// The entries that the snapshot does not contain.
    pub(crate) fn tail(&self) -> impl Iterator<Item = &Entry> {
        let (index, _) = place(&self.snapshot);
        self.entries.iter().filter(move |entry| entry.index > index)
    }

    /// How many entries there are, the kept ones included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the entries after the snapshot are as many or as long as this.
    pub(crate) fn is_long(&self, entries: usize, bytes: usize) -> bool {
        let after = self.last().saturating_sub(place(&self.snapshot).0);
        after >= entries as u64 || self.bytes >= bytes
    }

    /// Whether a follower has asked for a newer snapshot since the last time.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.take()
    }

    /// Appends entries, in place of those with the same or a higher index. Returns false, and appends
    /// nothing, if they would leave a gap.
    pub(crate) fn append(&mut self, entries: &[Entry]) -> bool {
        let Some(first) = entries.first().map(|entry| entry.index) else { return true };
        if first <= self.dropped.0 || first > self.last() + 1 {
            return false;
        }
        let kept = (first - self.dropped.0 - 1) as usize;
        let cut: usize = self.entries.drain(kept..).map(|entry| size(&entry)).sum();
        self.bytes = self.bytes.saturating_sub(cut) + entries.iter().map(size).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
        true
    }

    /// Replaces everything by a snapshot of the leader.
    pub(crate) fn install(&mut self, snapshot: Snapshot) {
        self.dropped = place(&snapshot);
        self.snapshot = snapshot;
        self.entries.clear();
        self.bytes = 0;
    }

    /// Takes the node's own snapshot, and drops the entries that it contains, except for the last `keep`.
    pub(crate) fn compact(&mut self, snapshot: Snapshot, keep: usize) {
        let (index, _) = place(&snapshot);
        self.snapshot = snapshot;
        while self.dropped.0 + (keep as u64) < index {
            let Some(entry) = self.entries.pop_front() else { break };
            self.dropped = (entry.index, entry.term);
        }
        self.bytes = self.tail().map(size).sum();
    }

    /// The term of the entry at `index`, if it is known.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.dropped.0 {
            return Some(self.dropped.1);
        }
        let at = index.checked_sub(self.dropped.0 + 1)?;
        self.entries.get(usize::try_from(at).ok()?).map(|entry| entry.term)
    }
}

/// Index and term of a snapshot.
pub(crate) fn place(snapshot: &Snapshot) -> (u64, u64) {
    let metadata = snapshot.get_metadata();
    (metadata.index, metadata.term)
}

fn size(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len()
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.members().clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.dropped.0 {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 || low > high {
            return Err(StorageError::Unavailable.into());
        }
        let most = max_size.into().unwrap_or(u64::MAX);
        let (from, to) = ((low - self.dropped.0 - 1) as usize, (high - self.dropped.0 - 1) as usize);
        let mut sum = 0u64;
        let fits = |entry: &&Entry| {
            let first = sum == 0;
            // Never 0, so that only the first entry is taken whatever its length.
            sum += size(entry) as u64 + 24;
            first || sum <= most
        };
        Ok(self.entries.range(from..to).take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let unknown =
            if index < self.dropped.0 { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_at(index).ok_or(raft::Error::Store(unknown))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.dropped.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// A node refuses a snapshot that does not name it as a member, so a node that was added since needs a
    /// newer one.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let members = self.members();
        let named = members.voters.contains(&to) || members.learners.contains(&to);
        if !named || place(&self.snapshot).0 < request_index {
            self.wanted.set(true);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(self.snapshot.clone())
    }
}
