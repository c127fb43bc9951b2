//! A node of the control group.
//!
//! The caller passes it the time, messages, proposals, reads and finished writes. After each call it takes
//! the [`Output`]: it executes the writes in order, sends the messages, and reads the events. The group does
//! no I/O, reads no clock and starts no thread. Raft itself is the `raft` crate; this module decides what it
//! may see and when its results leave the node.
//!
//! What must hold:
//!
//! - **Nothing leaves before its write.** Messages that promise something wait in `held` until the disk has
//!   it ([`may_send`](Group::may_send)). A leader sends entries before its own disk has them, but only in a
//!   term that its disk has ([`may_lead`](Group::may_lead)).
//! - **An answer follows the commit.** The state machine applies committed entries alone, once, in order.
//! - **A read follows a majority.** The leader asks a majority whether it still leads *after* the read came
//!   (Raft's ReadIndex), and waits until its state has what was committed then.
//! - **A node with unfinished writes starts no election.** Raft requires that a leader's log is durable when
//!   it is elected, also in a group of one.
//! - **Everything is bounded**: requests that wait, writes that wait, the log. Requests end after
//!   `patience_ticks`.
//! - **Randomness comes from the seed.** The `raft` crate draws election timeouts from the operating system;
//!   the group overrides each before it counts (`draw_timeout`).

mod apply;
mod change;
mod open;
mod pending;
mod ready;
mod requests;
#[cfg(feature = "mutants")]
mod seam;
mod time;

pub use change::MAX_VOTERS;
pub use open::Start;

use crate::NodeId;
use crate::error::{BadMessage, Refused, Stopped};
use crate::journal::Journal;
use crate::log::Log;
use crate::machine::StateMachine;
use crate::output::{Envelope, Event, Members, Output, Ticket};
use crate::settings::Settings;
use crate::wire;
use pending::{Pending, Reads};
use raft::eraftpb::{ConfState, HardState, MessageType};
use raft::{RawNode, StateRole};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A node of the control group, with its state machine.
pub struct Group<S: StateMachine> {
    settings: Settings,
    raw: RawNode<Log>,
    state: S,
    /// The last entry that the state has.
    applied: u64,
    /// The members as of `applied`.
    members: ConfState,
    /// The entry that removes this node, if the log has one.
    removal: Option<u64>,
    hard: HardState,
    journal: Journal,
    writes: Writes,
    /// Messages that wait for a write, with its number.
    held: VecDeque<(u64, Envelope)>,
    pending: Pending,
    reads: Reads,
    time: time::Time,
    /// When a snapshot was sent to each node, in ticks, until it answers.
    snapshots: BTreeMap<NodeId, u64>,
    /// The leader and its term as the caller knows them.
    leader: (u64, Option<NodeId>),
    /// The term in which the caller knows that this node leads.
    leading: u64,
    tickets: Ticket,
    stopped: Option<Stopped>,
    output: Output<S::Answer>,
}

/// Writes on their way to the disk.
#[derive(Debug, Default)]
struct Writes {
    /// The last number given out.
    last: u64,
    /// The last that is done.
    done: u64,
    /// The term that the disk has.
    term: u64,
    /// The ones that are not done.
    waiting: VecDeque<Waiting>,
    /// Their bytes.
    bytes: usize,
}

/// A write on its way to the disk.
#[derive(Debug)]
struct Waiting {
    number: u64,
    /// The last `Ready` of Raft that it contains.
    ready: u64,
    /// The place in the journal that is durable with it.
    generation: u64,
    length: u64,
    /// The term that is durable with it. A new term is always synced.
    term: u64,
    bytes: usize,
}

impl<S: StateMachine> std::fmt::Debug for Group<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// What a node knows about itself and the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The node.
    pub id: NodeId,
    /// Its term.
    pub term: u64,
    /// The leader that it knows.
    pub leader: Option<NodeId>,
    /// Whether it leads.
    pub leads: bool,
    /// The last index that it knows to be committed.
    pub committed: u64,
    /// The last index that its state has.
    pub applied: u64,
    /// Entries in its log in memory.
    pub log_entries: usize,
    /// Bytes in its log on disk.
    pub log_bytes: u64,
    /// The members as of `applied`.
    pub members: Members,
}

impl<S: StateMachine> Group<S> {
    /// The node's state. It is a past state of the group, unless a read says otherwise.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The last index that its state has.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// What the node knows.
    pub fn status(&self) -> Status {
        let raft = &self.raw.raft;
        Status {
            id: self.settings.id,
            term: raft.term,
            leader: Some(raft.leader_id).filter(|leader| *leader != 0),
            leads: self.leads(),
            committed: raft.raft_log.committed,
            applied: self.applied,
            log_entries: self.raw.store().len(),
            log_bytes: self.journal.length(),
            members: members(&self.members),
        }
    }

    /// Takes what the node asks and tells since the last time.
    #[must_use = "without it nothing is written, sent or answered"]
    pub fn take_output(&mut self) -> Output<S::Answer> {
        std::mem::take(&mut self.output)
    }

    /// Takes a message from another node.
    ///
    /// A node whose disk is far behind drops messages, as a network may. The sender repeats what matters.
    ///
    /// # Errors
    /// [`BadMessage`] if it is no message for this node. Nothing changes then.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), BadMessage> {
        let message = wire::decode(bytes)?;
        if message.to != self.settings.id {
            return Err(BadMessage::OtherNode { to: message.to });
        }
        if self.stopped.is_some() || self.writes.bytes > self.settings.max_unsynced {
            return Ok(());
        }
        let kind = message.get_msg_type();
        if kind == MessageType::MsgTimeoutNow && !self.may_campaign() {
            return Ok(());
        }
        let last = self.raw.raft.raft_log.last_index();
        if kind == MessageType::MsgHeartbeat && message.term >= self.hard.term && message.commit > last {
            self.stop(Stopped::LogLost { last, expected: message.commit });
            return Ok(());
        }
        self.drive(|group| {
            // Raft refuses answers from nodes that are no members. They left, and nothing is to do.
            let _ = group.raw.step(message);
        });
        Ok(())
    }

    /// Tells the node that the write with this number, and all before it, are done.
    pub fn persisted(&mut self, number: u64) {
        if self.stopped.is_some() {
            return;
        }
        self.drive(|group| group.note_persisted(number));
    }

    /// Tells the node that a write failed. It stops: what the disk has is unknown.
    pub fn storage_failed(&mut self) {
        self.stop(Stopped::StorageFailed);
    }

    /// Why the node has stopped, if it has.
    pub fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// Calls Raft, then works through what it has ready. Raft panics where it finds a state that cannot be:
    /// then this node stops, and the process and the other nodes go on.
    fn drive(&mut self, step: impl FnOnce(&mut Self)) {
        let driven = catch_unwind(AssertUnwindSafe(|| {
            step(self);
            self.work()
        }));
        match driven {
            Ok(Ok(())) => {}
            Ok(Err(why)) => self.stop(why),
            Err(_) => self.stop(Stopped::Broken),
        }
    }

    fn stop(&mut self, why: Stopped) {
        if self.stopped.is_some() {
            return;
        }
        self.stopped = Some(why.clone());
        self.held.clear();
        self.output.messages.clear();
        self.give_up_all();
        self.output.events.push(Event::Stopped(why));
    }

    /// Whether this node leads and takes requests.
    fn leads(&self) -> bool {
        let leaves = self.removal.is_some_and(|index| index > self.applied);
        self.raw.raft.state == StateRole::Leader && self.raw.raft.promotable() && !leaves
    }

    /// Refuses requests of a node that cannot answer them.
    fn expect_leader(&self) -> Result<(), Refused> {
        if let Some(why) = &self.stopped {
            return Err(Refused::Stopped(why.clone()));
        }
        if self.leads() { Ok(()) } else { Err(self.not_leader()) }
    }

    fn not_leader(&self) -> Refused {
        let hint = Some(self.raw.raft.leader_id);
        Refused::NotLeader { hint: hint.filter(|leader| *leader != 0 && *leader != self.settings.id) }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.tickets
    }
}

fn members(state: &ConfState) -> Members {
    let sorted = |nodes: &[NodeId]| {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes
    };
    Members { voters: sorted(&state.voters), learners: sorted(&state.learners) }
}
