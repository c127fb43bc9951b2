//! What an operator sees of a cluster of hosts: which host leads, which hosts there are, and where the copies
//! of each volume lie.

use crate::error::OpenError;
use sherman_core::Error;
use sherman_fabric::Role;
use sherman_fabric::group::{ClusterInfo, CopyMaking, CopyWork, HostInfo};
use sherman_replica::VolumeTable;
use std::time::Duration;

/// A cluster of hosts, as its control state has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hosts {
    /// The cluster's identity.
    pub cluster: u64,
    /// The address of the host that leads the control group, if a host answered that knows it.
    pub leader: Option<String>,
    /// The epoch of the table of volumes. Each loss of a host makes a new one, and so does each pause in
    /// which copies are made or moved.
    pub epoch: u64,
    /// All hosts, by number, also some that were lost.
    pub hosts: Vec<HostStatus>,
    /// All volumes, by number. Empty until enough hosts have joined.
    pub volumes: Vec<VolumeStatus>,
    /// The copies that are being made or moved.
    pub copies: CopyWork,
}

/// A memory server process of a cluster of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStatus {
    /// Its number.
    pub id: u16,
    /// Where clients reach it.
    pub address: String,
    /// Whether the cluster counts it as present.
    pub up: bool,
    /// Whether its copies move away so that it can leave. If it is not present any more, it has left.
    pub leaving: bool,
    /// Whether it votes in the control group.
    pub votes: bool,
    /// The memory that it offers, in bytes.
    pub memory: u64,
    /// How many volumes have their primary there.
    pub primaries: usize,
    /// How many volumes have another copy there.
    pub backups: usize,
}

/// Where the copies of a volume lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeStatus {
    /// The host with the primary. `None` if the volume has lost its last copy.
    pub primary: Option<u16>,
    /// The host with the backup, if there is one.
    pub backup: Option<u16>,
    /// Whether clients may use the volume. It is closed for a moment after the loss of its primary.
    pub open: bool,
}

impl HostStatus {
    /// Its state in one word: `present`, `leaving` (its copies move away), `left` (in order) or `lost`.
    pub fn state(&self) -> &'static str {
        match (self.up, self.leaving) {
            (true, false) => "present",
            (true, true) => "leaving",
            (false, true) => "left",
            (false, false) => "lost",
        }
    }
}

impl TryFrom<ClusterInfo> for Hosts {
    type Error = OpenError;

    fn try_from(info: ClusterInfo) -> Result<Self, OpenError> {
        let ClusterInfo { cluster, leader, epoch, hosts, table, work, .. } = info;
        // A host that has just joined does not know the table yet.
        let table = if table.is_empty() { Ok(VolumeTable::default()) } else { VolumeTable::decode(&table) };
        let table = table.map_err(|_| Error::UnexpectedReply { request: "Cluster" })?;
        let host = |copy: Option<u16>| Some(table.sites().get(usize::from(copy?))?.host);
        let volumes: Vec<VolumeStatus> = table
            .volumes()
            .iter()
            .map(|entry| VolumeStatus {
                primary: host(entry.copy(Role::Primary)),
                backup: host(entry.copy(Role::Backup)),
                open: entry.open,
            })
            .collect();
        let status = |host: HostInfo| {
            let count = |of: fn(&VolumeStatus) -> Option<u16>| {
                volumes.iter().filter(|volume| of(volume) == Some(host.number)).count()
            };
            HostStatus {
                id: host.number,
                primaries: count(|volume| volume.primary),
                backups: count(|volume| volume.backup),
                address: host.address,
                up: host.up,
                leaving: host.leaving,
                votes: host.voter,
                memory: host.memory_bytes,
            }
        };
        let hosts = hosts.into_iter().map(status).collect();
        Ok(Self { cluster, leader, epoch, hosts, volumes, copies: work })
    }
}

impl Hosts {
    /// How many volumes get a copy again that they lost.
    pub fn volumes_in_the_making(&self) -> usize {
        self.copies.makings.iter().filter(|making| making.replaces.is_none()).count()
    }

    /// How many volumes have a copy that moves to another host, or a primary and a backup that change places.
    pub fn volumes_moving(&self) -> usize {
        self.copies.makings.len() - self.volumes_in_the_making() + usize::from(self.copies.swaps)
    }

    /// Bytes of the copies being made that were compared or sent, and all of them, as far as their hosts have
    /// said.
    pub fn copied_bytes(&self) -> (u64, u64) {
        let sum = |(done, total), making: &CopyMaking| {
            let all = making.progress.total;
            (done + if making.copied { all } else { making.progress.done }, total + all)
        };
        self.copies.makings.iter().fold((0, 0), sum)
    }

    /// How long the copies that are being made will take at the present speed. `None` if that is not known.
    pub fn copies_take(&self) -> Option<Duration> {
        let left = |making: &CopyMaking| {
            let progress = making.progress;
            let known = progress.done > 0 && progress.total > 0 && !making.copied;
            let rest = u128::from(progress.total.saturating_sub(progress.done));
            known.then(|| rest * u128::from(progress.millis) / u128::from(progress.done))
        };
        let longest = self.copies.makings.iter().filter_map(left).max()?;
        Some(Duration::from_millis(u64::try_from(longest).unwrap_or(u64::MAX)))
    }

    /// How many volumes have a copy, but only one.
    pub fn volumes_with_one_copy(&self) -> usize {
        self.volumes.iter().filter(|volume| volume.primary.is_some() && volume.backup.is_none()).count()
    }

    /// How many volumes have lost their last copy.
    pub fn volumes_lost(&self) -> usize {
        self.volumes.iter().filter(|volume| volume.primary.is_none()).count()
    }

    /// How many volumes with a copy are closed.
    pub fn volumes_closed(&self) -> usize {
        self.volumes.iter().filter(|volume| volume.primary.is_some() && !volume.open).count()
    }
}
