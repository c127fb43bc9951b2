//! How long a thread that waits for sockets looks again before it sleeps: one policy for clients and servers.
//!
//! A round trip takes 5 to 70 µs, to be woken from a sleep as much again. So a thread asks its sockets over and over for
//! about as long as it has had to wait lately, yielding the processor each time, since who is waited for may need it; and
//! sleeps when that was in vain. Each sleep teaches: if it was over soon after all, the next time the thread spins for longer;
//! if not, for half as long. A client with nothing in flight does not spin: nothing will come but a wake from another thread.
//! A server to which nobody talks sleeps.
//!
//! Where more threads want to run than there are processors, a yield may last for milliseconds, while who sleeps is woken at
//! once. That shows in how long a round takes, time and again: then the thread sleeps each time, and tries again to spin only
//! after ever longer intervals. One such round proves nothing: an interrupt or the host of a virtual machine takes a processor
//! away now and then, and to sleep meanwhile would only cost more.

use std::cell::Cell;

/// The longest spin, in nanoseconds: beyond it a sleep costs less than half of the wait.
const LONGEST: u64 = 100_000;
/// The shortest: a few looks at the sockets.
const SHORTEST: u64 = 2_000;
/// Rounds before the first yield.
const HASTY_ROUNDS: u32 = 2;
/// A round that takes longer than this, in nanoseconds, was somebody else's.
const STOLEN: u64 = 40_000;
/// How much a stolen round counts against spinning, and from where on it is given up. A spin that nobody disturbs counts one
/// in its favour.
const STRIKE: u32 = 8;
const OUT: u32 = 3 * STRIKE;
/// Waits without a spin after that: at first, and at most.
const CALM: (u32, u32) = (32, 4096);
/// Rounds of a thread with nothing in flight.
const IDLE_ROUNDS: u32 = 8;

/// How long to spin.
#[derive(Debug)]
pub(crate) struct Pace {
    budget: Cell<u64>,
    /// When the present spin began.
    began: Cell<u64>,
    /// When its last round did.
    last: Cell<u64>,
    /// What there is against spinning.
    strikes: Cell<u32>,
    /// Waits to go without a spin.
    calm: Cell<u32>,
    /// How many there were the last time.
    penalty: Cell<u32>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let [began, last] = [0; 2].map(Cell::new);
        let [strikes, calm, penalty] = [0; 3].map(Cell::new);
        Self { budget: Cell::new(LONGEST / 2), began, last, strikes, calm, penalty }
    }

    /// Whether to look again, after so many rounds in vain.
    pub(crate) fn spins(&self, rounds: u32, in_flight: bool, now: impl FnOnce() -> u64) -> bool {
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
            // A spin that nobody disturbs makes up for one that somebody did.
            self.penalty.set(self.penalty.get().saturating_sub(1));
            self.strikes.set(self.strikes.get().saturating_sub(1));
        }
        if took > STOLEN {
            let strikes = self.strikes.get() + STRIKE;
            if strikes >= OUT {
                // Once more, when spinning is tried again, and it is given up again.
                self.strikes.set(OUT);
                let penalty = (self.penalty.get() * 2).clamp(CALM.0, CALM.1);
                self.penalty.set(penalty);
                self.calm.set(penalty);
                return false;
            }
            self.strikes.set(strikes);
            // Whoever had the processor had this time too.
            self.began.set(now);
        }
        let spins = now.saturating_sub(self.began.get()) < self.budget.get();
        if spins && rounds >= HASTY_ROUNDS {
            std::thread::yield_now();
        }
        spins
    }

    /// A sleep for an answer, after a spin in vain or none, ended at `now`.
    pub(crate) fn slept(&self, now: u64) {
        let waited = now.saturating_sub(self.began.get());
        let budget = if waited <= LONGEST { waited.saturating_mul(2) } else { self.budget.get() / 2 };
        self.budget.set(budget.clamp(SHORTEST, LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it spins, looking every microsecond.
    fn spin(pace: &Pace) -> u64 {
        (0..)
            .find(|round| !pace.spins(*round, true, || u64::from(*round) * 1_000))
            .map_or(0, |round| u64::from(round) * 1_000)
    }

    #[test]
    fn it_spins_as_long_as_answers_take() {
        let pace = Pace::new();
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
        let pace = Pace::new();
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
        let pace = Pace::new();
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
        let pace = Pace::new();
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
        let pace = Pace::new();
        assert!(pace.spins(0, false, || 0) && !pace.spins(IDLE_ROUNDS, false, || 0));
    }
}
