//! Whether to look again before going to sleep.
//!
//! To be woken costs tens of microseconds; to look again costs a core. So a shard that finds nothing looks again for a
//! while, with yields, since cores may be few and the client that is waited for may need this one. Whether that pays is
//! learnt: a look that finds something makes the next wait longer, one that does not makes it shorter, down to nothing. A
//! server that nobody talks to thus sleeps.

use std::time::Duration;

/// How long looking again is worth while.
#[derive(Debug)]
pub(super) struct Spin {
    micros: u32,
    /// Sleeps since looking again was given up.
    sleeps: u32,
}

impl Spin {
    const LEAST: u32 = 4;
    const MOST: u32 = 64;
    /// After so many sleeps without a look, one is tried: times may have changed.
    const PROBE: u32 = 64;

    pub(super) fn new() -> Self {
        Self { micros: Self::MOST / 2, sleeps: 0 }
    }

    /// How long to look before the next sleep.
    pub(super) fn window(&mut self) -> Duration {
        if self.micros == 0 {
            self.sleeps += 1;
            if self.sleeps >= Self::PROBE {
                (self.sleeps, self.micros) = (0, Self::LEAST);
            }
        }
        Duration::from_micros(self.micros.into())
    }

    /// The last window found something, or nothing.
    pub(super) fn learn(&mut self, paid: bool) {
        self.micros = match (paid, self.micros) {
            (true, micros) => (micros * 2).clamp(Self::LEAST, Self::MOST),
            (false, micros) if micros <= Self::LEAST => 0,
            (false, micros) => micros / 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_that_does_not_pay_is_given_up_and_tried_again_rarely() {
        let mut spin = Spin::new();
        let looks = (0..1000).filter(|_| {
            let looked = !spin.window().is_zero();
            if looked {
                spin.learn(false);
            }
            looked
        });
        assert!((4..30).contains(&looks.count()));
        for _ in 0..200 {
            if !spin.window().is_zero() {
                spin.learn(true);
            }
        }
        assert_eq!(spin.window(), Duration::from_micros(Spin::MOST.into()));
    }
}
