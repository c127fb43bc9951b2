//! Timelines: the operations of one key, drawn for failure messages.
//!
//! Each operation is one line, in order of invocation, with a bar from invocation to return. Two bars that
//! share a column overlap in time. `>` marks a bar that never ended. Columns are ranks of events, not
//! durations, because only the order matters. Beyond [`DRAWN_EVENTS`] events the bars would wrap, so times
//! are printed as numbers.

use super::{Call, FINAL_SCAN, Fate, Op, OpId, Outcome};
use std::fmt;

/// The largest number of events that is drawn as bars.
pub(super) const DRAWN_EVENTS: usize = 64;

/// The operations of one key; `Display` draws them.
#[derive(Clone, Debug)]
pub struct Timeline {
    calls: Vec<(OpId, Call)>,
    marked: Option<OpId>,
}

impl Timeline {
    /// Creates a timeline of these operations, earliest first.
    pub fn new(mut calls: Vec<(OpId, Call)>) -> Self {
        calls.sort_by_key(|(id, call)| (call.invoked, *id));
        Self { calls, marked: None }
    }

    /// Puts an arrow in front of one operation.
    pub fn mark(mut self, id: OpId) -> Self {
        self.marked = Some(id);
        self
    }

    /// Returns all times that appear, ascending. The column of an event is its rank among them.
    fn times(&self) -> Vec<u64> {
        let mut times: Vec<u64> = self
            .calls
            .iter()
            .flat_map(|(_, call)| std::iter::once(call.invoked).chain(returned(call)))
            .collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times();
        let labels: Vec<String> = self.calls.iter().map(|(id, call)| label(*id, call)).collect();
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        for ((id, call), label) in self.calls.iter().zip(&labels) {
            let arrow = if self.marked == Some(*id) { "->" } else { "  " };
            write!(f, "{arrow} {label:width$}  ")?;
            if times.len() <= DRAWN_EVENTS {
                writeln!(f, "{}", bar(call, &times))?;
            } else {
                match returned(call) {
                    Some(at) => writeln!(f, "@{}..@{at}", call.invoked)?,
                    None => writeln!(f, "@{}..", call.invoked)?,
                }
            }
        }
        Ok(())
    }
}

fn returned(call: &Call) -> Option<u64> {
    match call.fate {
        Fate::Returned { at, .. } => Some(at),
        _ => None,
    }
}

fn bar(call: &Call, times: &[u64]) -> String {
    let column = |time| 2 * times.partition_point(|&earlier| earlier < time);
    let start = column(call.invoked);
    let (end, tip) = match returned(call) {
        Some(at) => (column(at), '|'),
        None => (2 * times.len(), '>'),
    };
    let mut bar = " ".repeat(start);
    bar.push('|');
    // A call with the same time for invocation and return is a single bar.
    if end > start {
        bar.push_str(&"-".repeat(end - start - 1));
        bar.push(tip);
    }
    bar
}

fn label(id: OpId, call: &Call) -> String {
    let client = if call.client == FINAL_SCAN { "final".to_string() } else { format!("c{}", call.client) };
    let outcome = match call.fate {
        Fate::Pending => "pending".to_string(),
        Fate::Unknown => "unknown".to_string(),
        Fate::Failed => "failed".to_string(),
        Fate::Returned { outcome, .. } => outcome.to_string(),
    };
    format!("{id} {client} {} = {outcome}", call.op)
}

/// Prints a value as the number, or as `none`.
pub(crate) struct Shown(pub(crate) Option<u64>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("none"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Op::Get => f.write_str("get"),
            Op::Insert(value) => write!(f, "insert({value})"),
            Op::Remove => f.write_str("remove"),
            Op::InsertIfAbsent(value) => write!(f, "insert_if_absent({value})"),
            Op::CompareExchange { expected, new } => {
                write!(f, "exchange({}, {})", Shown(expected), Shown(new))
            }
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Outcome::Value(value) => Shown(value).fmt(f),
            Outcome::Exchange(Ok(())) => f.write_str("ok"),
            Outcome::Exchange(Err(actual)) => write!(f, "found {}", Shown(actual)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::History;
    use super::*;

    #[test]
    fn overlap_and_order_can_be_read_off_the_columns() {
        let mut history = History::new();
        let insert = history.invoke(0, 7, Op::Insert(5));
        let get = history.invoke(1, 7, Op::Get);
        history.ret(insert, None).unwrap();
        history.invoke(2, 7, Op::CompareExchange { expected: Some(5), new: None });
        history.invoke(3, 8, Op::Get);
        history.ret(get, Some(5)).unwrap();
        let expected = [
            "   #0 c0 insert(5) = none             |---|",
            "-> #1 c1 get = 5                        |-----|",
            "   #2 c2 exchange(5, none) = pending        |--->",
        ];
        assert_eq!(history.timeline(7).mark(get).to_string().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_long_history_is_listed_by_time() {
        let mut history = History::new();
        for _ in 0..DRAWN_EVENTS {
            let id = history.invoke(0, 7, Op::Get);
            history.ret(id, None).unwrap();
        }
        assert!(history.timeline(7).to_string().starts_with("   #0 c0 get = none   @0..@1\n"));
    }
}
