//! Planned moves: a host that shall leave is drained, and copies are spread evenly.
//!
//! A planned move is a [`Making`] that takes the place of another copy of its volume. Everything else is as
//! for a copy that was lost (J1-J6 of `docs/REPLICATION.md`): the copy is made while clients use the volume,
//! and takes the place in the epoch that ends the pause. A *swap* makes no copy: primary and backup change
//! places in that epoch. They are equal then, because nobody of an older epoch is left.
//!
//! The state plans one wave at a time, and the next one when it is done. What it plans follows from the table
//! and the hosts alone, so every replica plans the same.
//!
//! **What is even.** A host's share of the copies is its share of the memory, and so is its share of the
//! primaries. The state moves a copy only if its new host has less afterwards, for its memory, than the old
//! one had before. So every move makes the distribution more even, and the moves come to an end.

use super::ClusterState;
use super::makings::{Making, Phase};
use sherman_fabric::control::Spreading;
use sherman_fabric::group::HostInfo;
use sherman_fabric::{FabricError, Refusal, Response};
use sherman_replica::{CopySite, VolumeEntry};
use std::collections::{BTreeMap, VecDeque};

/// What one host has when all makings and swaps are done.
#[derive(Clone, Copy, Debug)]
struct Load {
    memory: u64,
    copies: u64,
    primaries: u64,
    /// For how many more copies it has room now. Copies that move away still take their room.
    room: u64,
    /// Whether it takes copies.
    stays: bool,
}

/// Whether a host that has `one` for its memory has less than one that has `other`.
fn is_less((one, memory): (u64, u64), (other, its): (u64, u64)) -> bool {
    u128::from(one) * u128::from(its) < u128::from(other) * u128::from(memory)
}

impl Load {
    /// Whether one more copy here is less, for the memory, than what `other` has now.
    fn gains_over(&self, other: &Self) -> bool {
        is_less((self.copies + 1, self.memory), (other.copies, other.memory))
    }

    /// The same for primaries.
    fn leads_less_than(&self, other: &Self) -> bool {
        is_less((self.primaries + 1, self.memory), (other.primaries, other.memory))
    }
}

/// Where the copies lie when everything that is planned is done.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    loads: BTreeMap<u16, Load>,
    /// For each volume the hosts of primary and backup.
    volumes: Vec<[Option<u16>; 2]>,
}

impl Placement {
    pub(super) fn of(state: &ClusterState) -> Self {
        let candidates = state.hosts.candidates();
        let bytes = state.settings.volume_bytes.max(1);
        let load = |host: &&HostInfo| Load {
            memory: host.memory_bytes.max(1),
            copies: 0,
            primaries: 0,
            room: host.memory_bytes / bytes,
            stays: !host.leaving,
        };
        let mut loads: BTreeMap<u16, Load> =
            candidates.iter().map(|host| (host.number, load(host))).collect();
        let mut volumes: Vec<[Option<u16>; 2]> = Vec::new();
        let mut takes_room = |host: Option<u16>| {
            if let Some(load) = host.and_then(|host| loads.get_mut(&host)) {
                load.room = load.room.saturating_sub(1);
            }
        };
        for entry in state.table.volumes() {
            let hosts = [entry.primary, entry.backup].map(|copy| copy.and_then(|copy| state.host_of(copy)));
            hosts.into_iter().for_each(&mut takes_room);
            volumes.push(hosts);
        }
        for making in state.makings() {
            let host = state.host_of(making.copy);
            takes_room(host);
            let entry = state.table.volume(making.volume).copied().unwrap_or_default();
            if let Some(hosts) = volumes.get_mut(usize::from(making.volume)) {
                hosts[making.place(&entry)] = host;
            }
        }
        for &volume in &state.makings.swaps {
            if let Some(hosts) = volumes.get_mut(usize::from(volume)) {
                hosts.swap(0, 1);
            }
        }
        for hosts in &volumes {
            for (at, host) in hosts.iter().enumerate() {
                if let Some(load) = host.and_then(|host| loads.get_mut(&host)) {
                    load.copies += 1;
                    load.primaries += u64::from(at == 0);
                }
            }
        }
        Self { loads, volumes }
    }

    fn has(&self, host: u16, volume: usize) -> bool {
        self.volumes[volume].contains(&Some(host))
    }

    /// The host that should get one more copy of this volume: of those with room the one with the fewest
    /// copies for its memory, and of several the one that registered first.
    fn target(&self, volume: usize) -> Option<u16> {
        let fits = |host: &u16, load: &Load| load.stays && load.room > 0 && !self.has(*host, volume);
        let mut best: Option<(u16, Load)> = None;
        for (&host, load) in self.loads.iter().filter(|(host, load)| fits(host, load)) {
            let less = |(_, other): &(u16, Load)| {
                is_less((load.copies + 1, load.memory), (other.copies + 1, other.memory))
            };
            if best.as_ref().is_none_or(less) {
                best = Some((host, *load));
            }
        }
        best.map(|(host, _)| host)
    }

    /// Notes that a copy goes to `host`: the primary if `at` is 0, else the backup.
    fn put(&mut self, volume: usize, at: usize, host: u16) {
        let former = self.volumes[volume][at].replace(host);
        for (host, more) in former.map(|host| (host, false)).into_iter().chain([(host, true)]) {
            let Some(load) = self.loads.get_mut(&host) else { continue };
            let change = |number: &mut u64| *number = number.saturating_add_signed(if more { 1 } else { -1 });
            change(&mut load.copies);
            if at == 0 {
                change(&mut load.primaries);
            }
            if more {
                load.room = load.room.saturating_sub(1);
            }
        }
    }

    /// Makes the backup of a volume its primary, and the other way round.
    fn swap(&mut self, volume: usize) {
        let [primary, backup] = self.volumes[volume];
        for (host, more) in [(primary, -1), (backup, 1)] {
            if let Some(load) = host.and_then(|host| self.loads.get_mut(&host)) {
                load.primaries = load.primaries.saturating_add_signed(more);
            }
        }
        self.volumes[volume].swap(0, 1);
    }

    /// The hosts that stay, those with the fewest copies or primaries for their memory first.
    fn by(&self, number: fn(&Load) -> u64) -> Vec<u16> {
        let mut hosts: Vec<(u16, &Load)> =
            self.loads.iter().filter(|(_, load)| load.stays).map(|(host, load)| (*host, load)).collect();
        hosts.sort_by(|(_, one), (_, other)| {
            let left = u128::from(number(one)) * u128::from(other.memory);
            left.cmp(&(u128::from(number(other)) * u128::from(one.memory)))
        });
        hosts.into_iter().map(|(host, _)| host).collect()
    }

    /// The next move that makes the copies more even: the volume, which of its copies, and the new host.
    pub(super) fn next_move(&self, may_move: impl Fn(usize) -> bool) -> Option<(usize, usize, u16)> {
        let hosts = self.by(|load| load.copies);
        for &to in hosts.iter().filter(|host| self.loads[*host].room > 0) {
            for &from in hosts.iter().rev() {
                if !self.loads[&to].gains_over(&self.loads[&from]) {
                    break;
                }
                let first = usize::from(!self.loads[&to].leads_less_than(&self.loads[&from]));
                for at in [first, 1 - first] {
                    let suits = |volume: &usize| {
                        self.volumes[*volume][at] == Some(from) && !self.has(to, *volume) && may_move(*volume)
                    };
                    if let Some(volume) = (0..self.volumes.len()).find(suits) {
                        return Some((volume, at, to));
                    }
                }
            }
        }
        None
    }

    /// Swaps that make the primaries more even: one at the end of each volume on a way from a host with too
    /// many primaries to one with too few.
    pub(super) fn next_swaps(&self, may_swap: impl Fn(usize) -> bool) -> Vec<usize> {
        let hosts = self.by(|load| load.primaries);
        for &to in &hosts {
            for &from in hosts.iter().rev() {
                if !self.loads[&to].leads_less_than(&self.loads[&from]) {
                    break;
                }
                if let Some(way) = self.way(from, to, &may_swap) {
                    return way;
                }
            }
        }
        Vec::new()
    }

    /// The shortest way from one host to another over volumes whose primary and backup change places.
    fn way(&self, from: u16, to: u16, may_swap: &impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut before: BTreeMap<u16, (u16, usize)> = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(host) = next.pop_front() {
            if host == to {
                let mut way = Vec::new();
                let mut at = to;
                while at != from {
                    let (former, volume) = before[&at];
                    way.push(volume);
                    at = former;
                }
                return Some(way);
            }
            for (volume, hosts) in self.volumes.iter().enumerate() {
                let [Some(primary), Some(backup)] = *hosts else { continue };
                let stays = self.loads.get(&backup).is_some_and(|load| load.stays);
                if primary == host
                    && stays
                    && backup != from
                    && !before.contains_key(&backup)
                    && may_swap(volume)
                {
                    before.insert(backup, (host, volume));
                    next.push_back(backup);
                }
            }
        }
        None
    }
}

impl ClusterState {
    /// An operator lets a host leave, or stay after all.
    pub(super) fn drain(&mut self, host: u16, cancel: bool) -> Result<Response, FabricError> {
        let Some(found) = self.hosts.get(host).filter(|found| found.info.up || found.info.leaving) else {
            return Err(Refusal::NoSuchHost { host }.into());
        };
        match (found.info.up, found.info.leaving) {
            (false, _) if cancel => return Err(Refusal::HostLeft { host }.into()),
            (_, leaving) if leaving != cancel => return Ok(Response::Done),
            _ if cancel => {
                self.hosts.set_leaving(host, false);
                self.forget_moves_of(host);
            }
            _ => {
                self.check_drain(host)?;
                self.hosts.set_leaving(host, true);
                self.forget_makings_on(host);
            }
        }
        self.plan();
        Ok(Response::Done)
    }

    /// Refuses to let a host leave whose copies have no other place.
    fn check_drain(&self, host: u16) -> Result<(), Refusal> {
        let stay = |other: &&HostInfo| other.number != host && !other.leaving;
        let left = self.hosts.candidates().into_iter().filter(stay).count() as u16;
        let has = |entry: &VolumeEntry| entry.copies().any(|(_, copy)| self.host_of(copy) == Some(host));
        let of_host = (0..).zip(self.table.volumes()).find(|(_, entry)| has(entry)).map(|(volume, _)| volume);
        if left == 0 {
            return Err(Refusal::LastCopy { volume: of_host.unwrap_or(0) });
        }
        let replicas = u16::from(self.settings.replicas);
        if left < replicas {
            return Err(Refusal::TooFewHosts { left, replicas });
        }
        let mut placement = Placement::of(self);
        if let Some(load) = placement.loads.get_mut(&host) {
            load.stays = false;
        }
        let (mut copies, mut room) = (0, 0);
        for volume in 0..placement.volumes.len() {
            for at in 0..2 {
                if placement.volumes[volume][at] != Some(host) {
                    continue;
                }
                copies += 1;
                if let Some(to) = placement.target(volume) {
                    placement.put(volume, at, to);
                    room += 1;
                }
            }
        }
        if room < copies { Err(Refusal::NoRoom { copies, room }) } else { Ok(()) }
    }

    /// An operator wants copies to be spread evenly, or not any more.
    pub(super) fn rebalance(&mut self, when: Spreading) -> Response {
        self.makings.spreading = when != Spreading::Never && self.is_formed();
        match when {
            Spreading::Now => {}
            Spreading::Always => self.makings.always = true,
            Spreading::Never => {
                self.makings.always = false;
                let leaving = self.leaving_hosts();
                self.forget_moves(|state, making| {
                    let from = making.replaces.and_then(|copy| state.host_of(copy));
                    from.is_some_and(|host| !leaving.contains(&host))
                });
            }
        }
        self.plan();
        Response::Done
    }

    fn leaving_hosts(&self) -> Vec<u16> {
        self.hosts.present().filter(|host| host.leaving).map(|host| host.number).collect()
    }

    /// Forgets the moves away from a host that stays.
    fn forget_moves_of(&mut self, host: u16) {
        self.forget_moves(|state, making| {
            making.replaces.is_some_and(|copy| state.host_of(copy) == Some(host))
        });
    }

    /// Forgets the copies that a host would get that shall leave.
    fn forget_makings_on(&mut self, host: u16) {
        self.forget_moves(|state, making| state.host_of(making.copy) == Some(host));
    }

    /// Forgets makings that nobody wants any more, and swaps. In a pause they are finished: that is as quick.
    fn forget_moves(&mut self, unwanted: impl Fn(&Self, &Making) -> bool) {
        if self.is_closed_for_makings() {
            return;
        }
        let list = std::mem::take(&mut self.makings.list);
        self.makings.list = list.into_iter().filter(|making| !unwanted(self, making)).collect();
        self.makings.swaps.clear();
    }

    /// Plans the next copies: first those that were lost (J1), then those of hosts that leave, then those
    /// that make the distribution even. Nothing is added in a pause, and moves only when nothing else is
    /// being made.
    pub(super) fn plan(&mut self) {
        if !self.is_formed() || self.is_closed_for_makings() {
            return;
        }
        self.plan_makings();
        if self.makings.list.is_empty() && self.makings.swaps.is_empty() {
            self.plan_drains();
        }
        if self.makings.spreading && self.makings.list.is_empty() && self.makings.swaps.is_empty() {
            self.plan_even();
        }
    }

    fn plan_drains(&mut self) {
        let leaving = self.leaving_hosts();
        if leaving.is_empty() {
            return;
        }
        let mut placement = Placement::of(self);
        for volume in 0..placement.volumes.len() {
            let leaves = |host: &Option<u16>| host.is_some_and(|host| leaving.contains(&host));
            let Some(at) = placement.volumes[volume].iter().position(leaves) else { continue };
            let Some(to) = placement.target(volume) else { continue };
            placement.put(volume, at, to);
            if !self.plan_move(volume, at, to) {
                return;
            }
        }
    }

    fn plan_even(&mut self) {
        let mut placement = Placement::of(self);
        loop {
            let moves = |volume: usize| !self.makings.has(volume as u16);
            let Some((volume, at, to)) = placement.next_move(moves) else { break };
            placement.put(volume, at, to);
            if !self.plan_move(volume, at, to) {
                return;
            }
        }
        if self.makings.list.is_empty() {
            self.plan_swaps(&mut placement);
        }
        self.makings.spreading = !self.makings.list.is_empty() || !self.makings.swaps.is_empty();
    }

    fn plan_swaps(&mut self, placement: &mut Placement) {
        loop {
            let swaps = placement.next_swaps(|volume| !self.makings.swaps.contains(&(volume as u16)));
            if swaps.is_empty() {
                break;
            }
            for volume in swaps {
                placement.swap(volume);
                self.makings.swaps.push(volume as u16);
            }
        }
        self.makings.swaps.sort_unstable();
    }

    /// Plans to move a copy. Returns false if the wave has no room for more, or the table has no number.
    fn plan_move(&mut self, volume: usize, at: usize, to: u16) -> bool {
        let volume = volume as u16;
        let Some(entry) = self.table.volume(volume) else { return true };
        let replaces = if at == 0 { entry.primary } else { entry.backup };
        let Some(incarnation) = self.hosts.get(to).map(|host| host.info.incarnation) else { return true };
        if replaces.is_none() || self.makings.has(volume) {
            return true;
        }
        self.add_making(volume, CopySite { host: to, incarnation }, replaces) && !self.is_wave_full()
    }

    /// Where a copy of this volume that was lost is made.
    pub(super) fn host_for(&self, volume: u16) -> Option<CopySite> {
        let host = Placement::of(self).target(usize::from(volume))?;
        let incarnation = self.hosts.get(host)?.info.incarnation;
        Some(CopySite { host, incarnation })
    }

    /// Whether no more copies are planned at the same time.
    pub(super) fn is_wave_full(&self) -> bool {
        let count = self.makings.list.len() as u64;
        count >= WAVE_COPIES || count.saturating_mul(self.settings.volume_bytes) >= WAVE_BYTES
    }

    /// Adds a making with a new copy there. Returns false if the table has no number for it.
    pub(super) fn add_making(&mut self, volume: u16, site: CopySite, replaces: Option<u16>) -> bool {
        let Some(copy) = self.new_site(site) else { return false };
        let at = self.makings.list.partition_point(|making| making.volume < volume);
        self.makings.list.insert(at, Making { volume, copy, phase: Phase::Planned, replaces });
        true
    }

    /// Hosts that shall leave and have no copy any more leave now. Everything about them ends in this
    /// command.
    pub(super) fn let_go(&mut self) {
        let leaving = self.leaving_hosts();
        if leaving.is_empty() || self.is_closed_for_makings() {
            return;
        }
        let named = self.table.volumes().iter().flat_map(VolumeEntry::copies).map(|(_, copy)| copy);
        let makings = self.makings().iter().map(|making| making.copy);
        let used: Vec<Option<u16>> = named.chain(makings).map(|copy| self.host_of(copy)).collect();
        for host in leaving {
            if !used.contains(&Some(host)) {
                self.hosts.let_go(host);
            }
        }
    }
}

/// How many copies are in the making at the same time, and how many bytes their memory has. All of them share
/// one pause, in which the bytes in use are compared once more. So the limits keep a pause short. One copy is
/// made, however large it is.
const WAVE_COPIES: u64 = 32;
const WAVE_BYTES: u64 = 16 << 30;
