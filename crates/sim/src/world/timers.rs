//! Timers in virtual time.

use std::collections::BTreeMap;
use std::task::Waker;

/// Wakers by due time. Equal registrations are stored once, so a task that registers again on every poll
/// costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeMap<(u64, u32), Waker>,
    /// The earliest time, or `u64::MAX` if there is none.
    next: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { due: BTreeMap::new(), next: u64::MAX }
    }

    pub(crate) fn clear(&mut self) {
        self.due.clear();
        self.next = u64::MAX;
    }

    pub(crate) fn add(&mut self, at: u64, waker: &Waker) {
        let mut number = 0;
        for (&(_, n), known) in self.due.range((at, 0)..=(at, u32::MAX)) {
            if known.will_wake(waker) {
                return;
            }
            number = n + 1;
        }
        self.due.insert((at, number), waker.clone());
        self.next = self.next.min(at);
    }

    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Wakes every task due at `now`.
    #[inline]
    pub(crate) fn fire(&mut self, now: u64) {
        while self.next <= now {
            let Some((_, waker)) = self.due.pop_first() else { break };
            waker.wake();
            self.next = self.due.first_key_value().map_or(u64::MAX, |(&(at, _), _)| at);
        }
    }

    /// Returns the times, for the hash of the state.
    pub(crate) fn times(&self) -> impl Iterator<Item = u64> {
        self.due.keys().map(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Flag;
    use std::sync::Arc;

    #[test]
    fn everyone_due_is_woken_once_and_nobody_else() {
        let flags: Vec<Arc<Flag>> = (0..3).map(|_| Arc::default()).collect();
        let wakers: Vec<Waker> = flags.iter().map(|flag| Waker::from(Arc::clone(flag))).collect();
        let mut timers = Timers::new();
        for (at, who) in [(20, 0), (20, 1), (20, 1), (30, 2), (10, 0)] {
            timers.add(at, &wakers[who]);
        }
        assert_eq!(timers.times().collect::<Vec<_>>(), [10, 20, 20, 30]);
        let mut woken = |now| {
            timers.fire(now);
            flags.iter().map(|flag| flag.take()).collect::<Vec<_>>()
        };
        assert_eq!(woken(9), [false; 3]);
        assert_eq!(woken(10), [true, false, false]);
        assert_eq!(woken(29), [true, true, false]);
        assert_eq!(woken(30), [false, false, true]);
        assert!(timers.is_empty() && timers.next() == u64::MAX);
    }
}
