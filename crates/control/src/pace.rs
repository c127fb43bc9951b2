//! How long a thread that waits for sockets polls them before it sleeps. Clients and servers use the same
//! policy.
//!
//! A round trip takes 5 to 70 µs, and waking from a sleep takes as long again. So a thread polls its sockets
//! for about as long as its recent waits took. It yields the processor after each poll, since the thread that
//! it waits for may need it. If nothing arrives, it sleeps. Each sleep adjusts the time: after a short sleep
//! the thread spins longer next time, otherwise half as long. A client with nothing in flight does not spin:
//! it can only wait for a wake from another thread. A server without requests sleeps.
//!
//! With more runnable threads than processors, a yield may last for milliseconds, while a sleeping thread is
//! woken at once. Repeated long rounds show this. The thread then sleeps each time, and tries to spin again
//! only after longer and longer intervals. One long round proves nothing: an interrupt or the host of a
//! virtual machine takes a processor away now and then, and sleeping would only cost more.

use std::cell::Cell;

/// The longest spin, in nanoseconds. Beyond it, a sleep costs less than half of the wait.
const LONGEST: u64 = 100_000;
/// The shortest spin, in nanoseconds: a few polls of the sockets.
const SHORTEST: u64 = 2_000;
/// Rounds before the first yield.
const HASTY_ROUNDS: u32 = 2;
/// A round longer than this, in nanoseconds, counts as stolen: another thread had the processor.
const STOLEN: u64 = 40_000;
/// How many strikes a stolen round counts. At `OUT` strikes the thread gives up spinning. An undisturbed spin
/// removes one strike.
const STRIKE: u32 = 8;
const OUT: u32 = 3 * STRIKE;
/// How many waits then go without a spin: at first, and at most.
const CALM: (u32, u32) = (32, 4096);
/// Rounds of a thread with nothing in flight.
const IDLE_ROUNDS: u32 = 8;

/// How long to spin.
#[derive(Debug)]
pub struct Pace {
    budget: Cell<u64>,
    /// When the current spin began.
    began: Cell<u64>,
    /// When its last round began.
    last: Cell<u64>,
    /// Strikes against spinning.
    strikes: Cell<u32>,
    /// How many waits remain without a spin.
    calm: Cell<u32>,
    /// How many such waits the last penalty had.
    penalty: Cell<u32>,
}

impl Default for Pace {
    fn default() -> Self {
        let [began, last] = [0; 2].map(Cell::new);
        let [strikes, calm, penalty] = [0; 3].map(Cell::new);
        Self { budget: Cell::new(LONGEST / 2), began, last, strikes, calm, penalty }
    }
}

impl Pace {
    /// Whether to poll again, after `rounds` polls without a result.
    pub fn spins(&self, rounds: u32, in_flight: bool, now: impl FnOnce() -> u64) -> bool {
        if !in_flight {
            return rounds < IDLE_ROUNDS;
        }
        let now = now();
        if rounds == 0 {
            self.began.set(now);
            self.last.set(now);
        }
        let took = now.saturating_sub(self.last.replace(now));
        if rounds == 0 {
            if let Some(calm) = self.calm.get().checked_sub(1) {
                self.calm.set(calm);
                return false;
            }
            // Each new spin removes one strike and one wait of the penalty.
            self.penalty.set(self.penalty.get().saturating_sub(1));
            self.strikes.set(self.strikes.get().saturating_sub(1));
        }
        if took > STOLEN {
            let strikes = self.strikes.get() + STRIKE;
            if strikes >= OUT {
                // When spinning is tried again, one more stolen round ends it again.
                self.strikes.set(OUT);
                let penalty = (self.penalty.get() * 2).clamp(CALM.0, CALM.1);
                self.penalty.set(penalty);
                self.calm.set(penalty);
                return false;
            }
            self.strikes.set(strikes);
            // Time that another thread had on the processor does not count.
            self.began.set(now);
        }
        let spins = now.saturating_sub(self.began.get()) < self.budget.get();
        if spins && rounds >= HASTY_ROUNDS {
            std::thread::yield_now();
        }
        spins
    }

    /// Records that a sleep for an answer ended at `now`, with or without a spin before it.
    pub fn slept(&self, now: u64) {
        let waited = now.saturating_sub(self.began.get());
        let budget = if waited <= LONGEST { waited.saturating_mul(2) } else { self.budget.get() / 2 };
        self.budget.set(budget.clamp(SHORTEST, LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it spins, with one poll per microsecond.
    fn spin(pace: &Pace) -> u64 {
        (0..)
            .find(|round| !pace.spins(*round, true, || u64::from(*round) * 1_000))
            .map_or(0, |round| u64::from(round) * 1_000)
    }

    #[test]
    fn it_spins_as_long_as_answers_take() {
        let pace = Pace::default();
        for _ in 0..10 {
            spin(&pace);
            pace.slept(10_000);
        }
        assert_eq!(spin(&pace), 20_000);
        pace.slept(90_000);
        assert_eq!(spin(&pace), LONGEST);
    }

    #[test]
    fn it_gives_up_spinning_when_that_does_not_pay_and_takes_it_up_again() {
        let pace = Pace::default();
        for _ in 0..10 {
            spin(&pace);
            pace.slept(5_000_000);
        }
        assert_eq!(spin(&pace), SHORTEST);
        pace.slept(30_000);
        assert_eq!(spin(&pace), 60_000);
    }

    #[test]
    fn a_round_that_is_stolen_now_and_then_changes_nothing() {
        let pace = Pace::default();
        for _ in 0..100 {
            assert!(pace.spins(0, true, || 0) && pace.spins(1, true, || 1_000));
            assert!(pace.spins(2, true, || 1_001 + STOLEN), "one stolen round is enough to sleep");
            for _ in 0..STRIKE {
                assert!(pace.spins(0, true, || 0));
            }
        }
    }

    #[test]
    fn where_processors_are_few_it_sleeps_and_tries_again_ever_later() {
        let pace = Pace::default();
        let stolen = || {
            assert!(pace.spins(0, true, || 0) && pace.spins(1, true, || 1_000));
            !pace.spins(2, true, || 1_001 + STOLEN)
        };
        assert_eq!([stolen(), stolen(), stolen(), stolen()], [false, false, false, true]);
        let mut waits = Vec::new();
        for _ in 0..12 {
            waits.push((0..).find(|_| pace.spins(0, true, || 0)).unwrap_or(0));
            assert!(stolen(), "it was out already");
        }
        assert_eq!(waits[0], CALM.0);
        assert!(waits[1] > CALM.0 && waits[11] == CALM.1, "{waits:?}");
        for _ in 0..=CALM.1 {
            pace.spins(0, true, || 0);
        }
        for _ in 0..CALM.1 {
            assert!(pace.spins(0, true, || 0));
        }
        assert!(pace.spins(1, true, || 1 + STOLEN), "the past was not forgotten");
        assert_eq!((pace.calm.get(), pace.penalty.get()), (0, 0));
    }

    #[test]
    fn nothing_in_flight_is_nothing_to_spin_for() {
        let pace = Pace::default();
        assert!(pace.spins(0, false, || 0) && !pace.spins(IDLE_ROUNDS, false, || 0));
    }
}
