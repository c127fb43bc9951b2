//! Proposals, reads and the handing over of the leader's office.

use super::Group;
use super::pending::Request;
use crate::NodeId;
use crate::error::Refused;
use crate::machine::StateMachine;
use crate::output::Ticket;

/// The context of an entry that has a command. Raft's own entries have none.
pub(super) const COMMAND: u8 = 0;

impl<S: StateMachine> Group<S> {
    /// Proposes a command. The result comes as [`Event::Proposed`](crate::Event::Proposed).
    ///
    /// A proposal whose outcome is unknown may be executed later. A caller that proposes it again must make
    /// the command such that the state machine recognises the second one.
    ///
    /// # Errors
    /// [`Refused`]: the command was not proposed.
    pub fn propose(&mut self, command: Vec<u8>) -> Result<Ticket, Refused> {
        self.expect_leader()?;
        let (bytes, limit) = (command.len(), self.settings.max_command);
        if bytes > limit {
            return Err(Refused::TooLarge { bytes, limit });
        }
        self.append(false, |group| group.raw.propose(vec![COMMAND], command))
    }

    /// Appends an entry by `propose` and remembers it until its result.
    pub(super) fn append(
        &mut self,
        is_change: bool,
        propose: impl FnOnce(&mut Self) -> raft::Result<()>,
    ) -> Result<Ticket, Refused> {
        self.expect_room(self.pending.0.len())?;
        let mut ticket = None;
        self.drive(|group| {
            let before = group.raw.raft.raft_log.last_index();
            let appended = propose(group);
            let index = group.raw.raft.raft_log.last_index();
            if appended.is_ok() && index > before {
                let request = Request { ticket: group.ticket(), until: group.patience(), is_change };
                group.remember(index, request);
                ticket = Some(request.ticket);
            }
        });
        match (ticket, &self.stopped) {
            (_, Some(why)) => Err(Refused::Stopped(why.clone())),
            (Some(ticket), _) => Ok(ticket),
            // Raft drops a proposal while it hands over, and above its limit of uncommitted bytes.
            (None, _) if self.raw.raft.lead_transferee.is_some() => Err(Refused::Transferring),
            (None, _) => Err(Refused::TooManyPending { limit: self.settings.max_pending }),
        }
    }

    /// Keeps a request until its entry is committed or cannot be any more.
    fn remember(&mut self, index: u64, request: Request) {
        seam!(group::remember(self, index, request));
        self.pending.0.insert((index, self.raw.raft.term), request);
    }

    fn expect_room(&self, waiting: usize) -> Result<(), Refused> {
        let limit = self.settings.max_pending;
        if waiting >= limit || self.writes.bytes > self.settings.max_unsynced {
            return Err(Refused::TooManyPending { limit });
        }
        Ok(())
    }

    /// The tick at which a request of now is given up.
    fn patience(&self) -> u64 {
        self.time.ticks + u64::from(self.settings.patience_ticks)
    }

    /// Asks for a linearizable read. When [`Event::Read`](crate::Event::Read) comes, the caller reads
    /// [`state`](Self::state). A majority has then confirmed, after this call, that this node leads: that is
    /// what a lease needs too (L3).
    ///
    /// # Errors
    /// [`Refused`]: nothing was asked.
    pub fn read(&mut self) -> Result<Ticket, Refused> {
        self.expect_leader()?;
        self.expect_room(self.reads.len())?;
        let ticket = self.ticket();
        let until = self.patience();
        self.drive(|group| group.collect_read(ticket, until));
        Ok(ticket)
    }

    /// Puts a read into the next round.
    fn collect_read(&mut self, ticket: Ticket, until: u64) {
        seam!(group::collect_read(self, ticket, until));
        self.reads.next.push((ticket, until));
    }

    /// Begins the next round of reads, if there are any and none is under way. Raft has no answer before the
    /// leader has committed an entry of its own term.
    pub(super) fn begin_reads(&mut self) {
        let reads = &mut self.reads;
        if reads.round.is_some() || reads.next.is_empty() || !self.raw.raft.commit_to_current_term() {
            return;
        }
        reads.rounds += 1;
        let mut context = self.raw.raft.term.to_le_bytes().to_vec();
        context.extend_from_slice(&reads.rounds.to_le_bytes());
        reads.round = Some((context.clone(), std::mem::take(&mut reads.next)));
        self.raw.read_index(context);
    }

    /// Hands the leader's office to `node`, a voter. It takes up to an election timeout, and may fail: the
    /// events say which node leads.
    ///
    /// # Errors
    /// [`Refused`]: this node does not lead, or `node` is no voter.
    pub fn transfer(&mut self, node: NodeId) -> Result<(), Refused> {
        self.expect_leader()?;
        if !self.members.voters.contains(&node) {
            return Err(Refused::BadChange { node, what: "it has no vote" });
        }
        self.drive(|group| group.raw.transfer_leader(node));
        Ok(())
    }
}
