//! An exact, bounded linearizability checker for maps.
//!
//! Linearizability is local: a history of a map is linearizable iff each key's part of it is (Herlihy and
//! Wing). So the checker treats every key as a separate register with the operations of
//! [`Op`](crate::history::Op). Every simulated run ends with this check.
//!
//! The checker has three properties:
//! - **Exact.** [`Verdict::Linearizable`] and [`Verdict::Violation`] are proofs, not guesses. Operations of
//!   unknown outcome may take effect once, at any time after their invocation, or never.
//!   `tests/world/linear.rs` compares the verdicts with an independent checker and with plain enumeration.
//! - **Bounded.** The problem is NP-complete in general. A key that costs more than the limit of steps (see
//!   [`Checker::with_limit`]), or has more than [`OPEN_LIMIT`] operations open at once, ends in
//!   [`Verdict::Undecided`]. That verdict counts neither as a success nor as a failure.
//! - **Cheap.** A reused [`Checker`] allocates nothing once its buffers have grown, except to explain a
//!   violation.
//!
//! `search` describes the search, `violation` the reports, and `range` the answers that scans may give.
//!
//! Measured by `cargo run --release -p sherman-sim -F measure --example linear_rate` on one core of a
//! 2.8 GHz Xeon, with histories of an atomic map:
//!
//! | history | histories/s | operations/s |
//! |---|---|---|
//! | 18 operations, 3 clients, 3 or 4 keys | 560,000 | 10 M |
//! | the same, one operation in eight of unknown outcome | 525,000 | 9.5 M |
//! | 32 operations, 4 clients, 4 keys | 290,000 | 9.4 M |
//! | 1000 operations, 16 clients, 4 keys | 6,700 | 6.7 M |
//!
//! Limitation: some dozens of operations of unknown outcome on *one* key, over *few* values, make hard
//! instances that end undecided. Give writes distinct values where you can. Distinct values also let the
//! checker detect more violations.

mod configs;
mod mask;
mod range;
mod search;
mod violation;

pub use range::{Flaw, Pair, Sweep};
pub use violation::Violation;

use crate::history::{Call, Fate, History, OpId};
use search::{Event, Question, Search, Stop};
use std::collections::BTreeMap;
use std::fmt;

/// At most this many operations of one key may be open at the same time, those of unknown outcome included.
pub const OPEN_LIMIT: usize = 64 * WIDE;

/// Default number of steps per key. A step takes a few nanoseconds and stores at most some tens of bytes.
pub const DEFAULT_LIMIT: u64 = 1 << 20;

/// Additional steps for each event of the key, so that no history is undecided only because it is long.
const STEPS_PER_EVENT: u64 = 64;

/// The largest number of operations that are tried as the suspect of a violation. Each of them costs a
/// search.
const SUSPECT_LIMIT: usize = 64;

/// Number of words of the wide search. The narrow search has one word.
const WIDE: usize = 16;

/// The result of a check.
#[derive(Clone, Debug)]
#[must_use]
pub enum Verdict {
    /// An order exists for every key.
    Linearizable,
    /// No order exists for this key.
    Violation(Box<Violation>),
    /// The search reached the limit on this key. No other key showed a violation.
    Undecided(Undecided),
}

impl Verdict {
    /// Whether this is a proof of linearizability.
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Verdict::Linearizable)
    }

    /// Returns the violation, if one was proven.
    pub fn violation(&self) -> Option<&Violation> {
        match self {
            Verdict::Violation(violation) => Some(violation),
            _ => None,
        }
    }
}

/// Why no verdict was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undecided {
    /// The search of this key took more steps than allowed.
    TooManySteps {
        /// The key.
        key: u64,
        /// The number of steps allowed.
        allowed: u64,
    },
    /// This key has more than [`OPEN_LIMIT`] operations open at once.
    TooManyOpen {
        /// The key.
        key: u64,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Linearizable => f.write_str("linearizable"),
            Verdict::Violation(violation) => violation.fmt(f),
            Verdict::Undecided(Undecided::TooManySteps { key, allowed }) => {
                write!(f, "undecided: key {key} takes more than {allowed} steps")
            }
            Verdict::Undecided(Undecided::TooManyOpen { key }) => {
                write!(f, "undecided: key {key} has more than {OPEN_LIMIT} operations open at once")
            }
        }
    }
}

/// Checks histories. Keep one checker and reuse it.
#[derive(Clone, Debug)]
pub struct Checker {
    limit: u64,
    events: Vec<Event>,
    narrow: Search<1>,
    /// For keys with more than 64 open operations. The first such key allocates it.
    wide: Option<Box<Search<WIDE>>>,
    /// Whether the wide search ran last.
    widened: bool,
}

impl Default for Checker {
    fn default() -> Self {
        Self::new()
    }
}

impl Checker {
    /// Creates a checker with the default limit.
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }

    /// Creates a checker that reports a key as undecided after about this many steps.
    pub fn with_limit(limit: u64) -> Self {
        Self { limit, events: Vec::new(), narrow: Search::new(), wide: None, widened: false }
    }

    /// Checks a history of a map that held `initial` at the beginning. It checks the keys in ascending order
    /// and reports the first violation.
    pub fn check(&mut self, history: &History, initial: &BTreeMap<u64, u64>) -> Verdict {
        let mut events = std::mem::take(&mut self.events);
        collect(history.raw(), &mut events);
        let verdict = self.check_events(history, &events, initial);
        self.events = events;
        verdict
    }

    /// Checks a history together with the result of a scan after the last return. This detects lost and
    /// resurrected keys even if no operation read them. Adds the scan to the history (see
    /// [`History::observe_contents`]).
    pub fn check_final(
        &mut self,
        history: &mut History,
        initial: &BTreeMap<u64, u64>,
        contents: &BTreeMap<u64, u64>,
    ) -> Verdict {
        history.observe_contents(initial, contents);
        self.check(history, initial)
    }

    /// Returns an order of one key's operations that explains all outcomes. It contains each operation that
    /// returned, and those of unknown outcome that took effect in this order. `None` if no order exists or
    /// none was found.
    pub fn witness(&mut self, history: &History, key: u64, initial: Option<u64>) -> Option<Vec<OpId>> {
        let mut events = Vec::new();
        collect(history.raw(), &mut events);
        events.retain(|event| event.key == key);
        let question = self.question(history.raw(), &events, initial);
        self.search(&question).ok()?;
        Some(self.found(history).0)
    }

    fn check_events(&mut self, history: &History, events: &[Event], initial: &BTreeMap<u64, u64>) -> Verdict {
        let mut undecided = None;
        for events in events.chunk_by(|a, b| a.key == b.key) {
            let key = events[0].key;
            let question = self.question(history.raw(), events, initial.get(&key).copied());
            match self.search(&question) {
                Ok(()) => {}
                Err(Stop::Stuck { call }) => {
                    return Verdict::Violation(Box::new(self.explain(history, &question, call)));
                }
                Err(Stop::Steps) => {
                    undecided.get_or_insert(Undecided::TooManySteps { key, allowed: question.steps });
                }
                Err(Stop::Slots) => {
                    undecided.get_or_insert(Undecided::TooManyOpen { key });
                }
            }
        }
        undecided.map_or(Verdict::Linearizable, Verdict::Undecided)
    }

    fn question<'a>(&self, calls: &'a [Call], events: &'a [Event], initial: Option<u64>) -> Question<'a> {
        let steps = self.limit.saturating_add(STEPS_PER_EVENT.saturating_mul(events.len() as u64));
        Question { calls, events, initial, steps, forgiven: None }
    }

    fn search(&mut self, question: &Question<'_>) -> Result<(), Stop> {
        let decided = self.narrow.run(question);
        self.widened = decided == Err(Stop::Slots);
        if !self.widened {
            return decided;
        }
        self.wide.get_or_insert_with(|| Box::new(Search::new())).run(question)
    }

    /// Returns the order and the states at the end of the last search.
    fn found(&self, history: &History) -> (Vec<OpId>, Vec<Option<u64>>) {
        let (order, states) = match &self.wide {
            Some(wide) if self.widened => (wide.order(), wide.states()),
            _ => (self.narrow.order(), self.narrow.states()),
        };
        (order.into_iter().map(|call| history.id(call)).collect(), states)
    }

    fn explain(&mut self, history: &History, question: &Question<'_>, culprit: usize) -> Violation {
        let (order, states) = self.found(history);
        let calls: Vec<usize> = invoked_before_return(question, culprit);
        let mut suspects = Vec::new();
        if calls.len() <= SUSPECT_LIMIT {
            for &call in
                calls.iter().filter(|&&call| matches!(question.calls[call].fate, Fate::Returned { .. }))
            {
                if self.search(&Question { forgiven: Some(call), ..*question }).is_ok() {
                    suspects.push(history.id(call));
                }
            }
        }
        Violation {
            key: question.calls[culprit].key,
            initial: question.initial,
            culprit: history.id(culprit),
            calls: calls.into_iter().map(|call| (history.id(call), question.calls[call])).collect(),
            order,
            states,
            suspects,
        }
    }
}

/// Collects the events of all calls that count, by key and then by time.
fn collect(calls: &[Call], events: &mut Vec<Event>) {
    events.clear();
    for (index, call) in calls.iter().enumerate().filter(|(_, call)| call.fate != Fate::Failed) {
        events.push(Event::invocation(index, call));
        events.extend(Event::return_of(index, call));
    }
    events.sort_unstable_by_key(|event| (event.key, event.stamp, event.call));
}

/// Returns the calls that can affect the return of this one, ordered by invocation.
fn invoked_before_return(question: &Question<'_>, culprit: usize) -> Vec<usize> {
    let end = question.events.iter().position(|event| event.call == culprit && event.is_return());
    let before = &question.events[..end.unwrap_or(question.events.len())];
    before.iter().filter(|event| !event.is_return()).map(|event| event.call).collect()
}

#[cfg(test)]
mod tests;
