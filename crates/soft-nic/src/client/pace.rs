//! How long to spin for an answer, and how to be woken from the sleep that follows.
//!
//! A round trip takes 5 to 70 µs, to be woken from a sleep as much again. So a thread asks its sockets over and over for
//! about as long as answers have taken lately, yielding the processor each time, since who is to answer may need it; and
//! sleeps when that was in vain. Each sleep teaches: if the answer came soon after all, the next time it spins for longer; if
//! not, for half as long. A thread with nothing in flight does not spin: nothing will come but a wake from another thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use sherman_executor::Unpark;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest spin, in nanoseconds: beyond it a sleep costs less than half of the wait.
const LONGEST: u64 = 100_000;
/// The shortest: a few looks at the sockets.
const SHORTEST: u64 = 2_000;
/// Rounds before the first yield.
const HASTY_ROUNDS: u32 = 2;
/// Rounds of a thread with nothing in flight.
const IDLE_ROUNDS: u32 = 8;

/// How long to spin.
#[derive(Debug)]
pub(crate) struct Pace {
    budget: Cell<u64>,
    /// When the present spin began.
    began: Cell<u64>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { budget: Cell::new(LONGEST / 2), began: Cell::new(0) }
    }

    /// Whether to look again, after so many rounds in vain.
    pub(crate) fn spins(&self, rounds: u32, in_flight: bool, now: impl FnOnce() -> u64) -> bool {
        if !in_flight {
            return rounds < IDLE_ROUNDS;
        }
        let now = now();
        if rounds == 0 {
            self.began.set(now);
        }
        let spins = now.saturating_sub(self.began.get()) < self.budget.get();
        if spins && rounds >= HASTY_ROUNDS {
            std::thread::yield_now();
        }
        spins
    }

    /// A sleep for an answer, after a spin in vain, ended at `now`.
    pub(crate) fn slept(&self, now: u64) {
        let waited = now.saturating_sub(self.began.get());
        let budget = if waited <= LONGEST { waited.saturating_mul(2) } else { self.budget.get() / 2 };
        self.budget.set(budget.clamp(SHORTEST, LONGEST));
    }
}

/// An event counter: what a thread that sleeps on sockets is woken by.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Forgets that it was rung.
    pub(crate) fn hush(&self) {
        // Nothing to forget is no harm.
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl Unpark for Bell {
    fn unpark(&self) {
        // It fails only if it was rung 2^64 - 2 times since it was last hushed.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
    fn nothing_in_flight_is_nothing_to_spin_for() {
        let pace = Pace::new();
        assert!(pace.spins(0, false, || 0) && !pace.spins(IDLE_ROUNDS, false, || 0));
    }

    #[test]
    fn a_bell_that_was_rung_before_is_heard() {
        let bell = Bell::new().unwrap();
        let heard = |bell: &Bell| {
            let mut fds = [rustix::event::PollFd::new(bell, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(!heard(&bell));
        bell.unpark();
        bell.unpark();
        assert!(heard(&bell));
        bell.hush();
        assert!(!heard(&bell));
        bell.hush();
    }
}
