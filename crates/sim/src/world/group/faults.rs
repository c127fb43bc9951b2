//! Faults of hosts: they die, start, stand still, and are cut off.
//!
//! A fault happens only while the cluster can bear it: no volume loses its last copy, and a majority of the
//! voters stays. Otherwise it waits a little and tries again.

use super::hosts::SimHost;
use super::net::{Begun, End, HostCut, Item, Sender};
use crate::sim::Fault;
use crate::world::World;
use crate::world::flight::{NO_TASK, Phase};
use sherman_control::plane::Asker;
use sherman_fabric::group::HostOffer;
use sherman_fabric::{Request, Ticket};

/// Events between two tries.
const AGAIN: u64 = 150;

impl World {
    /// Whether a host can be lost now. `u16::MAX` is the host that leads.
    fn bears_loss_of(&self, host: u16) -> bool {
        let Some(net) = &self.net else { return false };
        let now = self.now;
        let well = |host: &SimHost| {
            let cut = net.cuts.iter().any(|cut| cut.until > now && cut.cut.host == host.own.host);
            // After a trouble everybody must be heard again: two in a row are like a longer one.
            let recovered = host.troubled_until == 0 || host.troubled_until + net.detect <= now;
            host.runs && host.stands_until <= now && !cut && recovered && !host.lost
        };
        let Some(newest) = net.host(net.newest.1).filter(|host| host.runs) else { return false };
        let (Some(state), Some(found)) = (newest.node.state(), net.host(host)) else { return false };
        let members = newest.node.status().members;
        let others = |number: u16| number != host && net.host(number).is_some_and(well);
        // Everybody else is well, and everybody who is not has been declared lost.
        let rest = state.hosts().iter().filter(|known| known.info.up && known.info.number != host);
        let all_well = rest.clone().all(|known| others(known.info.number));
        let voters = members.voters.iter().filter(|node| others(super::host_of_node(**node))).count();
        let majority = 2 * voters > members.voters.len();
        let has_copies = self
            .volumes
            .table
            .volumes()
            .iter()
            .all(|entry| entry.copies().any(|(_, copy)| others(self.volumes.host_of(copy))));
        well(found) && all_well && majority && has_copies && net.leader().is_some()
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
            Fault::HostCut { cut, .. } => cut.host,
            Fault::HostJoins => {
                self.start_newcomer(0);
                return true;
            }
            // The group itself finds lost hosts, and gives up pauses. Copies do not move in it.
            Fault::HostLost { .. } | Fault::AbortMaking | Fault::Drain { .. } | Fault::Spread => return true,
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
