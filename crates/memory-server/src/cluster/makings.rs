//! Copies that are made again after a loss (J1-J6 of `docs/REPLICATION.md`).
//!
//! A *making* is one such copy: a site on another host, which no volume names yet. The state only keeps the
//! books. Hosts move the bytes, and report.
//!
//! - [`Planned`](Phase::Planned): the volume is open. Its host copies it while clients change it (J2).
//! - [`Copied`](Phase::Copied): when all makings are copied, their volumes are closed in a new epoch (J3).
//!   The hosts wait until the state is [quiet](ClusterState::quiet), and copy again what differs (J4).
//! - [`Settled`](Phase::Settled): the host of the primary sends the copy what its CPU stores.
//!
//! When all makings are settled, one more epoch names the copies and opens the volumes (J5).
//!
//! **Repeated reports.** A host repeats a report until it is answered. A report about a copy that is not
//! being made, about another epoch, or at another phase changes nothing, and is answered all the same. A late
//! report of J2 does no harm, because J4 compares every byte.

use super::ClusterState;
use sherman_fabric::group::HostInfo;
use sherman_layout::MemberState;
use sherman_replica::table::MOST as MOST_COPIES;
use sherman_replica::{CopySite, VolumeEntry};

/// The shortest time after which the leader gives up a pause, in nanoseconds (J6).
const SHORTEST_PATIENCE: u64 = 5_000_000_000;
/// The same, in leases.
const PATIENCE_LEASES: u64 = 4;

/// How far a making is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The copy has a site, and possibly some of the bytes.
    Planned,
    /// The copy was nearly right once (J2).
    Copied,
    /// The copy is right, and stays so until the volume opens (J4).
    Settled,
}

/// A copy that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Making {
    /// The volume.
    pub volume: u16,
    /// The number of the copy. No volume names it yet.
    pub copy: u16,
    /// How far it is.
    pub phase: Phase,
}

/// All makings, by volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Makings {
    pub(super) list: Vec<Making>,
    /// When the volumes of the makings were closed for them, by the state's time (J3).
    pub(super) closed_at: Option<u64>,
}

impl Makings {
    fn are_all(&self, phase: Phase) -> bool {
        !self.list.is_empty() && self.list.iter().all(|making| making.phase == phase)
    }

    /// Sets the phase of a copy that has exactly the phase before.
    fn promote(&mut self, copy: u16, from: Phase, to: Phase) {
        let found = self.list.iter_mut().find(|making| making.copy == copy && making.phase == from);
        found.into_iter().for_each(|making| making.phase = to);
    }

    /// Ends the pause, if there is one: every making begins anew (J6).
    fn begin_anew(&mut self) {
        if self.closed_at.take().is_some() {
            self.list.iter_mut().for_each(|making| making.phase = Phase::Planned);
        }
    }
}

impl ClusterState {
    /// The copies that are being made, by volume.
    pub fn makings(&self) -> &[Making] {
        &self.makings.list
    }

    /// Whether volumes are closed so that copies can be made (J3).
    pub fn is_closed_for_makings(&self) -> bool {
        self.makings.closed_at.is_some()
    }

    /// Whether nobody writes to the volumes that are closed for makings (J4).
    ///
    /// No identity of an older epoch is left, nor anybody who needs recovery. Identities of this epoch wait
    /// for open volumes. So what a host copies now stays right, but for what the primary's CPU stores.
    pub fn quiet(&self) -> bool {
        self.is_closed_for_makings() && self.all_are_live() && self.leftovers().next().is_none()
    }

    /// Whether the pause has lasted too long: the leader proposes
    /// [`Command::AbortMaking`](super::Command::AbortMaking) (J6).
    pub fn is_making_overdue(&self) -> bool {
        let lease = self.settings.format.lease_nanos;
        let patience = SHORTEST_PATIENCE.max(lease.saturating_mul(PATIENCE_LEASES));
        self.makings.closed_at.is_some_and(|at| self.clock.now.saturating_sub(at) > patience)
    }

    /// Whether no member is dead or leaves.
    fn all_are_live(&self) -> bool {
        self.identities
            .holders()
            .keys()
            .all(|&client| matches!(self.control.member(client).state, MemberState::Free | MemberState::Live))
    }

    /// J1: plans a copy for every volume that lacks one, if a host has room for it.
    pub(super) fn plan_makings(&mut self) {
        if !self.is_formed() || self.settings.replicas < 2 {
            return;
        }
        let mut sites = self.table.sites().to_vec();
        for (volume, entry) in (0..).zip(self.table.volumes()) {
            let Some(primary) = entry.primary.filter(|_| entry.backup.is_none()) else { continue };
            let at = self.makings.list.partition_point(|making| making.volume < volume);
            if self.makings.list.get(at).is_some_and(|making| making.volume == volume) {
                continue;
            }
            let of_primary = sites.get(usize::from(primary)).map(|site| site.host);
            let hosts = self.hosts.candidates();
            let room = hosts.into_iter().filter_map(|host| {
                let (has, fits) = self.room_on(host, &sites);
                (fits && Some(host.number) != of_primary).then_some((has, host))
            });
            // The host with the fewest copies, and of several the one that registered first.
            let Some((_, host)) = room.min_by_key(|(has, host)| (*has, host.number)) else { continue };
            if sites.len() >= MOST_COPIES {
                return;
            }
            let copy = sites.len() as u16;
            sites.push(CopySite { host: host.number, incarnation: host.incarnation });
            self.makings.list.insert(at, Making { volume, copy, phase: Phase::Planned });
        }
        if sites.len() > self.table.sites().len() {
            self.set_sites(sites);
        }
    }

    /// How many copies a host has, made or being made, and whether it has room for one more.
    fn room_on(&self, host: &HostInfo, sites: &[CopySite]) -> (u64, bool) {
        let here = |copy: &u16| sites.get(usize::from(*copy)).is_some_and(|site| site.host == host.number);
        let named = self.table.volumes().iter().flat_map(VolumeEntry::copies).map(|(_, copy)| copy);
        let making = self.makings.list.iter().map(|making| making.copy);
        let has = named.chain(making).filter(here).count() as u64;
        (has, host.memory_bytes >= self.settings.volume_bytes.saturating_mul(has + 1))
    }

    /// J2: a copy is nearly right.
    pub(super) fn copied(&mut self, copy: u16) {
        self.makings.promote(copy, Phase::Planned, Phase::Copied);
    }

    /// J4: a copy is right. Only a report from this pause counts.
    pub(super) fn settled(&mut self, copy: u16, epoch: u64) {
        if epoch == self.table.epoch() && self.quiet() {
            self.makings.promote(copy, Phase::Copied, Phase::Settled);
        }
    }

    /// J6: the leader gives up the pause. The primaries are those of the epoch before, so the volumes open at
    /// once, as if only a backup had been lost.
    pub(super) fn abort_makings(&mut self) {
        if self.is_closed_for_makings() {
            self.makings.begin_anew();
            self.set_entries(self.table.epoch(), self.opened());
        }
    }

    /// J6: the makings that used a lost host end. Call it before the host's copies leave the table.
    pub(super) fn drop_makings_of(&mut self, host: u16) {
        let on_host = |copy: u16| self.host_of(copy) == Some(host);
        let uses = |making: &Making| {
            let entry = self.table.volume(making.volume);
            on_host(making.copy) || entry.is_none_or(|entry| entry.copies().any(|(_, copy)| on_host(copy)))
        };
        let named = self.table.volumes().iter().flat_map(VolumeEntry::copies).any(|(_, copy)| on_host(copy));
        let used: Vec<bool> = self.makings.list.iter().map(uses).collect();
        if named || used.contains(&true) {
            // Closed volumes now open by E6, as after any loss.
            self.makings.begin_anew();
        }
        let mut used = used.into_iter();
        self.makings.list.retain(|_| !used.next().unwrap_or(false));
    }

    /// J3: closes the volumes of the makings when all are copied.
    ///
    /// It waits while an identity of an older epoch is left: its successor, an identity of this epoch, may
    /// not have settled its changes yet (E3). It also waits while a member needs recovery: the pause would
    /// last as long as that, and its end is not certain.
    pub(super) fn close_if_copied(&mut self) {
        let waits = self.is_closed_for_makings() || self.has_closed_volumes() || self.needs_recovery();
        if waits || !self.makings.are_all(Phase::Copied) || self.leftovers().next().is_some() {
            return;
        }
        let mut entries = self.table.volumes().to_vec();
        for making in &self.makings.list {
            if let Some(entry) = entries.get_mut(usize::from(making.volume)) {
                entry.open = false;
            }
        }
        self.set_entries(self.table.epoch() + 1, entries);
        self.makings.closed_at = Some(self.clock.now);
    }

    /// Whether a member is dead, leaves, or has let its lease run out.
    fn needs_recovery(&self) -> bool {
        self.identities.holders().keys().any(|&client| {
            let member = self.control.member(client);
            member.state != MemberState::Free && !member.is_alive(self.clock.now)
        })
    }

    /// J5: names the copies and opens the volumes when all makings are settled.
    pub(super) fn open_if_made(&mut self) {
        if !self.is_closed_for_makings() {
            return;
        }
        if !self.quiet() {
            // Only recovery can have written. To be safe, the hosts compare again.
            let settled = self.makings.list.iter_mut().filter(|making| making.phase == Phase::Settled);
            settled.for_each(|making| making.phase = Phase::Copied);
        }
        if self.makings.are_all(Phase::Settled) {
            self.open_with_copies();
        }
    }

    fn open_with_copies(&mut self) {
        let mut entries = self.opened();
        for making in std::mem::take(&mut self.makings).list {
            if let Some(entry) = entries.get_mut(usize::from(making.volume)) {
                entry.backup = Some(making.copy);
            }
        }
        self.set_entries(self.table.epoch() + 1, entries);
    }

    /// Names the copies at once, whatever they are. For the simulator, which shows with a planted bug that
    /// rule J5 is needed.
    #[doc(hidden)]
    pub fn open_unsettled(&mut self) {
        if self.is_closed_for_makings() {
            self.open_with_copies();
        }
    }

    /// Whether the state waits for time to pass before it can close volumes (J3).
    pub(super) fn waits_to_close(&self) -> bool {
        !self.is_closed_for_makings() && self.makings.are_all(Phase::Copied)
    }

    /// Whether the makings fit the rest of the state.
    pub(super) fn makings_are_legal(&self) -> bool {
        let Makings { list, closed_at } = &self.makings;
        let ascends = list.windows(2).all(|pair| pair[0].volume < pair[1].volume);
        let closed = closed_at.is_some();
        let possible = |making: &Making| {
            let entry = self.table.volume(making.volume).copied().unwrap_or_default();
            let (site, primary) =
                (self.host_of(making.copy), entry.primary.and_then(|copy| self.host_of(copy)));
            let unnamed = self.table.of_copy(making.copy).is_none();
            let phase = if closed { making.phase >= Phase::Copied } else { making.phase < Phase::Settled };
            let alone = entry.primary.is_some() && entry.backup.is_none();
            alone
                && unnamed
                && site != primary
                && self.is_present(making.copy)
                && phase
                && !(closed && entry.open)
        };
        let twice =
            list.iter().any(|making| list.iter().filter(|other| other.copy == making.copy).count() > 1);
        // Volumes without makings are open during a pause.
        let others_open = !closed
            || (0..).zip(self.table.volumes()).all(|(volume, entry)| {
                entry.open || entry.primary.is_none() || list.iter().any(|making| making.volume == volume)
            });
        let in_time = closed_at.is_none_or(|at| at <= self.clock.now && !list.is_empty());
        ascends && !twice && others_open && in_time && list.iter().all(possible)
    }
}
