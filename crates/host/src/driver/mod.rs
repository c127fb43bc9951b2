//! The thread that owns the host's node of the group.
//!
//! It takes requests, messages and the time, passes them to the group, and carries out what the group asks:
//! writes, messages, answers. While this host leads, it also has the leader's duties.
//!
//! | module | what |
//! |---|---|
//! | `asks` | requests to control, and their answers |
//! | `office` | the duties of the leader: lost hosts, ticks, members of the group |
//! | `view` | what has changed in the state: tables to carry out, hosts to connect to, log lines |
//! | `disk` | the log of the group, in memory or in files |

mod asks;
mod disk;
mod office;
mod view;

pub(crate) use disk::Log;

use crate::alive::Directory;
use crate::clock;
use crate::copier::Workshop;
use crate::copies::Orders;
use crate::end::{End, Ended};
use crate::folder::Folder;
use crate::machine::Machine;
use crate::peers::{Peers, unframed};
use crate::plane::{Identity, Input, Reply};
use office::Office;
use sherman_consensus::{Event, Group, NodeId, Output, StateMachine, Ticket, perform};
use sherman_fabric::group::{HostInfo, HostOffer};
use sherman_soft_nic::server::ServerHandle;
use std::collections::BTreeMap;
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
    pub(crate) group: Group<Machine>,
    pub(crate) log: Log,
    pub(crate) inputs: Receiver<Input>,
    pub(crate) peers: Peers,
    pub(crate) directory: Arc<Directory>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) end: Arc<End>,
    pub(crate) server: ServerHandle,
    /// The hosts that were there when this one registered.
    pub(crate) hosts: Vec<HostInfo>,
    /// What this host offers, and whether the state knows this process.
    pub(crate) offer: HostOffer,
    pub(crate) known: Arc<AtomicBool>,
    pub(crate) folder: Option<Arc<Folder>>,
    /// How long a host may be silent.
    pub(crate) detect: Duration,
    pub(crate) lease: Duration,
    /// How far the copies are that this host makes.
    pub(crate) workshop: Arc<Workshop>,
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Driver {
    parts: Parts,
    /// Requests whose commands are on their way.
    waiting: BTreeMap<Ticket, Reply>,
    /// The leader's duties, while this host leads.
    office: Option<Office>,
    view: View,
    /// When a message of the present or last leader arrived, and its host.
    from_leader: Option<(u16, u64)>,
    /// When the last round began.
    last: u64,
}

impl Driver {
    pub(crate) fn new(parts: Parts) -> Self {
        let view = View::new(parts.hosts.clone());
        let (waiting, last) = (BTreeMap::new(), clock::now());
        Self { parts, waiting, office: None, view, from_leader: None, last }
    }

    /// Works until the host ends.
    pub(crate) fn run(mut self) {
        self.note_hosts();
        self.settle();
        while self.parts.end.why().is_none() {
            let idle = self.take_inputs();
            let now = clock::now();
            self.note_pause(now);
            self.parts.group.tick(now);
            // Who is silent is judged only when everything that has arrived was read.
            if idle {
                self.duties(now);
            }
            self.settle();
        }
    }

    /// Waits for inputs, and takes some. Returns whether there are no more at the moment.
    fn take_inputs(&mut self) -> bool {
        let due = self.office.as_ref().map_or(u64::MAX, Office::next).min(self.parts.group.next_tick());
        let wait = Duration::from_nanos(due.saturating_sub(clock::now()));
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
            Input::Ask(ask) => self.ask(ask),
            Input::Message(bytes) => self.receive(&bytes),
            // The end itself is noted elsewhere.
            Input::End => {}
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let Some(((host, incarnation), message)) = unframed(bytes) else { return };
        if let Some(office) = &mut self.office {
            office.heard(host, incarnation, clock::now());
        } else if self.view.leader.is_some_and(|leader| self.view.host_of(leader) == Some(host)) {
            self.from_leader = Some((host, clock::now()));
        }
        if let Err(error) = self.parts.group.receive(message) {
            tracing::debug!(host, "a message of the group was not taken: {error}");
        }
    }

    /// After a pause of this process, nobody was silent: nobody listened.
    fn note_pause(&mut self, now: u64) {
        let pause = now.saturating_sub(self.last);
        self.last = now;
        if u128::from(pause) * 2 > self.parts.detect.as_nanos() {
            self.from_leader = None;
            self.office.iter_mut().for_each(Office::listen_anew);
        }
    }

    /// Carries out what the group asks, until it asks nothing more.
    fn settle(&mut self) {
        loop {
            let output = self.parts.group.take_output();
            if output.writes.is_empty() && output.messages.is_empty() && output.events.is_empty() {
                break;
            }
            self.carry_out(output);
        }
        self.look();
    }

    fn carry_out(&mut self, output: Output<<Machine as StateMachine>::Answer>) {
        for envelope in output.messages {
            self.parts.peers.send(envelope.to, &envelope.bytes);
        }
        for write in output.writes {
            match perform(&mut self.parts.log, &write) {
                Ok(()) => self.parts.group.persisted(write.number),
                Err(error) => {
                    tracing::error!("the log of the control group cannot be written: {error}");
                    self.parts.group.storage_failed();
                }
            }
        }
        for event in output.events {
            self.note(event);
        }
    }

    fn note(&mut self, event: Event<<Machine as StateMachine>::Answer>) {
        match event {
            Event::Proposed { ticket, result } => self.proposed(ticket, result),
            Event::Changed { ticket, result } => {
                if let Some(office) = &mut self.office {
                    office.changed(ticket, result.is_ok());
                }
            }
            Event::Members(members) => {
                tracing::info!(voters = ?members.voters, learners = ?members.learners, "the control group");
                self.view.members = members;
                self.parts.peers.update(&self.view.hosts, &self.view.members);
            }
            Event::Leader { term, leader } => self.new_leader(term, leader),
            Event::Leading { term } => {
                tracing::info!(host = self.parts.own.host, term, "this host leads the control group");
                self.office = Some(Office::new(self.from_leader.take()));
                self.lead();
            }
            Event::Stopped(why) => self.parts.end.set(Ended::Group(why)),
            // This driver asks no reads: everything is a command.
            _ => {}
        }
    }

    fn new_leader(&mut self, term: u64, leader: Option<NodeId>) {
        let own = self.parts.group.status().id;
        if leader != Some(own) {
            if self.office.take().is_some() {
                tracing::info!(host = self.parts.own.host, term, "this host leads no more");
            }
            if let Some(leader) = leader {
                let host = self.view.host_of(leader);
                tracing::info!(host, term, "another host leads the control group");
            }
            // The next leader may or may not execute these commands. Their senders ask it.
            let refusal = self.not_leader();
            for reply in std::mem::take(&mut self.waiting).into_values() {
                reply.send(Err(refusal.clone()));
            }
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
