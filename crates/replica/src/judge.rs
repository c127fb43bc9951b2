//! What became of a change whose list failed, by the table that followed (rule E3).
//!
//! The identity of the client has ended in order: its lease never ran out, and no list of it is in flight to
//! a copy that the new table names. Its recoverers make all copies agree with the new primary. So the new
//! primary decides.

use crate::table::{VolumeEntry, VolumeTable};
use sherman_fabric::{Progress, Role};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It happened: the copy that is the primary now completed the list.
    Happened,
    /// It did not happen: no verb of the list was posted to a copy that the new table names.
    NotHappened,
    /// A surviving copy may have executed any part of the list.
    Unknown,
}

/// What became of a change of `volume`. `former` has the copies that the client wrote, `now` is the table
/// that ended its identity, `progress` says how far the list that decides the change got.
pub fn judge(former: &VolumeEntry, now: &VolumeTable, volume: u16, progress: Progress) -> Judgement {
    let Some(entry) = now.volume(volume) else { return Judgement::Unknown };
    #[cfg(feature = "mutants")]
    let progress = crate::mutant::settle(progress);
    let primary = entry.primary.and_then(|copy| former.role(copy));
    if primary.is_some_and(|role| progress.done.has(role)) {
        return Judgement::Happened;
    }
    let survives = |role: Role| former.copy(role).is_some_and(|copy| entry.role(copy).is_some());
    if Role::ALL.into_iter().any(|role| survives(role) && progress.touched(role)) {
        return Judgement::Unknown;
    }
    // Nothing is left that could say what happened.
    if entry.primary.is_none() { Judgement::Unknown } else { Judgement::NotHappened }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::CopySite;
    use sherman_fabric::Roles;

    const FORMER: VolumeEntry = VolumeEntry { primary: Some(0), backup: Some(1), joining: None, open: true };

    fn after(primary: Option<u16>, backup: Option<u16>) -> VolumeTable {
        let sites = (0..3).map(|host| CopySite { host, incarnation: 0 }).collect();
        let entry = VolumeEntry { primary, backup, joining: None, open: false };
        VolumeTable::new(2, sites, vec![entry]).expect("a legal table")
    }

    fn progress(done: &[Role], failed: &[Role]) -> Progress {
        let set = |roles: &[Role]| roles.iter().fold(Roles::NONE, |set, &role| set.with(role));
        Progress { done: set(done), failed: set(failed) }
    }

    #[test]
    fn a_single_loss_leaves_no_doubt() {
        use Judgement::{Happened, NotHappened};
        use Role::{Backup, Primary};
        let (promoted, alone) = (after(Some(1), None), after(Some(0), None));
        // The primary is lost.
        assert_eq!(judge(&FORMER, &promoted, 0, progress(&[Backup], &[Primary])), Happened);
        assert_eq!(judge(&FORMER, &promoted, 0, progress(&[Backup, Primary], &[])), Happened);
        assert_eq!(judge(&FORMER, &promoted, 0, progress(&[], &[])), NotHappened);
        // The backup is lost: the primary's part was never posted.
        assert_eq!(judge(&FORMER, &alone, 0, progress(&[], &[Backup])), NotHappened);
        assert_eq!(judge(&FORMER, &alone, 0, progress(&[Backup, Primary], &[])), Happened);
    }

    #[test]
    fn a_failure_at_a_surviving_copy_settles_nothing() {
        use Role::{Backup, Primary};
        let unknown = |now: VolumeTable, progress| judge(&FORMER, &now, 0, progress) == Judgement::Unknown;
        assert!(unknown(after(Some(1), None), progress(&[], &[Backup])));
        assert!(unknown(after(Some(0), Some(1)), progress(&[Backup], &[Primary])));
        assert!(unknown(after(Some(0), Some(1)), progress(&[], &[Backup])));
        assert!(unknown(after(None, None), progress(&[Backup], &[Primary])));
        assert!(unknown(VolumeTable::default(), progress(&[], &[])));
        // The primary is lost, and another copy of it has taken the place.
        assert_eq!(judge(&FORMER, &after(Some(2), None), 0, progress(&[], &[])), Judgement::NotHappened);
    }
}
