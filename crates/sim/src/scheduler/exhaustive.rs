//! Every schedule of a small world: depth-first search by replay.
//!
//! The search saves and restores no state. Each execution starts again, repeats the picks of the current
//! prefix, and takes the first choice at every new point. Then the search advances the last point with an
//! untried choice. Before each step the world passes a hash of its *state*: memory, verbs in flight, and per
//! compute server everything ever delivered to its tasks. Two prefixes that reach equal states have equal
//! futures, so the second is pruned. Commuting events merge in this way.
//!
//! This requires that tasks are deterministic, and that they share nothing outside the fabric except within
//! one compute server or through [`Sim::note`](crate::Sim::note). One error is possible: a collision of
//! 64-bit hashes hides a state. Its probability is n²/2^65 for n states, below one in 10^7 up to a million
//! states.

use super::Scheduler;
use crate::choice::Choice;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The bounds of the search. [`Report`] counts what they cut off.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most picks in one execution. The search abandons deeper executions and counts them as truncated.
    pub depth: usize,
    /// Most executions.
    pub executions: u64,
    /// Whether equal states are merged.
    pub merge: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { depth: 10_000, executions: 10_000_000, merge: true }
    }
}

/// The counts of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Executions started.
    pub executions: u64,
    /// Distinct states entered (0 without merging).
    pub states: u64,
    /// Executions that ended in a state already known.
    pub pruned: u64,
    /// Executions cut by a bound: [`Bounds::depth`], or [`Exhaustive::truncate`] for the world's own limits.
    pub truncated: u64,
    /// The most picks in one execution.
    pub deepest: usize,
    /// Whether the search has tried everything. With `truncated` 0, it has covered every schedule.
    pub finished: bool,
}

/// A hasher that does nothing: state hashes are already mixed.
#[derive(Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[derive(Clone, Copy, Debug)]
struct Point {
    taken: u32,
    of: u32,
}

/// The search. Use: `while search.begin() { sim.rewind(); …spawn…; sim.run(&mut search); …check… }`.
#[derive(Debug)]
pub struct Exhaustive {
    bounds: Bounds,
    path: Vec<Point>,
    depth: usize,
    known: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    report: Report,
}

impl Exhaustive {
    /// Creates a search that has not begun.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, path: Vec::new(), depth: 0, known: HashMap::default(), report: Report::default() }
    }

    /// Moves to the next execution. Returns false if there is none, or if the bound on executions is reached.
    pub fn begin(&mut self) -> bool {
        if self.report.finished {
            return false;
        }
        if self.report.executions > 0 {
            self.path.truncate(self.depth);
            while self.path.last().is_some_and(|point| point.taken + 1 == point.of) {
                self.path.pop();
            }
            match self.path.last_mut() {
                Some(point) => point.taken += 1,
                None => {
                    self.report.finished = true;
                    return false;
                }
            }
        }
        if self.report.executions == self.bounds.executions {
            return false;
        }
        self.report.executions += 1;
        self.depth = 0;
        true
    }

    /// Returns the picks of the current execution, for [`Replay`](super::Replay).
    pub fn picks(&self) -> Vec<u32> {
        self.path[..self.depth.min(self.path.len())].iter().map(|point| point.taken).collect()
    }

    /// Counts the current execution as cut by a limit of the world.
    pub fn truncate(&mut self) {
        self.report.truncated += 1;
    }

    /// Returns the counts so far.
    pub fn report(&self) -> Report {
        Report { states: self.known.len() as u64, ..self.report }
    }
}

impl Scheduler for Exhaustive {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        if self.depth == self.path.len() {
            self.path.push(Point { taken: 0, of: choices.len() as u32 });
        }
        let point = self.path[self.depth];
        debug_assert_eq!(point.of as usize, choices.len(), "the world is not deterministic");
        self.depth += 1;
        self.report.deepest = self.report.deepest.max(self.depth);
        (point.taken as usize).min(choices.len() - 1)
    }

    fn wants_state(&self) -> bool {
        true
    }

    fn enter(&mut self, state: u64) -> bool {
        if self.depth < self.path.len() {
            return true;
        }
        if self.depth >= self.bounds.depth {
            self.report.truncated += 1;
            return false;
        }
        if !self.bounds.merge {
            return true;
        }
        // The search visits a state again if it first met it closer to the depth bound.
        let depth = self.depth as u32;
        match self.known.get_mut(&state) {
            Some(met) if *met <= depth => {
                self.report.pruned += 1;
                false
            }
            Some(met) => {
                *met = depth;
                true
            }
            None => {
                self.known.insert(state, depth);
                true
            }
        }
    }
}
