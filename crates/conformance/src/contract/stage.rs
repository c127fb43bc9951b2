//! The shared state of one run: its facts, and words in process memory.

use super::harness::{Patience, Scratch};
use super::report::{Breach, Rule};
use sherman_fabric::Caps;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of process words of a scenario.
const WORDS: usize = 64;

/// The constants of one run of one scenario.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub caps: Caps,
    pub scratch: Scratch,
    pub rounds: u64,
    pub patience: Patience,
    pub seed: u64,
}

impl Facts {
    /// Bytes of an atomic unit of host memory.
    pub(super) fn unit(&self) -> usize {
        self.caps.atomic_unit as usize
    }

    /// The offset of the `index`-th scratch unit of host memory.
    pub(super) fn host(&self, index: u64) -> u64 {
        debug_assert!(index < Scratch::HOST_UNITS);
        self.scratch.host.start + index * self.unit() as u64
    }

    /// The offset of the `index`-th scratch word of on-chip memory.
    pub(super) fn chip(&self, index: u64) -> u64 {
        debug_assert!(index < Scratch::ON_CHIP_BYTES / 8);
        self.scratch.on_chip.start + index * 8
    }

    /// Whether there is on-chip memory to test.
    pub(super) fn has_chip(&self) -> bool {
        let Scratch { on_chip, .. } = &self.scratch;
        on_chip.end.saturating_sub(on_chip.start) >= Scratch::ON_CHIP_BYTES
    }

    /// The number of this run of its scenario.
    pub(super) fn run(&self) -> u64 {
        self.seed & 0xffff_ffff
    }

    /// The server of a scenario that needs only one. The runs use each server in turn.
    pub(super) fn server(&self) -> u16 {
        (self.run() % u64::from(self.scratch.servers.max(1))) as u16
    }

    /// A share of the rounds, for scenarios with several lists per round or with contention.
    pub(super) fn rounds_by(&self, divisor: u64) -> u64 {
        (self.rounds / divisor).max(2)
    }

    /// The rounds in which participants wait for each other. On real threads each round costs a thread's
    /// sleep, so about an eighth of many rounds must suffice.
    pub(super) fn rounds_together(&self) -> u64 {
        self.rounds.min(8 + self.rounds / 8)
    }
}

/// The shared state of one run. All accesses are sequentially consistent, because the suite tests the fabric,
/// not this.
#[derive(Debug)]
pub(super) struct Stage {
    pub facts: Facts,
    rule: Rule,
    scenario: &'static str,
    cast: u64,
    arrived: AtomicU64,
    finished: AtomicU64,
    looks: AtomicU64,
    stopped: AtomicBool,
    words: [AtomicU64; WORDS],
}

impl Stage {
    pub(super) fn new(facts: Facts, rule: Rule, scenario: &'static str, cast: usize) -> Self {
        Self {
            facts,
            rule,
            scenario,
            cast: cast as u64,
            arrived: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// A breach of this scenario's rule.
    pub(super) fn breach(&self, detail: String) -> Breach {
        Breach { rule: self.rule, scenario: self.scenario, detail }
    }

    /// Ends the run: every participant returns at its next poll.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::SeqCst)
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::SeqCst);
    }

    /// Adds, and returns the old value.
    pub(super) fn add(&self, word: usize, value: u64) -> u64 {
        self.words[word].fetch_add(value, Ordering::SeqCst)
    }

    /// Arrives at the next meeting.
    pub(super) fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether every participant has arrived at the `meeting`-th meeting. No participant can be a meeting
    /// ahead, so a count suffices.
    pub(super) fn all_arrived(&self, meeting: u64) -> bool {
        self.arrived.load(Ordering::SeqCst) >= meeting * self.cast
    }

    /// Records that one of the watched participants has finished.
    pub(super) fn finish(&self) {
        self.finished.fetch_add(1, Ordering::SeqCst);
    }

    /// Records that an observer has looked once.
    pub(super) fn look(&self) {
        self.looks.fetch_add(1, Ordering::SeqCst);
    }

    /// How often observers have looked.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::SeqCst)
    }

    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::SeqCst)
    }
}
