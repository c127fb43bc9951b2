//! A host's node of the group: messages, requests, and the leader's duties.
//!
//! | module | what |
//! |---|---|
//! | `asks` | requests to control, and their answers |
//! | `office` | the duties of the leader: lost hosts, ticks, members of the group |
//!
//! **What a caller must do**, beside what [`sherman_consensus`] asks of it:
//!
//! 1. After every call it takes the [output](Node::take_output), until that is empty, and carries it out.
//! 2. It calls [`Node::tick`] at [`Node::next`], and whenever something has arrived.
//! 3. It calls [`Node::duties`] when everything that has arrived was passed in: before that nobody is silent.

mod asks;
mod office;

pub use asks::{MOST_HOSTS, not_leader};

use crate::machine::Machine;
use office::Office;
use sherman_consensus::{
    BadMessage, Envelope, Event, Group, Members, NodeId, StateMachine, Status, Stopped, Ticket, Write,
};
use sherman_fabric::group::{CopyProgress, HostInfo, HostOffer};
use sherman_fabric::{FabricError, Response};
use sherman_memory_server::ClusterState;
use std::collections::BTreeMap;

/// A host, once it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostId {
    /// The cluster's identity.
    pub cluster: u64,
    /// Its number.
    pub host: u16,
    /// The incarnation of that number.
    pub incarnation: u32,
}

/// What a node knows from the beginning.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its host.
    pub own: HostId,
    /// How long a host may be silent, in nanoseconds.
    pub detect: u64,
    /// The length of a lease in nanoseconds.
    pub lease: u64,
    /// The hosts that were there when its host registered.
    pub hosts: Vec<HostInfo>,
    /// What its host offers, if this may be a later process of a host that keeps its memory (I4).
    pub offer: Option<HostOffer>,
}

/// One host's part of the control state. A request comes with an `R`, which names it until its answer.
#[derive(Debug)]
pub struct Node<R> {
    group: Group<Machine>,
    options: NodeOptions,
    /// Requests whose commands are on their way.
    waiting: BTreeMap<Ticket, R>,
    answers: Vec<(R, Answer)>,
    /// The leader's duties, while this host leads.
    office: Option<Office>,
    members: Members,
    leader: Option<NodeId>,
    /// When a message of the present or last leader arrived, and its host.
    from_leader: Option<(u16, u64)>,
    /// When the last round began.
    last: u64,
    notices: Vec<Notice>,
    /// How far the copies are that its host makes.
    progress: Vec<CopyProgress>,
}

/// The answer to a request.
pub type Answer = Result<Response, FabricError>;

/// What has happened at a node, for logs, and for the rest of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The group has these members now.
    Members(Members),
    /// The node knows another leader, or none.
    Leader {
        /// The term.
        term: u64,
        /// The leader.
        leader: Option<NodeId>,
        /// Whether this node led before.
        deposed: bool,
    },
    /// This node leads.
    Leads {
        /// The term.
        term: u64,
    },
    /// The leader is about to declare a host lost.
    Silent {
        /// The host.
        host: u16,
    },
    /// A host is silent that has the last copy of a volume: the leader waits for it (P6).
    Awaited {
        /// The host.
        host: u16,
    },
    /// The leader is about to open volumes that were closed for too long so that copies can be made (J6).
    Overdue,
    /// The leader's host leaves: another voter shall lead.
    HandsOver,
    /// The node has stopped.
    Stopped(Stopped),
}

/// Everything that a node asks and tells since the last time.
#[derive(Debug)]
pub struct NodeOutput<R> {
    /// Messages to send, in any order.
    pub messages: Vec<Envelope>,
    /// Writes to execute in this order. The caller reports each one by [`Node::persisted`].
    pub writes: Vec<Write>,
    /// Answers to requests.
    pub answers: Vec<(R, Answer)>,
    /// What has happened.
    pub notices: Vec<Notice>,
}

impl<R> NodeOutput<R> {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.writes.is_empty()
            && self.answers.is_empty()
            && self.notices.is_empty()
    }
}

impl<R> Node<R> {
    /// A node of this group. `now` is the caller's clock in nanoseconds.
    pub fn new(group: Group<Machine>, options: NodeOptions, now: u64) -> Self {
        let members = group.status().members;
        Self {
            group,
            options,
            waiting: BTreeMap::new(),
            answers: Vec::new(),
            office: None,
            members,
            leader: None,
            from_leader: None,
            last: now,
            notices: Vec::new(),
            progress: Vec::new(),
        }
    }

    /// Notes how far the copies are that its host makes, for a request about the cluster.
    pub fn note_progress(&mut self, progress: Vec<CopyProgress>) {
        self.progress = progress;
    }

    /// Its host.
    pub fn own(&self) -> HostId {
        self.options.own
    }

    /// Its copy of the control state; `None` before the first snapshot.
    pub fn state(&self) -> Option<&ClusterState> {
        self.group.state().state()
    }

    /// The last command that its state has.
    pub fn applied(&self) -> u64 {
        self.group.applied()
    }

    /// What the node knows about itself and the group.
    pub fn status(&self) -> Status {
        self.group.status()
    }

    /// The leader that it knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// When the node wants to know the time next.
    pub fn next(&self) -> u64 {
        self.office.as_ref().map_or(u64::MAX, Office::next).min(self.group.next_tick())
    }

    /// Takes a message of the node on another host, which is a sign of life too.
    ///
    /// # Errors
    /// If it is no message for this node. Nothing else changes then.
    pub fn receive(&mut self, from: (u16, u32), message: &[u8], now: u64) -> Result<(), BadMessage> {
        let (host, incarnation) = from;
        if let Some(office) = &mut self.office {
            office.heard(host, incarnation, now);
        } else if self.leader.is_some_and(|leader| self.host_of(leader) == Some(host)) {
            self.from_leader = Some((host, now));
        }
        self.group.receive(message)
    }

    /// Tells the node the time.
    pub fn tick(&mut self, now: u64) {
        self.note_pause(now);
        self.group.tick(now);
    }

    /// Tells the node that the write with this number, and all before it, are done.
    pub fn persisted(&mut self, number: u64) {
        self.group.persisted(number);
    }

    /// Tells the node that a write failed. It stops.
    pub fn storage_failed(&mut self) {
        self.group.storage_failed();
    }

    /// Takes what the node asks and tells. To carry it out may lead to more. `now` is the caller's clock,
    /// read just before.
    #[must_use = "without it nothing is written, sent or answered"]
    pub fn take_output(&mut self, now: u64) -> NodeOutput<R> {
        let output = self.group.take_output();
        for event in output.events {
            self.note(event, now);
        }
        NodeOutput {
            messages: output.messages,
            writes: output.writes,
            answers: std::mem::take(&mut self.answers),
            notices: std::mem::take(&mut self.notices),
        }
    }

    /// After a pause of this process, nobody was silent: nobody listened.
    fn note_pause(&mut self, now: u64) {
        let pause = now.saturating_sub(self.last);
        self.last = now;
        #[cfg(feature = "mutants")]
        if crate::mutant::planted(crate::mutant::Mutant::PauseCounts) {
            return;
        }
        if pause.saturating_mul(2) > self.options.detect {
            self.from_leader = None;
            self.office.iter_mut().for_each(Office::listen_anew);
        }
    }

    fn note(&mut self, event: Event<<Machine as StateMachine>::Answer>, now: u64) {
        match event {
            Event::Proposed { ticket, result } => self.proposed(ticket, result),
            Event::Changed { ticket, .. } => {
                if let Some(office) = &mut self.office {
                    office.changed(ticket);
                }
            }
            Event::Members(members) => {
                self.members = members.clone();
                self.notices.push(Notice::Members(members));
            }
            Event::Leader { term, leader } => self.new_leader(term, leader),
            Event::Leading { term } => {
                self.notices.push(Notice::Leads { term });
                // A leader that lost an election may be well: its answers need time to arrive.
                let earliest = now.saturating_sub(self.options.detect / 2);
                let former = self.from_leader.take().map(|(host, at)| (host, at.max(earliest)));
                self.office = Some(Office::new(former));
                self.lead(now);
            }
            Event::Stopped(why) => self.notices.push(Notice::Stopped(why)),
            // A node asks no reads: everything is a command.
            _ => {}
        }
    }

    fn new_leader(&mut self, term: u64, leader: Option<NodeId>) {
        let own = self.group.status().id;
        self.leader = leader;
        let mut deposed = false;
        if leader != Some(own) {
            deposed = self.office.take().is_some();
            // The next leader may or may not execute these commands. Their senders ask it.
            let refusal = self.refer();
            let waiting = std::mem::take(&mut self.waiting).into_values();
            self.answers.extend(waiting.map(|reply| (reply, Err(refusal.clone()))));
        }
        self.notices.push(Notice::Leader { term, leader, deposed });
    }

    /// The number of a node's host.
    fn host_of(&self, node: NodeId) -> Option<u16> {
        let of_node = |host: &&HostInfo| host.node == node;
        let host = match self.state() {
            Some(state) => state.hosts().iter().map(|host| &host.info).find(of_node),
            None => self.options.hosts.iter().find(of_node),
        };
        host.map(|host| host.number)
    }

    /// The address of the leader, if this host knows one.
    pub fn leader_address(&self) -> Option<String> {
        let leader = self.leader?;
        let of_leader = |host: &&HostInfo| host.node == leader;
        let address = |host: &HostInfo| host.address.clone();
        match self.state() {
            Some(state) => state.hosts().iter().map(|host| &host.info).find(of_leader).map(address),
            None => self.options.hosts.iter().find(of_leader).map(address),
        }
    }
}
