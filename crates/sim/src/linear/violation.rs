//! The report of a violation. It helps to find the bug.
//!
//! The search goes through time and gets stuck at one return. Operations invoked after that return are
//! irrelevant, so the report holds only the operations before it, on that key alone. The contradiction
//! *shows* at the stuck operation, but it did not always arise there: a get that misses a lost value is
//! correct itself. So the checker also tries each operation as a suspect: is the history linearizable if that
//! one outcome is unknown?

use crate::history::{Call, OpId, Shown, Timeline};
use std::fmt;

/// A key whose history no atomic register could have produced.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// The value of the key before the history.
    pub initial: Option<u64>,
    /// The operation that cannot be placed. All operations that returned before it can be put in order, but
    /// not together with it.
    pub culprit: OpId,
    /// The key's operations invoked before the culprit's return, by invocation. Later operations do not
    /// matter.
    pub calls: Vec<(OpId, Call)>,
    /// An order of all operations that returned before the culprit, and of others that it needs: the longest
    /// prefix that is linearizable.
    pub order: Vec<OpId>,
    /// Every value that the key may have held at the end if the culprit did not take effect, ascending.
    pub states: Vec<Option<u64>>,
    /// Returned operations of `calls` that could explain the violation: if this one outcome is unknown, the
    /// key's whole history is linearizable. Empty if there is more than one contradiction, or if there are
    /// too many operations to try.
    pub suspects: Vec<OpId>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, culprit, .. } = self;
        writeln!(
            f,
            "key {key}, initially {}, is not linearizable: {culprit} cannot be placed",
            Shown(self.initial)
        )?;
        write!(f, "{}", Timeline::new(self.calls.clone()).mark(*culprit))?;
        list(f, "order of all before it:", &self.order, ", ")?;
        let states: Vec<_> = self.states.iter().map(|&state| Shown(state)).collect();
        list(f, "the key may then hold:", &states, " or ")?;
        list(f, "fine if the outcome of one of these were unknown:", &self.suspects, ", ")
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    items: &[impl fmt::Display],
    separator: &str,
) -> fmt::Result {
    f.write_str(title)?;
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { " " } else { separator })?;
    }
    writeln!(f, "{}", if items.is_empty() { " none" } else { "" })
}
