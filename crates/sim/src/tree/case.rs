//! One schedule to run: everything that a seed decides, or a smaller version of it.

use super::mishap::Mishap;
use std::fmt;

/// A schedule. Everything else that the seed decides (keys, operations, ages of caches) stays unchanged. So a
/// case with fewer operations or mishaps is the same case, only smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Decides scenario, knobs and scripts.
    pub seed: u64,
    /// Seeds the scheduler.
    pub schedule: u64,
    /// The most operations of each client. Clients beyond the end of the list run all of theirs.
    pub operations: Vec<u32>,
    /// The faults of the schedule.
    pub mishaps: Vec<Mishap>,
    /// The scheduler's picks, instead of a scheduler.
    pub picks: Option<Vec<u32>>,
}

impl Case {
    /// Returns the complete case of `seed`.
    pub fn of(seed: u64, mishaps: Vec<Mishap>) -> Self {
        Self { seed, schedule: seed, operations: Vec::new(), mishaps, picks: None }
    }

    /// Returns how many operations `client` may run.
    pub(super) fn operations_of(&self, client: u32) -> u32 {
        self.operations.get(client as usize).copied().unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        if self.schedule != self.seed {
            write!(f, ", scheduler seed {}", self.schedule)?;
        }
        if !self.operations.is_empty() {
            write!(f, ", operations {:?}", self.operations)?;
        }
        if let Some(picks) = &self.picks {
            write!(f, ", {} picks", picks.len())?;
        }
        for mishap in &self.mishaps {
            write!(f, "; {mishap}")?;
        }
        Ok(())
    }
}
