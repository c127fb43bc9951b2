//! Copies that are made: again after a loss, or in place of one that moves (J1-J6 of `docs/REPLICATION.md`).
//!
//! A *making* is one such copy: a site on another host, which no volume names yet. The state only keeps the
//! books. Hosts move the bytes, and report. Which copies move is in [`moves`](super::moves).
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
use sherman_layout::MemberState;
use sherman_replica::table::MOST as MOST_COPIES;
use sherman_replica::{CopySite, VolumeEntry};

/// The shortest time after which the leader gives up a pause, in nanoseconds (J6).
const SHORTEST_PATIENCE: u64 = 5_000_000_000;
/// The same, in leases.
const PATIENCE_LEASES: u64 = 4;

/// The table stays as it is for a lease divided by this before volumes close for makings (J3).
const STEADY_PARTS: u64 = 2;
/// The longest such time. With a long lease a lost copy must not wait for as long.
const LONGEST_STEADY: u64 = 5_000_000_000;

/// The shortest time between a pause and the next one that is only for planned moves, in leases. Clients join
/// again twice for each pause, so without it a drain would slow them down for its whole length.
const REST_LEASES: u64 = 2;

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
    /// The copy whose place it takes. `None` if the volume lost a copy: then it becomes the backup.
    pub replaces: Option<u16>,
}

impl Making {
    /// The place that the copy takes in this entry: 0 for the primary, 1 for the backup.
    pub(super) fn place(&self, entry: &VolumeEntry) -> usize {
        usize::from(self.replaces.is_none() || self.replaces != entry.primary)
    }
}

/// All makings, by volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Makings {
    pub(super) list: Vec<Making>,
    /// When the volumes of the makings were closed for them, by the state's time (J3).
    pub(super) closed_at: Option<u64>,
    /// When the table or the openness of a volume changed last, by the state's time (J3).
    pub(super) changed_at: u64,
    /// The volumes whose primary and backup change places at the end of the next pause, in order.
    pub(super) swaps: Vec<u16>,
    /// Until when planned moves do not close volumes again, by the state's time.
    pub(super) rest_until: u64,
    /// Whether copies are being spread evenly, and whether they are whenever a host has joined.
    pub(super) spreading: bool,
    pub(super) always: bool,
}

impl Makings {
    fn are_all(&self, phase: Phase) -> bool {
        let some = !self.list.is_empty() || !self.swaps.is_empty();
        some && self.list.iter().all(|making| making.phase == phase)
    }

    /// Whether a volume gets a copy.
    pub(super) fn has(&self, volume: u16) -> bool {
        self.list.binary_search_by_key(&volume, |making| making.volume).is_ok()
    }

    /// Whether no copy is made that was lost.
    fn are_planned(&self) -> bool {
        self.list.iter().all(|making| making.replaces.is_some())
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

    /// Whether volumes wait for their primary and backup to change places.
    pub fn is_swapping(&self) -> bool {
        !self.makings.swaps.is_empty()
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
        if self.settings.replicas < 2 {
            return;
        }
        for volume in 0..self.table.volumes().len() as u16 {
            let Some(entry) = self.table.volume(volume) else { continue };
            let lacks = entry.primary.is_some() && entry.backup.is_none() && !self.makings.has(volume);
            if !lacks {
                continue;
            }
            let Some(host) = self.host_for(volume) else { continue };
            if self.is_wave_full() || !self.add_making(volume, host, None) {
                return;
            }
        }
    }

    /// The number for a new copy there. A number is used again only when the table is full, and when no
    /// process that ever had a copy of this number is left: it could take the one for the other.
    pub(super) fn new_site(&mut self, site: CopySite) -> Option<u16> {
        let mut sites = self.table.sites().to_vec();
        let copy = match sites.len() {
            len @ 0..MOST_COPIES => {
                sites.push(site);
                len
            }
            len => {
                let unused = |&copy: &usize| {
                    let copy = copy as u16;
                    let making = self.makings.list.iter().any(|making| making.copy == copy);
                    !making && self.table.of_copy(copy).is_none() && !self.is_present(copy)
                };
                let copy = (0..len).find(unused)?;
                sites[copy] = site;
                copy
            }
        };
        self.set_sites(sites);
        Some(copy as u16)
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
            let planned = self.makings.are_planned();
            self.makings.begin_anew();
            self.set_entries(self.table.epoch(), self.opened());
            self.end_pause(planned);
            self.plan();
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
            // What is even is another thing now.
            self.makings.swaps.clear();
        }
        let mut used = used.into_iter();
        self.makings.list.retain(|_| !used.next().unwrap_or(false));
    }

    /// J3: closes the volumes of the makings when all are copied.
    ///
    /// It waits while an identity of an older epoch is left: its successor, an identity of this epoch, may
    /// not have settled its changes yet (E3). It also waits while a member needs recovery: the pause would
    /// last as long as that, and its end is not certain. And it waits for a while after the table has
    /// changed, so that an operation that waited for one pause ends before the next one begins.
    pub(super) fn close_if_copied(&mut self) {
        #[cfg(feature = "mutants")]
        if crate::mutant::planted(crate::mutant::Mutant::SwapsOpen) && !self.is_closed_for_makings() {
            return self.swap_at_once();
        }
        let waits = self.is_closed_for_makings() || self.has_closed_volumes() || self.needs_recovery();
        let waits = waits || !self.is_steady();
        let rests = self.makings.are_planned() && self.clock.now < self.makings.rest_until;
        if waits || rests || !self.makings.are_all(Phase::Copied) || self.leftovers().next().is_some() {
            return;
        }
        let mut entries = self.table.volumes().to_vec();
        let swaps = self.makings.swaps.iter().copied();
        for volume in self.makings.list.iter().map(|making| making.volume).chain(swaps) {
            if let Some(entry) = entries.get_mut(usize::from(volume)) {
                entry.open = false;
            }
        }
        self.set_entries(self.table.epoch() + 1, entries);
        self.makings.closed_at = Some(self.clock.now);
    }

    /// Whether clients have had a while to use the table as it is.
    fn is_steady(&self) -> bool {
        let rest = (self.settings.format.lease_nanos / STEADY_PARTS).min(LONGEST_STEADY);
        self.clock.now >= self.makings.changed_at.saturating_add(rest)
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
        #[cfg(feature = "mutants")]
        if crate::mutant::planted(crate::mutant::Mutant::SwapsUnquiet) && self.makings.list.is_empty() {
            return self.open_with_copies();
        }
        if !self.quiet() {
            // Only recovery can have written. To be safe, the hosts compare again.
            let settled = self.makings.list.iter_mut().filter(|making| making.phase == Phase::Settled);
            settled.for_each(|making| making.phase = Phase::Copied);
        }
        // Primary and backup are equal while the state is quiet, so a swap needs no report.
        if self.quiet() && self.makings.are_all(Phase::Settled) {
            self.open_with_copies();
        }
    }

    fn open_with_copies(&mut self) {
        let planned = self.makings.are_planned();
        let mut entries = self.opened();
        for making in std::mem::take(&mut self.makings.list) {
            if let Some(entry) = entries.get_mut(usize::from(making.volume)) {
                match making.place(entry) {
                    0 => entry.primary = Some(making.copy),
                    _ => entry.backup = Some(making.copy),
                }
            }
        }
        for volume in std::mem::take(&mut self.makings.swaps) {
            if let Some(entry) = entries.get_mut(usize::from(volume)) {
                std::mem::swap(&mut entry.primary, &mut entry.backup);
            }
        }
        self.set_entries(self.table.epoch() + 1, entries);
        self.end_pause(planned);
        self.plan();
    }

    /// A planted bug: swaps without a pause.
    #[cfg(feature = "mutants")]
    fn swap_at_once(&mut self) {
        let mut entries = self.table.volumes().to_vec();
        let swaps = std::mem::take(&mut self.makings.swaps);
        for volume in &swaps {
            if let Some(entry) = entries.get_mut(usize::from(*volume)) {
                std::mem::swap(&mut entry.primary, &mut entry.backup);
            }
        }
        if !swaps.is_empty() {
            self.set_entries(self.table.epoch() + 1, entries);
        }
    }

    /// Ends a pause. `planned` says whether it was for moves alone.
    fn end_pause(&mut self, planned: bool) {
        self.makings.closed_at = None;
        if !planned {
            return;
        }
        let rest = self.settings.format.lease_nanos.saturating_mul(REST_LEASES);
        self.makings.rest_until = self.clock.now.saturating_add(rest);
    }

    /// Names the copies at once, whatever they are. For the simulator, which shows with a planted bug that
    /// rule J5 is needed.
    #[doc(hidden)]
    pub fn open_unsettled(&mut self) {
        if self.is_closed_for_makings() {
            self.open_with_copies();
        }
    }

    /// Whether volumes are closed so that copies can be made, or will be as soon as time has passed and
    /// nobody needs recovery.
    pub fn awaits_pause(&self) -> bool {
        self.is_closed_for_makings() || self.waits_to_close()
    }

    /// Whether the state waits for time to pass before it can close volumes (J3).
    pub(super) fn waits_to_close(&self) -> bool {
        !self.is_closed_for_makings() && self.makings.are_all(Phase::Copied)
    }

    /// Whether the makings fit the rest of the state.
    pub(super) fn makings_are_legal(&self) -> bool {
        let Makings { list, closed_at, changed_at, swaps, .. } = &self.makings;
        let ascends = list.windows(2).all(|pair| pair[0].volume < pair[1].volume)
            && swaps.windows(2).all(|pair| pair[0] < pair[1]);
        let closed = closed_at.is_some();
        let possible = |making: &Making| {
            let entry = self.table.volume(making.volume).copied().unwrap_or_default();
            let site = self.host_of(making.copy);
            let beside = entry.copies().any(|(_, copy)| self.host_of(copy) == site);
            let unnamed = self.table.of_copy(making.copy).is_none();
            let phase = if closed { making.phase >= Phase::Copied } else { making.phase < Phase::Settled };
            let place = match making.replaces {
                None => entry.backup.is_none(),
                replaces => replaces == entry.primary || replaces == entry.backup,
            };
            entry.primary.is_some()
                && place
                && unnamed
                && !beside
                && self.is_present(making.copy)
                && phase
                && !(closed && entry.open)
        };
        let twice =
            list.iter().any(|making| list.iter().filter(|other| other.copy == making.copy).count() > 1);
        // Volumes without makings are open during a pause.
        let others_open = !closed
            || (0..).zip(self.table.volumes()).all(|(volume, entry)| {
                entry.open || entry.primary.is_none() || self.makings.has(volume) || swaps.contains(&volume)
            });
        let some = !list.is_empty() || !swaps.is_empty();
        let now = self.clock.now;
        let in_time = closed_at.is_none_or(|at| at <= now && some) && *changed_at <= now;
        let can_swap = |volume: &u16| {
            let entry = self.table.volume(*volume).copied().unwrap_or_default();
            entry.primary.is_some() && entry.backup.is_some() && !(closed && entry.open)
        };
        let swaps_fit = swaps.iter().all(|volume| can_swap(volume) && !self.makings.has(*volume));
        ascends && !twice && others_open && in_time && swaps_fit && list.iter().all(possible)
    }
}
