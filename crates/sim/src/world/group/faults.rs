//! Faults of hosts: they die, start, stand still, and are cut off.
//!
//! A fault happens only while the cluster can bear it: no volume loses its last copy, a majority of the
//! voters stays, and no more hosts are in trouble than the schedule allows. Otherwise it waits a little and
//! tries again. A host that keeps its memory may restart at any time (P6).

use super::Wrong;
use super::hosts::Origin;
use super::net::{Begun, End, HostCut, Item, Sender};
use crate::sim::Fault;
use crate::world::World;
use crate::world::flight::{NO_TASK, Phase};
use sherman_control::plane::Asker;
use sherman_fabric::control::Spreading;
use sherman_fabric::group::HostOffer;
use sherman_fabric::{Request, Ticket};

/// Events between two tries.
const AGAIN: u64 = 150;

impl World {
    /// Whether a host can be lost now. `u16::MAX` is the host that leads.
    fn bears_loss_of(&self, host: u16) -> bool {
        let Some(net) = &self.net else { return false };
        let running = net.hosts.iter().flatten().filter(|host| host.runs);
        let newest = running.max_by_key(|host| host.node.applied());
        let Some((newest, state)) = newest.and_then(|host| Some((host, host.node.state()?))) else {
            return false;
        };
        let is_newest = |number: u16| number == newest.own.host;
        let well = |number: u16| number != host && self.is_well(number);
        // Some are in trouble, and count as present until they have been declared lost.
        let present = state.hosts().iter().map(|known| &known.info).filter(|known| known.up);
        let unwell = present.filter(|known| known.number != host && !well(known.number)).count();
        // A host that leaves takes its vote with it. One that restarts may be declared lost meanwhile.
        let stays = |number: u16| state.host(number).is_some_and(|known| !known.info.leaving);
        let votes = |number: u16| well(number) && stays(number);
        // A change of the members counts on each host from when the host applies it. If the leader dies in
        // between, the others elect by the members before.
        let views =
            net.hosts.iter().flatten().filter(|other| is_newest(other.own.host) || well(other.own.host));
        let majority = views.map(|other| other.node.status().members.voters).all(|voters| {
            let well = voters.iter().filter(|node| votes(super::host_of_node(**node))).count();
            2 * well > voters.len()
        });
        let volumes = self.volumes.table.volumes();
        let has_copies =
            volumes.iter().all(|entry| entry.copies().any(|(_, copy)| well(self.volumes.host_of(copy))));
        self.is_well(host) && unwell < net.at_once && majority && has_copies && net.leader().is_some()
    }

    /// Whether a host runs, and nothing has been wrong with it for a while.
    fn is_well(&self, number: u16) -> bool {
        let Some(net) = &self.net else { return false };
        let Some(host) = net.host(number) else { return false };
        let cut = net.cuts.iter().any(|cut| cut.until > self.now && cut.cut.host == number);
        // After a trouble everybody must be heard again: two in a row are like a longer one.
        let recovered = host.troubled_until == 0 || host.troubled_until + net.detect <= self.now;
        let leaves = host.leaves_at.is_some();
        host.runs && host.stands_until <= self.now && !cut && recovered && !host.lost && !leaves
    }

    /// The host that a fault is about.
    fn meant(&self, host: u16) -> Option<u16> {
        if host == u16::MAX { self.net.as_ref()?.leader() } else { Some(host) }
    }

    /// Applies a fault of a host in a group. Returns whether it was one.
    pub(in crate::world) fn strike_host(&mut self, fault: Fault) -> bool {
        if self.net.is_none() {
            return false;
        }
        let host = match fault {
            Fault::HostDown { host } | Fault::HostStands { host, .. } => host,
            Fault::HostRestarts { host, steps } => {
                match self.meant(host).filter(|host| self.is_well(*host)) {
                    Some(host) => self.restart_host(host, steps),
                    None => self.add_fault(self.steps + AGAIN, fault),
                }
                return true;
            }
            Fault::Drain { host, cancel } => {
                if let Some(host) = self.meant(host) {
                    self.operate_group(Request::Drain { host, cancel });
                }
                return true;
            }
            Fault::Spread => {
                self.operate_group(Request::Rebalance { when: Spreading::Now });
                return true;
            }
            Fault::HostCut { cut, .. } => cut.host,
            Fault::HostJoins => {
                self.start_newcomer(0);
                return true;
            }
            // The group itself finds lost hosts, and gives up pauses.
            Fault::HostLost { .. } | Fault::AbortMaking => return true,
            _ => return false,
        };
        let Some(host) = self.meant(host).filter(|host| self.bears_loss_of(*host)) else {
            self.add_fault(self.steps + AGAIN, fault);
            return true;
        };
        match fault {
            Fault::HostDown { .. } => {
                self.net.iter_mut().for_each(|net| net.seen.died += 1);
                self.end_host(host, "it dies");
            }
            Fault::HostStands { steps, .. } => self.stop_host(host, steps),
            Fault::HostCut { cut, .. } => self.cut_host(HostCut { host, ..cut }),
            _ => {}
        }
        true
    }

    /// An operator asks whichever host leads, until it gets an answer.
    fn operate_group(&mut self, request: Request) {
        self.begin_ask(Sender::Nobody, Asker::Operator, request, None);
    }

    /// The process of a host ends, and another one follows later. A host without a folder dies.
    fn restart_host(&mut self, host: u16, steps: u64) {
        let keeps = self.net.as_ref().and_then(|net| net.host(host)).is_some_and(|host| host.kept.is_some());
        if !keeps {
            if self.bears_loss_of(host) {
                self.strike_host(Fault::HostDown { host });
            }
            return;
        }
        self.end_host(host, "its process ends");
        let later = steps * self.knobs.step_nanos;
        let Some(net) = &mut self.net else { return };
        net.seen.died += 1;
        net.queue.push(self.now + later + 1, Item::Return { host });
        if let Some(found) = net.host_mut(host) {
            found.comes_back = true;
        }
    }

    /// The next process of a host starts, with its log and the memory of its copies (I4).
    pub(super) fn start_again(&mut self, host: u16) {
        let now = self.now;
        let Some(net) = &mut self.net else { return };
        net.boots += 1;
        let boot = net.boots;
        let Some(found) = net.host_mut(host).filter(|found| found.comes_back) else { return };
        let (own, clock, lost) = (found.own, found.clock, found.lost);
        let Some(mut kept) = found.kept.take() else { return };
        kept.offer.boot = boot;
        let segments = sherman_consensus::read(&mut kept.disk);
        let log = match segments.map(|segments| sherman_consensus::recover(&segments)) {
            Ok(Ok(log)) => log.map(Box::new),
            other => return net.found(Wrong::Progress, format!("the log of host {host}: {other:?}")),
        };
        self.volumes.returns += 1;
        self.log.remark(NO_TASK, now, format!("the next process of host {host} starts"));
        for copy in 0..self.servers.len() as u16 {
            if self.volumes.host_of(copy) == host {
                self.reopen(copy);
            }
        }
        let hosts = kept.hosts.clone();
        self.start_host(own, Origin::Back { log, kept, clock }, hosts);
        if let Some(found) = self.net.as_mut().and_then(|net| net.host_mut(host)) {
            found.lost = lost;
        }
    }

    fn stop_host(&mut self, host: u16, steps: u64) {
        let until = self.now + steps * self.knobs.step_nanos;
        let Some(net) = &mut self.net else { return };
        net.seen.stood_still += 1;
        if let Some(found) = net.running(host) {
            (found.stands_until, found.troubled_until) = (until, until);
        }
        self.log.remark(NO_TASK, self.now, format!("host {host} stands still for {steps} events"));
    }

    fn cut_host(&mut self, cut: HostCut) {
        let until = self.now + cut.steps * self.knobs.step_nanos;
        let Some(net) = &mut self.net else { return };
        net.seen.cut_off += 1;
        net.cuts.retain(|cut| cut.until > self.now);
        net.cuts.push(Begun { cut, until });
        if let Some(found) = net.running(cut.host) {
            found.troubled_until = found.troubled_until.max(until);
        }
        self.log.remark(NO_TASK, self.now, format!("{cut:?}"));
        for owner in 0..self.compute_servers.len() as u32 {
            let process = self.compute_servers[owner as usize].process;
            if cut.clients >> (process % 64) & 1 == 0 {
                continue;
            }
            for copy in 0..self.servers.len() as u16 {
                if self.volumes.host_of(copy) == cut.host {
                    self.cut_off(owner, copy);
                }
            }
        }
    }

    /// A process starts that will be a host.
    pub(in crate::world) fn start_newcomer(&mut self, delay: u64) {
        let Some(net) = &mut self.net else { return };
        net.boots += 1;
        net.seen.registered += 1;
        let boot = net.boots;
        net.queue.push(self.now + delay + 1, Item::Newcomer { boot });
    }

    pub(super) fn register_newcomer(&mut self, boot: u64) {
        let Some(settings) = self.volumes.cluster().map(|state| *state.settings()) else { return };
        let bytes = settings.volume_bytes.saturating_mul(u64::from(settings.volumes));
        let offer = HostOffer {
            address: format!("unix:/boot{boot}"),
            memory_bytes: bytes.max(settings.bytes_per_host()),
            boot,
            cluster: crate::world::volumes::CLUSTER,
            keeps: false,
        };
        let request = Request::Register { offer };
        self.begin_ask(Sender::Newcomer { boot }, Asker::Nobody, request, None);
    }

    /// Whether the CPU of a copy's host can answer now. If not, the call is tried again later.
    pub(in crate::world) fn cpu_waits(&mut self, owner: usize, endpoint: u32, slot: u32, copy: u16) -> bool {
        let host = self.volumes.host_of(copy);
        let Some(net) = &self.net else { return false };
        let Some(found) = net.host(host) else { return false };
        if !found.runs || self.compute_servers[owner].fenced[usize::from(copy)] {
            return false;
        }
        let broken = self.queue_pairs[endpoint as usize * self.servers.len() + usize::from(copy)].broken;
        let stands = found.stands_until > net.now;
        let blocked = self.mirrors_of(copy).into_iter().any(|other| !self.takes_stores(host, copy, other));
        if broken || !(stands || blocked) {
            return false;
        }
        let ticket = self.flights.ticket(slot);
        self.flights.get_mut(slot).sent = true;
        let Some(net) = &mut self.net else { return false };
        let at = self.now + (net.detect / 16).max(1);
        net.queue.push(at, Item::Again { ticket, endpoint });
        true
    }

    /// Whether the host of another copy takes the stores of a primary's CPU (T5).
    fn takes_stores(&self, host: u16, copy: u16, other: u16) -> bool {
        let there = self.volumes.host_of(other);
        let Some(net) = &self.net else { return true };
        let Some(found) = net.host(there).filter(|found| found.runs && found.stands_until <= net.now) else {
            return false;
        };
        let table = &found.done.table;
        // None after its promotion, and none after it was dropped.
        let later = table.epoch() > net.host(host).map_or(0, |own| own.done.table.epoch());
        let mine = table.of_copy(other).and_then(|(volume, _)| table.volume(volume)?.primary);
        let refuses = later && mine != Some(copy) && !self.breaks(crate::knobs::Breach::StoresAfterPromotion);
        let knows = table.of_copy(other).is_some() || found.rooms.contains(&other);
        !refuses && knows && self.hosts_reach(host, there)
    }

    /// A call that could not be executed may be tried again.
    pub(super) fn try_again(&mut self, ticket: Ticket, endpoint: u32) {
        if let Some(slot) = self.flights.find(ticket)
            && self.flights.get(slot).phase == Phase::InFlight
        {
            self.flights.get_mut(slot).sent = false;
        }
        self.refresh_calls(endpoint);
    }

    /// Whether a process reaches a host, for its verbs.
    pub(in crate::world) fn process_reaches(&self, process: u32, host: u16) -> bool {
        let Some(net) = &self.net else { return true };
        net.passes(End::Process(process), End::Host(host))
    }
}
