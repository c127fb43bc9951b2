//! One schedule by hand: answers to a leader's question are on their way while the others elect another.

use crate::machine::Machine;
use crate::plan::{Setup, settings};
use crate::world::{TICK, Violation};
use fastrand::Rng;
use sherman_consensus::{
    Envelope, Event, Group, MemoryDisk, NodeId, Settings, Start, perform, read, recover,
};
use std::collections::BTreeMap;

/// Nodes whose disks are fast, and whose messages the test delivers.
struct Bench {
    nodes: BTreeMap<NodeId, (Group<Machine>, MemoryDisk)>,
    messages: Vec<(NodeId, Envelope)>,
    events: Vec<(NodeId, Event<(u64, u64)>)>,
    now: u64,
}

impl Bench {
    fn new(setup: &Setup) -> Result<Self, Violation> {
        let mut nodes = BTreeMap::new();
        for (disk, id) in setup.disks.iter().zip(1..) {
            let mut disk = disk.clone();
            let segments = read(&mut disk).map_err(|error| error.to_string())?;
            let log = recover(&segments).map_err(|error| error.to_string())?;
            let settings = Settings { id, seed: id, ..settings(&mut Rng::with_seed(0)) };
            let group = Group::open(settings, Machine::default(), log, Start::Join, 0);
            nodes.insert(id, (group.map_err(|error| error.to_string())?, disk));
        }
        Ok(Self { nodes, messages: Vec::new(), events: Vec::new(), now: 0 })
    }

    fn group(&mut self, id: NodeId) -> &mut Group<Machine> {
        &mut self.nodes.get_mut(&id).expect("a node").0
    }

    /// Writes, and collects messages and events.
    fn settle(&mut self) {
        for (id, (group, disk)) in &mut self.nodes {
            loop {
                let output = group.take_output();
                self.messages.extend(output.messages.into_iter().map(|message| (*id, message)));
                self.events.extend(output.events.into_iter().map(|event| (*id, event)));
                if output.writes.is_empty() {
                    break;
                }
                for write in output.writes {
                    perform(disk, &write).expect("a disk in memory");
                    group.persisted(write.number);
                }
            }
        }
    }

    /// Delivers the messages between these nodes until none is left. Returns the others.
    fn deliver(&mut self, among: &[NodeId]) -> Vec<(NodeId, Envelope)> {
        let mut others = Vec::new();
        loop {
            self.settle();
            let messages = std::mem::take(&mut self.messages);
            if messages.is_empty() {
                return others;
            }
            for (from, message) in messages {
                if among.contains(&from) && among.contains(&message.to) {
                    self.group(message.to).receive(&message.bytes).expect("a message");
                } else {
                    others.push((from, message));
                }
            }
        }
    }

    /// Lets time pass for these nodes until one of them leads.
    fn elect(&mut self, among: &[NodeId]) -> Result<NodeId, Violation> {
        for _ in 0..100 {
            self.now += TICK;
            for id in among {
                let now = self.now;
                self.group(*id).tick(now);
                self.deliver(among);
            }
            let leads = |id: &&NodeId| self.nodes[*id].0.status().leads;
            if let Some(leader) = among.iter().find(leads) {
                return Ok(*leader);
            }
        }
        Err("nobody is elected".to_owned())
    }
}

/// A read that a deposed leader gets after another leader has acknowledged a command must not be answered,
/// although answers to an older question still arrive.
pub(crate) fn a_deposed_leader_reads(setup: &Setup) -> Result<(), Violation> {
    let mut bench = Bench::new(setup)?;
    let old = bench.elect(&[1, 2, 3])?;
    bench.deliver(&[1, 2, 3]);
    let others: Vec<NodeId> = [1, 2, 3].into_iter().filter(|id| *id != old).collect();
    let first = bench.group(old).read().map_err(|error| error.to_string())?;
    // The question reaches the others, and their answers are under way.
    bench.settle();
    for (_, message) in std::mem::take(&mut bench.messages) {
        bench.group(message.to).receive(&message.bytes).map_err(|error| error.to_string())?;
    }
    bench.settle();
    let answers = std::mem::take(&mut bench.messages);
    let new = bench.elect(&others)?;
    bench.group(new).propose(vec![7; 8]).map_err(|error| error.to_string())?;
    bench.deliver(&others);
    let proposed = |(id, event): &(NodeId, Event<_>)| match event {
        Event::Proposed { result: Ok((_, index)), .. } if *id == new => Some(*index),
        _ => None,
    };
    let index = bench.events.iter().find_map(proposed).ok_or("the new leader commits nothing")?;
    let second = bench.group(old).read().map_err(|error| error.to_string())?;
    for (_, answer) in answers {
        bench.group(old).receive(&answer.bytes).map_err(|error| error.to_string())?;
    }
    bench.settle();
    let answered = |asked| {
        let is = |(id, event): &(NodeId, Event<_>)| {
            *id == old && matches!(event, Event::Read { ticket, result: Ok(()) } if *ticket == asked)
        };
        bench.events.iter().any(is)
    };
    if !answered(first) {
        return Err("the first read is not answered".to_owned());
    }
    if answered(second) {
        let applied = bench.nodes[&old].0.status().applied;
        return Err(format!("a read saw index {applied}; a client knew index {index} before"));
    }
    Ok(())
}
