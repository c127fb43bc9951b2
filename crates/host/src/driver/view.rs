//! What the driver has seen of the state: when it changes, tables are carried out, connections are made, and
//! the operator gets a log line.

use super::Driver;
use crate::copies::Order;
use crate::end::Ended;
use sherman_consensus::{Members, NodeId};
use sherman_fabric::group::HostInfo;
use sherman_memory_server::cluster::Making;
use sherman_replica::VolumeTable;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

/// The newest state that was seen.
#[derive(Debug)]
pub(super) struct View {
    /// The last command that it contains.
    applied: u64,
    pub(super) hosts: Vec<HostInfo>,
    /// The table, the copies that are being made, and whether the state is quiet.
    table: Option<(Arc<VolumeTable>, Vec<Making>, bool)>,
    pub(super) members: Members,
    pub(super) leader: Option<NodeId>,
}

impl View {
    /// The view of a host that knows only the hosts that were there when it registered.
    pub(super) fn new(hosts: Vec<HostInfo>) -> Self {
        Self { applied: 0, hosts, table: None, members: Members::default(), leader: None }
    }

    /// The number of a node's host.
    pub(super) fn host_of(&self, node: NodeId) -> Option<u16> {
        self.hosts.iter().find(|host| host.node == node).map(|host| host.number)
    }
}

impl Driver {
    /// Looks at the state, if it has changed.
    pub(super) fn look(&mut self) {
        let status = self.parts.node.status();
        if status.applied == self.view.applied {
            return;
        }
        self.view.applied = status.applied;
        if self.view.members != status.members {
            self.view.members = status.members;
            self.parts.peers.update(&self.view.hosts, &self.view.members);
        }
        let Some(state) = self.parts.node.state() else { return };
        let (own, boot) = (self.parts.own.host, self.parts.boot);
        // Until then this host may have been declared lost, and its table may be an old one.
        let is_known = state.host(own).is_some_and(|host| host.boot == boot && host.info.up);
        let is_same = state.hosts().iter().map(|host| &host.info).eq(self.view.hosts.iter());
        let hosts = if is_same { None } else { Some(state.host_infos()) };
        let (table, quiet) = (Arc::clone(state.table()), state.quiet());
        let makings = state.makings().to_vec();
        if let Some(hosts) = hosts {
            log_hosts(&self.view.hosts, &hosts);
            self.view.hosts = hosts;
            self.note_hosts();
        }
        if is_known {
            self.parts.known.store(true, Release);
            self.note_table(table, makings, quiet);
        }
    }

    /// Takes another list of hosts.
    pub(super) fn note_hosts(&mut self) {
        let own = self.parts.own;
        self.parts.peers.update(&self.view.hosts, &self.view.members);
        let others = self.view.hosts.iter().filter(|host| host.up && host.number != own.host);
        self.parts.directory.set_hosts(others.map(|host| host.address.clone()).collect());
        if let Some(folder) = &self.parts.folder {
            let hosts = self.view.hosts.clone();
            if let Err(error) = folder.change(|kept| kept.hosts = hosts) {
                tracing::warn!("cannot note the other hosts in {}: {error}", folder.path().display());
            }
        }
        let is_lost = |host: &HostInfo| {
            host.number == own.host && !host.has_left() && !(host.up && host.incarnation == own.incarnation)
        };
        if self.view.hosts.iter().any(is_lost) {
            self.parts.end.set(Ended::Lost { host: own.host });
        }
        // The leader may have been a host whose address was not known.
        self.note_leader(self.view.leader);
    }

    /// Takes another leader.
    pub(super) fn note_leader(&mut self, leader: Option<NodeId>) {
        self.view.leader = leader;
        let leads = leader.is_some_and(|leader| self.view.host_of(leader) == Some(self.parts.own.host));
        self.parts.directory.set_leader(self.parts.node.leader_address(), leads);
    }

    fn note_table(&mut self, table: Arc<VolumeTable>, makings: Vec<Making>, quiet: bool) {
        let newest = (table, makings, quiet);
        if self.view.table.as_ref() == Some(&newest) || newest.0.volumes().is_empty() {
            return;
        }
        let (table, makings, quiet) = newest;
        let before = self.view.table.as_ref().map(|(table, ..)| &**table);
        if before != Some(&*table) {
            log_table(before, &table);
        }
        let none: &[Making] = &[];
        log_makings(self.view.table.as_ref().map_or(none, |(_, makings, _)| makings), &makings, &table);
        let hosts = self.view.hosts.clone();
        self.parts.orders.put(Order { table: Arc::clone(&table), hosts, makings: makings.clone(), quiet });
        self.view.table = Some((table, makings, quiet));
    }
}

fn log_hosts(before: &[HostInfo], now: &[HostInfo]) {
    for host in now {
        let was = before.iter().find(|was| was.number == host.number);
        let HostInfo { number, address, .. } = host;
        match was {
            None if host.up => tracing::info!(host = number, address, "a host registered"),
            Some(was) if was.up && host.has_left() => {
                tracing::info!(host = number, address, "a drain is done: the host has left")
            }
            Some(was) if was.up && !host.up => {
                tracing::warn!(host = number, address, "a host was declared lost")
            }
            Some(was) if !was.leaving && host.leaving => {
                tracing::info!(host = number, address, "a drain has begun: the host's copies move away")
            }
            Some(was) if was.leaving && !host.leaving => {
                tracing::info!(host = number, address, "a drain was cancelled: the host stays")
            }
            _ => {}
        }
    }
}

/// One line for all copies that are planned with one command, and one for all that end with it.
fn log_makings(before: &[Making], now: &[Making], table: &VolumeTable) {
    let lacks = |list: &[Making], making: &Making| !list.iter().any(|other| other.copy == making.copy);
    let moves = |makings: &[&Making]| makings.iter().filter(|making| making.replaces.is_some()).count();
    let new: Vec<&Making> = now.iter().filter(|making| lacks(before, making)).collect();
    if !new.is_empty() {
        let moving = moves(&new);
        tracing::info!(again = new.len() - moving, moving, "copies are being made on other hosts");
    }
    let ended = before.iter().filter(|making| lacks(now, making));
    let (made, dropped): (Vec<&Making>, Vec<&Making>) =
        ended.partition(|making| table.of_copy(making.copy).is_some());
    if !made.is_empty() {
        let moved = moves(&made);
        tracing::info!(again = made.len() - moved, moved, "copies are made, and volumes use them");
    }
    if !dropped.is_empty() {
        tracing::info!(copies = dropped.len(), "copies are not wanted any more");
    }
}

fn log_table(before: Option<&VolumeTable>, table: &VolumeTable) {
    let (epoch, volumes) = (table.epoch(), table.volumes().len());
    match before {
        None => tracing::info!(epoch, volumes, "the cluster has its volumes"),
        Some(before) if before.epoch() != epoch => {
            let closed = table.volumes().iter().filter(|entry| !entry.open).count();
            let lost = table.volumes().iter().filter(|entry| entry.primary.is_none()).count();
            if lost > 0 {
                tracing::error!(epoch, lost, "volumes have lost their last copy");
            }
            tracing::warn!(epoch, closed, "the cluster has a new table of volumes");
        }
        Some(_) if table.all_open() => tracing::info!(epoch, "all volumes are open"),
        Some(_) => tracing::info!(epoch, "volumes were opened"),
    }
}
