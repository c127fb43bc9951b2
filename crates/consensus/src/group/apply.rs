//! Applies committed entries to the state machine, and takes snapshots of it.

use super::Group;
use super::change::CHANGE;
use super::requests::COMMAND;
use crate::error::Stopped;
use crate::log::place;
use crate::machine::StateMachine;
use crate::output::{Event, Unanswered};
use crate::wire::snapshot_of;
use raft::eraftpb::{Entry, Snapshot};

impl<S: StateMachine> Group<S> {
    /// Applies committed entries in order.
    pub(super) fn apply(&mut self, entries: &[Entry]) -> Result<(), Stopped> {
        for entry in entries {
            if entry.index != self.applied + 1 {
                return Err(Stopped::Broken);
            }
            self.applied = entry.index;
            self.apply_one(entry)?;
        }
        self.note_leading();
        Ok(())
    }

    fn apply_one(&mut self, entry: &Entry) -> Result<(), Stopped> {
        let (index, term) = (entry.index, entry.term);
        match entry.get_context().first() {
            // The entry that a leader begins its term with.
            None => {
                self.resolve(index, term);
            }
            Some(&COMMAND) => {
                let answer = self.state.apply(index, entry.get_data());
                if let Some(request) = self.resolve(index, term) {
                    self.output.events.push(Event::Proposed { ticket: request.ticket, result: Ok(answer) });
                }
            }
            Some(&CHANGE) if self.apply_change(entry.get_context()) => {
                if let Some(request) = self.resolve(index, term) {
                    self.output.events.push(Event::Changed { ticket: request.ticket, result: Ok(()) });
                }
            }
            Some(_) => return Err(Stopped::BadEntry { index }),
        }
        Ok(())
    }

    /// Tells the caller that this node leads, once its state has an entry of its own term.
    fn note_leading(&mut self) {
        let term = self.raw.raft.term;
        if self.leads() && self.leading < term && self.raw.store().term_at(self.applied) == Some(term) {
            self.leading = term;
            self.output.events.push(Event::Leading { term });
        }
    }

    /// Replaces the state by a snapshot of the leader.
    pub(super) fn install(&mut self, snapshot: &Snapshot) -> Result<(), Stopped> {
        let (index, term) = place(snapshot);
        if !self.state.restore(snapshot.get_data()) {
            return Err(Stopped::BadSnapshot { index });
        }
        self.applied = index;
        self.members = snapshot.get_metadata().get_conf_state().clone();
        self.raw.mut_store().install(snapshot.clone());
        // The snapshot may contain the proposal of this node or not.
        if let Some(request) = self.resolve(index, term) {
            self.unanswered(request, Unanswered::Unknown);
        }
        self.output.events.push(Event::Members(super::members(&self.members)));
        Ok(())
    }

    /// Takes a snapshot if the log is long or a follower needs one, and begins the log on disk anew with it.
    /// The log on disk grows without entries too, by terms and votes: then it begins anew with the old
    /// snapshot.
    pub(super) fn compact(&mut self) {
        let (entries, bytes) = (self.settings.snapshot_entries, self.settings.snapshot_bytes);
        let wanted = self.raw.store().take_wanted();
        let due = wanted || self.raw.store().is_long(entries, bytes);
        if (due && self.take_snapshot()) || self.journal.appended() > 2 * bytes as u64 {
            self.write_base();
        }
    }

    /// Takes a snapshot of the state. Returns false if the last one is as new.
    fn take_snapshot(&mut self) -> bool {
        let log = self.raw.store();
        let index = snapshot_index(self.applied);
        let newer = index > place(log.snapshot()).0;
        let Some(term) = log.term_at(index).filter(|_| newer) else { return false };
        let snapshot = snapshot_of((index, term), self.members.clone(), self.state.snapshot());
        self.raw.mut_store().compact(snapshot, self.settings.keep_entries);
        true
    }
}

/// The index of a snapshot: the last entry that the state has.
fn snapshot_index(applied: u64) -> u64 {
    seam!(group::snapshot_index(applied));
    applied
}
