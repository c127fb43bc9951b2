//! Broken rules of shared READs (`crate::seam`).

use super::rounds::Stage;
use crate::mutant::{Mutant, planted};

/// Lets a get join a round whose READ is posted.
pub(super) fn may_join(stage: Stage) -> Option<bool> {
    planted(Mutant::AdoptsEarlierRead).then_some(!matches!(stage, Stage::Read | Stage::Failed))
}

/// Lets a get join a round of other lines.
pub(super) fn serves() -> Option<bool> {
    planted(Mutant::OtherLines).then_some(true)
}

/// Does not tell the waiters that the poster gave up.
pub(super) fn tell(bytes: Option<&[u8]>) -> Option<()> {
    (bytes.is_none() && planted(Mutant::WaitersLeft)).then_some(())
}
