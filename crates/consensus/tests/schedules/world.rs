//! A deterministic world: nodes with disks and drifting clocks, and a network that loses, repeats, delays and
//! reorders messages.

use crate::check::Checks;
use crate::machine::{Applied, Machine};
use fastrand::Rng;
use sherman_consensus::{
    Change, Disk, Event, Group, MemoryDisk, NodeId, Output, Settings, Start, Ticket, Unanswered, Write,
    perform, read, recover,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::io;

pub(crate) const MILLI: u64 = 1_000_000;
/// The length of a tick.
pub(crate) const TICK: u64 = 10 * MILLI;

/// The longest delay of a late message: longer than an election.
const LATE: u64 = 150 * MILLI;

/// How a schedule ended too early.
pub(crate) type Violation = String;

/// What is to happen.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Deliver {
        to: NodeId,
        bytes: Vec<u8>,
    },
    Tick {
        node: NodeId,
        life: u64,
    },
    /// The disk executes the next write.
    Disk {
        node: NodeId,
        life: u64,
    },
    Restart {
        node: NodeId,
    },
    Client,
    Nemesis,
}

/// What happened in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    Done,
    Client,
    Nemesis,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Command(u64),
    /// The newest index that any client knew when it asked.
    Read(u64),
    Change,
}

/// One server.
pub(crate) struct Node {
    pub(crate) group: Option<Group<Machine>>,
    pub(crate) disk: MemoryDisk,
    writes: VecDeque<Write>,
    /// How often the node was started.
    life: u64,
    /// The local clock in thousandths of true time, and where it started.
    rate: u64,
    offset: u64,
    asked: BTreeMap<Ticket, Asked>,
}

/// How bad the network and the disks are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// One message in so many is lost, repeated, or late; 0 for none.
    pub(crate) loss: u32,
    pub(crate) repeat: u32,
    pub(crate) late: u32,
    /// The longest delay of a message, and of a write.
    pub(crate) delay: u64,
    pub(crate) disk: u64,
}

impl Weather {
    pub(crate) const CALM: Self = Self { loss: 0, repeat: 0, late: 0, delay: 2 * MILLI, disk: MILLI };
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    queue: BinaryHeap<Reverse<(u64, u64, Step)>>,
    steps: u64,
    /// Pairs of nodes between which nothing passes, by direction.
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    pub(crate) weather: Weather,
    pub(crate) checks: Checks,
    pub(crate) settings: Settings,
    seen: Applied,
    commands: u64,
    pub(crate) trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(rng: Rng, settings: Settings) -> Self {
        Self {
            rng,
            now: 0,
            nodes: BTreeMap::new(),
            queue: BinaryHeap::new(),
            steps: 0,
            cut: BTreeSet::new(),
            weather: Weather::CALM,
            checks: Checks::default(),
            settings,
            seen: Applied::default(),
            commands: 0,
            trace: None,
        }
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.now / 1000;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>8} µs  {}", text()));
        }
    }

    pub(crate) fn after(&mut self, delay: u64, step: Step) {
        self.steps += 1;
        self.queue.push(Reverse((self.now + delay, self.steps, step)));
    }

    /// How many clients are yet to act.
    pub(crate) fn waiting_clients(&self) -> usize {
        self.queue.iter().filter(|Reverse((_, _, step))| *step == Step::Client).count()
    }

    /// Adds a server with this disk. It does not run yet.
    pub(crate) fn add(&mut self, id: NodeId, disk: MemoryDisk) {
        let (rate, offset) = (900 + self.rng.u64(0..200), self.rng.u64(0..1 << 40));
        let writes = VecDeque::new();
        let node = Node { group: None, disk, writes, life: 0, rate, offset, asked: BTreeMap::new() };
        self.nodes.insert(id, node);
    }

    /// Starts a server.
    pub(crate) fn start(&mut self, id: NodeId, start: Start) -> Result<(), Violation> {
        let (now, seed) = (self.now, self.rng.u64(..));
        let settings = Settings { id, seed, ..self.settings.clone() };
        let seen = self.seen.clone();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.group.is_none()) else { return Ok(()) };
        let segments = read(&mut node.disk).map_err(|error| error.to_string())?;
        let log = recover(&segments).map_err(|error| format!("node {id} cannot open its log: {error}"))?;
        let machine = Machine { seen, ..Machine::default() };
        let clock = node.offset + now * node.rate / 1000;
        let group = Group::open(settings, machine, log, start, clock)
            .map_err(|error| format!("node {id} cannot be opened: {error}"))?;
        node.group = Some(group);
        node.life += 1;
        let life = node.life;
        self.note(|| format!("node {id} starts"));
        self.after(TICK, Step::Tick { node: id, life });
        self.settle(id)
    }

    /// Crashes a server: it loses what was not synced, and all its requests.
    pub(crate) fn crash(&mut self, id: NodeId) {
        let rng = &mut self.rng;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.group.take().is_none() {
            return;
        }
        // The disk may have begun the next writes.
        let mut budget = rng.usize(0..6);
        for write in node.writes.drain(..) {
            let _ = perform(&mut Cut { disk: &mut node.disk, budget: &mut budget }, &write);
        }
        node.disk.crash(|below| rng.usize(0..below));
        node.asked.clear();
        self.note(|| format!("node {id} crashes"));
    }

    /// Lets the next thing happen. Clients and the nemesis are the schedule's own: it gets them back.
    pub(crate) fn step(&mut self) -> Result<Next, Violation> {
        let Some(Reverse((at, _, step))) = self.queue.pop() else { return Ok(Next::Nothing) };
        self.now = at;
        match step {
            Step::Deliver { to, bytes } => {
                self.call(to, |group| group.receive(&bytes).map_err(|error| format!("node {to}: {error}")))?;
            }
            Step::Tick { node, life } => self.tick(node, life)?,
            Step::Disk { node, life } => self.disk(node, life)?,
            Step::Restart { node } => self.start(node, Start::Join)?,
            Step::Client => return Ok(Next::Client),
            Step::Nemesis => return Ok(Next::Nemesis),
        }
        Ok(Next::Done)
    }

    fn tick(&mut self, id: NodeId, life: u64) -> Result<(), Violation> {
        let running = |node: &&Node| node.life == life && node.group.is_some();
        let Some(node) = self.nodes.get(&id).filter(running) else { return Ok(()) };
        let clock = node.offset + self.now * node.rate / 1000;
        let jitter = self.rng.u64(0..TICK / 4);
        self.after(TICK + jitter, Step::Tick { node: id, life });
        self.call(id, |group| {
            group.tick(clock);
            Ok(())
        })
    }

    fn disk(&mut self, id: NodeId, life: u64) -> Result<(), Violation> {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life == life && node.group.is_some())
        else {
            return Ok(());
        };
        let Some(write) = node.writes.pop_front() else { return Ok(()) };
        perform(&mut node.disk, &write).map_err(|error| error.to_string())?;
        self.call(id, |group| {
            group.persisted(write.number);
            Ok(())
        })
    }

    /// Calls a node that runs, and does what it asks.
    pub(crate) fn call(
        &mut self,
        id: NodeId,
        call: impl FnOnce(&mut Group<Machine>) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let Some(group) = self.nodes.get_mut(&id).and_then(|node| node.group.as_mut()) else { return Ok(()) };
        call(group)?;
        self.settle(id)
    }

    /// Executes what a node asks of its caller, and checks what it tells.
    fn settle(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        let (life, Some(group)) = (node.life, node.group.as_mut()) else { return Ok(()) };
        let Output { writes, messages, events } = group.take_output();
        let applied = std::mem::take(&mut *self.seen.borrow_mut());
        self.checks.applied(id, &applied)?;
        for write in writes {
            let delay = self.rng.u64(0..self.weather.disk);
            self.nodes.entry(id).and_modify(|node| node.writes.push_back(write));
            self.after(delay, Step::Disk { node: id, life });
        }
        for envelope in messages {
            self.send(id, envelope.to, envelope.bytes);
        }
        for event in events {
            self.event(id, event)?;
        }
        Ok(())
    }

    /// Sends a message. A cut ends only messages that are sent later: those under way still arrive.
    fn send(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>) {
        let Weather { loss, repeat, late, delay, .. } = self.weather;
        if self.cut.contains(&(from, to)) || self.once_in(loss) {
            return;
        }
        if self.once_in(repeat) {
            let delay = self.rng.u64(0..4 * delay);
            self.after(delay, Step::Deliver { to, bytes: bytes.clone() });
        }
        let longest = if self.once_in(late) { LATE } else { delay };
        let delay = self.rng.u64(0..longest);
        self.after(delay, Step::Deliver { to, bytes });
    }

    /// True once in `count` draws, never if it is 0.
    fn once_in(&mut self, count: u32) -> bool {
        count > 0 && self.rng.u32(0..count) == 0
    }

    fn event(&mut self, id: NodeId, event: Event<(u64, u64)>) -> Result<(), Violation> {
        if !matches!(event, Event::Leader { leader: None, .. }) {
            self.note(|| format!("node {id}: {event:?}"));
        }
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        match event {
            Event::Proposed { ticket, result } => {
                let Some(Asked::Command(command)) = node.asked.remove(&ticket) else {
                    // The answer came before the call returned: the world does not know the ticket yet.
                    return Err(format!("node {id} answers ticket {ticket}, which nobody waits for"));
                };
                match result {
                    Ok((answered, index)) => self.checks.acknowledged(command, answered, index)?,
                    Err(Unanswered::Superseded) => self.checks.superseded(command)?,
                    Err(Unanswered::Unknown) => {}
                }
            }
            Event::Read { ticket, result } => {
                let asked = node.asked.remove(&ticket);
                let (Some(Asked::Read(floor)), Some(group)) = (asked, &node.group) else {
                    return Err(format!("node {id} answers read {ticket}, which nobody waits for"));
                };
                if result.is_ok() {
                    self.checks.read(id, floor, group.status().applied)?;
                }
            }
            Event::Changed { ticket, .. } => {
                node.asked.remove(&ticket);
            }
            Event::Leader { term, leader: Some(leader) } => self.checks.leader(term, leader)?,
            Event::Stopped(why) => return Err(format!("node {id} stopped: {why}")),
            _ => {}
        }
        Ok(())
    }

    /// Nodes that run.
    pub(crate) fn running(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.group.is_some()).map(|(id, _)| *id).collect()
    }

    pub(crate) fn group(&self, id: NodeId) -> Option<&Group<Machine>> {
        self.nodes.get(&id)?.group.as_ref()
    }

    /// A node that believes that it leads, in the newest term.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leads = |id: &NodeId| {
            let status = self.group(*id)?.status();
            status.leads.then_some((status.term, *id))
        };
        self.running().iter().filter_map(leads).max().map(|(_, id)| id)
    }

    /// Proposes a new command to a node. Returns the command if the node has taken it.
    pub(crate) fn propose(&mut self, id: NodeId) -> Result<Option<u64>, Violation> {
        self.commands += 1;
        let command = self.commands;
        let taken = self
            .ask(id, Asked::Command(command), |group| group.propose(command.to_le_bytes().to_vec()).ok())?;
        Ok(Some(command).filter(|_| taken))
    }

    /// Asks a node for a read.
    pub(crate) fn read(&mut self, id: NodeId) -> Result<bool, Violation> {
        let floor = self.checks.floor;
        self.ask(id, Asked::Read(floor), |group| group.read().ok())
    }

    /// Asks a node to change the members.
    pub(crate) fn change(&mut self, id: NodeId, change: Change) -> Result<bool, Violation> {
        self.note(|| format!("node {id} is asked for {change:?}"));
        self.ask(id, Asked::Change, |group| group.change(change).ok())
    }

    fn ask(
        &mut self,
        id: NodeId,
        asked: Asked,
        ask: impl FnOnce(&mut Group<Machine>) -> Option<Ticket>,
    ) -> Result<bool, Violation> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(false) };
        let Some(ticket) = node.group.as_mut().and_then(ask) else {
            self.settle(id)?;
            return Ok(false);
        };
        node.asked.insert(ticket, asked);
        self.settle(id)?;
        Ok(true)
    }
}

/// A disk whose power fails after some operations.
struct Cut<'a> {
    disk: &'a mut MemoryDisk,
    budget: &'a mut usize,
}

impl Cut<'_> {
    fn spend(&mut self) -> io::Result<&mut MemoryDisk> {
        *self.budget = self.budget.checked_sub(1).ok_or(io::Error::from(io::ErrorKind::Interrupted))?;
        Ok(self.disk)
    }
}

impl Disk for Cut<'_> {
    fn append(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        self.spend()?.append(segment, bytes)
    }

    fn sync(&mut self, segment: usize) -> io::Result<()> {
        self.spend()?.sync(segment)
    }

    fn replace(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        self.spend()?.replace(segment, bytes)
    }

    fn read(&mut self, segment: usize) -> io::Result<Vec<u8>> {
        self.disk.read(segment)
    }
}
