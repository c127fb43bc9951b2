//! The control group in the simulated world: hosts as processes, each with the product's own node.
//!
//! Without this module the control state is immortal and answers in one event ([`super::volumes`]). That is
//! cheap, and setups and inspections use it always. A schedule may begin with a group in its place
//! ([`World::start_group`]). At the schedule's end the group comes to rest, and its state becomes the
//! immortal one again ([`World::rest_group`]).
//!
//! What the adversary decides, by the schedule's seed: the delay of every message and request, which are
//! lost and which come twice; which hosts die, stand still or are cut off, and from whom; how fast the clocks
//! of hosts and clients go, and what they show; when a host carries out a table that its node has applied.
//!
//! | module | contents |
//! |---|---|
//! | [`net`] | messages and requests under way, cuts |
//! | [`hosts`] | hosts: nodes, tables carried out, work on copies |
//! | [`asks`] | requests to whichever host leads |
//! | [`joins`] | processes that join |
//! | [`faults`] | hosts that die, start, stand still and are cut off |
//! | [`checks`] | leases, epochs, and hosts that are lost without a reason |

pub(super) mod asks;
pub(crate) mod checks;
pub(crate) mod faults;
pub(crate) mod hosts;
pub(crate) mod joins;
pub(crate) mod net;

use super::World;
use super::flight::NO_TASK;
use super::volumes::CLUSTER;
use crate::rng::Rng;
use hosts::{DriftingClock, Kept, Order, Origin};
use net::{Item, Net, Queue};
use sherman_consensus::{MemoryDisk, NodeId, Recovered};
use sherman_fabric::group::{HostInfo, HostOffer};
use sherman_group::HostId;
use sherman_memory_server::{ClusterState, Command};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use checks::Wrong;
pub use net::{HostCut, Weather};

/// The most by which a clock goes too fast or too slow, in thousandths (L2: 6 % between two clocks are
/// allowed for, and a little more is safe).
const DRIFT: u64 = 60;
/// How many times a host may be silent for until the group must have come to rest.
const REST: u64 = 400;

/// How the group of a schedule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// What its random numbers follow from.
    pub seed: u64,
    /// How bad the network is.
    pub weather: Weather,
    /// Whether clocks differ.
    pub drift: bool,
    /// Nanoseconds between two bits of work on copies.
    pub pace: u64,
    /// The leader gives up the first pause for copies that lasts so long, in nanoseconds.
    pub patience: Option<u64>,
    /// How many times longer than a host may be silent a slow host takes to carry out a table, at most.
    pub slowness: u64,
    /// How many hosts may be in trouble at the same time.
    pub at_once: usize,
}

/// What happened in a group, for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSeen {
    /// How often a host began to lead.
    pub leaders: u64,
    /// Messages and requests that were lost, and that came twice.
    pub dropped: u64,
    /// See `dropped`.
    pub doubled: u64,
    /// Requests that went to a host that did not lead.
    pub redirected: u64,
    /// Hosts that died, were cut off, and stood still.
    pub died: u64,
    /// See `died`.
    pub cut_off: u64,
    /// See `died`.
    pub stood_still: u64,
    /// Hosts that registered.
    pub registered: u64,
}

/// The host of a node of the group.
pub(super) fn host_of_node(node: NodeId) -> u16 {
    u16::try_from(node.saturating_sub(1)).unwrap_or(u16::MAX)
}

impl World {
    /// Replaces the immortal control state by a group of all hosts that are present.
    pub(crate) fn start_group(&mut self, plan: &GroupPlan) {
        let Some(state) = self.volumes.cluster().cloned() else { return };
        let lease = state.settings().format.lease_nanos;
        let volumes = self.volumes.table.volumes().len();
        self.drifts = plan.drift;
        let net = Net {
            rng: Rng::new(plan.seed ^ 0x4752_4f55_5000),
            queue: Queue::default(),
            now: self.now,
            weather: plan.weather,
            cuts: Vec::new(),
            hosts: Vec::new(),
            asks: BTreeMap::new(),
            last_ask: 0,
            joiners: BTreeMap::new(),
            last_joiner: 0,
            detect: lease / 2,
            lease,
            pace: plan.pace.max(1),
            newest: (0, 0),
            leaders: BTreeMap::new(),
            primary_since: vec![0; volumes],
            pause: None,
            patience: plan.patience,
            slowest: if plan.slowness == 0 { lease / 4 } else { plan.slowness * lease / 2 },
            at_once: plan.at_once,
            wrong: None,
            boots: 1 << 20,
            seen: GroupSeen::default(),
        };
        self.net = Some(Box::new(net));
        self.start_clocks();
        let hosts: Vec<HostInfo> = state.host_infos();
        let up = || hosts.iter().filter(|host| host.up);
        let voters = first_voters(&state);
        let order = Order { table: Arc::clone(state.table()), ..Order::default() };
        let eager = self.net.as_mut().map_or(0, |net| net.rng.below(voters.len()));
        let eager = voters.get(eager).copied();
        let log = Recovered::founded(voters, state.snapshot());
        for host in up() {
            let own = HostId { cluster: CLUSTER, host: host.number, incarnation: host.incarnation };
            let (log, order) = (Box::new(log.clone()), order.clone());
            let kept = state.host(host.number).filter(|host| host.keeps).map(|known| {
                let offer = HostOffer {
                    address: host.address.clone(),
                    memory_bytes: host.memory_bytes,
                    boot: known.boot,
                    cluster: CLUSTER,
                    keeps: true,
                };
                let (table, hosts) = (Arc::clone(state.table()), hosts.clone());
                Box::new(Kept { disk: MemoryDisk::new(), offer, table, hosts })
            });
            let origin = Origin::Old { log, order, eager: eager == Some(host.node), kept };
            self.start_host(own, origin, hosts.clone());
        }
    }

    /// By how much a clock may go wrong, in thousandths.
    pub(super) fn drift(&self) -> u64 {
        if self.drifts { DRIFT } else { 0 }
    }

    /// Clocks of clients go wrong from now on.
    fn start_clocks(&mut self) {
        let (now, drift) = (self.now, self.drift());
        let Some(net) = &mut self.net else { return };
        for compute_server in &mut self.compute_servers {
            let rate = 1000 - drift + net.rng.below(2 * drift as usize + 1) as u64;
            compute_server.clock = DriftingClock { from: now, shows: now, rate };
        }
    }

    /// Lets everything happen in the group that is due.
    #[cold]
    pub(crate) fn run_net(&mut self) {
        while let Some((at, item)) = self.net.as_mut().and_then(|net| net.queue.pop(self.now)) {
            self.happen(at, item);
        }
    }

    fn happen(&mut self, at: u64, item: Item) {
        let Some(net) = &mut self.net else { return };
        net.now = at;
        // A process that stands still finds everything when it goes on.
        let (Item::Message { to: host, .. }
        | Item::Ask { to: host, .. }
        | Item::Wake { host, .. }
        | Item::CarryOut { host }
        | Item::Work { host }
        | Item::Alive { host }) = item
        else {
            return self.happen_elsewhere(item);
        };
        let Some(until) = net.running(host).map(|host| host.stands_until) else { return };
        if until > at {
            return net.queue.push(until, item);
        }
        match item {
            Item::Message { from, to, bytes } => self.take_message(from, to, &bytes),
            Item::Ask { to, ask, sent } => self.take_ask(to, ask, sent),
            Item::Wake { host, at } => self.wake_host(host, at),
            Item::CarryOut { host } => self.carry_out(host),
            Item::Work { host } => self.work_of_host(host),
            Item::Alive { host } => self.tell_alive(host),
            other => self.happen_elsewhere(other),
        }
    }

    fn happen_elsewhere(&mut self, item: Item) {
        match item {
            Item::Answer { ask, sent, answer } => self.take_answer(ask, sent, answer),
            Item::Silence { ask, sent } => self.take_silence(ask, sent),
            Item::Resend { ask, sent } => self.resend(ask, sent),
            Item::Join { number } => self.go_on_joining(number),
            Item::Again { ticket, endpoint } => self.try_again(ticket, endpoint),
            Item::Newcomer { boot } => self.register_newcomer(boot),
            Item::Return { host } => self.start_again(host),
            Item::Message { .. }
            | Item::Ask { .. }
            | Item::Wake { .. }
            | Item::CarryOut { .. }
            | Item::Work { .. }
            | Item::Alive { .. } => {}
        }
    }

    /// Lets the group come to rest after a schedule: everything works again, and everybody learns everything.
    /// Then its state is the immortal one again. Returns what was wrong.
    pub(crate) fn rest_group(&mut self) -> Option<(Wrong, String)> {
        let net = self.net.as_mut()?;
        net.weather = Weather::CALM;
        net.cuts.clear();
        net.joiners.clear();
        net.hosts.iter_mut().flatten().for_each(|host| host.stands_until = 0);
        net.asks
            .retain(|_, ask| matches!(ask.sender, net::Sender::Host { .. } | net::Sender::Newcomer { .. }));
        let until = self.now + REST * net.detect;
        let mut waits = self.unrest();
        while waits.is_some() && self.now < until {
            self.now = self.now.max(self.net_due());
            self.run_net();
            waits = self.unrest();
        }
        let net = self.net.take()?;
        self.drifts = false;
        let restless = waits.map(|what| (Wrong::Progress, format!("the group does not rest: {what}")));
        let wrong = net.wrong.clone().or(restless);
        self.seen_group = net.seen;
        let running = || net.hosts.iter().flatten().filter(|host| host.runs);
        let newest = running().max_by_key(|host| host.node.applied())?;
        let Some(state) = newest.node.state().cloned() else { return wrong };
        let of_newest = state.snapshot();
        let differs = running().filter(|host| host.node.applied() == newest.node.applied());
        let mut snapshots = differs.filter_map(|host| Some((host.own.host, host.node.state()?.snapshot())));
        let differs = snapshots.find(|(_, snapshot)| *snapshot != of_newest);
        let differs = differs.map(|(host, _)| (Wrong::Progress, format!("host {host} has another state")));
        for host in net.hosts.iter().flatten() {
            for (copy, work) in &host.work {
                let making = state.makings().iter().find(|making| making.copy == *copy);
                let primary = making.and_then(|making| state.table().volume(making.volume)?.primary);
                if primary.is_some_and(|primary| self.volumes.host_of(primary) == host.own.host) {
                    self.volumes.copier.resume(*copy, work.pieces, work.copied_in);
                }
            }
        }
        self.adopt(state);
        wrong.or(differs)
    }

    /// What the group has yet to do until it rests.
    fn unrest(&self) -> Option<String> {
        let net = self.net.as_ref()?;
        let Some(leader) = net.leader() else {
            let all = net.hosts.iter().flatten().filter(|host| host.runs);
            let all: Vec<_> = all.map(|host| host.node.status()).collect();
            return Some(format!("no host leads: {all:?}"));
        };
        let found = net.host(leader)?;
        let state = found.node.state()?;
        for known in state.hosts() {
            let number = known.info.number;
            let runs = net.host(number).is_some_and(|host| host.runs);
            if known.info.up != runs {
                let up = known.info.up;
                return Some(format!("host {number} counts as present: {up}, and runs: {runs}"));
            }
        }
        for host in net.hosts.iter().flatten().filter(|host| host.runs) {
            let behind = host.node.applied() < found.node.applied();
            if behind || host.done.table != *state.table() || host.done.makings != state.makings() {
                return Some(format!("host {} has not carried out everything", host.own.host));
            }
        }
        net.newcomers().then(|| "a host registers".into())
    }

    /// Takes a state of the group as the immortal one.
    fn adopt(&mut self, mut state: ClusterState) {
        let _ = state.apply(&Command::Lead { now: self.now });
        self.volumes.table = Arc::clone(state.table());
        self.volumes.set_cluster(state);
        for compute_server in &mut self.compute_servers {
            compute_server.clock = DriftingClock::TRUE;
        }
        for slot in self.flights.open_slots().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.flights.get_mut(slot).sent = false;
        }
        for endpoint in 0..self.endpoints.len() as u32 {
            self.refresh_calls(endpoint);
        }
        self.log.remark(NO_TASK, self.now, "the control group rests".into());
    }
}

/// The nodes that vote in the beginning: an odd number of those that should.
fn first_voters(state: &ClusterState) -> Vec<NodeId> {
    let mut voters = state.voters_wanted(&[]);
    if voters.len().is_multiple_of(2) {
        voters.pop();
    }
    voters
}
