//! Broken rules of replication (`crate::seam`).

use crate::error::Error;
use crate::mutant::{Mutant, planted};

/// Takes every lease for a valid one.
pub(super) fn is_valid() -> Option<bool> {
    planted(Mutant::LeaseUnchecked).then_some(true)
}

/// Uses closed volumes.
pub(super) fn look_until_open() -> Option<Result<(), Error>> {
    planted(Mutant::ClosedUsed).then_some(Ok(()))
}
