//! Judges how close the model comes to the paper.

use super::model::{Claim, Figure};
use serde::Serialize;
use std::fmt;

/// A factor up to this is close.
pub(super) const CLOSE: f64 = 1.5;
/// A factor up to this is apart; a larger factor is far.
pub(super) const FAR: f64 = 3.0;

/// The distance between a measured number and the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Within `CLOSE`.
    Close,
    /// Within `FAR`.
    Apart,
    /// Beyond `FAR`, of another sign, or not a number.
    Far,
}

impl Distance {
    /// Returns the distance of a claim.
    pub fn of(claim: &Claim) -> Self {
        match claim.factor() {
            factor if (1.0..=CLOSE).contains(&factor) => Self::Close,
            factor if (1.0..=FAR).contains(&factor) => Self::Apart,
            _ => Self::Far,
        }
    }

    /// Returns a word for the distance.
    pub fn word(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Apart => "apart",
            Self::Far => "far",
        }
    }
}

/// All judged claims together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Claims by which the model is judged.
    pub judged: usize,
    /// Judged claims within a factor of 1.5.
    pub within_1_5: usize,
    /// Judged claims beyond a factor of 3.
    pub beyond_3: usize,
}

impl Summary {
    /// Counts the claims of these figures.
    pub fn of(figures: &[Figure]) -> Self {
        let judged = figures.iter().flat_map(|figure| &figure.claims).filter(|claim| claim.judged);
        judged.map(Distance::of).fold(Self::default(), |sum, distance| Self {
            judged: sum.judged + 1,
            within_1_5: sum.within_1_5 + usize::from(distance == Distance::Close),
            beyond_3: sum.beyond_3 + usize::from(distance == Distance::Far),
        })
    }

    /// Returns the share of claims within a factor of 1.5, in whole percent.
    pub fn percent(&self) -> usize {
        (200 * self.within_1_5 + self.judged).checked_div(2 * self.judged).unwrap_or(0)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { judged, within_1_5, beyond_3 } = self;
        write!(
            f,
            "judged {judged}, within {CLOSE}: {within_1_5} ({} %), beyond {FAR}: {beyond_3}",
            self.percent()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(paper: f64, measured: f64) -> Claim {
        let (key, what) = (String::new(), String::new());
        Claim { key, what, paper, measured, unit: "", judged: true }
    }

    #[test]
    fn distances_are_symmetric_and_nothing_odd_is_close() {
        for (paper, measured, distance) in [
            (2.0, 2.0, Distance::Close),
            (2.0, 3.0, Distance::Close),
            (3.0, 2.0, Distance::Close),
            (1.0, 3.0, Distance::Apart),
            (1.0, 3.1, Distance::Far),
            (3.1, 1.0, Distance::Far),
            (1.0, -1.0, Distance::Far),
            (1.0, 0.0, Distance::Far),
            (0.0, 1.0, Distance::Far),
            (1.0, f64::NAN, Distance::Far),
        ] {
            assert_eq!(Distance::of(&claim(paper, measured)), distance, "{paper} {measured}");
        }
    }

    #[test]
    fn percents_are_rounded_and_nothing_judged_is_none() {
        let summary = |judged, within_1_5| Summary { judged, within_1_5, beyond_3: 0 }.percent();
        assert_eq!([summary(0, 0), summary(3, 2), summary(3, 1), summary(8, 8)], [0, 67, 33, 100]);
    }
}
