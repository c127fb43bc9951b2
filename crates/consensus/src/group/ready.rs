//! Works through what Raft has ready: writes, messages, committed entries, confirmed reads.

use super::{Group, Waiting};
use crate::disk::WriteKind;
use crate::error::Stopped;
use crate::machine::StateMachine;
use crate::output::{Envelope, Event};
use crate::wire;
use raft::eraftpb::{Message, MessageType};
use raft::{ReadState, Ready};

impl<S: StateMachine> Group<S> {
    /// Works until Raft has nothing ready.
    pub(super) fn work(&mut self) -> Result<(), Stopped> {
        loop {
            self.begin_reads();
            if !self.raw.has_ready() {
                break;
            }
            let ready = self.raw.ready();
            self.handle(ready)?;
        }
        self.compact();
        self.answer_reads();
        Ok(())
    }

    fn handle(&mut self, mut ready: Ready) -> Result<(), Stopped> {
        self.note_leader();
        self.write(&ready)?;
        for message in ready.take_messages() {
            // Raft lets a leader send entries while it writes them itself.
            if self.may_lead() { self.send(message) } else { self.hold(message) }
        }
        for message in ready.take_persisted_messages() {
            self.hold(message);
        }
        for read in ready.take_read_states() {
            self.confirm_reads(read);
        }
        let (number, committed) = (ready.number(), ready.take_committed_entries());
        self.raw.advance_append_async(ready);
        if self.writes.waiting.is_empty() {
            self.raw.on_persist_ready(number);
        }
        self.apply(&committed)?;
        self.note_applied();
        Ok(())
    }

    /// Puts what Raft wants to keep into the log, in memory and on the way to the disk.
    fn write(&mut self, ready: &Ready) -> Result<(), Stopped> {
        if let Some(hard) = ready.hs() {
            self.hard = hard.clone();
        }
        if !ready.snapshot().is_empty() {
            self.install(ready.snapshot())?;
        }
        if !self.raw.mut_store().append(ready.entries()) {
            return Err(Stopped::Broken);
        }
        self.note_removal(ready.entries());
        let number = ready.number();
        if !ready.snapshot().is_empty() {
            self.write_base_with(number);
        } else if !ready.entries().is_empty() || ready.hs().is_some() {
            let bytes = self.journal.append(ready.entries(), ready.hs());
            self.emit(number, ready.must_sync(), bytes);
        }
        Ok(())
    }

    /// Begins the log anew in the other segment.
    pub(super) fn write_base(&mut self) {
        let ready = self.writes.waiting.back().map_or(0, |write| write.ready);
        self.write_base_with(ready);
    }

    fn write_base_with(&mut self, ready: u64) {
        let log = self.raw.store();
        let tail = log.tail().take(tail_to_keep(log.tail().count()));
        let bytes = self.journal.replace(log.snapshot(), &self.hard, tail);
        self.emit(ready, true, bytes);
    }

    fn emit(&mut self, ready: u64, sync: bool, bytes: (WriteKind, Vec<u8>)) {
        self.writes.last += 1;
        let write = self.journal.write(self.writes.last, sync, bytes);
        let waiting = Waiting {
            number: write.number,
            ready,
            generation: self.journal.generation(),
            term: self.hard.term,
            length: if sync { self.journal.length() } else { 0 },
            bytes: write.bytes.len(),
        };
        self.writes.bytes += waiting.bytes;
        self.writes.waiting.push_back(waiting);
        self.output.writes.push(write);
    }

    /// Notes that writes are done, and lets go what waited for them.
    pub(super) fn note_persisted(&mut self, number: u64) {
        let mut ready = 0;
        while let Some(write) = self.writes.waiting.pop_front_if(|write| write.number <= number) {
            self.writes.done = write.number;
            self.writes.term = write.term;
            self.writes.bytes -= write.bytes;
            self.journal.synced(write.generation, write.length);
            ready = ready.max(write.ready);
        }
        if ready > 0 {
            self.raw.on_persist_ready(ready);
        }
        self.note_applied();
        while let Some((_, envelope)) = self.held.pop_front_if(|(after, _)| *after <= self.writes.done) {
            self.output.messages.push(envelope);
        }
    }

    /// Tells Raft what the state has. A snapshot of the leader counts only once it is durable.
    fn note_applied(&mut self) {
        let log = &self.raw.raft.raft_log;
        if log.applied < self.applied && self.applied <= log.committed.min(log.persisted) {
            self.raw.advance_apply_to(self.applied);
        }
    }

    /// Holds a message back until everything that it may promise is on disk.
    fn hold(&mut self, message: Message) {
        if self.may_send() {
            self.send(message);
        } else if let Some(envelope) = self.envelope(message) {
            self.held.push_back((self.writes.last, envelope));
        }
    }

    /// Whether the disk has everything that the node may promise.
    pub(super) fn may_send(&self) -> bool {
        seam!(group::may_send());
        self.writes.waiting.is_empty()
    }

    /// Whether a leader may act in its term. The only voter elects itself before its disk has the term. If it
    /// sent entries to learners then, a crash could make it lead the same term again, with other entries.
    fn may_lead(&self) -> bool {
        seam!(group::may_lead());
        self.writes.term >= self.raw.raft.term
    }

    fn send(&mut self, message: Message) {
        if let Some(envelope) = self.envelope(message) {
            self.output.messages.push(envelope);
        }
    }

    fn envelope(&mut self, message: Message) -> Option<Envelope> {
        let to = message.to;
        if message.get_msg_type() == MessageType::MsgSnapshot {
            self.snapshots.insert(to, self.time.ticks);
        }
        wire::encode(&message).map(|bytes| Envelope { to, bytes })
    }

    /// Tells the caller about another leader, and ends reads that this node cannot answer any more.
    fn note_leader(&mut self) {
        let raft = &self.raw.raft;
        let leader = (raft.term, Some(raft.leader_id).filter(|leader| *leader != 0));
        if leader == self.leader {
            return;
        }
        self.leader = leader;
        self.snapshots.clear();
        self.give_up_reads();
        self.output.events.push(Event::Leader { term: leader.0, leader: leader.1 });
    }

    /// Notes that a majority has confirmed a round of reads.
    fn confirm_reads(&mut self, read: ReadState) {
        let round = self.reads.round.take_if(|(context, _)| *context == read.request_ctx);
        if let Some((_, tickets)) = round {
            self.reads.confirmed.push((read.index, tickets));
        }
    }

    /// Answers confirmed reads, once the state has everything that was committed when they were asked.
    fn answer_reads(&mut self) {
        let applied = self.applied;
        let ready = self.reads.confirmed.extract_if(.., |(index, _)| *index <= applied);
        for (ticket, _) in ready.flat_map(|(_, tickets)| tickets) {
            self.output.events.push(Event::Read { ticket, result: Ok(()) });
        }
    }
}

/// How many of the entries after a snapshot go into the new segment: all.
fn tail_to_keep(entries: usize) -> usize {
    seam!(group::tail_to_keep());
    entries
}
