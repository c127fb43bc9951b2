//! The table of volumes: the first plan, the loss of a host, and opening.

use super::makings::Makings;
use super::{ClusterSettings, ClusterState};
use sherman_fabric::group::HostInfo;
use sherman_replica::{CopySite, TableError, VolumeEntry, VolumeTable};
use std::sync::Arc;

/// The epoch of the first table that has volumes.
const FIRST_EPOCH: u64 = 1;

/// Places the volumes evenly. Copy `v` is the primary of volume `v`, and copy `volumes + v` its backup. The
/// backups of the primaries of one host lie on different hosts, so that its load spreads when it is lost.
pub(super) fn plan(settings: &ClusterSettings, hosts: &[&HostInfo]) -> Result<VolumeTable, TableError> {
    let (volumes, count) = (usize::from(settings.volumes), hosts.len().max(1));
    let copies = usize::from(settings.replicas).min(count);
    let place = |copy: usize| {
        let volume = copy % volumes;
        if copy < volumes {
            return volume % count;
        }
        match (volume + 1 + volume / count) % count {
            own if own == volume % count => (own + 1) % count,
            other => other,
        }
    };
    let site = |copy| {
        let host = hosts.get(place(copy)).copied();
        host.map_or(CopySite::default(), |host| CopySite { host: host.number, incarnation: host.incarnation })
    };
    let entry = |volume: u16| VolumeEntry {
        primary: Some(volume),
        backup: (copies > 1).then_some(settings.volumes + volume),
        joining: None,
        open: true,
    };
    let entries = (0..settings.volumes).map(entry).collect();
    VolumeTable::new(FIRST_EPOCH, (0..volumes * copies).map(site).collect(), entries)
}

impl ClusterState {
    /// The host of a copy.
    pub(super) fn host_of(&self, copy: u16) -> Option<u16> {
        self.table.sites().get(usize::from(copy)).map(|site| site.host)
    }

    /// Places the volumes if there are none yet, and enough hosts.
    pub(super) fn form(&mut self) {
        let hosts = self.hosts.candidates();
        if self.is_formed() || hosts.len() < usize::from(self.settings.hosts) {
            return;
        }
        if let Ok(table) = plan(&self.settings, &hosts) {
            self.table = Arc::new(table);
        }
    }

    /// P6: whether a silent host may come back with a volume of which every copy is on a silent host. Then
    /// the leader does not declare it lost: an operator may.
    pub fn awaits(&self, host: u16, silent: &[u16]) -> bool {
        let is_on = |copy: u16, hosts: &[u16]| self.host_of(copy).is_some_and(|place| hosts.contains(&place));
        let last = |entry: &VolumeEntry| {
            entry.copies().any(|(_, copy)| is_on(copy, &[host]))
                && entry.copies().all(|(_, copy)| is_on(copy, silent))
        };
        #[cfg(feature = "mutants")]
        if crate::mutant::planted(crate::mutant::Mutant::AwaitsNobody) {
            return false;
        }
        self.hosts.get(host).is_some_and(|host| host.keeps) && self.table.volumes().iter().any(last)
    }

    /// E1, T4: the copies of a lost host leave the table in one epoch. Backups of its primaries take their
    /// place, closed (E5).
    pub(super) fn drop_copies_of(&mut self, host: u16) {
        let lost = |copy: u16| self.host_of(copy) == Some(host);
        let entries = self.table.volumes();
        if !entries.iter().flat_map(VolumeEntry::copies).any(|(_, copy)| lost(copy)) {
            return;
        }
        let keep = |copy: Option<u16>| copy.filter(|&copy| !lost(copy));
        let after = |entry: &VolumeEntry| {
            let [primary, backup, joining] = [entry.primary, entry.backup, entry.joining].map(keep);
            match (primary, backup) {
                (Some(_), _) => VolumeEntry { primary, backup, joining, open: entry.open },
                (None, Some(_)) => VolumeEntry { primary: backup, backup: None, joining: None, open: false },
                // T3: a copy that is not complete is never promoted.
                (None, None) => VolumeEntry::default(),
            }
        };
        let entries = entries.iter().map(after).collect();
        self.set_entries(self.table.epoch() + 1, entries);
    }

    /// Takes a lost host for one that is present, with the copies that it had at first. For the simulator,
    /// which shows with a planted bug that this must not be.
    #[doc(hidden)]
    pub fn trust_lost(&mut self, host: u16) {
        if !self.hosts.revive(host) {
            return;
        }
        let (volumes, mut entries) = (self.settings.volumes, self.table.volumes().to_vec());
        let copies = volumes.saturating_mul(self.settings.copies_per_volume());
        for copy in (0..copies).filter(|&copy| self.host_of(copy) == Some(host)) {
            let entry = entries.get_mut(usize::from(copy % volumes));
            if let Some(entry) = entry.filter(|entry| entry.backup.is_none() && entry.primary != Some(copy)) {
                entry.backup = entry.primary.map(|_| copy);
            }
        }
        self.makings = Makings::default();
        self.set_entries(self.table.epoch() + 1, entries);
    }

    /// E6: opens the volumes when no identity of an older epoch is left. Those that are closed for makings
    /// wait for the makings.
    pub(super) fn open_if_settled(&mut self) {
        let waits = self.has_closed_volumes() && !self.is_closed_for_makings();
        if waits && self.leftovers().next().is_none() {
            self.set_entries(self.table.epoch(), self.opened());
        }
    }

    /// All volumes, open.
    pub(super) fn opened(&self) -> Vec<VolumeEntry> {
        let open = |entry: &VolumeEntry| VolumeEntry { open: entry.primary.is_some(), ..*entry };
        self.table.volumes().iter().map(open).collect()
    }

    /// Whether the host of a copy is present.
    pub(super) fn is_present(&self, copy: u16) -> bool {
        let site = self.table.sites().get(usize::from(copy));
        site.zip(site.and_then(|site| self.hosts.get(site.host)))
            .is_some_and(|(site, host)| host.info.up && host.info.incarnation == site.incarnation)
    }

    pub(super) fn set_entries(&mut self, epoch: u64, entries: Vec<VolumeEntry>) {
        self.makings.changed_at = self.clock.now;
        self.set_table(epoch, self.table.sites().to_vec(), entries);
    }

    /// The number of a copy is never used for another one, so sites only come.
    pub(super) fn set_sites(&mut self, sites: Vec<CopySite>) {
        self.set_table(self.table.epoch(), sites, self.table.volumes().to_vec());
    }

    fn set_table(&mut self, epoch: u64, sites: Vec<CopySite>, entries: Vec<VolumeEntry>) {
        if let Ok(table) = VolumeTable::new(epoch, sites, entries) {
            self.table = Arc::new(table);
            // New trees have their root words elsewhere.
            self.control.avoid(self.table.lost().collect());
        }
    }
}
