//! What hosts do to make copies again (J1-J6), and the losses of hosts that follow it.
//!
//! The control state plans. Here the world plays the primary's host. Every few events it does a bit of work
//! for each making:
//!
//! 1. It copies a piece of the volume, and then the next one, while clients write (J2). So the pieces are of
//!    different times, and the copy is wrong. Then it reports `Copied`.
//! 2. When the state is quiet, it copies everything in one event, and sends the new copy each store that the
//!    primary's CPU makes from now on (J4). In a later event it reports `Settled`.
//!
//! Chunks of redo areas are never copied, nor are lanes. The memory of a new copy is zero there.

use super::World;
use super::flight::NO_TASK;
use crate::knobs::Breach;
use crate::memory::CpuView;
use crate::sim::Fault;
use sherman_fabric::{Request, Space};
use sherman_layout::ChunkEntry;
use sherman_memory_server::cluster::{Making, Phase};
use sherman_memory_server::{ClusterState, Command, Memories, MemoryServer};
use sherman_replica::VolumeTable;
use std::collections::BTreeMap;

/// Pieces of a volume in the first pass.
const PIECES: u64 = 5;
/// Events between two bits of work, unless the schedule says otherwise.
const PACE: u64 = 20;

/// The loss of one more host, as soon as no volume loses its last copy with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterLoss {
    /// Whether it happens while a copy is made, to the host that gets the copy. Otherwise it happens after
    /// copies were made, to the host of a primary.
    pub midway: bool,
    /// How many events later it happens.
    pub after: u64,
    /// Chooses the volume.
    pub pick: u16,
    /// How many events later the control state declares the host lost. `None` if the host lives on.
    pub dead_for: Option<u64>,
}

/// The host's work on one copy.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Pieces of the first pass that were copied.
    pieces: u64,
    /// The epoch in which everything was copied while the state was quiet.
    copied_in: Option<u64>,
}

/// What hosts do to make copies again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copier {
    /// Events between two bits of work; 0 for [`PACE`].
    pub(crate) pace: u64,
    /// The event before which there is nothing to do.
    next: u64,
    work: BTreeMap<u16, Work>,
    /// How many copies were made again.
    pub(crate) made: u32,
    /// How many copies moved, how many volumes had their primary and backup exchanged, and how many hosts
    /// have left.
    pub(crate) moved: u32,
    /// Whether volumes wait for their primary and backup to change places.
    swapping: bool,
    pub(crate) swapped: u32,
    pub(crate) left: u32,
    /// The event at which the last one was, and the one at which the last making was planned.
    made_at: u64,
    planned_at: u64,
    /// The event at which volumes were closed for makings.
    closed_at: Option<u64>,
    /// The leader gives up the next pause that is so long, in events.
    pub(crate) patience: Option<u64>,
    pub(crate) later: Vec<LaterLoss>,
    /// How many of them happened.
    pub(crate) later_losses: u32,
}

impl Copier {
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.work.is_empty() || !self.later.is_empty() || self.swapping
    }

    /// Goes on with the work of a host of a control group.
    pub(super) fn resume(&mut self, copy: u16, pieces: u64, copied_in: Option<u64>) {
        self.work.insert(copy, Work { pieces, copied_in });
    }

    /// Forgets what belongs to one schedule.
    pub(crate) fn plan(&mut self, pace: u64, patience: Option<u64>, later: Vec<LaterLoss>) {
        (self.pace, self.patience, self.later) = (pace, patience, later);
    }
}

impl World {
    /// The copies that get the stores of a primary's CPU.
    pub(super) fn mirrors_of(&self, copy: u16) -> Vec<u16> {
        let mut mirrors = self.copies_beside(copy);
        let first = self.volumes.first_made();
        if self.breaks(Breach::MakingNotMirrored) {
            mirrors.retain(|&copy| copy < first);
        } else if let Some(net) = &self.net {
            // The makings that the host knows, from the moment at which it copied everything.
            let Some(host) = net.host(self.volumes.host_of(copy)) else { return mirrors };
            let volume = host.done.table.of_copy(copy).map(|(volume, _)| volume);
            let target = |making: &&Making| {
                let work = host.work.get(&making.copy);
                Some(making.volume) == volume && work.is_some_and(|work| work.copied_in.is_some())
            };
            mirrors.extend(host.done.makings.iter().filter(target).map(|making| making.copy));
        } else if !self.volumes.copier.work.is_empty() {
            let volume = self.volumes.table.of_copy(copy).map(|(volume, _)| volume);
            let makings = self.volumes.cluster().map_or(&[][..], |state| state.makings());
            let work = &self.volumes.copier.work;
            let target = |making: &&Making| {
                Some(making.volume) == volume
                    && work.get(&making.copy).is_some_and(|work| work.copied_in.is_some())
            };
            mirrors.extend(makings.iter().filter(target).map(|making| making.copy));
        }
        mirrors
    }

    /// Hosts learn which copies are made: they format new ones, and forget those that are made no more.
    pub(super) fn follow_makings(&mut self) {
        let swapping = self.volumes.cluster().is_some_and(ClusterState::is_swapping);
        self.volumes.copier.swapping = swapping;
        let Some(state) = self.volumes.cluster() else { return };
        if state.makings().is_empty() && self.volumes.copier.work.is_empty() {
            return;
        }
        let (makings, closed) = (state.makings().to_vec(), state.is_closed_for_makings());
        let steps = self.steps;
        let copier = &mut self.volumes.copier;
        copier.work.retain(|copy, _| makings.iter().any(|making| making.copy == *copy));
        copier.closed_at = closed.then_some(copier.closed_at.unwrap_or(steps));
        for making in &makings {
            let known = self.volumes.copier.work.contains_key(&making.copy);
            self.volumes.copier.moved += u32::from(!known && making.replaces.is_some());
            // Only as many copies can be made as the world has memory for.
            if !known && usize::from(making.copy) < self.servers.len() {
                self.volumes.copier.work.insert(making.copy, Work::default());
                self.volumes.copier.planned_at = steps;
                self.log.remark(NO_TASK, self.now, format!("{making:?} is planned"));
                self.make_room(*making);
            }
            if !closed && let Some(work) = self.volumes.copier.work.get_mut(&making.copy) {
                // The pause was given up: from now on clients write, and nothing is sent to the copy.
                work.copied_in = None;
                if making.phase == Phase::Planned && work.pieces == PIECES {
                    work.pieces = 0;
                }
            }
        }
    }

    /// The host of a new copy formats its memory.
    pub(super) fn make_room(&mut self, making: Making) {
        let Some(format) = self.volumes.cluster().map(|state| state.volume_format(making.volume)) else {
            return;
        };
        let target = &mut self.servers[usize::from(making.copy)];
        let views = (CpuView::new(&mut target.memory), CpuView::new(&mut target.control_memory));
        let memories = Memories { volume: &views.0, control: &views.1 };
        match MemoryServer::format(memories, &format) {
            Ok(mut cpu) => {
                cpu.adopt(memories, super::volumes::CLUSTER);
                cpu.control = None;
                (target.cpu, target.cpu_used, target.format) = (cpu, true, format);
            }
            Err(error) => {
                let remark = format!("copy {} cannot be formatted: {error}", making.copy);
                self.log.remark(NO_TASK, self.now, remark);
            }
        }
        if self.breaks(Breach::DroppedCopyReused) {
            self.reuse_dropped(making);
        }
    }

    /// A planted bug: the bytes of a copy of this volume that no table names any more.
    fn reuse_dropped(&mut self, making: Making) {
        let memory_id = self.servers[usize::from(making.copy)].format.memory_id;
        let dropped = (0..making.copy).rfind(|&copy| {
            !self.is_named(copy) && self.servers[usize::from(copy)].format.memory_id == memory_id
        });
        if let Some(dropped) = dropped {
            self.copy_all(dropped, making.copy);
        }
    }

    /// Counts the copies that a new table names for the first time.
    pub(super) fn note_made(&mut self, former: &VolumeTable) {
        let table = &self.volumes.table;
        let named = table.volumes().iter().flat_map(|entry| entry.copies()).map(|(_, copy)| copy);
        let new = named.filter(|&copy| former.of_copy(copy).is_none()).count() as u32;
        let swapped = former.volumes().iter().zip(table.volumes());
        let swapped = swapped.filter(|(was, is)| was.primary == is.backup && is.backup.is_some()).count();
        self.volumes.copier.swapped += swapped as u32;
        if new > 0 {
            self.volumes.copier.made += new;
            self.volumes.copier.made_at = self.steps;
        }
    }

    /// Lets hosts work, if it is time.
    #[cold]
    pub(super) fn work_on_copies(&mut self) {
        self.lose_later();
        let copier = &mut self.volumes.copier;
        if self.steps < copier.next || copier.work.is_empty() && !copier.swapping {
            return;
        }
        copier.next = self.steps + if copier.pace == 0 { PACE } else { copier.pace };
        if let (Some(patience), Some(closed_at)) = (copier.patience, copier.closed_at)
            && self.steps >= closed_at + patience
        {
            copier.patience = None;
            self.strike_now(Fault::AbortMaking);
        }
        self.work_once();
    }

    /// Does a bit of work for every making.
    pub(crate) fn work_once(&mut self) {
        let makings = self.volumes.cluster().map_or_else(Vec::new, |state| state.makings().to_vec());
        for making in makings {
            let primary = self.primary(making.volume);
            let up = self.volumes.is_up(primary) && self.volumes.is_up(making.copy);
            if up && let Some(mut work) = self.volumes.copier.work.get(&making.copy).copied() {
                let command = self.work_for(making, primary, &mut work);
                self.volumes.copier.work.insert(making.copy, work);
                if let (Some(command), Some(state)) = (command, self.volumes.cluster_mut()) {
                    let _ = state.apply(&command);
                    self.follow();
                }
            }
        }
        self.tick();
    }

    fn work_for(&mut self, making: Making, primary: u16, work: &mut Work) -> Option<Command> {
        let (now, copy) = (self.now, making.copy);
        let state = self.volumes.cluster()?;
        let (quiet, closed, epoch) = (state.quiet(), state.is_closed_for_makings(), state.table().epoch());
        let reused = self.breaks(Breach::DroppedCopyReused);
        match making.phase {
            Phase::Planned if work.pieces < PIECES && !reused => {
                self.copy_piece(primary, copy, work.pieces, PIECES);
                if self.breaks(Breach::MovedLanesKept) && making.replaces.is_some() {
                    self.copy_lanes(primary, copy);
                }
                work.pieces += 1;
                None
            }
            Phase::Planned => {
                if let Some(source) = making.replaces
                    && self.breaks(Breach::SourceDroppedEarly)
                {
                    self.forget_memory(source);
                }
                Some(Command::Copied { now, copy })
            }
            Phase::Copied if closed && self.breaks(Breach::OpenedUnsettled) => {
                self.volumes.cluster_mut()?.open_unsettled();
                self.follow();
                None
            }
            Phase::Copied if closed && work.copied_in != Some(epoch) => {
                if quiet || self.breaks(Breach::CopiedBeforeQuiet) {
                    let trusts = self.breaks(Breach::TrustsFirstCopy)
                        || self.breaks(Breach::MoveTrustsFirstCopy) && making.replaces.is_some();
                    if !reused && !trusts {
                        self.copy_all(primary, copy);
                    }
                    self.log.remark(NO_TASK, self.now, format!("copy {copy} has all bytes"));
                    work.copied_in = Some(epoch);
                }
                None
            }
            Phase::Copied if closed => Some(Command::Settled { now, copy, epoch }),
            Phase::Copied | Phase::Settled => None,
        }
    }

    /// Copies one of several pieces of a volume.
    pub(super) fn copy_piece(&mut self, from: u16, to: u16, piece: u64, pieces: u64) {
        let bytes = self.servers[usize::from(from)].memory.size(Space::Host);
        let (start, end) = (bytes * piece / pieces, bytes * (piece + 1) / pieces);
        self.copy_range(from, to, start / 8 * 8, end / 8 * 8);
    }

    /// A planted bug: a new copy gets the lanes of the primary, too.
    pub(super) fn copy_lanes(&mut self, from: u16, to: u16) {
        let bytes = self.servers[usize::from(from)].memory.size(Space::OnChip);
        let lanes = self.servers[usize::from(from)].memory.bytes(Space::OnChip, 0, bytes as usize).to_vec();
        self.servers[usize::from(to)].memory.store(Space::OnChip, 0, &lanes);
    }

    /// A planted bug: a host drops a copy while the table still names it.
    pub(super) fn forget_memory(&mut self, copy: u16) {
        let memory = &mut self.servers[usize::from(copy)].memory;
        let zeros = vec![0; memory.size(Space::Host) as usize];
        memory.store(Space::Host, 0, &zeros);
    }

    pub(super) fn copy_all(&mut self, from: u16, to: u16) {
        let bytes = self.servers[usize::from(from)].memory.size(Space::Host);
        self.copy_range(from, to, 0, bytes);
    }

    /// Copies bytes of host memory, without those in chunks of redo areas.
    fn copy_range(&mut self, from: u16, to: u16, start: u64, end: u64) {
        let source = &self.servers[usize::from(from)];
        let volume = &source.cpu.volume;
        let geometry = *volume.geometry();
        let tables = geometry.chunks_offset;
        let mut spared: Vec<(u64, u64)> = Vec::new();
        for chunk in 0..geometry.chunks {
            if volume.chunk(chunk) == Some(ChunkEntry::Redo) {
                let at = tables + u64::from(chunk) * geometry.chunk_bytes;
                spared.push((at, at + geometry.chunk_bytes));
            }
        }
        let mut pieces = Vec::new();
        let mut at = start;
        for (first, last) in spared {
            if at < first.min(end) {
                pieces.push((at, first.min(end)));
            }
            at = at.max(last);
        }
        if at < end {
            pieces.push((at, end));
        }
        for (first, last) in pieces {
            let bytes = self.servers[usize::from(from)]
                .memory
                .bytes(Space::Host, first, (last - first) as usize)
                .to_vec();
            self.servers[usize::from(to)].memory.store(Space::Host, first, &bytes);
        }
    }

    /// An operator asks. A refusal changes nothing.
    pub(super) fn operate(&mut self, request: Request) {
        let now = self.now;
        if let Some(state) = self.volumes.cluster_mut() {
            let _ = state.apply(&Command::Operate { now, request });
            self.follow();
        }
    }

    /// The process of a host that has left ends.
    pub(super) fn end_left_hosts(&mut self) {
        let hosts = self.volumes.cluster().into_iter().flat_map(|state| state.hosts());
        let left: Vec<u16> = hosts.filter(|host| host.info.has_left()).map(|host| host.info.number).collect();
        for host in left {
            if self.volumes.is_running(host) {
                self.volumes.copier.left += 1;
                self.take_down(host);
            }
        }
    }

    /// The leader gives up a pause (J6).
    pub(super) fn abort_makings(&mut self) {
        let now = self.now;
        if let Some(state) = self.volumes.cluster_mut() {
            let _ = state.apply(&Command::AbortMaking { now });
            self.follow();
        }
    }

    /// Loses one more host, if that is due and no volume loses its last copy.
    fn lose_later(&mut self) {
        let copier = &self.volumes.copier;
        let Some(loss) = copier.later.first().copied() else { return };
        let Some(state) = self.volumes.cluster() else { return };
        let volumes = self.volumes.table.volumes();
        let host = if loss.midway {
            let makings = state.makings();
            let due = self.steps >= copier.planned_at + loss.after;
            let making = due.then(|| makings.get(usize::from(loss.pick) % makings.len().max(1))).flatten();
            making.map(|making| making.copy)
        } else {
            let due = copier.made > 0 && self.steps >= copier.made_at + loss.after;
            let replicated = volumes.iter().all(|entry| entry.backup.is_some());
            let volume = volumes.get(usize::from(loss.pick) % volumes.len().max(1));
            volume.filter(|_| due && replicated).and_then(|entry| entry.primary)
        };
        let Some(host) = host.map(|copy| self.volumes.host_of(copy)) else { return };
        if !self.volumes.can_lose(host) || !self.volumes.dead_hosts().is_empty() {
            return;
        }
        self.volumes.copier.later.remove(0);
        self.volumes.copier.later_losses += 1;
        if loss.dead_for.is_some() {
            self.strike_now(Fault::HostDown { host });
        }
        self.add_fault(self.steps + loss.dead_for.unwrap_or(0), Fault::HostLost { host });
    }
}
