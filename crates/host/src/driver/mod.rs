//! The thread that owns the host's node of the group.
//!
//! It takes requests, messages and the time, passes them to the node, and carries out what the node asks:
//! writes, messages, answers.
//!
//! | module | what |
//! |---|---|
//! | `view` | what has changed in the state: tables to carry out, hosts to connect to, log lines |
//! | `disk` | the log of the group, in memory or in files |

mod disk;
mod view;

pub(crate) use disk::{Log, owner};

use crate::alive::Directory;
use crate::clock;
use crate::copier::Workshop;
use crate::copies::Orders;
use crate::end::{End, Ended};
use crate::folder::Folder;
use crate::peers::{Peers, unframed};
use crate::plane::{Ask, Identity, Input, Reply};
use sherman_consensus::{NodeId, perform};
use sherman_fabric::Request;
use sherman_fabric::group::HostInfo;
use sherman_group::{Node, NodeOutput, Notice};
use sherman_soft_nic::server::ServerHandle;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use view::View;

/// How many inputs are taken before the group's output is carried out.
const BATCH: usize = 64;

/// What the driver works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) own: Identity,
    pub(crate) node: Node<Reply>,
    pub(crate) log: Log,
    pub(crate) inputs: Receiver<Input>,
    pub(crate) peers: Peers,
    pub(crate) directory: Arc<Directory>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) end: Arc<End>,
    pub(crate) server: ServerHandle,
    /// The hosts that were there when this one registered.
    pub(crate) hosts: Vec<HostInfo>,
    /// This process of the host, and whether the state knows it.
    pub(crate) boot: u64,
    pub(crate) known: Arc<AtomicBool>,
    pub(crate) folder: Option<Arc<Folder>>,
    /// How far the copies are that this host makes.
    pub(crate) workshop: Arc<Workshop>,
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Driver {
    parts: Parts,
    view: View,
}

impl Driver {
    pub(crate) fn new(parts: Parts) -> Self {
        let view = View::new(parts.hosts.clone());
        Self { parts, view }
    }

    /// Works until the host ends.
    pub(crate) fn run(mut self) {
        self.note_hosts();
        self.settle();
        while self.parts.end.why().is_none() {
            let idle = self.take_inputs();
            let now = clock::now();
            self.parts.node.tick(now);
            // Who is silent is judged only when everything that has arrived was read.
            if idle {
                self.parts.node.duties(now);
            }
            self.settle();
        }
    }

    /// Waits for inputs, and takes some. Returns whether there are no more at the moment.
    fn take_inputs(&mut self) -> bool {
        let wait = Duration::from_nanos(self.parts.node.next().saturating_sub(clock::now()));
        match self.parts.inputs.recv_timeout(wait) {
            Ok(input) => self.take(input),
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => {
                self.parts.end.set(Ended::Stopped);
                return true;
            }
        }
        for _ in 1..BATCH {
            match self.parts.inputs.try_recv() {
                Ok(input) => self.take(input),
                Err(_) => return true,
            }
        }
        false
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Ask(Ask { asker, request, reply }) => {
                if request == Request::Cluster {
                    self.parts.node.note_progress(self.parts.workshop.progress());
                }
                self.parts.node.ask(asker, request, reply, clock::now());
            }
            Input::Message(bytes) => self.receive(&bytes),
            // The end itself is noted elsewhere.
            Input::End => {}
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let Some((from, message)) = unframed(bytes) else { return };
        if let Err(error) = self.parts.node.receive(from, message, clock::now()) {
            tracing::debug!(host = from.0, "a message of the group was not taken: {error}");
        }
    }

    /// Carries out what the node asks, until it asks nothing more.
    fn settle(&mut self) {
        loop {
            let output = self.parts.node.take_output(clock::now());
            if output.is_empty() {
                break;
            }
            self.carry_out(output);
        }
        self.look();
    }

    fn carry_out(&mut self, output: NodeOutput<Reply>) {
        for envelope in output.messages {
            self.parts.peers.send(envelope.to, &envelope.bytes);
        }
        for write in output.writes {
            match perform(&mut self.parts.log, &write) {
                Ok(()) => self.parts.node.persisted(write.number),
                Err(error) => {
                    tracing::error!("the log of the control group cannot be written: {error}");
                    self.parts.node.storage_failed();
                }
            }
        }
        for (reply, answer) in output.answers {
            reply.send(answer);
        }
        for notice in output.notices {
            self.note(notice);
        }
    }

    fn note(&mut self, notice: Notice) {
        let own = self.parts.own.host;
        match notice {
            Notice::Members(members) => {
                tracing::info!(voters = ?members.voters, learners = ?members.learners, "the control group");
                self.view.members = members;
                self.parts.peers.update(&self.view.hosts, &self.view.members);
            }
            Notice::Leads { term } => tracing::info!(host = own, term, "this host leads the control group"),
            Notice::Leader { term, leader, deposed } => self.new_leader(term, leader, deposed),
            Notice::Silent { host } => {
                tracing::warn!(host, "a host was silent for too long: declaring it lost");
            }
            Notice::Awaited { host } => {
                tracing::warn!(host, "a host is silent that has the last copy of a volume: waiting for it");
            }
            Notice::HandsOver => {
                tracing::info!(host = own, "this host leaves: another one shall lead the control group");
            }
            Notice::Overdue => {
                tracing::warn!("volumes were closed for too long: they open without their new copies");
            }
            Notice::Stopped(why) => self.parts.end.set(Ended::Group(why)),
            _ => {}
        }
    }

    fn new_leader(&mut self, term: u64, leader: Option<NodeId>, deposed: bool) {
        if deposed {
            tracing::info!(host = self.parts.own.host, term, "this host leads no more");
        }
        if let Some(leader) = leader.filter(|leader| *leader != self.parts.node.status().id) {
            let host = self.view.host_of(leader);
            tracing::info!(host, term, "another host leads the control group");
        }
        self.note_leader(leader);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.parts.end.set(Ended::Panicked);
        }
        self.parts.orders.close();
        self.parts.server.stop();
    }
}
