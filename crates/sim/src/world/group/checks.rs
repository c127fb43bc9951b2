//! What must hold of the group at every moment.
//!
//! - **Leases** (L2, L3). When a volume opens whose primary changed, no client of an older epoch has a valid
//!   lease by its own clock, unless its process has ended the identity itself. The same holds when a client
//!   learns that its lease was renewed. So no two primaries serve results that count, and no leader grants a
//!   lease that the state does not know.
//! - **Leaders.** One host leads in a term.
//! - **Epochs.** The epochs of a process's identities do not descend.
//! - **Hosts.** A host is declared lost for a reason: it died, stood still, or was cut off.

use super::hosts::SimHost;
use super::net::Net;
use crate::world::World;
use crate::world::flight::NO_TASK;
use sherman_replica::VolumeTable;
use std::sync::Arc;

/// What the checks find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A lease counts that the control state does not know, or two hosts lead.
    Leases,
    /// A process went back to an older epoch.
    Epochs,
    /// A host was declared lost without a reason.
    Hosts,
    /// The group does not go on.
    Progress,
}

/// A trouble of a host explains its loss for so many times longer than a host may be silent.
const AFTERMATH: u64 = 4;

impl Net {
    /// The epoch of the newest table that any host has learnt.
    pub(super) fn newest_epoch(&self) -> u64 {
        let newest = self.host(self.newest.1).and_then(|host| host.node.state());
        newest.map_or(0, |state| state.table().epoch())
    }
}

impl World {
    /// A host has learnt a state that nobody had before.
    pub(super) fn see_newest(&mut self, host: u16) {
        let Some(net) = &mut self.net else { return };
        let now = net.now;
        let Some(state) = net.host(host).and_then(|host| host.node.state()) else { return };
        let table = Arc::clone(state.table());
        let closed = state.is_closed_for_makings();
        let known = state.hosts().iter().map(|host| &host.info);
        let lost: Vec<u16> =
            known.filter(|host| !host.up && !host.has_left()).map(|host| host.number).collect();
        if !closed {
            net.pause = None;
        }
        for number in lost {
            self.expect_reason(number, now);
        }
        if table == self.volumes.table {
            return;
        }
        let former = std::mem::replace(&mut self.volumes.table, Arc::clone(&table));
        self.see_table(&former, &table);
    }

    fn expect_reason(&mut self, number: u16, now: u64) {
        let Some(net) = &mut self.net else { return };
        let aftermath = AFTERMATH * net.detect;
        // While others are in trouble, nobody may be able to commit what the leader has proposed.
        let in_trouble =
            |host: &SimHost| !host.runs || host.troubled_until > 0 && host.troubled_until + aftermath >= now;
        let others = net.hosts.iter().flatten().any(|host| host.own.host != number && in_trouble(host));
        let Some(host) = net.host_mut(number).filter(|host| !host.lost) else { return };
        host.lost = true;
        let was_in_trouble = host.troubled_until > 0 && others;
        let explained = in_trouble(host) || was_in_trouble;
        if !explained {
            net.found(Wrong::Hosts, format!("host {number} was declared lost without a reason"));
        }
        self.log.remark(NO_TASK, now, format!("host {number} is declared lost"));
    }

    fn see_table(&mut self, former: &Arc<VolumeTable>, table: &Arc<VolumeTable>) {
        let now = self.net.as_ref().map_or(self.now, |net| net.now);
        let mut opened = 0;
        for (volume, (was, is)) in former.volumes().iter().zip(table.volumes()).enumerate() {
            let Some(net) = &mut self.net else { return };
            let Some(since) = net.primary_since.get_mut(volume) else { continue };
            if was.primary != is.primary {
                // Identities of an epoch in which the volume was closed have not used it (J5).
                *since = if was.open { table.epoch() } else { former.epoch() };
            }
            if is.open && !was.open {
                opened = opened.max(*since);
            }
        }
        if former.epoch() != table.epoch() {
            self.note_made(former);
        }
        let what = format!("table of epoch {}: {:?}", table.epoch(), table.volumes());
        self.log.remark(NO_TASK, now, what);
        for owner in 0..self.compute_servers.len() {
            self.expect_ended(owner, opened, now);
        }
    }

    /// Checks that a compute server of an epoch before `opened` has no valid lease.
    fn expect_ended(&mut self, owner: usize, opened: u64, now: u64) {
        let compute_server = &self.compute_servers[owner];
        let over = compute_server.dead || compute_server.ended || compute_server.epoch >= opened;
        let reading = compute_server.clock.read(now);
        if over || reading >= compute_server.lease_until {
            return;
        }
        let (epoch, left) = (compute_server.epoch, compute_server.lease_until - reading);
        let what = format!(
            "cs{owner} of epoch {epoch} has a lease for {left} ns more, but a volume is open that got its \
             primary in epoch {opened}"
        );
        if let Some(net) = &mut self.net {
            net.found(Wrong::Leases, what);
        }
    }

    /// A compute server learns that its lease was renewed. It asked at `asked`, by its own clock.
    pub(in crate::world) fn learn_lease(&mut self, owner: u32, asked: u64) {
        let Some(net) = &self.net else { return };
        let (now, lease) = (self.now, net.lease);
        // The newest table that a node has may be an old one again, after the death of another node.
        let epoch = self.volumes.table.epoch();
        let open = self.volumes.table.volumes().iter().zip(&net.primary_since);
        let open = open.filter(|(entry, since)| entry.open && **since <= epoch);
        let opened = open.map(|(_, since)| *since).max().unwrap_or(0);
        let compute_server = &mut self.compute_servers[owner as usize];
        compute_server.lease_until = compute_server.lease_until.max(asked + lease - lease / 8);
        self.expect_ended(owner as usize, opened, now);
    }

    /// Checks that a process does not go back.
    pub(super) fn check_epoch(&mut self, process: u32, former: u64, epoch: u64) {
        if epoch >= former {
            return;
        }
        if let Some(net) = &mut self.net {
            let what = format!("process {process} went from epoch {former} to {epoch}");
            net.found(Wrong::Epochs, what);
        }
    }
}
