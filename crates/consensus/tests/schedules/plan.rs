//! One schedule: a group of one, three or five nodes, faults and clients for a while, then calm.

use crate::machine::Machine;
use crate::world::{MILLI, Next, Step, TICK, Violation, Weather, World};
use fastrand::Rng;
use sherman_consensus::{Change, MemoryDisk, NodeId, Settings, Start, StateMachine};

/// How long faults last.
const FAULTS: u64 = 500 * MILLI;
/// How long the group may take to recover from them.
const CALM: u64 = 2_000 * MILLI;

/// The disks of a group that was set up without faults, and its number of members.
pub(crate) struct Setup {
    pub(crate) disks: Vec<MemoryDisk>,
}

/// What a schedule did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) acknowledged: u64,
    pub(crate) reads: u64,
    pub(crate) crashes: u64,
    pub(crate) changes: u64,
    pub(crate) transfers: u64,
    pub(crate) cuts: u64,
    /// Time from the end of the faults to the first new command that all have.
    pub(crate) recovery: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.crashes += other.crashes;
        self.changes += other.changes;
        self.transfers += other.transfers;
        self.cuts += other.cuts;
        self.recovery = self.recovery.max(other.recovery);
    }
}

pub(crate) fn settings(rng: &mut Rng) -> Settings {
    let mut settings = Settings::new(1, 0);
    settings.tick = TICK;
    (settings.heartbeat_ticks, settings.election_ticks) = (1, 5);
    settings.patience_ticks = 20;
    settings.max_pending = 8;
    settings.snapshot_entries = rng.usize(2..16);
    settings.keep_entries = rng.usize(0..6);
    settings.snapshot_bytes = 2 << 10;
    settings.max_unsynced = if rng.bool() { 64 << 10 } else { 1 << 10 };
    settings
}

/// Sets up a group of `count` nodes, beginning with a group of one.
pub(crate) fn set_up(count: u64) -> Result<Setup, Violation> {
    let mut rng = Rng::with_seed(count);
    let settings = settings(&mut rng);
    let mut world = World::new(rng, settings);
    for id in 1..=count {
        world.add(id, MemoryDisk::new());
        world.start(id, if id == 1 { Start::NewGroup } else { Start::Join })?;
    }
    while world.now < 10_000 * MILLI {
        let members = world.group(1).map(|group| group.status().members).unwrap_or_default();
        if members.voters.len() as u64 == count && world.running().iter().all(|id| settled(&world, *id)) {
            break;
        }
        let next = members.voters.len() as u64 + 1;
        if next <= count {
            let learns = members.learners.contains(&next);
            world.change(1, if learns { Change::Promote(next) } else { Change::AddLearner(next) })?;
        }
        world.step()?;
    }
    let last = world.now;
    // Everything reaches the disks.
    while world.now < last + 100 * MILLI {
        world.step()?;
    }
    let voters = world.group(1).map_or(0, |group| group.status().members.voters.len());
    if voters as u64 != count {
        return Err(format!("the group has {voters} voters instead of {count}"));
    }
    Ok(Setup { disks: world.nodes.into_values().map(|node| node.disk).collect() })
}

/// Whether a node has applied all that the leader has.
fn settled(world: &World, id: NodeId) -> bool {
    let applied = |id| world.group(id).map(|group| group.status().applied);
    applied(id) == world.leader().and_then(applied)
}

/// Runs the schedule of this seed.
pub(crate) fn run(setup: &Setup, seed: u64, trace: bool) -> (Result<Report, Violation>, Vec<String>) {
    let mut rng = Rng::with_seed(seed);
    let settings = settings(&mut rng);
    let mut world = World::new(rng, settings);
    world.trace = trace.then(Vec::new);
    let mut schedule = Schedule { world, report: Report::default(), next_id: setup.disks.len() as u64 + 1 };
    let result = schedule.run(setup);
    let trace = schedule.world.trace.take().unwrap_or_default();
    (result.map(|()| schedule.report), trace)
}

struct Schedule {
    world: World,
    report: Report,
    next_id: NodeId,
}

impl Schedule {
    fn run(&mut self, setup: &Setup) -> Result<(), Violation> {
        for (disk, id) in setup.disks.iter().zip(1..) {
            self.world.add(id, disk.clone());
            self.world.start(id, Start::Join)?;
        }
        if setup.disks.len() == 1 && self.world.rng.bool() {
            // Most of what can go wrong in a group of one needs a learner.
            self.change_to(1, Change::AddLearner(2))?;
        }
        self.world.weather = self.weather();
        self.world.after(0, Step::Client);
        let first = self.world.rng.u64(0..100 * MILLI);
        self.world.after(first, Step::Nemesis);
        while self.world.now < FAULTS {
            match self.world.step()? {
                Next::Client => self.client()?,
                Next::Nemesis => self.nemesis()?,
                Next::Nothing | Next::Done => {}
            }
            self.expect_bounded()?;
        }
        self.calm()
    }

    fn weather(&mut self) -> Weather {
        let rng = &mut self.world.rng;
        Weather {
            loss: *rng.choice(&[0, 3, 10, 30]).unwrap_or(&0),
            late: *rng.choice(&[0, 3, 10]).unwrap_or(&0),
            repeat: *rng.choice(&[0, 5, 20]).unwrap_or(&0),
            delay: *rng.choice(&[2, 5, 20, 60]).unwrap_or(&2) * MILLI,
            disk: *rng.choice(&[1, 3, 15, 60]).unwrap_or(&1) * MILLI,
        }
    }

    /// A node to ask: mostly one that believes that it leads, perhaps a deposed one.
    fn somebody(&mut self) -> Option<NodeId> {
        let running = self.world.running();
        let leads = |id: &NodeId| self.world.group(*id).is_some_and(|group| group.status().leads);
        let leaders: Vec<NodeId> = running.iter().copied().filter(leads).collect();
        let rng = &mut self.world.rng;
        if rng.u32(0..10) == 0 { rng.choice(running) } else { rng.choice(leaders) }
    }

    fn client(&mut self) -> Result<(), Violation> {
        if self.world.waiting_clients() == 0 {
            let pause = self.world.rng.u64(0..15 * MILLI);
            self.world.after(pause, Step::Client);
        }
        let Some(id) = self.somebody() else { return Ok(()) };
        // Several clients at once, from time to time.
        for _ in 0..self.world.rng.u32(1..4) {
            if self.world.rng.u32(0..5) < 3 {
                self.world.propose(id)?;
            } else {
                self.world.read(id)?;
            }
        }
        Ok(())
    }

    fn nemesis(&mut self) -> Result<(), Violation> {
        let pause = self.world.rng.u64(0..80 * MILLI);
        self.world.after(pause, Step::Nemesis);
        let leader = self.world.leader();
        let ids: Vec<NodeId> = self.world.nodes.keys().copied().collect();
        let Some(any) = self.world.rng.choice(&ids).copied() else { return Ok(()) };
        let victim = leader.filter(|_| self.world.rng.bool()).unwrap_or(any);
        match self.world.rng.u32(0..13) {
            0..=2 => self.crash(victim),
            3 => {
                for id in &ids {
                    self.crash(*id);
                }
            }
            4 | 5 => self.cut(victim, &ids),
            6 => self.world.cut.clear(),
            7 => self.world.weather = self.weather(),
            8 | 9 => self.transfer(leader, any)?,
            _ => self.change(leader, any)?,
        }
        Ok(())
    }

    fn crash(&mut self, id: NodeId) {
        self.report.crashes += 1;
        self.world.crash(id);
        let pause = self.world.rng.u64(MILLI..150 * MILLI);
        self.world.after(pause, Step::Restart { node: id });
    }

    /// Cuts a node, or several, off from the others: both ways or one way.
    fn cut(&mut self, victim: NodeId, ids: &[NodeId]) {
        self.report.cuts += 1;
        let ways = self.world.rng.u32(0..3);
        let other = *self.world.rng.choice(ids).unwrap_or(&victim);
        let inside = |id: &NodeId| *id == victim || *id == other;
        for from in ids.iter().filter(|id| inside(id)) {
            for to in ids.iter().filter(|id| !inside(id)) {
                let both = [(*from, *to), (*to, *from)];
                let cut = if ways == 0 {
                    &both[..1]
                } else if ways == 1 {
                    &both[1..]
                } else {
                    &both
                };
                self.world.cut.extend(cut);
            }
        }
        self.world.note(|| format!("nodes {victim} and {other} are cut off, way {ways}"));
    }

    fn transfer(&mut self, leader: Option<NodeId>, to: NodeId) -> Result<(), Violation> {
        let Some(leader) = leader else { return Ok(()) };
        self.report.transfers += 1;
        self.world.note(|| format!("node {leader} hands over to {to}"));
        self.world.call(leader, |group| {
            let _ = group.transfer(to);
            Ok(())
        })?;
        // Clients go on asking the node that leads no more, and the new leader.
        for _ in 0..self.world.rng.u32(0..12) {
            let pause = self.world.rng.u64(0..100 * MILLI);
            self.world.after(pause, Step::Client);
        }
        Ok(())
    }

    /// Adds, promotes or removes a node.
    fn change(&mut self, leader: Option<NodeId>, any: NodeId) -> Result<(), Violation> {
        let Some(leader) = leader else { return Ok(()) };
        let Some(group) = self.world.group(leader) else { return Ok(()) };
        let members = group.status().members;
        let change = match members.learners.first() {
            Some(learner) if self.world.rng.bool() => Change::Promote(*learner),
            _ if members.learners.is_empty() && self.world.nodes.len() < 7 && self.world.rng.bool() => {
                Change::AddLearner(self.next_id)
            }
            _ => Change::Remove(any),
        };
        self.change_to(leader, change)
    }

    /// Asks the leader for a change. A node to add is started first.
    fn change_to(&mut self, leader: NodeId, change: Change) -> Result<(), Violation> {
        if change == Change::AddLearner(self.next_id) {
            self.world.add(self.next_id, MemoryDisk::new());
            self.world.start(self.next_id, Start::Join)?;
            self.next_id += 1;
        }
        self.report.changes += u64::from(self.world.change(leader, change)?);
        Ok(())
    }

    /// Logs are bounded at any time, in memory and on disk.
    fn expect_bounded(&self) -> Result<(), Violation> {
        let settings = &self.world.settings;
        for (id, node) in &self.world.nodes {
            let Some(group) = &node.group else { continue };
            let entries = group.status().log_entries;
            if entries > settings.snapshot_entries + settings.keep_entries + 128 {
                return Err(format!("node {id} has {entries} entries in its log"));
            }
            // A base, a log of twice the bytes, and the next base beside it.
            let most = 6 * settings.snapshot_bytes + 4 * group.state().snapshot().len();
            if node.disk.bytes() > most + (16 << 10) {
                return Err(format!("node {id} has {} bytes on its disk", node.disk.bytes()));
            }
        }
        Ok(())
    }

    /// Ends all faults, and expects that the group makes progress and that all voters agree.
    fn calm(&mut self) -> Result<(), Violation> {
        self.world.cut.clear();
        self.world.weather = Weather::CALM;
        let begun = self.world.now;
        for id in self.world.nodes.keys().copied().collect::<Vec<_>>() {
            self.world.start(id, Start::Join)?;
        }
        let mut last = None;
        while self.world.now < begun + CALM {
            match self.world.step()? {
                Next::Client | Next::Nemesis | Next::Nothing | Next::Done => {}
            }
            let Some(leader) = self.world.leader() else { continue };
            match last {
                Some(command) if self.world.checks.acknowledged.contains_key(&command) => {
                    if self.agree(leader)? {
                        self.report.recovery = self.world.now - begun;
                        return self.finish(leader);
                    }
                }
                Some(_) if self.world.rng.u32(0..50) > 0 => {}
                _ => last = self.world.propose(leader)?,
            }
        }
        Err(format!("no progress within {} ms after the faults", CALM / MILLI))
    }

    /// Whether all members have what the leader has.
    fn agree(&self, leader: NodeId) -> Result<bool, Violation> {
        let Some(group) = self.world.group(leader) else { return Ok(false) };
        let (status, state) = (group.status(), group.state());
        let has = |id: &NodeId| self.world.group(*id).is_some_and(|group| group.state().hash == state.hash);
        Ok(status.members.voters.iter().chain(&status.members.learners).all(has))
    }

    fn finish(&mut self, leader: NodeId) -> Result<(), Violation> {
        let Some(group) = self.world.group(leader) else { return Ok(()) };
        let voters = group.status().members.voters;
        for id in voters {
            let Some(Machine { commands, .. }) = self.world.group(id).map(|group| group.state()) else {
                return Err(format!("voter {id} does not run"));
            };
            self.world.checks.finished(id, commands)?;
        }
        self.report.acknowledged = self.world.checks.acknowledged.len() as u64;
        self.report.reads = self.world.checks.reads;
        self.expect_bounded()
    }
}
