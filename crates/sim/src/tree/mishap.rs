//! The faults of a schedule.

use super::scenario::Scenario;
use crate::rng::Rng;
use crate::sim::{Fault, HostCut, LaterLoss, Sim};
use std::fmt;

/// A fault. Compute servers are numbered within the schedule, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// A compute server dies before an event. Its posted verbs may still execute.
    Kill {
        /// The compute server.
        compute: u32,
        /// The event before which it happens.
        step: u64,
    },
    /// A compute server dies right after one of its own effects. Everything that it has in flight is lost.
    KillAfter {
        /// The compute server.
        compute: u32,
        /// Number of effects before the death.
        effects: u64,
    },
    /// The next compute server that begins a recovery dies this many effects later.
    Ambush {
        /// Number of effects before the death.
        effects: u64,
    },
    /// A compute server sleeps for this many events, possibly past its lease.
    Sleep {
        /// The compute server.
        compute: u32,
        /// The event before which the sleep begins.
        step: u64,
        /// Length of the sleep in events.
        steps: u64,
        /// Whether it sleeps in the middle of a change. Then no other member can fence it meanwhile.
        midway: bool,
    },
    /// A compute server loses the connections of one or all of its endpoints to a memory server.
    Disconnect {
        /// The compute server.
        compute: u32,
        /// Index of the endpoint, or `None` for all.
        endpoint: Option<u32>,
        /// The memory server.
        server: u16,
        /// The event before which it happens.
        step: u64,
    },
    /// A compute server can no longer reach a memory server that all others still reach.
    CutOff {
        /// The compute server.
        compute: u32,
        /// The memory server.
        server: u16,
        /// The event before which it happens.
        step: u64,
    },
    /// A memory server restarts on the same memory. All compute servers lose it, and those that join later
    /// can use it.
    Restart {
        /// The memory server.
        server: u16,
        /// The event before which it happens.
        step: u64,
    },
    /// A host is lost, with all copies of volumes on it.
    Host {
        /// The host.
        host: u16,
        /// The event before which it happens.
        step: u64,
        /// How many events later the control state declares the host lost. `None` if the host lives on: it is
        /// declared lost at once, and serves clients that have the old table.
        dead_for: Option<u64>,
    },
    /// A host dies, and comes back with its memory, if it was not declared lost meanwhile.
    Return {
        /// The host.
        host: u16,
        /// The event before which it dies.
        step: u64,
        /// How many events later it comes back.
        dead_for: u64,
    },
    /// A host joins the cluster.
    Join {
        /// The event before which it happens.
        step: u64,
    },
    /// An operator lets a host leave, as soon as the others can take its copies.
    Drain {
        /// The host.
        host: u16,
        /// The event before which it happens.
        step: u64,
        /// After how many events the operator lets it stay.
        cancel: Option<u64>,
    },
    /// An operator has copies spread evenly.
    Spread {
        /// The event before which it happens.
        step: u64,
    },
    /// One more host is lost, when copies are made or were made again.
    Again {
        /// When, and which one.
        loss: LaterLoss,
    },
    /// A host of a control group dies, when the cluster can bear it. The group finds out.
    HostDies {
        /// The host. `u16::MAX` for the one that leads then.
        host: u16,
        /// The event before which it happens, at the earliest.
        step: u64,
    },
    /// The process of a host of a control group ends, and the next one has its memory and its log.
    HostRestarts {
        /// The host. `u16::MAX` for the one that leads then.
        host: u16,
        /// The event before which it ends, at the earliest.
        step: u64,
        /// How many events later the next process starts.
        dead_for: u64,
    },
    /// The process of a host of a control group stands still.
    HostStands {
        /// The host. `u16::MAX` for the one that leads then.
        host: u16,
        /// The event before which it begins, at the earliest.
        step: u64,
        /// How many events it lasts.
        steps: u64,
    },
    /// A host of a control group is cut off from other hosts, from clients, or from both.
    HostCut {
        /// From whom, and for how long.
        cut: HostCut,
        /// The event before which it begins, at the earliest.
        step: u64,
    },
    /// The leader gives up the first pause for copies that lasts so long.
    GiveUp {
        /// The length of the pause in events.
        after: u64,
    },
}

/// Approximate number of events of an operation. Faults must happen while operations run.
const STEPS_OF_OPERATION: u32 = 45;
/// Approximate number of effects of an operation.
const EFFECTS_OF_OPERATION: u32 = 14;

/// How many events later an operator asks again for a host to leave.
const DRAINS: [u64; 3] = [0, 150, 400];
/// The same for copies that are spread evenly.
const SPREADS: [u64; 3] = [0, 300, 900];

impl Mishap {
    /// Draws up to three faults from `seed`, plus at most one ambush.
    pub fn drawn(seed: u64, scenario: &Scenario) -> Vec<Self> {
        let mut rng = Rng::new(seed ^ 0x4d49_5348_4150);
        let lease = (scenario.lease_nanos / super::scenario::STEP_NANOS_OF_CRASHES) as usize;
        let replicated = scenario.replicas > 1;
        let count =
            if replicated { [0, 0, 1, 1, 2][rng.below(5)] } else { [0, 1, 1, 1, 1, 2, 2, 3][rng.below(8)] };
        let mut mishaps: Vec<Self> = (0..count).map(|_| Self::one(&mut rng, scenario, lease)).collect();
        if scenario.group {
            let Scenario { computes, threads, operations, .. } = *scenario;
            let steps = (STEPS_OF_OPERATION * computes * threads * operations) as usize;
            mishaps.extend(Self::of_group(&mut rng, scenario, lease, steps));
        } else if scenario.moved {
            mishaps.extend(Self::moves(&mut rng, scenario, lease));
        } else if scenario.remade {
            mishaps.extend(Self::losses(&mut rng, scenario, lease));
        } else if replicated && !rng.one_in(4) {
            mishaps.push(Self::lost_host(&mut rng, scenario, lease));
        }
        // The recoverer often dies too.
        let death = |mishap: &Self| matches!(mishap, Self::Kill { .. } | Self::KillAfter { .. });
        if mishaps.iter().any(death) && rng.one_in(3) {
            let effects = [4, 24, 80, 320][rng.below(4)];
            mishaps.push(Self::Ambush { effects: rng.below(effects) as u64 });
        }
        // In a control group hosts that come back have logs too.
        if replicated && !scenario.group {
            mishaps.extend(Self::returns(seed, scenario, lease));
        }
        mishaps
    }

    /// Hosts that come back. They follow from the seed alone, whatever else happens.
    fn returns(seed: u64, scenario: &Scenario, lease: usize) -> Vec<Self> {
        let mut rng = Rng::new(seed ^ 0x5245_5455_524e);
        let Scenario { computes, threads, operations, hosts, .. } = *scenario;
        let steps = (STEPS_OF_OPERATION * computes * threads * operations) as usize;
        let count = [0, 0, 0, 1, 1, 2][rng.below(6)];
        // A host that comes back ends the makings there, and these schedules are about them.
        let count = if scenario.remade { count / 2 } else { count };
        let one = |_| Self::Return {
            host: rng.below(usize::from(hosts)) as u16,
            step: rng.below(steps) as u64,
            dead_for: if rng.one_in(3) { 0 } else { rng.below(lease) as u64 },
        };
        (0..count).map(one).collect()
    }

    fn one(rng: &mut Rng, scenario: &Scenario, lease: usize) -> Self {
        let compute = rng.below(scenario.computes as usize) as u32;
        let Scenario { computes, threads, operations, .. } = *scenario;
        let step = rng.below((STEPS_OF_OPERATION * computes * threads * operations) as usize) as u64;
        match rng.below(16) {
            0..=3 => Self::Kill { compute, step },
            4..=8 => {
                let most = EFFECTS_OF_OPERATION * threads * operations;
                Self::KillAfter { compute, effects: rng.below(most as usize) as u64 }
            }
            9..=11 => {
                let steps = (lease / 2 + rng.below(3 * lease)) as u64;
                Self::Sleep { compute, step, steps, midway: step.is_multiple_of(4) }
            }
            12 => {
                // An endpoint of a thread, of the keeper or of the recoverer (the last two), or all
                // endpoints.
                let endpoint = rng.below(scenario.threads as usize + 3) as u32;
                let endpoint = (endpoint < scenario.threads + 2).then_some(endpoint);
                Self::Disconnect { compute, endpoint, server: any_server(rng, scenario), step }
            }
            13 => Self::CutOff { compute, server: any_server(rng, scenario), step },
            _ if scenario.replicas > 1 => Self::Kill { compute, step },
            _ => Self::Restart { server: any_server(rng, scenario), step },
        }
    }

    fn lost_host(rng: &mut Rng, scenario: &Scenario, lease: usize) -> Self {
        let Scenario { computes, threads, operations, hosts, .. } = *scenario;
        let steps = (STEPS_OF_OPERATION * computes * threads * operations) as usize;
        Self::Host {
            host: rng.below(usize::from(hosts)) as u16,
            step: rng.below(steps) as u64,
            dead_for: rng.one_in(2).then(|| rng.below(lease) as u64),
        }
    }

    /// A host is lost early, others join, and one or two more are lost later.
    fn losses(rng: &mut Rng, scenario: &Scenario, lease: usize) -> Vec<Self> {
        let Scenario { computes, threads, operations, hosts, .. } = *scenario;
        let steps = (STEPS_OF_OPERATION * computes * threads * operations) as usize;
        let dead_for = |rng: &mut Rng| rng.one_in(2).then(|| rng.below(lease / 2) as u64);
        let host = rng.below(usize::from(hosts)) as u16;
        let mut mishaps = vec![
            Self::Host { host, step: rng.below(steps / 8) as u64, dead_for: dead_for(rng) },
            Self::Join { step: rng.below(steps / 8) as u64 },
        ];
        let midway = rng.one_in(4);
        if midway || rng.one_in(3) {
            mishaps.push(Self::Join { step: rng.below(steps / 4) as u64 });
        }
        if midway {
            let after = rng.below(3 * lease) as u64;
            let loss = LaterLoss { midway, after, pick: rng.below(4) as u16, dead_for: dead_for(rng) };
            mishaps.push(Self::Again { loss });
        }
        if rng.one_in(6) {
            mishaps.push(Self::GiveUp { after: rng.below(2 * lease) as u64 });
        }
        if !rng.one_in(4) {
            let after = [0, rng.below(60), rng.below(300)][rng.below(3)] as u64;
            let (midway, pick) = (false, rng.below(4) as u16);
            mishaps.push(Self::Again { loss: LaterLoss { midway, after, pick, dead_for: dead_for(rng) } });
        }
        mishaps
    }

    /// Hosts join, one leaves, copies are spread, and hosts are lost meanwhile: those that a copy moves from
    /// or to, and others.
    fn moves(rng: &mut Rng, scenario: &Scenario, lease: usize) -> Vec<Self> {
        let Scenario { computes, threads, operations, hosts, .. } = *scenario;
        let steps = (STEPS_OF_OPERATION * computes * threads * operations) as usize;
        let early = |rng: &mut Rng| rng.below(steps / 8) as u64;
        let dead_for = |rng: &mut Rng| rng.one_in(2).then(|| rng.below(lease / 2) as u64);
        let mut mishaps = vec![Self::Join { step: early(rng) }];
        if rng.one_in(3) {
            mishaps.push(Self::Join { step: early(rng) });
        }
        let drained = rng.below(usize::from(hosts)) as u16;
        if rng.one_in(3) {
            // The host that joined gets backups alone. Then primaries and backups change places.
            mishaps.push(Self::Host { host: drained, step: early(rng) / 2, dead_for: dead_for(rng) });
            mishaps.push(Self::Spread { step: early(rng) });
            return mishaps;
        }
        if !rng.one_in(4) {
            let cancel = rng.one_in(5).then(|| rng.below(lease) as u64);
            mishaps.push(Self::Drain { host: drained, step: early(rng), cancel });
        }
        if mishaps.len() == 1 || rng.one_in(2) {
            mishaps.push(Self::Spread { step: early(rng) + rng.below(steps / 4) as u64 });
        }
        if rng.one_in(3) {
            // The host that leaves, or any of the first ones.
            let host = if rng.one_in(2) { drained } else { rng.below(usize::from(hosts)) as u16 };
            mishaps.push(Self::Host { host, step: rng.below(steps / 2) as u64, dead_for: dead_for(rng) });
        }
        // A loss at a fixed event does not look whether another one has left a volume with one copy.
        let is_lost = mishaps.iter().any(|mishap| mishap.host().is_some());
        for midway in [true, false] {
            if rng.one_in(3) && !is_lost {
                let (after, pick) = (rng.below(2 * lease) as u64, rng.below(4) as u16);
                let loss = LaterLoss { midway, after, pick, dead_for: dead_for(rng) };
                mishaps.push(Self::Again { loss });
            }
        }
        if rng.one_in(5) {
            mishaps.push(Self::GiveUp { after: rng.below(2 * lease) as u64 });
        }
        mishaps
    }

    /// Whether this is a part of making copies again, and no trouble for clients beyond new epochs.
    pub(super) fn is_harmless(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::GiveUp { .. } | Self::Drain { .. } | Self::Spread { .. })
    }

    /// The loss that follows others, if this is one.
    pub(super) fn later_loss(&self) -> Option<LaterLoss> {
        match *self {
            Self::Again { loss } => Some(loss),
            _ => None,
        }
    }

    /// After how many events the leader gives up a pause.
    pub(super) fn patience(&self) -> Option<u64> {
        match *self {
            Self::GiveUp { after } => Some(after),
            _ => None,
        }
    }

    /// The host that is lost, if any.
    pub(super) fn host(&self) -> Option<u16> {
        match *self {
            Self::Host { host, .. } => Some(host),
            _ => None,
        }
    }

    /// The host that comes back, if any.
    pub(super) fn returning(&self) -> Option<u16> {
        match *self {
            Self::Return { host, .. } => Some(host),
            _ => None,
        }
    }

    /// Whether all compute servers lose a memory server.
    pub(super) fn is_restart(&self) -> bool {
        matches!(self, Self::Restart { .. })
    }

    /// Whether this fault may terminate compute server number `compute`.
    pub(super) fn concerns(&self, compute: u32) -> bool {
        match *self {
            Self::Kill { compute: who, .. }
            | Self::KillAfter { compute: who, .. }
            | Self::Sleep { compute: who, .. }
            | Self::Disconnect { compute: who, .. }
            | Self::CutOff { compute: who, .. } => who == compute,
            Self::Ambush { .. } | Self::Restart { .. } | Self::Host { .. } => true,
            // Every table change ends the identity.
            Self::Return { .. } | Self::Join { .. } | Self::Again { .. } | Self::GiveUp { .. } => true,
            Self::HostDies { .. } | Self::HostStands { .. } | Self::HostCut { .. } => true,
            Self::HostRestarts { .. } => true,
            Self::Drain { .. } | Self::Spread { .. } => true,
        }
    }

    /// Plans the fault in `sim`, where the schedule's compute servers have these numbers. Endpoints are
    /// counted from `first_endpoint` of each compute server, because the setup made the earlier ones.
    pub(super) fn arrange(&self, sim: &mut Sim, numbers: &[u32], first_endpoint: &[u32]) {
        let number = |compute: u32| numbers.get(compute as usize).copied().unwrap_or(u32::MAX);
        match *self {
            Self::Kill { compute, step } => {
                sim.fault_at(step, Fault::Kill { compute_server: number(compute) })
            }
            Self::KillAfter { compute, effects } => sim.kill_after(number(compute), effects + 1),
            Self::Ambush { effects } => sim.ambush(effects),
            Self::Sleep { compute, step, steps, midway } => {
                let compute_server = number(compute);
                let sleep = Fault::Sleep { compute_server, steps };
                sim.fault_at(step, if midway { Fault::Stall { compute_server, steps } } else { sleep });
            }
            Self::Disconnect { compute, endpoint, server, step } => {
                let first = first_endpoint.get(compute as usize).copied().unwrap_or(0);
                let endpoint = endpoint.map(|nth| first + nth);
                sim.fault_at(step, Fault::Disconnect { compute_server: number(compute), endpoint, server });
            }
            Self::CutOff { compute, server, step } => {
                sim.fault_at(step, Fault::CutOff { compute_server: number(compute), server });
            }
            Self::Restart { server, step } => sim.fault_at(step, Fault::Restart { server }),
            Self::Host { host, step, dead_for } => {
                if dead_for.is_some() {
                    sim.fault_at(step, Fault::HostDown { host });
                }
                sim.fault_at(step + dead_for.unwrap_or(0), Fault::HostLost { host });
            }
            Self::Return { host, step, dead_for } => {
                if dead_for > 0 {
                    sim.fault_at(step, Fault::HostDown { host });
                }
                sim.fault_at(step + dead_for, Fault::HostReturns { host });
            }
            Self::Join { step } => sim.fault_at(step, Fault::HostJoins),
            Self::HostDies { host, step } => sim.fault_at(step, Fault::HostDown { host }),
            Self::HostRestarts { host, step, dead_for } => {
                sim.fault_at(step, Fault::HostRestarts { host, steps: dead_for });
            }
            Self::HostStands { host, step, steps } => {
                sim.fault_at(step, Fault::HostStands { host, steps });
            }
            Self::HostCut { cut, step } => sim.fault_at(step, Fault::HostCut { cut }),
            Self::Drain { host, step, cancel } => {
                // The operator asks again until the hosts are there that can take its copies.
                for at in DRAINS {
                    sim.fault_at(step + at, Fault::Drain { host, cancel: false });
                }
                if let Some(after) = cancel {
                    sim.fault_at(step + DRAINS[2] + 1 + after, Fault::Drain { host, cancel: true });
                }
            }
            Self::Spread { step } => {
                for at in SPREADS {
                    sim.fault_at(step + at, Fault::Spread);
                }
            }
            // The world waits until they are due.
            Self::Again { .. } | Self::GiveUp { .. } => {}
        }
    }
}

fn any_server(rng: &mut Rng, scenario: &Scenario) -> u16 {
    rng.below(usize::from(scenario.servers * scenario.replicas)) as u16
}

fn named(host: u16) -> String {
    if host == u16::MAX { "the leader".into() } else { format!("host {host}") }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill { compute, step } => write!(f, "compute server {compute} dies before event {step}"),
            Self::KillAfter { compute, effects } => {
                write!(f, "compute server {compute} dies after its effect {}", effects + 1)
            }
            Self::Ambush { effects } => {
                write!(f, "a compute server that fences another one dies {effects} effects later")
            }
            Self::Sleep { compute, step, steps, midway } => {
                let how = if *midway { "stalls" } else { "sleeps" };
                write!(f, "compute server {compute} {how} for {steps} events from event {step}")
            }
            Self::Disconnect { compute, endpoint, server, step } => match endpoint {
                Some(nth) => {
                    write!(
                        f,
                        "endpoint {nth} of compute server {compute} loses server {server} at event {step}"
                    )
                }
                None => write!(f, "compute server {compute} loses server {server} at event {step}"),
            },
            Self::CutOff { compute, server, step } => {
                write!(f, "compute server {compute} is cut off from server {server} at event {step}")
            }
            Self::Restart { server, step } => write!(f, "server {server} restarts at event {step}"),
            Self::Host { host, step, dead_for: None } => {
                write!(f, "host {host} is declared lost at event {step}, and lives on")
            }
            Self::Host { host, step, dead_for: Some(steps) } => {
                write!(f, "host {host} dies at event {step}, and is declared lost {steps} events later")
            }
            Self::HostDies { host, step } => write!(f, "{} dies at event {step}", named(*host)),
            Self::HostRestarts { host, step, dead_for } => {
                write!(f, "the process of {} ends at event {step}, ", named(*host))?;
                write!(f, "and the next one starts {dead_for} events later")
            }
            Self::HostStands { host, step, steps } => {
                write!(f, "{} stands still for {steps} events from event {step}", named(*host))
            }
            Self::HostCut { cut, step } => {
                let HostCut { host, steps, out, into, clients } = cut;
                write!(f, "{} is cut off for {steps} events from event {step}: ", named(*host))?;
                write!(f, "to hosts {out}, from hosts {into}, processes {clients:#x}")
            }
            Self::Return { host, step, dead_for } => {
                write!(f, "host {host} dies at event {step}, and comes back {dead_for} events later")
            }
            Self::Join { step } => write!(f, "a host joins at event {step}"),
            Self::Drain { host, step, cancel } => {
                write!(f, "{} shall leave at event {step}", named(*host))?;
                cancel.map_or(Ok(()), |after| write!(f, ", and stays {after} events later"))
            }
            Self::Spread { step } => write!(f, "copies are spread evenly at event {step}"),
            Self::Again { loss: LaterLoss { midway, after, pick, dead_for } } => {
                let when = if *midway { "a copy is planned" } else { "copies were made" };
                write!(f, "{after} events after {when}, a host of volume {pick} ")?;
                match dead_for {
                    Some(steps) => write!(f, "dies, and is declared lost {steps} events later"),
                    None => write!(f, "is declared lost, and lives on"),
                }
            }
            Self::GiveUp { after } => write!(f, "the leader gives up a pause of {after} events"),
        }
    }
}
