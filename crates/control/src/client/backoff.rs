//! The pauses of a client that a crowded server turned away.
//!
//! Thousands of clients may be turned away at the same moment. Equal pauses would bring them back together,
//! again and again, so each pause has random jitter.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// The first pause. Each pause is twice as long as the one before, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(4);
/// The longest pause.
const LONGEST: Duration = Duration::from_millis(500);

/// The pauses before retries, in their order.
#[derive(Debug)]
pub(super) struct Backoff {
    last: Duration,
    first: Duration,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::between(FIRST, LONGEST)
    }
}

impl Backoff {
    /// Pauses that begin with `first` and grow to `longest`.
    pub(super) const fn between(first: Duration, longest: Duration) -> Self {
        Self { last: Duration::ZERO, first, longest }
    }

    /// The next pause is the first one again.
    pub(super) fn reset(&mut self) {
        self.last = Duration::ZERO;
    }

    /// The next pause: between half and all of its nominal length.
    pub(super) fn next(&mut self) -> Duration {
        self.last = (2 * self.last).clamp(self.first, self.longest);
        self.last / 2 + (self.last / 2).mul_f64(random())
    }
}

/// A number from 0 to 1, from the standard library's source of randomness.
fn random() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound() {
        let (mut backoff, mut whole) = (Backoff::default(), FIRST);
        for _ in 0..20 {
            let pause = backoff.next();
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
            whole = (2 * whole).min(LONGEST);
        }
    }

    #[test]
    fn clients_that_are_turned_away_together_come_back_apart() {
        let late = |_| (0..8).map(|_| 0).scan(Backoff::default(), |backoff, _| Some(backoff.next())).sum();
        let mut returns: Vec<Duration> = (0..1_000).map(late).collect();
        returns.sort();
        // Eight pauses take 508 to 1,016 ms. Without jitter all clients would come back in the same moment.
        let most = (0..returns.len()).map(|first| {
            returns.partition_point(|at| *at < returns[first] + Duration::from_millis(10)) - first
        });
        assert!(most.max().is_some_and(|most| most < 100), "{returns:?}");
    }
}
