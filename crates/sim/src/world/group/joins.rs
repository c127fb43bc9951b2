//! Processes that join: the group admits them, every copy of their table learns them, and one renewal shows
//! that they are still members. Real clients do the same (`ControlFabric::join_group`).

use super::net::{End, Item, Net, Sender};
use crate::knobs::Breach;
use crate::world::World;
use sherman_control::plane::Asker;
use sherman_fabric::group::Admission;
use sherman_fabric::{ComputeId, FabricError, Request, Response};
use sherman_replica::VolumeTable;
use std::sync::Arc;

/// A process that joins.
#[derive(Debug)]
pub(in crate::world) struct Joiner {
    pub(super) process: u32,
    /// The compute server that was the process's former identity.
    parent: u32,
    /// What the group has said, until the joiner is a member or begins anew.
    admitted: Option<Admitted>,
    /// The number of its compute server, when it is a member.
    joined: Option<(u32, ComputeId, Arc<VolumeTable>)>,
}

#[derive(Debug)]
struct Admitted {
    admission: Admission,
    table: Arc<VolumeTable>,
    /// The copies that it has introduced itself to, and whether it asks for a first renewal.
    introduced: Vec<u16>,
    renews: bool,
    /// Some copy has fenced it already.
    fenced: bool,
}

/// What a host says to a client that introduces itself to a copy.
enum Greeting {
    Welcome,
    NotYet,
    /// The client's epoch is over.
    Over,
}

impl Net {
    /// A copy has fenced a client, which may not be a compute server yet.
    pub(in crate::world) fn note_fence(&mut self, copy: u16, client: ComputeId) {
        for admitted in self.joiners.values_mut().filter_map(|joiner| joiner.admitted.as_mut()) {
            admitted.fenced |= admitted.admission.client == client && admitted.introduced.contains(&copy);
        }
    }
}

impl World {
    /// A process asks for another identity. Its former one was that of the compute server `parent`.
    pub(crate) fn begin_join(&mut self, parent: u32) -> Option<u64> {
        let process = self.compute_servers.get(parent as usize)?.process;
        let leader = self.compute_servers[parent as usize].leader;
        let net = self.net.as_mut()?;
        net.last_joiner += 1;
        let number = net.last_joiner;
        net.joiners.insert(number, Joiner { process, parent, admitted: None, joined: None });
        self.begin_ask(Sender::Joiner { number }, Asker::Nobody, Request::Join, leader);
        Some(number)
    }

    /// The compute server of a joiner, once it is a member.
    pub(crate) fn take_joined(&mut self, number: u64) -> Option<(u32, ComputeId, Arc<VolumeTable>)> {
        let net = self.net.as_mut()?;
        let joined = net.joiners.get_mut(&number)?.joined.take()?;
        net.joiners.remove(&number);
        Some(joined)
    }

    /// A process does not wait for an identity any more.
    pub(crate) fn forget_joiner(&mut self, number: u64) {
        if let Some(net) = &mut self.net {
            net.joiners.remove(&number);
        }
    }

    /// The group answers a joiner.
    pub(super) fn joiner_told(&mut self, number: u64, answer: Result<Response, FabricError>) {
        let Some(net) = &mut self.net else { return };
        let (now, pause) = (net.now, (net.detect / 16).max(1));
        let Some(joiner) = net.joiners.get_mut(&number) else { return };
        match answer {
            Ok(Response::Admitted(admission)) => {
                let Ok(table) = VolumeTable::decode(&admission.table) else { return };
                let (table, introduced, renews, fenced) = (Arc::new(table), Vec::new(), false, false);
                joiner.admitted = Some(Admitted { admission: *admission, table, introduced, renews, fenced });
                net.queue.push(now + 1, Item::Join { number });
            }
            Ok(Response::Renewed(_)) => self.enter(number),
            // No host or no id is free, or the identity has already ended: begin anew after a pause.
            _ => {
                joiner.admitted = None;
                net.queue.push(now + pause, Item::Join { number });
            }
        }
    }

    /// A joiner introduces itself to copies, and begins anew if its table is old.
    pub(super) fn go_on_joining(&mut self, number: u64) {
        let Some(net) = &mut self.net else { return };
        let now = net.now;
        let Some(joiner) = net.joiners.get_mut(&number) else { return };
        let process = joiner.process;
        let Some(admitted) = joiner.admitted.as_ref().filter(|admitted| !admitted.renews) else {
            if joiner.joined.is_none() && joiner.admitted.is_none() {
                self.begin_ask(Sender::Joiner { number }, Asker::Nobody, Request::Join, None);
            }
            return;
        };
        let (client, epoch) = (admitted.admission.client, admitted.table.epoch());
        let named = admitted.table.volumes().iter().flat_map(|entry| entry.copies()).map(|(_, copy)| copy);
        let left: Vec<u16> = named.filter(|copy| !admitted.introduced.contains(copy)).collect();
        let Some(copy) = left.first().copied() else { return self.renew_first(number) };
        let delay = 1 + net.rng.below(2 * net.weather.delay as usize) as u64;
        match self.greet(process, copy, epoch) {
            Greeting::Welcome => {
                self.fence(copy, client);
                if let Some(admitted) = self.admitted(number) {
                    admitted.introduced.push(copy);
                }
            }
            Greeting::NotYet => {}
            Greeting::Over => self.begin_anew(number),
        }
        if let Some(net) = &mut self.net {
            net.queue.push(now + delay, Item::Join { number });
        }
    }

    fn admitted(&mut self, number: u64) -> Option<&mut Admitted> {
        self.net.as_mut()?.joiners.get_mut(&number)?.admitted.as_mut()
    }

    /// What the host of a copy says to a client of this epoch.
    fn greet(&self, process: u32, copy: u16, epoch: u64) -> Greeting {
        let Some(net) = &self.net else { return Greeting::NotYet };
        let host = self.volumes.host_of(copy);
        let (there, back) = (End::Process(process), End::Host(host));
        let Some(found) = net.host(host).filter(|host| host.runs && host.stands_until <= net.now) else {
            // Another table follows. The client finds that out when it asks for its first renewal.
            return if net.newest_epoch() > epoch { Greeting::Over } else { Greeting::NotYet };
        };
        if !net.passes(there, back) || !net.passes(back, there) {
            return if net.newest_epoch() > epoch { Greeting::Over } else { Greeting::NotYet };
        }
        let known = if self.breaks(Breach::ServesEarly) {
            found.node.state().map_or(0, |state| state.table().epoch())
        } else {
            found.done.table.epoch()
        };
        match epoch.cmp(&known) {
            std::cmp::Ordering::Equal => Greeting::Welcome,
            std::cmp::Ordering::Greater => Greeting::NotYet,
            std::cmp::Ordering::Less if self.breaks(Breach::StaleTable) => Greeting::Welcome,
            std::cmp::Ordering::Less => Greeting::Over,
        }
    }

    /// Gives the id back, and joins again.
    fn begin_anew(&mut self, number: u64) {
        let Some(net) = &mut self.net else { return };
        let Some(joiner) = net.joiners.get_mut(&number) else { return };
        let Some(Admitted { admission, .. }) = joiner.admitted.take() else { return };
        let Admission { client, incarnation, .. } = admission;
        let asker = Asker::Member { client, incarnation };
        self.begin_ask(Sender::Nobody, asker, Request::Leave, None);
    }

    fn renew_first(&mut self, number: u64) {
        let Some(admitted) = self.admitted(number) else { return };
        admitted.renews = true;
        let Admission { client, incarnation, .. } = admitted.admission;
        let asker = Asker::Member { client, incarnation };
        self.begin_ask(Sender::Joiner { number }, asker, Request::Renew, None);
    }

    /// A joiner becomes a compute server.
    fn enter(&mut self, number: u64) {
        let Some(net) = &mut self.net else { return };
        let Some(joiner) = net.joiners.get_mut(&number) else { return };
        if joiner.admitted.as_ref().is_some_and(|admitted| admitted.fenced) {
            let at = net.now + 1;
            net.queue.push(at, Item::Join { number });
            return self.begin_anew(number);
        }
        let Some(Admitted { admission, table, .. }) = joiner.admitted.take() else { return };
        let (parent, process) = (joiner.parent, joiner.process);
        let client = admission.client;
        let former = &self.compute_servers[parent as usize];
        let (clock, epoch, leader) = (former.clock, former.epoch, former.leader);
        let owner = self.add_compute_server(client, admission.incarnation, &table);
        let new = &mut self.compute_servers[owner as usize];
        (new.clock, new.process, new.leader) = (clock, process, leader);
        for copy in 0..self.servers.len() as u16 {
            if !self.process_reaches(process, self.volumes.host_of(copy)) {
                self.cut_off(owner, copy);
            }
        }
        self.check_epoch(process, epoch, table.epoch());
        if let Some(joiner) = self.net.as_mut().and_then(|net| net.joiners.get_mut(&number)) {
            joiner.joined = Some((owner, client, table));
        }
    }
}
