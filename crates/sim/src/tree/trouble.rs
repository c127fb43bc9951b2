//! What goes wrong with the hosts of a control group.

use super::mishap::Mishap;
use super::scenario::Scenario;
use crate::rng::Rng;
use crate::sim::HostCut;

/// The kind of trouble that the hosts of a control group have in a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Hosts are lost one after the other, and new ones take their place.
    #[default]
    Losses,
    /// Copies move, because a host leaves or because they are spread evenly, and hosts are lost meanwhile.
    /// One host was lost before the schedule, so that primaries are not spread evenly.
    Moves,
    /// Hosts keep their memory. Their processes end and start again, some of them together, and others are
    /// lost meanwhile.
    Returns,
    /// Two hosts of five are in trouble one after the other, or at the same time.
    Two,
}

impl Trouble {
    /// Draws the trouble of a scenario. Half of them have losses alone.
    pub(super) fn drawn(seed: u64) -> Self {
        match Rng::new(seed ^ 0x5452_4f55_424c).below(8) {
            0 | 1 => Self::Moves,
            2 | 3 => Self::Returns,
            4 => Self::Two,
            _ => Self::Losses,
        }
    }

    /// How many hosts may be in trouble at the same time.
    pub(super) fn at_once(self) -> usize {
        if self == Self::Two { 2 } else { 1 }
    }
}

/// Events of a schedule, and those for which a host may be silent.
#[derive(Clone, Copy)]
struct Times {
    steps: usize,
    detect: usize,
}

impl Mishap {
    /// The troubles of hosts in a control group.
    pub(super) fn of_group(rng: &mut Rng, scenario: &Scenario, lease: usize, steps: usize) -> Vec<Self> {
        let times = Times { steps, detect: lease / 2 };
        let hosts = scenario.hosts;
        match scenario.trouble {
            Trouble::Losses => Self::of_losses(rng, hosts, times),
            Trouble::Moves => Self::of_moves(rng, hosts, times),
            Trouble::Returns => Self::of_returns(rng, hosts, times),
            Trouble::Two => Self::of_two(rng, hosts, times),
        }
    }

    /// A host is lost early, others join, and more trouble comes later.
    fn of_losses(rng: &mut Rng, hosts: u16, Times { steps, detect }: Times) -> Vec<Self> {
        let first = rng.below(steps / 6) as u64;
        let mut mishaps = vec![Self::of_host(rng, hosts, first, detect, true)];
        if !rng.one_in(4) {
            mishaps.push(Self::Join { step: rng.below(steps / 2) as u64 });
        }
        if rng.one_in(3) {
            mishaps.push(Self::Join { step: rng.below(steps) as u64 });
        }
        for _ in 0..rng.below(3) {
            let step = first + rng.below(steps) as u64;
            let loses = rng.one_in(2);
            mishaps.push(Self::of_host(rng, hosts, step, detect, loses));
        }
        if rng.one_in(6) {
            mishaps.push(Self::GiveUp { after: rng.below(4 * detect) as u64 });
        }
        mishaps
    }

    /// Copies move early. Hosts are lost meanwhile.
    fn of_moves(rng: &mut Rng, hosts: u16, Times { steps, detect }: Times) -> Vec<Self> {
        let early = |rng: &mut Rng| rng.below(steps / 8) as u64;
        let mut mishaps = Vec::new();
        let drains = rng.one_in(2);
        if drains {
            // One host was lost before the schedule. So the one with the next number took its place.
            let host = if rng.one_in(4) { u16::MAX } else { 1 + rng.below(usize::from(hosts)) as u16 };
            let cancel = rng.one_in(5).then(|| rng.below(2 * detect) as u64);
            mishaps.push(Self::Drain { host, step: early(rng), cancel });
        }
        if !drains || rng.one_in(2) {
            mishaps.push(Self::Spread { step: early(rng) });
        }
        if drains || rng.one_in(2) {
            mishaps.push(Self::Join { step: early(rng) });
        }
        for _ in 0..rng.below(3) {
            let step = rng.below(steps) as u64;
            let loses = rng.one_in(2);
            mishaps.push(Self::of_host(rng, hosts + 1, step, detect, loses));
        }
        if rng.one_in(5) {
            mishaps.push(Self::GiveUp { after: rng.below(4 * detect) as u64 });
        }
        mishaps
    }

    /// Processes of hosts end and start again, soon or after they were declared lost.
    fn of_returns(rng: &mut Rng, hosts: u16, Times { steps, detect }: Times) -> Vec<Self> {
        let mut mishaps = Vec::new();
        for _ in 0..1 + rng.below(3) {
            let host = if rng.one_in(3) { u16::MAX } else { rng.below(usize::from(hosts)) as u16 };
            let step = rng.below(steps) as u64;
            let dead_for =
                [rng.below(detect / 2), rng.below(2 * detect), rng.below(6 * detect)][rng.below(3)];
            mishaps.push(Self::HostRestarts { host, step, dead_for: dead_for as u64 });
            if rng.one_in(3) {
                // Another one at about the same time, perhaps all.
                let others = if rng.one_in(3) { 0..hosts } else { 0..1 };
                let pick = rng.below(usize::from(hosts)) as u16;
                for other in others {
                    let (host, step) = ((pick + other) % hosts, step + rng.below(detect) as u64);
                    mishaps.push(Self::HostRestarts { host, step, dead_for: rng.below(3 * detect) as u64 });
                }
            }
        }
        for _ in 0..rng.below(3) {
            let step = rng.below(steps) as u64;
            let loses = rng.one_in(2);
            mishaps.push(Self::of_host(rng, hosts, step, detect, loses));
        }
        if rng.one_in(2) {
            mishaps.push(Self::Join { step: rng.below(steps) as u64 });
        }
        mishaps
    }

    /// Two hosts are in trouble, the second one before the first one is declared lost or soon after that.
    fn of_two(rng: &mut Rng, hosts: u16, Times { steps, detect }: Times) -> Vec<Self> {
        let first = rng.below(steps / 4) as u64;
        let mut mishaps = vec![Self::of_host(rng, hosts, first, detect, true)];
        for _ in 0..1 + rng.below(2) {
            let later = [rng.below(detect), rng.below(4 * detect), rng.below(steps)][rng.below(3)];
            let loses = !rng.one_in(3);
            mishaps.push(Self::of_host(rng, hosts, first + later as u64, detect, loses));
        }
        for _ in 0..rng.below(3) {
            mishaps.push(Self::Join { step: rng.below(steps) as u64 });
        }
        mishaps
    }

    /// Trouble of a host. If it `loses`, it lasts so long that the group declares the host lost.
    fn of_host(rng: &mut Rng, hosts: u16, step: u64, detect: usize, loses: bool) -> Self {
        let host = if rng.one_in(3) { u16::MAX } else { rng.below(usize::from(hosts)) as u16 };
        let long = if loses { 3 * detect + rng.below(4 * detect) } else { detect / 2 + rng.below(detect) };
        let steps = long as u64;
        match rng.below(if loses { 8 } else { 5 }) {
            0 => Self::HostStands { host, step, steps },
            1..5 => {
                // Nobody, everybody, or some processes are cut off too.
                let clients = [0, u64::MAX, rng.next_u64(), rng.next_u64()][rng.below(4)];
                let both = loses || rng.one_in(2);
                let out = both || rng.one_in(2);
                let cut = HostCut { host, steps, out, into: both || !out, clients };
                Self::HostCut { cut, step }
            }
            _ => Self::HostDies { host, step },
        }
    }
}
