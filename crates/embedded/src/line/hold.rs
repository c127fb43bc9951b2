//! Holders of lines: the odd word of a holder, what it saves about the line it holds, and how long it waits
//! for a line.

use sherman_fabric::ComputeId;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Number of looks at a held line before each further look yields.
const SPINS: u32 = 64;
/// Number of looks at a held line between two reads of the clock.
const LOOKS: u32 = 256;

/// Waits a little longer each time.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
    /// The watched value, and the time since when it has not changed.
    watched: Option<(u64, Instant)>,
}

impl Backoff {
    /// Spins, or yields after the first rounds.
    #[inline]
    pub fn wait(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds < SPINS && !cfg!(miri) {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    /// Waits for something else than before: the watched value is forgotten.
    #[inline]
    pub fn wait_again(&mut self) {
        self.watched = None;
        self.wait();
    }

    /// Waits, and says whether `what` has returned the same value for longer than `patience`. It calls `what`
    /// only now and then, so that a short wait does not read the clock.
    #[inline]
    pub fn wait_for(&mut self, patience: Duration, what: impl FnOnce() -> u64) -> bool {
        self.wait();
        if self.rounds < SPINS || !self.rounds.is_multiple_of(LOOKS) {
            return false;
        }
        let (seen, now) = (what(), Instant::now());
        match self.watched {
            Some((before, since)) if before == seen => now.duration_since(since) > patience,
            _ => {
                self.watched = Some((seen, now));
                false
            }
        }
    }
}

/// A live client holds a line and makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The client that holds the line.
    pub client: ComputeId,
}

/// Takes lines, one at a time.
pub trait Holder: fmt::Debug {
    /// Why the holder cannot take a line.
    type Stalled;

    /// The odd word of a line that this holder takes from `even`.
    fn odd(&self, even: u32) -> u32;

    /// Called just before the holder tries to take `line` from `even`.
    fn takes(&self, line: usize, even: u32);

    /// Called just before the holder changes more than one of `words`, the words of the line it holds. Its
    /// stores come before the first of those changes, so that a recoverer sees them after the holder's death.
    fn changes(&self, words: &[AtomicU64]);

    /// Waits a little for a line whose word was `seen`, or reports that waiting is useless.
    fn wait(&self, backoff: &mut Backoff, seen: u32) -> Result<(), Self::Stalled>;
}

/// The holder where only one process takes lines. It saves nothing, because no thread outlives the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone;

impl Holder for Alone {
    type Stalled = Infallible;

    #[inline]
    fn odd(&self, even: u32) -> u32 {
        even | 1
    }

    #[inline]
    fn takes(&self, _: usize, _: u32) {}

    #[inline]
    fn changes(&self, _: &[AtomicU64]) {}

    #[inline]
    fn wait(&self, backoff: &mut Backoff, _: u32) -> Result<(), Infallible> {
        backoff.wait();
        Ok(())
    }
}

/// Unwraps a result that cannot be an error.
#[inline]
pub(crate) fn unstalled<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
