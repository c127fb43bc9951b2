//! How many copies a host makes at the same time, and how far each of them is.

use sherman_fabric::group::CopyProgress;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many copies a host compares and sends at the same time. More would not be quicker, and would leave the
/// clients less of the processors and of the network.
const BENCHES: usize = 4;

/// What the threads of a host that make copies share.
#[derive(Debug, Default)]
pub(crate) struct Workshop(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    busy: usize,
    progress: BTreeMap<u16, CopyProgress>,
}

/// The right to compare and send. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Bench(Arc<Workshop>);

impl Workshop {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A right, if one is left.
    pub(super) fn take(self: &Arc<Self>) -> Option<Bench> {
        let mut state = self.lock();
        if state.busy >= BENCHES {
            return None;
        }
        state.busy += 1;
        Some(Bench(Arc::clone(self)))
    }

    /// Notes how far a copy is. It began then.
    pub(super) fn note(&self, copy: u16, (done, total): (u64, u64), began: Instant) {
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.lock().progress.insert(copy, CopyProgress { copy, done, total, millis });
    }

    /// Forgets a copy.
    pub(super) fn forget(&self, copy: u16) {
        self.lock().progress.remove(&copy);
    }

    /// How far every copy is.
    pub(crate) fn progress(&self) -> Vec<CopyProgress> {
        self.lock().progress.values().copied().collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_few_copies_are_made_at_the_same_time() {
        let workshop = Arc::<Workshop>::default();
        let mut benches: Vec<Bench> = (0..BENCHES).filter_map(|_| workshop.take()).collect();
        assert_eq!(benches.len(), BENCHES);
        assert!(workshop.take().is_none());
        benches.pop();
        assert!(workshop.take().is_some());
    }

    #[test]
    fn progress_is_known_until_the_copy_is_made() {
        let workshop = Workshop::default();
        workshop.note(4, (1, 3), Instant::now());
        workshop.note(4, (2, 3), Instant::now());
        let known: Vec<_> = workshop.progress().iter().map(|one| (one.copy, one.done, one.total)).collect();
        assert_eq!(known, [(4, 2, 3)]);
        workshop.forget(4);
        assert!(workshop.progress().is_empty());
    }
}
