//! Histories: what clients asked of the tree, when, and what they were told.
//!
//! A history is the only evidence the checkers need (`docs/TESTING.md`): one [`Call`] per operation, with the time of its
//! invocation and, if it came back, the time and the outcome of its return. [`crate::linear`] decides whether an
//! atomic map could have answered like that.
//!
//! How an operation may end decides what a checker may conclude, so the four ways are kept apart:
//! - [`Fate::Returned`]: it took effect exactly once, between invocation and return, with that outcome.
//! - [`Fate::Pending`] and [`Fate::Unknown`]: the client died, or was told `OutcomeUnknown` (`docs/INVARIANTS.md`). It may have
//!   taken effect or not, and may do so at any time after its invocation, even after the client was told.
//! - [`Fate::Failed`]: a definite error that changed nothing. It is no part of the history.
//!
//! Times only need to be comparable. In the simulator they are a counter of events, so no two are equal; logs of real
//! threads are merged with [`History::record`] under any clock they share. Call A precedes call B only if A returned
//! at a strictly smaller time than B was invoked: a tie counts as overlap, so a coarse clock can hide a violation but
//! never invent one.
//!
//! What may go wrong is misuse by the harness (an operation that ends twice, an id from before `clear`): every such
//! call is refused with a [`Misuse`] and leaves the history as it was.

mod timeline;

pub(crate) use timeline::Shown;
pub use timeline::Timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Who called: a client of the simulated world, or a real thread.
pub type ClientId = u32;

/// The pretend client of [`History::observe_contents`].
pub const FINAL_SCAN: ClientId = ClientId::MAX;

/// Times at or beyond this are refused by [`History::record`]: checkers pack a time and an event kind in one word.
pub const TIME_LIMIT: u64 = 1 << 63;

/// An operation on one key of an ordered map. `None` stands for "the key is absent" throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Reads the value.
    Get,
    /// Sets the value and returns the one before.
    Insert(u64),
    /// Makes the key absent and returns the value before.
    Remove,
    /// Sets the value if the key is absent; returns the value that was in the way, or `None` when it inserted.
    InsertIfAbsent(u64),
    /// Replaces `expected` by `new`; when the key holds something else, changes nothing and returns that.
    CompareExchange {
        /// What the key must hold for the exchange to happen.
        expected: Option<u64>,
        /// What it holds afterwards.
        new: Option<u64>,
    },
}

impl Op {
    /// The sequential specification: what a key holding `state` holds afterwards, and what the caller is told.
    pub fn apply(self, state: Option<u64>) -> (Option<u64>, Outcome) {
        match self {
            Op::Get => (state, Outcome::Value(state)),
            Op::Insert(value) => (Some(value), Outcome::Value(state)),
            Op::Remove => (None, Outcome::Value(state)),
            Op::InsertIfAbsent(value) => (state.or(Some(value)), Outcome::Value(state)),
            Op::CompareExchange { expected, new } if state == expected => (new, Outcome::Exchange(Ok(()))),
            Op::CompareExchange { .. } => (state, Outcome::Exchange(Err(state))),
        }
    }
}

/// What an operation told its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Of every operation but the exchange: the value found.
    Value(Option<u64>),
    /// Of [`Op::CompareExchange`]: done, or the value that was there instead.
    Exchange(Result<(), Option<u64>>),
}

impl From<Option<u64>> for Outcome {
    fn from(value: Option<u64>) -> Self {
        Outcome::Value(value)
    }
}

impl From<Result<(), Option<u64>>> for Outcome {
    fn from(result: Result<(), Option<u64>>) -> Self {
        Outcome::Exchange(result)
    }
}

/// How an operation ended, if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No return was seen (yet): in flight, or its client died.
    Pending,
    /// Its client was told that the outcome is unknown. Judged like [`Fate::Pending`].
    Unknown,
    /// A definite error that changed nothing.
    Failed,
    /// It came back.
    Returned {
        /// When.
        at: u64,
        /// With what.
        outcome: Outcome,
    },
}

/// One operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who called.
    pub client: ClientId,
    /// On which key.
    pub key: u64,
    /// What was asked.
    pub op: Op,
    /// When.
    pub invoked: u64,
    /// How it ended.
    pub fate: Fate,
}

/// Names an operation of one history until that history is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    epoch: u64,
    index: usize,
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.index)
    }
}

/// A recording that makes no sense. Always a fault of the harness, never of the system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The id is of another history, or of this one before `clear`.
    UnknownOp(OpId),
    /// The operation has already returned, failed or been given up as unknown.
    AlreadyEnded(OpId),
    /// A call recorded offline returns before it was invoked, or beyond [`TIME_LIMIT`].
    BadTimes {
        /// Its invocation.
        invoked: u64,
        /// Its return, if any.
        returned: Option<u64>,
    },
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::UnknownOp(id) => write!(f, "operation {id} is not of this history"),
            Misuse::AlreadyEnded(id) => write!(f, "operation {id} has already ended"),
            Misuse::BadTimes { invoked, returned } => {
                write!(f, "a call cannot run from time {invoked} to {returned:?}")
            }
        }
    }
}

impl std::error::Error for Misuse {}

/// The operations of one run. Reuse it with [`History::clear`]: recording then allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct History {
    calls: Vec<Call>,
    clock: u64,
    epoch: u64,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything and keeps the memory. Ids given out before are refused from now on.
    pub fn clear(&mut self) {
        self.calls.clear();
        self.clock = 0;
        self.epoch += 1;
    }

    /// A client calls. The operation is pending until one of [`ret`](Self::ret), [`failed`](Self::failed) and
    /// [`unknown`](Self::unknown) ends it; a client that dies simply never ends it.
    pub fn invoke(&mut self, client: ClientId, key: u64, op: Op) -> OpId {
        let invoked = self.tick();
        self.push(Call { client, key, op, invoked, fate: Fate::Pending })
    }

    /// A moment of this history, later than all before: for what spans several operations, as scans do.
    pub fn moment(&mut self) -> u64 {
        self.tick()
    }

    /// The operation returned to its caller.
    pub fn ret(&mut self, id: OpId, outcome: impl Into<Outcome>) -> Result<(), Misuse> {
        let outcome = outcome.into();
        self.end(id, |at| Fate::Returned { at, outcome })
    }

    /// The operation ended in an error that guarantees it changed nothing and never will: it leaves the history.
    pub fn failed(&mut self, id: OpId) -> Result<(), Misuse> {
        self.end(id, |_| Fate::Failed)
    }

    /// The caller was told `OutcomeUnknown`: the operation stays pending for ever, while its client may go on.
    pub fn unknown(&mut self, id: OpId) -> Result<(), Misuse> {
        self.end(id, |_| Fate::Unknown)
    }

    /// Adds a call whose times were taken elsewhere: how the logs of real threads become one history.
    pub fn record(&mut self, call: Call) -> Result<OpId, Misuse> {
        let returned = match call.fate {
            Fate::Returned { at, .. } => Some(at),
            _ => None,
        };
        let last = returned.unwrap_or(call.invoked);
        if last < call.invoked || last >= TIME_LIMIT {
            return Err(Misuse::BadTimes { invoked: call.invoked, returned });
        }
        self.clock = self.clock.max(last + 1);
        Ok(self.push(call))
    }

    /// Adds what a scan after the last return found: a `Get` by [`FINAL_SCAN`] of every key in the history, in
    /// `initial` or in `contents`. Call it once, when no operation that is to return is still in flight.
    pub fn observe_contents(&mut self, initial: &BTreeMap<u64, u64>, contents: &BTreeMap<u64, u64>) {
        self.observe_contents_of(initial, contents, |_| true);
    }

    /// The same, of the keys that `scanned` says were scanned.
    pub fn observe_contents_of(
        &mut self,
        initial: &BTreeMap<u64, u64>,
        contents: &BTreeMap<u64, u64>,
        scanned: impl Fn(u64) -> bool,
    ) {
        let mut keys = self.keys();
        keys.extend(initial.keys().chain(contents.keys()));
        for key in keys.into_iter().filter(|&key| scanned(key)) {
            let (invoked, at) = (self.tick(), self.tick());
            let outcome = Outcome::Value(contents.get(&key).copied());
            let fate = Fate::Returned { at, outcome };
            self.push(Call { client: FINAL_SCAN, key, op: Op::Get, invoked, fate });
        }
    }

    /// How many operations were invoked, failed ones included.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether nothing was invoked.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// One operation, if the id is of this history.
    pub fn get(&self, id: OpId) -> Option<&Call> {
        if id.epoch == self.epoch { self.calls.get(id.index) } else { None }
    }

    /// Every operation that counts, in order of recording: all but the failed ones.
    pub fn calls(&self) -> impl Iterator<Item = (OpId, &Call)> {
        let ids = (0..self.calls.len()).map(|index| self.id(index));
        ids.zip(&self.calls).filter(|(_, call)| call.fate != Fate::Failed)
    }

    /// The operations without a known outcome.
    pub fn pending(&self) -> impl Iterator<Item = (OpId, &Call)> {
        self.calls().filter(|(_, call)| matches!(call.fate, Fate::Pending | Fate::Unknown))
    }

    /// Every key that an operation of this history touched.
    pub fn keys(&self) -> BTreeSet<u64> {
        self.calls().map(|(_, call)| call.key).collect()
    }

    /// The operations of one key, to print.
    pub fn timeline(&self, key: u64) -> Timeline {
        Timeline::new(self.calls().filter(|(_, call)| call.key == key).map(|(id, call)| (id, *call)).collect())
    }

    /// All calls by index, failed ones included: checkers index by position.
    pub(crate) fn raw(&self) -> &[Call] {
        &self.calls
    }

    pub(crate) fn id(&self, index: usize) -> OpId {
        OpId { epoch: self.epoch, index }
    }

    fn push(&mut self, call: Call) -> OpId {
        self.calls.push(call);
        self.id(self.calls.len() - 1)
    }

    fn tick(&mut self) -> u64 {
        let now = self.clock;
        self.clock += 1;
        now
    }

    fn end(&mut self, id: OpId, fate: impl FnOnce(u64) -> Fate) -> Result<(), Misuse> {
        if id.epoch != self.epoch {
            return Err(Misuse::UnknownOp(id));
        }
        let now = self.clock;
        let call = self.calls.get_mut(id.index).ok_or(Misuse::UnknownOp(id))?;
        if call.fate != Fate::Pending {
            return Err(Misuse::AlreadyEnded(id));
        }
        call.fate = fate(now);
        self.clock = now + 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_order_of_events() {
        let mut history = History::new();
        let first = history.invoke(0, 7, Op::Insert(1));
        let second = history.invoke(1, 7, Op::Get);
        history.ret(first, None).unwrap();
        history.ret(second, Some(1)).unwrap();
        let (first, second) = (history.get(first).unwrap(), history.get(second).unwrap());
        assert!(first.invoked < second.invoked);
        let at = |call: &Call| match call.fate {
            Fate::Returned { at, .. } => at,
            other => panic!("{other:?}"),
        };
        assert!(second.invoked < at(first) && at(first) < at(second));
    }

    #[test]
    fn an_operation_ends_once() {
        let mut history = History::new();
        let id = history.invoke(0, 7, Op::Remove);
        history.unknown(id).unwrap();
        assert_eq!(history.ret(id, None), Err(Misuse::AlreadyEnded(id)));
        assert_eq!(history.failed(id), Err(Misuse::AlreadyEnded(id)));
        assert_eq!(history.pending().count(), 1);
    }

    #[test]
    fn a_failed_operation_leaves_the_history() {
        let mut history = History::new();
        let id = history.invoke(0, 7, Op::Insert(1));
        history.failed(id).unwrap();
        assert_eq!((history.calls().count(), history.pending().count(), history.keys().len()), (0, 0, 0));
    }

    #[test]
    fn an_id_from_before_clear_is_refused() {
        let mut history = History::new();
        let old = history.invoke(0, 7, Op::Get);
        history.clear();
        let new = history.invoke(0, 7, Op::Get);
        assert_eq!(history.ret(old, None), Err(Misuse::UnknownOp(old)));
        assert_eq!(history.get(old), None);
        history.ret(new, None).unwrap();
    }

    #[test]
    fn calls_recorded_offline_must_run_forward() {
        let mut history = History::new();
        let call = |invoked, at| {
            let fate = Fate::Returned { at, outcome: Outcome::Value(None) };
            Call { client: 0, key: 7, op: Op::Get, invoked, fate }
        };
        assert!(matches!(history.record(call(5, 4)), Err(Misuse::BadTimes { .. })));
        assert!(matches!(history.record(call(5, TIME_LIMIT)), Err(Misuse::BadTimes { .. })));
        history.record(call(5, 5)).unwrap();
        let later = history.invoke(1, 7, Op::Get);
        assert_eq!(history.get(later).unwrap().invoked, 6, "the history's own clock moves past recorded times");
    }

    #[test]
    fn the_final_scan_reads_every_key_that_was_or_is_there() {
        let mut history = History::new();
        history.invoke(0, 1, Op::Insert(5));
        history.observe_contents(&BTreeMap::from([(2, 20)]), &BTreeMap::from([(3, 30)]));
        let gets = history.calls().filter(|(_, call)| call.client == FINAL_SCAN);
        let found: Vec<_> = gets.map(|(_, call)| (call.key, call.fate)).collect();
        assert_eq!(found.len(), 3);
        for ((key, fate), expected) in found.into_iter().zip([(1, None), (2, None), (3, Some(30))]) {
            let Fate::Returned { outcome, .. } = fate else { panic!("{fate:?}") };
            assert_eq!((key, outcome), (expected.0, Outcome::Value(expected.1)));
        }
    }
}
