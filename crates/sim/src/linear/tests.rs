//! Tests of the checker on histories that are small enough to check by hand. `tests/world/linear.rs` uses
//! other methods.

use super::search::transition;
use super::*;
use crate::history::{FINAL_SCAN, Op, Outcome};

const KEY: u64 = 7;

fn check(history: &History) -> Verdict {
    Checker::new().check(history, &BTreeMap::new())
}

/// Runs an operation alone: invoked and returned with nothing between.
fn alone(history: &mut History, op: Op, outcome: impl Into<Outcome>) -> OpId {
    let id = history.invoke(0, KEY, op);
    history.ret(id, outcome).unwrap();
    id
}

#[test]
fn a_transition_is_exactly_what_the_specification_allows() {
    let states = [None, Some(1), Some(2)];
    let mut ops = vec![Op::Get, Op::Remove];
    ops.extend([1, 2].map(Op::Insert));
    ops.extend([1, 2].map(Op::InsertIfAbsent));
    let pairs = states.into_iter().flat_map(|expected| states.map(|new| (expected, new)));
    ops.extend(pairs.map(|(expected, new)| Op::CompareExchange { expected, new }));
    let mut outcomes = vec![Outcome::Exchange(Ok(()))];
    outcomes.extend(states.map(Outcome::Value));
    outcomes.extend(states.map(|state| Outcome::Exchange(Err(state))));
    for &op in &ops {
        for &outcome in &outcomes {
            let steps = states.map(|from| (from, op.apply(from)));
            let expected =
                steps.into_iter().find(|(_, (_, told))| *told == outcome).map(|(from, (to, _))| (from, to));
            assert_eq!(transition(op, outcome), expected, "{op} = {outcome}");
        }
    }
}

#[test]
fn operations_alone_must_follow_the_specification() {
    let mut history = History::new();
    alone(&mut history, Op::Get, None);
    alone(&mut history, Op::Insert(1), None);
    alone(&mut history, Op::InsertIfAbsent(2), Some(1));
    alone(&mut history, Op::CompareExchange { expected: Some(1), new: Some(3) }, Ok(()));
    alone(&mut history, Op::CompareExchange { expected: Some(1), new: None }, Err(Some(3)));
    alone(&mut history, Op::Remove, Some(3));
    alone(&mut history, Op::InsertIfAbsent(4), None);
    assert!(check(&history).is_linearizable());
    alone(&mut history, Op::Get, Some(3));
    assert!(check(&history).violation().is_some());
}

#[test]
fn a_read_may_not_go_back_in_time() {
    let mut history = History::new();
    let insert = history.invoke(0, KEY, Op::Insert(5));
    let new = history.invoke(1, KEY, Op::Get);
    history.ret(new, Some(5)).unwrap();
    let old = history.invoke(1, KEY, Op::Get);
    history.ret(old, None).unwrap();
    history.ret(insert, None).unwrap();
    let verdict = check(&history);
    let violation = verdict.violation().unwrap();
    assert_eq!((violation.key, violation.culprit), (KEY, old));
    assert_eq!(violation.order, [insert, new]);
    assert_eq!(violation.states, [Some(5)]);
    assert_eq!(violation.suspects, [new, old], "with either read out of the way the other is fine");
}

#[test]
fn an_explanation_holds_nothing_of_later_or_of_other_keys() {
    let mut history = History::new();
    let culprit = alone(&mut history, Op::Get, Some(9));
    alone(&mut history, Op::Insert(1), None);
    let other = history.invoke(3, KEY + 1, Op::Insert(1));
    history.ret(other, None).unwrap();
    let verdict = check(&history);
    let violation = verdict.violation().unwrap();
    assert_eq!(violation.calls.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [culprit]);
    assert_eq!(violation.suspects, [culprit]);
    let expected = "key 7, initially none, is not linearizable: #0 cannot be placed\n\
                    -> #0 c0 get = 9  |-|\n\
                    order of all before it: none\n\
                    the key may then hold: none\n\
                    fine if the outcome of one of these were unknown: #0\n";
    assert_eq!(verdict.to_string(), expected);
}

#[test]
fn a_pending_operation_may_take_effect_late_once_or_never() {
    let mut history = History::new();
    alone(&mut history, Op::Insert(1), None);
    let pending = history.invoke(1, KEY, Op::Insert(2));
    history.unknown(pending).unwrap();
    alone(&mut history, Op::Get, Some(1));
    assert!(check(&history).is_linearizable(), "not yet, or never");
    alone(&mut history, Op::Get, Some(2));
    assert!(check(&history).is_linearizable(), "late");
    alone(&mut history, Op::Insert(3), Some(2));
    alone(&mut history, Op::Get, Some(2));
    assert!(check(&history).violation().is_some(), "but not twice");
}

#[test]
fn a_pending_operation_has_no_effect_before_its_invocation() {
    let mut history = History::new();
    alone(&mut history, Op::Get, Some(2));
    history.invoke(1, KEY, Op::Insert(2));
    assert!(check(&history).violation().is_some());
}

#[test]
fn an_explanation_tells_every_value_that_was_possible() {
    let mut history = History::new();
    let first = alone(&mut history, Op::Insert(1), None);
    history.invoke(1, KEY, Op::Insert(2));
    history.invoke(2, KEY, Op::Remove);
    alone(&mut history, Op::Get, Some(9));
    let verdict = check(&history);
    let violation = verdict.violation().unwrap();
    assert_eq!(violation.states, [None, Some(1), Some(2)]);
    assert_eq!(violation.order, [first], "pending operations stay out of it while they can");
}

#[test]
fn a_failed_operation_has_no_effect() {
    let mut history = History::new();
    let failed = history.invoke(1, KEY, Op::Insert(2));
    history.failed(failed).unwrap();
    alone(&mut history, Op::Get, Some(2));
    assert!(check(&history).violation().is_some());
}

#[test]
fn an_outcome_of_the_wrong_kind_is_a_violation() {
    let mut history = History::new();
    alone(&mut history, Op::Get, Ok(()));
    assert!(check(&history).violation().is_some());
}

#[test]
fn initial_contents_count() {
    let mut history = History::new();
    alone(&mut history, Op::Remove, Some(5));
    assert!(Checker::new().check(&history, &BTreeMap::from([(KEY, 5)])).is_linearizable());
    assert!(check(&history).violation().is_some());
}

#[test]
fn calls_that_touch_at_one_time_overlap() {
    let mut history = History::new();
    let call = |op, outcome, invoked, at| {
        let fate = Fate::Returned { at, outcome: Outcome::Value(outcome) };
        Call { client: 0, key: KEY, op, invoked, fate }
    };
    history.record(call(Op::Insert(1), None, 0, 5)).unwrap();
    history.record(call(Op::Get, None, 5, 6)).unwrap();
    assert!(check(&history).is_linearizable());
    history.record(call(Op::Get, None, 6, 7)).unwrap();
    assert!(check(&history).violation().is_some());
}

#[test]
fn the_final_scan_finds_lost_and_resurrected_keys() {
    let run = |contents: &[(u64, u64)]| {
        let mut history = History::new();
        alone(&mut history, Op::Insert(5), None);
        let initial = BTreeMap::from([(1, 10)]);
        Checker::new().check_final(&mut history, &initial, &contents.iter().copied().collect())
    };
    assert!(run(&[(1, 10), (KEY, 5)]).is_linearizable());
    for (contents, key) in [(&[(1, 10)][..], KEY), (&[(KEY, 5)], 1), (&[(1, 10), (KEY, 5), (9, 90)], 9)] {
        let verdict = run(contents);
        let violation = verdict.violation().unwrap();
        assert_eq!(violation.key, key);
        assert_eq!(violation.calls.last().unwrap().1.client, FINAL_SCAN);
    }
}

/// `clients` concurrent inserts of distinct values, each with a returned value that makes a chain, then a get
/// of `last`.
fn chain(clients: u64, last: u64) -> History {
    let mut history = History::new();
    let ids: Vec<_> =
        (0..clients).map(|value| history.invoke(value as u32, KEY, Op::Insert(value))).collect();
    for (value, id) in ids.into_iter().enumerate().rev() {
        history.ret(id, (value as u64).checked_sub(1)).unwrap();
    }
    alone(&mut history, Op::Get, Some(last));
    history
}

#[test]
fn hundreds_of_open_operations_are_decided() {
    for clients in [10, 64, 65, 500, OPEN_LIMIT as u64] {
        assert!(check(&chain(clients, clients - 1)).is_linearizable());
        let verdict = check(&chain(clients, clients - 2));
        let violation = verdict.violation().unwrap();
        assert_eq!(
            (violation.order.len() as u64, &violation.states[..]),
            (clients, &[Some(clients - 1)][..])
        );
    }
    let verdict = check(&chain(OPEN_LIMIT as u64 + 1, 0));
    assert!(matches!(verdict, Verdict::Undecided(Undecided::TooManyOpen { key: KEY })), "{verdict}");
}

#[test]
fn overlapping_reads_and_equal_writes_do_not_explode() {
    let mut history = History::new();
    let mut ids = Vec::new();
    for client in 0..20 {
        ids.push((history.invoke(client, KEY, Op::Get), if client % 2 == 0 { None } else { Some(1) }));
        ids.push((history.invoke(client, KEY, Op::Insert(1)), if client == 0 { None } else { Some(1) }));
        ids.push((
            history.invoke(client, KEY, Op::CompareExchange { expected: Some(1), new: Some(2) }),
            None,
        ));
        ids.push((
            history.invoke(client, KEY, Op::CompareExchange { expected: Some(2), new: Some(1) }),
            None,
        ));
    }
    for (id, found) in ids {
        if matches!(history.get(id).unwrap().op, Op::CompareExchange { .. }) {
            history.ret(id, Ok(())).unwrap();
        } else {
            history.ret(id, found).unwrap();
        }
    }
    let mut checker = Checker::with_limit(100_000);
    assert!(checker.check(&history, &BTreeMap::new()).is_linearizable());
    alone(&mut history, Op::Get, Some(2));
    assert!(checker.check(&history, &BTreeMap::new()).violation().is_some());
}

#[test]
fn crashed_writers_do_not_explode() {
    let mut history = History::new();
    for value in 0..50 {
        history.invoke(value as u32, KEY, Op::Insert(value));
    }
    for value in 0..50 {
        alone(&mut history, Op::Get, Some(value));
    }
    let mut checker = Checker::new();
    assert!(checker.check(&history, &BTreeMap::new()).is_linearizable());
    alone(&mut history, Op::Get, Some(3));
    assert!(checker.check(&history, &BTreeMap::new()).violation().is_some());
}

/// Pending exchanges over few values in all directions, then a get of a value that none of them writes.
fn hard() -> History {
    let mut history = History::new();
    let mut client = 0;
    for expected in 0..7 {
        for new in 0..7 {
            history.invoke(client, KEY, Op::CompareExchange { expected: Some(expected), new: Some(new) });
            client += 1;
        }
    }
    alone(&mut history, Op::Get, Some(99));
    history
}

#[test]
fn a_search_that_is_too_long_is_undecided() {
    let (history, initial) = (hard(), BTreeMap::from([(KEY, 0)]));
    let verdict = Checker::with_limit(1000).check(&history, &initial);
    assert!(matches!(verdict, Verdict::Undecided(Undecided::TooManySteps { key: KEY, .. })), "{verdict}");
}

#[test]
fn a_violation_outweighs_an_undecided_key() {
    let (mut history, initial) = (hard(), BTreeMap::from([(KEY, 0)]));
    let id = history.invoke(0, KEY + 1, Op::Get);
    history.ret(id, Some(1)).unwrap();
    let verdict = Checker::with_limit(1000).check(&history, &initial);
    assert_eq!(verdict.violation().unwrap().key, KEY + 1);
}

#[test]
fn a_long_history_is_not_undecided_for_its_length() {
    let mut history = History::new();
    for round in 0..100_000 {
        let previous = if round == 0 { None } else { Some(round - 1) };
        let insert = history.invoke(0, KEY, Op::Insert(round));
        let get = history.invoke(1, KEY, Op::Get);
        history.ret(get, if round % 2 == 0 { previous } else { Some(round) }).unwrap();
        history.ret(insert, previous).unwrap();
    }
    assert!(Checker::with_limit(1000).check(&history, &BTreeMap::new()).is_linearizable());
}

#[test]
fn a_witness_replays_to_the_outcomes_recorded() {
    let mut history = chain(30, 29);
    history.invoke(99, KEY, Op::Insert(77));
    alone(&mut history, Op::Get, Some(77));
    let order = Checker::new().witness(&history, KEY, None).unwrap();
    assert_eq!(order.len(), 33);
    let mut state = None;
    for id in order {
        let call = history.get(id).unwrap();
        let (next, told) = call.op.apply(state);
        if let Fate::Returned { outcome, .. } = call.fate {
            assert_eq!(told, outcome);
        }
        state = next;
    }
}

#[test]
fn a_reused_checker_stops_growing() {
    let histories = [chain(20, 19), chain(64, 63), chain(3, 2)];
    let mut checker = Checker::new();
    let mut sizes = Vec::new();
    for _ in 0..3 {
        for history in &histories {
            assert!(checker.check(history, &BTreeMap::new()).is_linearizable());
        }
        sizes.push(checker.events.capacity() + checker.narrow.capacity());
    }
    assert_eq!(sizes[1], sizes[2]);
}
