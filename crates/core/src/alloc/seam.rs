//! Broken rules of allocation (`crate::seam`).

use super::FIRST_VERSION;
use crate::mutant::{Mutant, planted};

pub(super) fn next_version() -> Option<u16> {
    planted(Mutant::StampNotContinued).then_some(FIRST_VERSION)
}

pub(super) fn is_same_acquisition() -> Option<bool> {
    planted(Mutant::FreedTwice).then_some(true)
}

pub(super) fn is_idle() -> Option<bool> {
    planted(Mutant::SpanBackEarly).then_some(true)
}
