//! Which copy gets which verbs.

use super::LaneTable;
use crate::table::{VolumeEntry, VolumeTable};
use sherman_fabric::{FabricError, GlobalAddress, Progress, Reach, Role, Roles, Tally, Verb, WorkList};
use std::sync::Arc;

/// The table of an endpoint, and what follows from it.
#[derive(Debug)]
pub(super) struct Volumes {
    table: Arc<VolumeTable>,
    lanes: LaneTable,
    /// Volume `i` is server `i`, and has no other copy.
    plain: bool,
}

impl Volumes {
    pub(super) fn new(table: Arc<VolumeTable>, lanes: LaneTable, servers: u16) -> Self {
        let alone = |(volume, entry): (u16, &VolumeEntry)| {
            entry.primary == Some(volume) && entry.copies().count() == 1
        };
        let plain = table.volumes().len() == usize::from(servers) && (0..).zip(table.volumes()).all(alone);
        Self { table, lanes, plain }
    }

    pub(super) fn table(&self) -> &Arc<VolumeTable> {
        &self.table
    }

    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(super) fn count(&self) -> u16 {
        self.table.volumes().len() as u16
    }

    /// The copies of a volume; none if there is no such volume.
    pub(super) fn entry(&self, volume: u16) -> VolumeEntry {
        self.table.volume(volume).copied().unwrap_or_default()
    }

    /// The copy of a volume with this role.
    pub(super) fn copy(&self, volume: u16, role: Role) -> Result<u16, FabricError> {
        let entry = self.table.volume(volume).ok_or(FabricError::NoSuchServer { server: volume })?;
        entry.copy(role).ok_or(match role {
            // No complete copy of the volume is left.
            Role::Primary => FabricError::VolumeLost { volume },
            Role::Backup | Role::Joining => {
                FabricError::Unsupported { what: "reach a copy that is not there" }
            }
        })
    }

    /// Whether a verb changes data, so that every copy must get it.
    pub(super) fn is_data(&self, verb: &Verb) -> bool {
        match *verb {
            Verb::Read { .. } => false,
            Verb::Write { space, offset, .. }
            | Verb::Cas { space, offset, .. }
            | Verb::Faa { space, offset, .. } => !self.lanes.has(space, offset),
        }
    }

    fn has_data(&self, list: &WorkList) -> bool {
        list.verbs().iter().any(|verb| self.is_data(verb))
    }

    /// Whether a list has a first half for other copies than the primary.
    pub(super) fn is_written_twice(&self, list: &WorkList) -> bool {
        self.entry(list.server()).copies().count() > 1 && self.has_data(list)
    }

    /// The data verbs of `list`, added to `part`.
    pub(super) fn push_data(&self, list: &WorkList, part: &mut WorkList) {
        for (index, verb) in list.verbs().iter().enumerate().filter(|(_, verb)| self.is_data(verb)) {
            #[cfg(feature = "mutants")]
            if crate::mutant::skips_record(list.data(index)) {
                continue;
            }
            match *verb {
                Verb::Write { space, offset, fenced: false, .. } => {
                    part.write(space, offset, list.data(index));
                }
                Verb::Write { space, offset, fenced: true, .. } => {
                    part.write_fenced(space, offset, list.data(index));
                }
                Verb::Cas { space, offset, compare, swap, mask, .. } => {
                    #[cfg(feature = "mutants")]
                    if crate::mutant::planted(crate::mutant::Mutant::RootOnPrimaryOnly) {
                        continue;
                    }
                    part.masked_cas(space, offset, compare, swap, mask);
                }
                Verb::Faa { space, offset, add, .. } => {
                    part.faa(space, offset, add);
                }
                Verb::Read { .. } => {}
            }
        }
    }

    /// Copies the words that the atomics of `part` found to those of `list`. Returns whether some CAS found
    /// another word than it compared with.
    pub(super) fn take_words(&self, part: &WorkList, list: &mut WorkList) -> bool {
        let mut refused = false;
        let mut words = part.verbs().iter().filter_map(|verb| match *verb {
            Verb::Cas { compare, mask, old, .. } => {
                refused |= old & mask != compare & mask;
                Some(old)
            }
            Verb::Faa { old, .. } => Some(old),
            _ => None,
        });
        for index in 0..list.len() {
            let verb = list.verbs()[index];
            if matches!(verb, Verb::Cas { .. } | Verb::Faa { .. })
                && self.is_data(&verb)
                && let Some(word) = words.next()
            {
                list.set_old(index, word);
            }
        }
        // The words are taken one by one: all of them must be looked at.
        words.for_each(drop);
        refused
    }

    /// The cost of a list: one more round trip if it has two halves, and its data once for each copy.
    pub(super) fn cost(&self, list: &WorkList) -> Tally {
        let mut cost = list.tally();
        if self.plain || list.reach() != Reach::All || !self.is_written_twice(list) {
            return cost;
        }
        let others = self.entry(list.server()).copies().count() as u64 - 1;
        cost.round_trips += 1;
        for verb in list.verbs().iter().filter(|verb| self.is_data(verb)) {
            match *verb {
                Verb::Write { len, .. } => {
                    cost.writes += others;
                    cost.bytes_written += others * u64::from(len);
                }
                Verb::Cas { .. } | Verb::Faa { .. } => cost.atomics += others,
                Verb::Read { .. } => {}
            }
        }
        cost
    }

    /// The outcome of the last part of a list, in terms of its volume. `before` says which copies had
    /// completed the first half, if there was one.
    pub(super) fn completed(
        &self,
        done: Result<WorkList, FabricError>,
        volume: u16,
        role: Role,
        before: Option<Roles>,
    ) -> Result<WorkList, FabricError> {
        match (done, before) {
            (Ok(mut list), _) => {
                list.route(volume);
                Ok(list)
            }
            (Err(error), Some(done)) if ends_identity(&error) => {
                let failed = Roles::NONE.with(role);
                Err(FabricError::CopyFailed { server: volume, progress: Progress { done, failed } })
            }
            (Err(error), _) => Err(self.named(error, volume)),
        }
    }

    /// The same error, with the volume's number in place of the copy's.
    pub(super) fn named(&self, error: FabricError, volume: u16) -> FabricError {
        let there = |address: GlobalAddress| GlobalAddress::new(volume, address.offset());
        match error {
            FabricError::Disconnected { .. } => FabricError::Disconnected { server: volume },
            FabricError::ServerLost { .. } => FabricError::Disconnected { server: volume },
            FabricError::SlowRead { .. } => FabricError::SlowRead { server: volume },
            FabricError::NoSuchServer { .. } => FabricError::NoSuchServer { server: volume },
            FabricError::OutOfBounds { space, address, len } => {
                FabricError::OutOfBounds { space, address: there(address), len }
            }
            FabricError::Misaligned { space, address } => {
                FabricError::Misaligned { space, address: there(address) }
            }
            error => error,
        }
    }
}

/// Whether an error means that a copy cannot be reached, or has fenced this client. Others are refusals of
/// bad input, which change nothing.
pub(super) fn ends_identity(error: &FabricError) -> bool {
    matches!(
        error,
        FabricError::Disconnected { .. }
            | FabricError::ServerLost { .. }
            | FabricError::Fenced { .. }
            | FabricError::EpochEnded { .. }
    )
}
