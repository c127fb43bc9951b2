//! Histories: which operations clients called on the tree, when, and with which outcome.
//!
//! A history is all that the checkers need (`docs/TESTING.md`): one [`Call`] per operation. A call has the
//! time of its invocation and, if it returned, the time and outcome of its return. [`crate::linear`] decides
//! whether an atomic map could have answered like that.
//!
//! An operation can end in four ways. They are kept apart, because a checker draws different conclusions from
//! each:
//! - [`Fate::Returned`]: it took effect exactly once, between invocation and return, with that outcome.
//! - [`Fate::Pending`] and [`Fate::Unknown`]: the client died, or got `OutcomeUnknown`
//!   (`docs/INVARIANTS.md`). The operation may have taken effect or not. It may do so at any time after its
//!   invocation, even after the client got that answer.
//! - [`Fate::Failed`]: a definite error that changed nothing. It is not a part of the history.
//!
//! Times only need to be comparable. In the simulator they are a counter of events, so no two are equal.
//! [`History::record`] merges the logs of real threads under any clock they share. Call A precedes call B
//! only if A returned at a strictly smaller time than B was invoked. A tie counts as overlap, so a coarse
//! clock can hide a violation but never invent one.
//!
//! The only errors are misuse by the harness: an operation that ends twice, or an id from before `clear`. The
//! history refuses every such call with a [`Misuse`] and does not change.

mod timeline;

pub(crate) use timeline::Shown;
pub use timeline::Timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The caller: a client of the simulated world, or a real thread.
pub type ComputeId = u32;

/// The client id that [`History::observe_contents`] uses for its reads.
pub const FINAL_SCAN: ComputeId = ComputeId::MAX;

/// [`History::record`] refuses times at or beyond this limit, because checkers pack a time and an event kind
/// into one word.
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
    /// Sets the value if the key is absent. Returns the existing value, or `None` if it inserted.
    InsertIfAbsent(u64),
    /// Replaces `expected` by `new`. If the key holds another value, changes nothing and returns that value.
    CompareExchange {
        /// The value that the key must hold for the exchange to happen.
        expected: Option<u64>,
        /// The value of the key after the exchange.
        new: Option<u64>,
    },
}

impl Op {
    /// The sequential specification: returns the value of a key after the operation, if it held `state`
    /// before, and the outcome for the caller.
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

/// The outcome that an operation returned to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// For every operation except the exchange: the value found.
    Value(Option<u64>),
    /// For [`Op::CompareExchange`]: done, or the value that the key held instead.
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
    /// The operation has not returned (yet): it is in flight, or its client died.
    Pending,
    /// The client got `OutcomeUnknown`. Checkers treat it like [`Fate::Pending`].
    Unknown,
    /// A definite error that changed nothing.
    Failed,
    /// The operation returned.
    Returned {
        /// Time of the return.
        at: u64,
        /// Outcome of the operation.
        outcome: Outcome,
    },
}

/// One operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The caller.
    pub client: ComputeId,
    /// The key.
    pub key: u64,
    /// The operation.
    pub op: Op,
    /// Time of the invocation.
    pub invoked: u64,
    /// How it ended.
    pub fate: Fate,
}

/// Identifies an operation of one history until that history is cleared.
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

sherman_fabric::errors! {
    /// An invalid recording. It is always a fault of the harness, never of the system under test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Misuse {
        /// The id belongs to another history, or to this one before `clear`.
        UnknownOp(id: OpId) => "operation {id} is not of this history",
        /// The operation has already returned, failed or ended with an unknown outcome.
        AlreadyEnded(id: OpId) => "operation {id} has already ended",
        /// A call recorded offline returns before it was invoked, or beyond [`TIME_LIMIT`].
        BadTimes {
            /// Time of the invocation.
            invoked: u64,
            /// Time of the return, if any.
            returned: Option<u64>,
        } => "a call cannot run from time {invoked} to {returned:?}",
    }
}

/// The operations of one run. Reuse it with [`History::clear`]: recording then allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct History {
    calls: Vec<Call>,
    clock: u64,
    epoch: u64,
}

impl History {
    /// Creates an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all operations and keeps the allocated memory. The history refuses all earlier ids from now
    /// on.
    pub fn clear(&mut self) {
        self.calls.clear();
        self.clock = 0;
        self.epoch += 1;
    }

    /// Records that a client calls. The operation is pending until [`ret`](Self::ret),
    /// [`failed`](Self::failed) or [`unknown`](Self::unknown) ends it. If a client dies, its operation never
    /// ends.
    pub fn invoke(&mut self, client: ComputeId, key: u64, op: Op) -> OpId {
        let invoked = self.tick();
        self.push(Call { client, key, op, invoked, fate: Fate::Pending })
    }

    /// Returns a time of this history that is later than all before. Scans need it, because they span several
    /// operations.
    pub fn moment(&mut self) -> u64 {
        self.tick()
    }

    /// Records that the operation returned to its caller.
    pub fn ret(&mut self, id: OpId, outcome: impl Into<Outcome>) -> Result<(), Misuse> {
        let outcome = outcome.into();
        self.end(id, |at| Fate::Returned { at, outcome })
    }

    /// Records an error that guarantees that the operation changed nothing and never will. The operation
    /// leaves the history.
    pub fn failed(&mut self, id: OpId) -> Result<(), Misuse> {
        self.end(id, |_| Fate::Failed)
    }

    /// Records that the caller got `OutcomeUnknown`. The operation stays pending permanently, and its client
    /// may continue.
    pub fn unknown(&mut self, id: OpId) -> Result<(), Misuse> {
        self.end(id, |_| Fate::Unknown)
    }

    /// Adds a call whose times were measured elsewhere. The logs of real threads become one history in this
    /// way.
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

    /// Adds the result of a scan after the last return: a `Get` by [`FINAL_SCAN`] of every key in the
    /// history, in `initial` or in `contents`. Call it once, when no operation that will return is still in
    /// flight.
    pub fn observe_contents(&mut self, initial: &BTreeMap<u64, u64>, contents: &BTreeMap<u64, u64>) {
        self.observe_contents_of(initial, contents, |_| true);
    }

    /// The same as [`observe_contents`](Self::observe_contents), but only for keys for which `scanned`
    /// returns true.
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

    /// Returns the number of operations invoked, including failed ones.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no operation was invoked.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns one operation, if the id belongs to this history.
    pub fn get(&self, id: OpId) -> Option<&Call> {
        if id.epoch == self.epoch { self.calls.get(id.index) } else { None }
    }

    /// Returns every operation except the failed ones, in order of recording.
    pub fn calls(&self) -> impl Iterator<Item = (OpId, &Call)> {
        let ids = (0..self.calls.len()).map(|index| self.id(index));
        ids.zip(&self.calls).filter(|(_, call)| call.fate != Fate::Failed)
    }

    /// Returns the operations without a known outcome.
    pub fn pending(&self) -> impl Iterator<Item = (OpId, &Call)> {
        self.calls().filter(|(_, call)| matches!(call.fate, Fate::Pending | Fate::Unknown))
    }

    /// Returns every key that an operation of this history touched.
    pub fn keys(&self) -> BTreeSet<u64> {
        self.calls().map(|(_, call)| call.key).collect()
    }

    /// Returns the operations of one key, for printing.
    pub fn timeline(&self, key: u64) -> Timeline {
        Timeline::new(
            self.calls().filter(|(_, call)| call.key == key).map(|(id, call)| (id, *call)).collect(),
        )
    }

    /// Returns all calls by index, including failed ones: checkers index by position.
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
        assert_eq!(
            history.get(later).unwrap().invoked,
            6,
            "the history's own clock moves past recorded times"
        );
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
