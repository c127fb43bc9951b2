//! What a violation looks like to the person who must find the bug.
//!
//! The search goes through time and gets stuck at one return; everything invoked after that return is irrelevant, so
//! the explanation holds only what came before it, on that key alone. The operation that got stuck is where the
//! contradiction *shows*, not always where it arose: a get that sees a lost value is innocent. So each operation is
//! also tried as a suspect: would the history be fine if that one outcome were unknown?

use crate::history::{Call, OpId, Shown, Timeline};
use std::fmt;

/// A key whose history no atomic register could have produced.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// What it held before the history.
    pub initial: Option<u64>,
    /// The operation that cannot be placed: all that returned before it can be put in order, but not with it.
    pub culprit: OpId,
    /// The key's operations invoked before the culprit's return, by invocation. What came later does not matter.
    pub calls: Vec<(OpId, Call)>,
    /// An order of all operations that returned before the culprit, and of others it takes: the longest prefix that
    /// is linearizable.
    pub order: Vec<OpId>,
    /// Every value the key may have held in the end without the culprit taking effect, ascending.
    pub states: Vec<Option<u64>>,
    /// Returned operations of `calls` such that with this one outcome unknown, the key's whole history would be
    /// linearizable. Empty if there is more than one contradiction, or if there are too many operations to try.
    pub suspects: Vec<OpId>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, culprit, .. } = self;
        writeln!(f, "key {key}, initially {}, is not linearizable: {culprit} cannot be placed", Shown(self.initial))?;
        write!(f, "{}", Timeline::new(self.calls.clone()).mark(*culprit))?;
        list(f, "order of all before it:", &self.order, ", ")?;
        let states: Vec<_> = self.states.iter().map(|&state| Shown(state)).collect();
        list(f, "the key may then hold:", &states, " or ")?;
        list(f, "fine if the outcome of one of these were unknown:", &self.suspects, ", ")
    }
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, items: &[impl fmt::Display], separator: &str) -> fmt::Result {
    f.write_str(title)?;
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { " " } else { separator })?;
    }
    writeln!(f, "{}", if items.is_empty() { " none" } else { "" })
}
