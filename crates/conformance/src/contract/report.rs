//! The results of the suite.

use std::fmt;

/// A rule of the contract. `docs/FABRIC.md` has the full text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// An aligned unit is read and written atomically.
    F1,
    /// A READ's units are fetched at any time between post and completion, and at no other.
    F2,
    /// One endpoint's lists to one server execute in order.
    F3,
    /// CAS and FAA are atomic against each other.
    F4,
    /// A completion suffices for a hand-over.
    F5,
    /// Nothing of a fenced client executes.
    F6,
    /// A list that ends in error took effect as a prefix.
    F7,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An act of a backend that the contract forbids, or its failure to act in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The broken rule.
    pub rule: Rule,
    /// The scenario that saw it.
    pub scenario: &'static str,
    /// What the scenario saw, and what the rule allows.
    pub detail: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken in {}: {}", self.rule, self.scenario, self.detail)
    }
}

impl std::error::Error for Breach {}

/// The outcome of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No breach was seen.
    Passed {
        /// Number of runs.
        runs: u32,
    },
    /// The backend's caps, or the scratch memory, leave nothing to test.
    Skipped {
        /// The reason.
        reason: String,
    },
    /// The backend broke the contract.
    Breached {
        /// The breach.
        breach: Breach,
        /// The seed of the run that showed it, for [`replay`](super::replay).
        seed: u64,
    },
}

/// One scenario's line in a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The scenario.
    pub scenario: &'static str,
    /// The rule that the scenario tests.
    pub rule: Rule,
    /// The scenario's outcome.
    pub outcome: Outcome,
}

/// The results of the suite, scenario by scenario, in the order of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry for each scenario.
    pub entries: Vec<Entry>,
}

impl Report {
    /// Whether at least one scenario passed and none saw a breach. Skipped scenarios tested nothing: see
    /// [`Report::skipped`].
    pub fn is_clean(&self) -> bool {
        let tested = self.entries.iter().any(|entry| matches!(entry.outcome, Outcome::Passed { .. }));
        tested && self.breaches().next().is_none()
    }

    /// The breaches.
    pub fn breaches(&self) -> impl Iterator<Item = &Breach> {
        self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Breached { breach, .. } => Some(breach),
            _ => None,
        })
    }

    /// The scenarios that could not run, and why. A backend's own test should state which ones it expects.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Skipped { reason } => Some((entry.scenario, reason.as_str())),
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry { scenario, rule, outcome } in &self.entries {
            match outcome {
                Outcome::Passed { runs } => writeln!(f, "{rule} {scenario}: passed, runs: {runs}")?,
                Outcome::Skipped { reason } => writeln!(f, "{rule} {scenario}: skipped, {reason}")?,
                Outcome::Breached { breach, seed } => {
                    writeln!(f, "{rule} {scenario}: BREACH, seed {seed:#x}: {breach}")?
                }
            }
        }
        Ok(())
    }
}
