//! Changes of the members: one node at a time.
//!
//! A change takes effect where it is applied, and the next one waits until then. Two such configurations
//! always share a node in their majorities, so a change needs no joint configuration.
//!
//! A leader refuses to remove itself, but it may inherit its removal from the leader before. Then it appends
//! nothing more, and steps down when the change is applied. So the others have its whole log, and can elect
//! one of them with its vote even if they do not know yet that it was removed: with two voters they must.

use super::Group;
use crate::bytes::{Reader, Writer};
use crate::error::Refused;
use crate::machine::StateMachine;
use crate::output::{Change, Event, Ticket};
use raft::StateRole;
use raft::eraftpb::{ConfChange, ConfChangeType, Entry};

/// How many voters a group may have.
pub const MAX_VOTERS: usize = 5;
/// How many entries a learner may lack when it gets its vote.
const NEARLY: u64 = 64;

/// The context of an entry that changes the members, before the kind and the node.
pub(super) const CHANGE: u8 = 1;

impl<S: StateMachine> Group<S> {
    /// Changes the members. The result comes as [`Event::Changed`].
    ///
    /// # Errors
    /// [`Refused`]: nothing changes.
    pub fn change(&mut self, change: Change) -> Result<Ticket, Refused> {
        self.expect_leader()?;
        if self.raw.raft.has_pending_conf() {
            return Err(Refused::ChangePending);
        }
        self.check_change(change).map_err(|what| Refused::BadChange { node: change.node(), what })?;
        self.append(true, |group| group.raw.propose_conf_change(encode(change), to_raft(change)))
    }

    fn check_change(&self, change: Change) -> Result<(), &'static str> {
        let (voters, learners) = (&self.members.voters, &self.members.learners);
        let node = change.node();
        let (votes, learns) = (voters.contains(&node), learners.contains(&node));
        let wrong = match change {
            Change::AddLearner(_) => [
                (node == 0, "nodes are numbered from 1"),
                (votes || learns, "it is a member already"),
                (learners.len() >= MAX_VOTERS, "the group has too many learners"),
            ],
            Change::Promote(_) => [
                (!learns, "it is no learner"),
                (voters.len() >= MAX_VOTERS, "the group has as many voters as it may have"),
                (!self.has_nearly_all(node), "it lacks too much of the log"),
            ],
            Change::Remove(_) => [
                (!votes && !learns, "it is no member"),
                (node == self.settings.id, "it leads: hand over to another voter first"),
                (votes && voters.len() == 1, "it is the only voter"),
            ],
        };
        wrong.into_iter().find(|(wrong, _)| *wrong).map_or(Ok(()), |(_, what)| Err(what))
    }

    /// Whether a member has nearly the whole log, as far as this leader knows.
    pub fn has_nearly_all(&self, node: u64) -> bool {
        let matched = self.raw.raft.prs().get(node).map_or(0, |progress| progress.matched);
        matched > 0 && matched + NEARLY >= self.raw.raft.raft_log.last_index()
    }

    /// Applies a committed change. Returns false if the entry has none.
    pub(super) fn apply_change(&mut self, context: &[u8]) -> bool {
        let Some(change) = decode(context) else { return false };
        // Raft refuses only a change that would leave no voter: then the members stay as they are.
        if let Ok(members) = self.raw.apply_conf_change(&to_raft(change)) {
            self.members = members;
            if self.raw.raft.state == StateRole::Leader && !self.raw.raft.promotable() {
                // It was removed. Its votes still help the others: they may not know yet.
                self.raw.raft.become_follower(self.raw.raft.term, 0);
            }
            self.output.events.push(Event::Members(super::members(&self.members)));
        }
        true
    }

    /// Notes whether the log has a change that removes this node and is not applied. `entries` were appended.
    pub(super) fn note_removal(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first().map(|entry| entry.index) else { return };
        self.removal = self.removal.filter(|index| *index < first);
        let own = Some(Change::Remove(self.settings.id));
        let removes = |entry: &&Entry| decode(entry.get_context()) == own;
        self.removal = entries.iter().rfind(removes).map(|entry| entry.index).or(self.removal);
    }
}

fn encode(change: Change) -> Vec<u8> {
    let kind = match change {
        Change::AddLearner(_) => 0,
        Change::Promote(_) => 1,
        Change::Remove(_) => 2,
    };
    let mut writer = Writer::default();
    writer.u8(CHANGE).u8(kind).u64(change.node());
    writer.0
}

fn decode(context: &[u8]) -> Option<Change> {
    let mut reader = Reader(context);
    let (CHANGE, kind, node) = (reader.u8()?, reader.u8()?, reader.u64()?) else { return None };
    match kind {
        0 => Some(Change::AddLearner(node)),
        1 => Some(Change::Promote(node)),
        2 => Some(Change::Remove(node)),
        _ => None,
    }
}

fn to_raft(change: Change) -> ConfChange {
    let mut raft = ConfChange { node_id: change.node(), ..ConfChange::default() };
    raft.set_change_type(match change {
        Change::AddLearner(_) => ConfChangeType::AddLearnerNode,
        Change::Promote(_) => ConfChangeType::AddNode,
        Change::Remove(_) => ConfChangeType::RemoveNode,
    });
    raft
}
