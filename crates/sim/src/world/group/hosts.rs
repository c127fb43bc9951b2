//! Hosts as processes: a node of the group, the table that the host has carried out, and its work on copies.
//!
//! The node is the product's own ([`sherman_group::Node`]). A host carries out a table some time after its
//! node has applied it, and skips tables in between. Until then it does what its last table says.

use super::net::{End, Item, Net, Sender};
use super::{Wrong, host_of_node};
use crate::knobs::Breach;
use crate::world::World;
use crate::world::flight::NO_TASK;
use sherman_consensus::{Group, MemoryDisk, Recovered, Settings, Start, perform};
use sherman_control::plane::Asker;
use sherman_fabric::Request;
use sherman_fabric::group::{HostInfo, HostOffer};
use sherman_group::{HostId, Machine, Node, NodeOptions, Notice};
use sherman_memory_server::cluster::{Making, Phase};
use sherman_replica::VolumeTable;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ticks of the group in the time for which a host may be silent, as in the product.
const TICKS_OF_SILENCE: u64 = 12;
/// How often a host says that it is alive, while it may be silent. Messages of the group count too.
const SIGNS: u64 = 5;
/// Pieces of a volume in the first pass.
const PIECES: u64 = 5;

/// A clock: what it shows at some moment, and how fast it goes, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriftingClock {
    /// The world's time at that moment.
    pub(crate) from: u64,
    /// What the clock shows then.
    pub(crate) shows: u64,
    /// How much it goes on in 1000 nanoseconds.
    pub(crate) rate: u64,
}

impl DriftingClock {
    /// The world's own clock.
    pub(crate) const TRUE: Self = Self { from: 0, shows: 0, rate: 1000 };

    /// What the clock shows at a time of the world.
    #[inline]
    pub(crate) fn read(&self, now: u64) -> u64 {
        if self.rate == 1000 && self.shows == self.from {
            return now;
        }
        self.shows + now.saturating_sub(self.from) * self.rate / 1000
    }

    /// The world's time at which the clock shows this, at the earliest.
    pub(crate) fn when(&self, shows: u64) -> u64 {
        if self.rate == 1000 && self.shows == self.from {
            return shows;
        }
        let wait = u128::from(shows.saturating_sub(self.shows));
        let wait = (wait * 1000).div_ceil(u128::from(self.rate));
        self.from.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

/// What a host carries out.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct Order {
    pub(in crate::world) table: Arc<VolumeTable>,
    pub(in crate::world) makings: Vec<Making>,
    pub(in crate::world) quiet: bool,
    pub(in crate::world) closed: bool,
}

/// The work of a primary's host on one copy.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct Work {
    /// Pieces of the first pass that were copied.
    pub(in crate::world) pieces: u64,
    /// The epoch in which everything was copied while the state was quiet.
    pub(in crate::world) copied_in: Option<u64>,
    /// The phase that was reported, in which epoch, and the request that has the report.
    reported: Option<(Phase, u64, u64)>,
}

/// A host.
#[derive(Debug)]
pub(in crate::world) struct SimHost {
    pub(in crate::world) own: HostId,
    pub(in crate::world) address: String,
    pub(in crate::world) node: Node<(u64, u32)>,
    pub(in crate::world) clock: DriftingClock,
    /// Whether its process runs.
    pub(in crate::world) runs: bool,
    /// Until when its process stands still.
    pub(in crate::world) stands_until: u64,
    /// Until when something was wrong with it that may make it seem silent.
    pub(in crate::world) troubled_until: u64,
    /// When its node learns the time next.
    wakes_at: u64,
    /// The last command that the host has looked at.
    looked: u64,
    /// What its node has learnt, if that is not carried out yet.
    next: Option<Order>,
    /// What it has carried out.
    pub(in crate::world) done: Order,
    /// The new copies that it has made room for.
    pub(in crate::world) rooms: Vec<u16>,
    /// Its work on copies of primaries here.
    pub(in crate::world) work: BTreeMap<u16, Work>,
    /// Whether it was declared lost.
    pub(in crate::world) lost: bool,
    /// What outlives its process, if anything does (I4).
    pub(in crate::world) kept: Option<Box<Kept>>,
    /// Its process ended, and another one follows.
    pub(in crate::world) comes_back: bool,
    /// Whether the state knows this process.
    pub(in crate::world) known: bool,
    /// It has left, and its process ends then.
    pub(in crate::world) leaves_at: Option<u64>,
    /// The host to tell next that this one is alive, if it knows no leader.
    turn: u16,
}

impl SimHost {
    pub(in crate::world) fn clock_at(&self, now: u64) -> u64 {
        self.clock.read(now)
    }
}

/// What a host has in its folder, beside the memory of its copies.
#[derive(Debug)]
pub(in crate::world) struct Kept {
    pub(in crate::world) disk: MemoryDisk,
    /// What its present process offers.
    pub(in crate::world) offer: HostOffer,
    /// The last table that it has carried out: what its copies were then.
    pub(in crate::world) table: Arc<VolumeTable>,
    /// The hosts that it knew when it registered.
    pub(in crate::world) hosts: Vec<HostInfo>,
}

/// How a host begins.
pub(in crate::world) enum Origin {
    /// It is there from the beginning. One of the first hosts asks for votes at once.
    Old { log: Box<Recovered>, order: Order, eager: bool, kept: Option<Box<Kept>> },
    /// Its former process ended.
    Back { log: Option<Box<Recovered>>, kept: Box<Kept>, clock: DriftingClock },
    /// It has registered.
    New,
}

impl World {
    /// The clock of a compute server.
    #[inline]
    pub(crate) fn clock_of(&self, owner: u32) -> DriftingClock {
        self.compute_servers.get(owner as usize).map_or(DriftingClock::TRUE, |known| known.clock)
    }

    /// Starts a host's process.
    pub(in crate::world) fn start_host(&mut self, own: HostId, origin: Origin, hosts: Vec<HostInfo>) {
        let drift = self.drift();
        let info = hosts.iter().find(|known| known.number == own.host);
        let address = info.map_or_else(String::new, |known| known.address.clone());
        let Some(net) = &mut self.net else { return };
        let rate = 1000 - drift + net.rng.below(2 * drift as usize + 1) as u64;
        let clock = DriftingClock { from: net.now, shows: net.rng.below(1 << 40) as u64, rate };
        // The clock is that of the machine.
        let clock = if let Origin::Back { clock, .. } = &origin { *clock } else { clock };
        let tick = (net.detect / TICKS_OF_SILENCE).max(1);
        let settings = Settings {
            tick,
            heartbeat_ticks: 3,
            patience_ticks: 40,
            keep_entries: 8,
            ..Settings::new(u64::from(own.host) + 1, net.rng.next_u64())
        };
        let now = clock.read(net.now);
        let (is_new, known) = (!matches!(origin, Origin::Old { .. }), !matches!(origin, Origin::Back { .. }));
        let (log, start, order, eager, kept) = match origin {
            Origin::Old { log, order, eager, kept } => (Some(*log), Start::Join, order, eager, kept),
            Origin::Back { log, kept, .. } => {
                (log.map(|log| *log), Start::Join, Order::default(), false, Some(kept))
            }
            Origin::New => (None, Start::Join, Order::default(), false, None),
        };
        // A node that has missed so many ticks asks for votes.
        let opened = if eager { now.saturating_sub(tick * 30) } else { now };
        let group = match Group::open(settings, Machine::default(), log, start, opened) {
            Ok(group) => group,
            Err(error) => return net.found(Wrong::Progress, format!("a node cannot be opened: {error}")),
        };
        let offer = kept.as_ref().map(|kept| kept.offer.clone());
        let options = NodeOptions { own, detect: net.detect, lease: net.lease, hosts, offer };
        let host = SimHost {
            own,
            address,
            node: Node::new(group, options, now),
            clock,
            runs: true,
            stands_until: 0,
            troubled_until: if is_new { net.now } else { 0 },
            wakes_at: u64::MAX,
            looked: 0,
            next: None,
            done: order,
            rooms: Vec::new(),
            work: BTreeMap::new(),
            lost: false,
            kept,
            comes_back: false,
            known,
            leaves_at: None,
            turn: own.host,
        };
        let number = usize::from(own.host);
        if net.hosts.len() <= number {
            net.hosts.resize_with(number + 1, || None);
        }
        net.hosts[number] = Some(host);
        let (at, first) = (net.now, net.now + 1 + net.rng.below(tick as usize) as u64);
        net.queue.push(first + net.detect / SIGNS, Item::Alive { host: own.host });
        net.queue.push(at + net.pace, Item::Work { host: own.host });
        if self.volumes.up.len() <= number {
            self.volumes.up.resize(number + 1, false);
        }
        self.volumes.up[number] = true;
        self.wake_host_at(own.host, if eager { at + 1 } else { first });
        self.settle_host(own.host);
    }

    fn wake_host_at(&mut self, host: u16, at: u64) {
        let Some(net) = &mut self.net else { return };
        let Some(found) = net.running(host).filter(|found| at < found.wakes_at) else { return };
        found.wakes_at = at;
        net.queue.push(at, Item::Wake { host, at });
    }

    /// The time has come that a node wanted to know.
    pub(in crate::world) fn wake_host(&mut self, host: u16, at: u64) {
        let Some(net) = &mut self.net else { return };
        let now = net.now;
        let Some(found) = net.running(host).filter(|found| found.wakes_at == at) else { return };
        found.wakes_at = u64::MAX;
        let clock = found.clock_at(now);
        found.node.tick(clock);
        found.node.duties(clock);
        self.give_up_pause(host);
        self.settle_host(host);
    }

    /// The leader gives up a pause for makings that lasts too long (J6). In the world it lasts too long much
    /// sooner.
    fn give_up_pause(&mut self, host: u16) {
        let Some(net) = &mut self.net else { return };
        let (now, Some(patience)) = (net.now, net.patience) else { return };
        let Some(found) = net.running(host) else { return };
        let closed = found.node.state().is_some_and(|state| state.is_closed_for_makings());
        let (clock, leads) = (found.clock_at(now), found.node.status().leads);
        if !closed || !leads {
            return;
        }
        let since = *net.pause.get_or_insert(now);
        if now >= since + patience {
            net.patience = None;
            if let Some(found) = net.running(host) {
                found.node.give_up_pause(clock);
            }
        }
    }

    /// Passes a message to a node.
    pub(in crate::world) fn take_message(&mut self, from: u16, to: u16, bytes: &[u8]) {
        let Some(net) = &mut self.net else { return };
        let now = net.now;
        let Some(found) = net.running(to) else { return };
        let clock = found.clock_at(now);
        // A host has one incarnation: its number and one.
        let sender = (from, u32::from(from) + 1);
        if let Err(error) = found.node.receive(sender, bytes, clock) {
            net.found(Wrong::Progress, format!("host {to} does not understand host {from}: {error}"));
        }
        self.settle_host(to);
    }

    /// Carries out what a node asks, until it asks nothing more.
    pub(in crate::world) fn settle_host(&mut self, host: u16) {
        loop {
            let Some(net) = &mut self.net else { return };
            let now = net.now;
            let Some(found) = net.running(host) else { return };
            let output = found.node.take_output(found.clock.read(now));
            if output.is_empty() {
                break;
            }
            for write in &output.writes {
                // Without a folder the log dies with the host's memory, so nobody ever reads it.
                let kept = found.kept.as_mut().map(|kept| perform(&mut kept.disk, write));
                match kept {
                    Some(Err(_)) => found.node.storage_failed(),
                    Some(Ok(())) | None => found.node.persisted(write.number),
                }
            }
            for envelope in output.messages {
                let to = host_of_node(envelope.to);
                net.send(End::Host(host), End::Host(to), || Item::Message {
                    from: host,
                    to,
                    bytes: envelope.bytes.clone(),
                });
            }
            for (ask, answer) in output.answers {
                self.send_answer(host, ask, answer);
            }
            for notice in output.notices {
                self.take_notice(host, notice);
            }
        }
        self.look_at_state(host);
        let Some(net) = &mut self.net else { return };
        let now = net.now;
        let Some(found) = net.running(host) else { return };
        let next = found.clock.when(found.node.next()).max(now + 1);
        self.wake_host_at(host, next);
    }

    fn take_notice(&mut self, host: u16, notice: Notice) {
        let recording = self.log.is_recording();
        let Some(net) = &mut self.net else { return };
        match &notice {
            Notice::Leads { term } => {
                net.seen.leaders += 1;
                if let Some(other) = net.leaders.insert(*term, host).filter(|other| *other != host) {
                    net.found(Wrong::Leases, format!("hosts {other} and {host} lead the same term {term}"));
                }
            }
            Notice::Stopped(why) => {
                net.found(Wrong::Progress, format!("the node of host {host} stopped: {why}"));
            }
            _ => {}
        }
        if recording && !matches!(notice, Notice::Leader { leader: None, .. }) {
            let now = net.now;
            self.log.remark(NO_TASK, now, format!("host {host}: {notice:?}"));
        }
    }

    /// Looks at a node's state, if it has changed.
    fn look_at_state(&mut self, host: u16) {
        let Some(net) = &mut self.net else { return };
        let now = net.now;
        let Some(found) = net.running(host) else { return };
        let applied = found.node.applied();
        if applied == found.looked {
            return;
        }
        found.looked = applied;
        let Some(state) = found.node.state() else { return };
        let own = found.own;
        let lost = state.host(own.host).is_some_and(|known| !known.info.up && !known.info.has_left());
        if let Some(kept) = &found.kept
            && !found.known
        {
            // Until then the host may have been declared lost, and its table may be an old one.
            let boot = kept.offer.boot;
            found.known = state.host(own.host).is_some_and(|host| host.boot == boot && host.info.up);
        }
        let order = Order {
            table: Arc::clone(state.table()),
            makings: state.makings().to_vec(),
            quiet: state.quiet(),
            closed: state.is_closed_for_makings(),
        };
        let known = found.next.as_ref().unwrap_or(&found.done);
        let changed = known.table != order.table
            || known.makings != order.makings
            || known.quiet != order.quiet
            || known.closed != order.closed;
        if changed && found.known {
            let waits = found.next.replace(order).is_some();
            if !waits {
                // It takes time to make memory, sometimes long.
                let slow = net.rng.one_in(6);
                let longest = if slow { net.slowest } else { 4 * net.weather.delay };
                let delay = 1 + net.rng.below(longest as usize) as u64;
                net.queue.push(now + delay, Item::CarryOut { host });
            }
        }
        if applied > net.newest.0 {
            net.newest = (applied, host);
            self.see_newest(host);
        }
        if lost {
            self.end_host(host, "it learns that it was declared lost");
        }
    }

    /// Carries out the newest table that a node has learnt.
    pub(in crate::world) fn carry_out(&mut self, host: u16) {
        let early = self.breaks(Breach::CopiedBeforeQuiet);
        let Some(net) = &mut self.net else { return };
        let Some(found) = net.running(host) else { return };
        let Some(order) = found.next.take() else { return };
        let former = std::mem::replace(&mut found.done, order.clone());
        // A process that goes on as a host knows what its copies were.
        let kept =
            found.kept.as_mut().map(|kept| std::mem::replace(&mut kept.table, Arc::clone(&order.table)));
        let before = kept.unwrap_or_else(|| Arc::clone(&former.table));
        let primaries = |table: &VolumeTable| -> Vec<u16> {
            table.volumes().iter().filter_map(|entry| entry.primary).collect()
        };
        let first = before.volumes().is_empty();
        let (before, now) = (primaries(&before), primaries(&order.table));
        let here = |copy: u16| order.table.sites().get(usize::from(copy)).map(|site| site.host) == Some(host);
        let promoted: Vec<u16> =
            now.into_iter().filter(|copy| here(*copy) && !first && !before.contains(copy)).collect();
        let wanted: Vec<Making> = order.makings.iter().copied().filter(|making| here(making.copy)).collect();
        let new: Vec<Making> =
            wanted.iter().copied().filter(|making| !found.rooms.contains(&making.copy)).collect();
        found.rooms.extend(new.iter().map(|making| making.copy));
        found.work.retain(|copy, _| order.makings.iter().any(|making| making.copy == *copy));
        for making in &order.makings {
            let work = found.work.entry(making.copy).or_default();
            if !order.closed || !(order.quiet || early) {
                // The pause was given up, or has not begun, or somebody writes: nothing is sent to the copy.
                work.copied_in = None;
                if !order.closed && making.phase == Phase::Planned && work.pieces == PIECES {
                    work.pieces = 0;
                }
            }
        }
        for copy in promoted {
            self.log.remark(NO_TASK, self.now, format!("host {host} promotes copy {copy}"));
            self.promote(copy);
        }
        for making in new {
            self.volumes.copier.moved += u32::from(making.replaces.is_some());
            if usize::from(making.copy) < self.servers.len() {
                self.make_room(making);
            }
        }
        if former.table.epoch() != order.table.epoch() {
            self.log.remark(NO_TASK, self.now, format!("host {host} has epoch {}", order.table.epoch()));
        }
    }

    /// A host works on the copies of its primaries.
    pub(in crate::world) fn work_of_host(&mut self, host: u16) {
        let Some(net) = &mut self.net else { return };
        let (now, pace) = (net.now, net.pace);
        let Some(found) = net.running(host) else { return };
        let makings = found.done.makings.clone();
        let table = Arc::clone(&found.done.table);
        net.queue.push(now + pace, Item::Work { host });
        for making in makings {
            let primary = table.volume(making.volume).and_then(|entry| entry.primary);
            if let Some(primary) = primary.filter(|copy| self.volumes.host_of(*copy) == host) {
                self.work_on(host, making, primary);
            }
        }
    }

    fn work_on(&mut self, host: u16, making: Making, primary: u16) {
        let copy = making.copy;
        let other = self.volumes.host_of(copy);
        let early = self.breaks(Breach::CopiedBeforeQuiet);
        let moves = making.replaces.is_some();
        let reused = self.breaks(Breach::DroppedCopyReused);
        let trusts =
            self.breaks(Breach::TrustsFirstCopy) || moves && self.breaks(Breach::MoveTrustsFirstCopy);
        let reaches = self.hosts_reach(host, other);
        let Some(net) = &mut self.net else { return };
        let roomy = net.host(other).is_some_and(|other| other.runs && other.rooms.contains(&copy));
        let Some(found) = net.running(host) else { return };
        let Order { quiet, closed, ref table, .. } = found.done;
        let epoch = table.epoch();
        let Some(mut work) = found.work.get(&copy).copied() else { return };
        if !reaches || !roomy || usize::from(copy) >= self.servers.len() {
            return;
        }
        let mut report = None;
        match making.phase {
            Phase::Planned if work.pieces < PIECES && !reused => {
                self.copy_piece(primary, copy, work.pieces, PIECES);
                if moves && self.breaks(Breach::MovedLanesKept) {
                    self.copy_lanes(primary, copy);
                }
                work.pieces += 1;
            }
            Phase::Planned => {
                if let Some(source) = making.replaces.filter(|_| self.breaks(Breach::SourceDroppedEarly)) {
                    self.forget_memory(source);
                }
                report = Some((Phase::Copied, epoch, Request::Copied { copy }));
            }
            Phase::Copied if closed && work.copied_in != Some(epoch) => {
                if quiet || early {
                    if !reused && !trusts {
                        self.copy_all(primary, copy);
                    }
                    self.log.remark(NO_TASK, self.now, format!("copy {copy} has all bytes"));
                    work.copied_in = Some(epoch);
                }
            }
            Phase::Copied if closed => {
                report = Some((Phase::Settled, epoch, Request::Settled { copy, epoch }));
            }
            Phase::Copied | Phase::Settled => {}
        }
        self.report(host, copy, work, report);
    }

    /// Sends a report, unless the same one is under way.
    fn report(&mut self, host: u16, copy: u16, mut work: Work, report: Option<(Phase, u64, Request)>) {
        if let Some((phase, epoch, request)) = report {
            let under_way = |ask: u64| self.net.as_ref().is_some_and(|net| net.asks.contains_key(&ask));
            let known =
                work.reported.is_some_and(|(was, of, ask)| (was, of) == (phase, epoch) && under_way(ask));
            if !known {
                let ask = self.begin_ask(Sender::Host { host }, Asker::Nobody, request, None);
                work.reported = Some((phase, epoch, ask));
            }
        }
        let found = self.net.as_mut().and_then(|net| net.running(host));
        if let Some(known) = found.and_then(|found| found.work.get_mut(&copy)) {
            *known = work;
        }
    }

    /// A host tells the leader that it is alive.
    pub(in crate::world) fn tell_alive(&mut self, host: u16) {
        let Some(net) = &mut self.net else { return };
        let (now, every, hosts) = (net.now, net.detect / SIGNS, net.hosts.len() as u16);
        if net.running(host).is_none() {
            return;
        }
        let Some(found) = net.running(host) else { return };
        if found.leaves_at.is_some_and(|at| at <= now) {
            self.volumes.copier.left += 1;
            return self.end_host(host, "it has left");
        }
        net.queue.push(now + every, Item::Alive { host });
        let is_told = net.asks.values().any(|ask| is_sign(ask, host));
        let Some(found) = net.running(host) else { return };
        let HostId { host: number, incarnation, .. } = found.own;
        let target = match found.node.leader().map(host_of_node) {
            Some(leader) if leader == host => return,
            Some(leader) => leader,
            None => {
                found.turn = (found.turn + 1) % hosts.max(1);
                found.turn
            }
        };
        if target == host || is_told {
            return;
        }
        let request = match &found.kept {
            // The former process of this host ended, and this one goes on (I4).
            Some(kept) if !found.known => {
                Request::Return { host: number, incarnation, offer: kept.offer.clone() }
            }
            _ => Request::Alive { host: number, incarnation, progress: Vec::new() },
        };
        self.begin_ask(Sender::Host { host }, Asker::Nobody, request, Some(target));
    }

    /// A host's process ends: it dies, or learns that it was declared lost.
    pub(in crate::world) fn end_host(&mut self, host: u16, why: &str) {
        let Some(net) = &mut self.net else { return };
        let Some(found) = net.running(host) else { return };
        found.runs = false;
        net.asks.retain(|_, ask| ask.sender != Sender::Host { host });
        self.log.remark(NO_TASK, self.now, format!("host {host} ends: {why}"));
        self.take_down(host);
    }

    /// Whether two hosts reach each other: requests and their answers.
    pub(in crate::world) fn hosts_reach(&self, one: u16, other: u16) -> bool {
        let Some(net) = &self.net else { return true };
        let (a, b) = (End::Host(one), End::Host(other));
        one == other || net.passes(a, b) && net.passes(b, a)
    }
}

fn is_sign(ask: &super::net::Asking, host: u16) -> bool {
    ask.sender == Sender::Host { host } && ask.is_sign()
}

impl Net {
    /// The host at an address.
    pub(in crate::world) fn host_at(&self, address: &str) -> Option<u16> {
        let mut hosts = self.hosts.iter().flatten();
        hosts.find(|host| host.address == address).map(|host| host.own.host)
    }

    /// The host that leads in the newest term, if any does.
    pub(in crate::world) fn leader(&self) -> Option<u16> {
        let leads = |host: &SimHost| {
            let status = host.node.status();
            (host.runs && status.leads).then_some((status.term, host.own.host))
        };
        self.hosts.iter().flatten().filter_map(leads).max().map(|(_, host)| host)
    }
}
