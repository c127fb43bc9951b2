//! Calls as lines of text: what a worker did, for the process that judges it.
//!
//! Times are readings of the system's monotonic clock, which all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};
use sherman_sim::history::{Call, Fate, Op, Outcome};

/// The clock of all processes, in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn word(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The line of a call.
pub fn line(call: &Call) -> String {
    let (op, first, second) = match call.op {
        Op::Get => ("get", None, None),
        Op::Insert(value) => ("put", Some(value), None),
        Op::Remove => ("del", None, None),
        Op::InsertIfAbsent(value) => ("new", Some(value), None),
        Op::CompareExchange { expected, new } => ("cas", expected, new),
    };
    let (fate, at, value) = match call.fate {
        Fate::Pending => ("pending", None, None),
        Fate::Unknown => ("unknown", None, None),
        Fate::Failed => ("failed", None, None),
        Fate::Returned { at, outcome: Outcome::Value(value) } => ("value", Some(at), value),
        Fate::Returned { at, outcome: Outcome::Exchange(Ok(())) } => ("done", Some(at), None),
        Fate::Returned { at, outcome: Outcome::Exchange(Err(found)) } => ("found", Some(at), found),
    };
    let (first, second, at, value) = (word(first), word(second), word(at), word(value));
    let Call { client, key, invoked, .. } = call;
    format!("call {client} {key} {op} {first} {second} {invoked} {fate} {at} {value}")
}

/// The call of a line; `None` if the line is no call.
pub fn parse(line: &str) -> Option<Call> {
    let mut words = line.strip_prefix("call ")?.split(' ');
    let mut next = || words.next();
    let (client, key) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let op = next()?;
    let (first, second) = (number(next()?)?, number(next()?)?);
    let op = match op {
        "get" => Op::Get,
        "put" => Op::Insert(first?),
        "del" => Op::Remove,
        "new" => Op::InsertIfAbsent(first?),
        "cas" => Op::CompareExchange { expected: first, new: second },
        _ => return None,
    };
    let invoked = next()?.parse().ok()?;
    let fate = next()?;
    let (at, value) = (number(next()?)?, number(next()?)?);
    let fate = match fate {
        "pending" => Fate::Pending,
        "unknown" => Fate::Unknown,
        "failed" => Fate::Failed,
        "value" => Fate::Returned { at: at?, outcome: Outcome::Value(value) },
        "done" => Fate::Returned { at: at?, outcome: Outcome::Exchange(Ok(())) },
        "found" => Fate::Returned { at: at?, outcome: Outcome::Exchange(Err(value)) },
        _ => return None,
    };
    Some(Call { client, key, op, invoked, fate })
}

/// A number or the mark of none. The outer `None` says that the word is neither.
fn number(word: &str) -> Option<Option<u64>> {
    if word == "-" { Some(None) } else { Some(Some(word.parse().ok()?)) }
}

#[test]
fn a_call_is_read_as_it_is_written() {
    let value = |value| Fate::Returned { at: 12, outcome: Outcome::Value(value) };
    let exchange = |result| Fate::Returned { at: 12, outcome: Outcome::Exchange(result) };
    let swap = Op::CompareExchange { expected: None, new: Some(5) };
    let calls = [
        (Op::Get, value(Some(4))),
        (Op::Insert(7), value(None)),
        (Op::Remove, Fate::Unknown),
        (Op::InsertIfAbsent(7), Fate::Failed),
        (swap, exchange(Ok(()))),
        (swap, exchange(Err(Some(9)))),
        (swap, exchange(Err(None))),
        (Op::Get, Fate::Pending),
    ];
    for (op, fate) in calls {
        let call = Call { client: 3, key: 8, op, invoked: 11, fate };
        assert_eq!(parse(&line(&call)), Some(call));
    }
    assert_eq!(parse("call 1 2 get - - x value 3 -"), None);
    assert_eq!(parse("running 1 test"), None);
}
