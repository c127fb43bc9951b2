//! Broken rules of membership (`crate::seam`).

use crate::mutant::{Mutant, planted};
use sherman_fabric::FabricError;

pub(super) fn is_fatal(error: &FabricError) -> Option<bool> {
    let disconnected = matches!(error, FabricError::Disconnected { .. });
    (disconnected && planted(Mutant::PrivateLoss)).then_some(false)
}

pub(crate) fn may_take_lanes() -> Option<bool> {
    planted(Mutant::ActiveUnknown).then_some(true)
}
