//! Records the picks of a schedule, and replays them.

use super::Scheduler;
use crate::choice::Choice;

/// Wraps another scheduler and records its picks, which name the schedule for [`Replay`].
#[derive(Debug)]
pub struct Recording<S> {
    inner: S,
    picks: Vec<u32>,
}

impl<S: Scheduler> Recording<S> {
    /// Records the picks of `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, picks: Vec::new() }
    }

    /// Returns the picks so far.
    pub fn picks(&self) -> &[u32] {
        &self.picks
    }

    /// Returns all picks.
    pub fn into_picks(self) -> Vec<u32> {
        self.picks
    }
}

impl<S: Scheduler> Scheduler for Recording<S> {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        let at = self.inner.pick(choices);
        self.picks.push(at as u32);
        at
    }

    fn wants_state(&self) -> bool {
        self.inner.wants_state()
    }

    fn enter(&mut self, state: u64) -> bool {
        self.inner.enter(state)
    }
}

/// Replays given picks, then picks 0 when they are used up. An index that is out of range (the program has
/// changed) wraps around, so that a shortened schedule is still a schedule.
#[derive(Clone, Debug)]
pub struct Replay {
    picks: Vec<u32>,
    at: usize,
}

impl Replay {
    /// Replays `picks`.
    pub fn new(picks: Vec<u32>) -> Self {
        Self { picks, at: 0 }
    }
}

impl Scheduler for Replay {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        let pick = self.picks.get(self.at).copied().unwrap_or(0) as usize;
        self.at += 1;
        pick % choices.len()
    }
}
