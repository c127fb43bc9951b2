//! Broken rules of replication (`crate::seam`).

use super::Replicas;
use crate::error::Error;
use crate::mutant::{Mutant, planted};
use std::sync::atomic::Ordering::Relaxed;

/// Takes every lease for a valid one, or every lease that was valid once.
pub(super) fn is_valid(replicas: &Replicas) -> Option<bool> {
    let once = planted(Mutant::LeaseCheckedOnce) && replicas.lease_until.load(Relaxed) > 0;
    (planted(Mutant::LeaseUnchecked) || once).then_some(true)
}

/// Uses closed volumes.
pub(super) fn look_until_open() -> Option<Result<(), Error>> {
    planted(Mutant::ClosedUsed).then_some(Ok(()))
}

/// Believes the lanes of a promoted copy.
pub(super) fn lost_lanes() -> Option<bool> {
    planted(Mutant::LostLanesBelieved).then_some(false)
}
