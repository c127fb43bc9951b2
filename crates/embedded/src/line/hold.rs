//! Who takes lines: what its odd word is, what it keeps about the line it holds, and how long it waits for one.

use sherman_fabric::ClientId;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Looks at a held line before each look costs a yield.
const SPINS: u32 = 64;
/// Looks at a held line between two looks at the clock.
const LOOKS: u32 = 256;

/// Waits a little longer each time.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
    /// What has stood still since when.
    watched: Option<(u64, Instant)>,
}

impl Backoff {
    /// Waits.
    #[inline]
    pub fn wait(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds < SPINS && !cfg!(miri) {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    /// Waits for something else than before.
    #[inline]
    pub fn wait_anew(&mut self) {
        self.watched = None;
        self.wait();
    }

    /// Waits; says whether `what` has answered the same for longer than `patience`. It is asked now and then only, so that a short
    /// wait costs no look at the clock.
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

/// Somebody alive holds a line and does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// Who.
    pub client: ClientId,
}

/// Somebody who takes lines, one at a time.
pub trait Holder: fmt::Debug {
    /// Why a line cannot be had.
    type Stalled;

    /// The odd word of a line that it takes from `even`.
    fn odd(&self, even: u32) -> u32;

    /// It is about to try to take `line` from `even`.
    fn takes(&self, line: usize, even: u32);

    /// It is about to change more than one of `words`, those of the line it holds. What is done here comes before the first
    /// of those changes, for whoever looks on after its death.
    fn changes(&self, words: &[AtomicU64]);

    /// Waits a little for a line whose word was `seen`, or says that it is no use.
    fn wait(&self, backoff: &mut Backoff, seen: u32) -> Result<(), Self::Stalled>;
}

/// Whoever takes lines where nobody else can: nothing needs to be kept, since nobody outlives the holder.
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

/// What cannot fail.
#[inline]
pub(crate) fn unstalled<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
