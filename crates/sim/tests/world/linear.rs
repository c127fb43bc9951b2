//! The linearizability checker, compared with other checkers on random histories.
//!
//! The other checkers are plain enumeration and, with the feature `stateright` as in CI, stateright's tester.
//! Both treat the map as a whole, and do not use that keys are independent, registers, or any of the
//! checker's shortcuts. The explanation of a violation is half of the checker's value. So the tests also
//! verify orders, states and suspects, not only verdicts. Everything is seeded: a failure names its seed.

mod brute;
mod generate;
mod spec;
#[cfg(feature = "stateright")]
mod tester;

use fastrand::Rng;
use sherman_sim::history::{Call, Fate, History, Op, OpId, Timeline};
use sherman_sim::linear::{Checker, Verdict, Violation};
use spec::Map;

const SEEDS: u64 = 40_000;

fn is_falsified(seed: u64) -> bool {
    !seed.is_multiple_of(3)
}

/// Returns a history. Two in three are falsified.
fn sample(seed: u64, max_ops: usize) -> (Vec<Call>, Map) {
    let mut rng = Rng::with_seed(seed);
    let shape = generate::shape(&mut rng, max_ops);
    let initial = generate::initial(&mut rng, &shape);
    let mut calls = generate::valid(&mut rng, &shape, &initial);
    if is_falsified(seed) {
        (0..rng.u32(1..=3)).for_each(|_| generate::mutate(&mut rng, &shape, &mut calls));
    }
    (calls, initial)
}

fn history(calls: &[Call]) -> (History, Vec<OpId>) {
    let mut history = History::new();
    let ids = calls.iter().map(|call| history.record(*call).expect("times run forward")).collect();
    (history, ids)
}

fn show(calls: &[Call], initial: &Map) -> String {
    let (_, ids) = history(calls);
    let all = ids.into_iter().zip(calls.iter().copied()).collect();
    format!("initially {initial:?}\n{}", Timeline::new(all))
}

/// Counts verdicts, to show that both kinds occur.
#[derive(Default)]
struct Tally {
    good: u64,
    bad: u64,
    pending: u64,
}

impl Tally {
    fn count(&mut self, calls: &[Call], linearizable: bool) {
        *(if linearizable { &mut self.good } else { &mut self.bad }) += 1;
        self.pending +=
            u64::from(calls.iter().any(|call| matches!(call.fate, Fate::Pending | Fate::Unknown)));
    }

    fn report(&self, judge: &str) {
        let Self { good, bad, pending } = self;
        println!("{judge}: {good} linearizable, {bad} not; {pending} with operations of unknown outcome");
        let all = good + bad;
        assert!(good * 5 >= all && bad * 5 >= all && pending * 5 >= all, "the mix of histories is one-sided");
    }
}

fn decide(checker: &mut Checker, history: &History, initial: &Map) -> Option<Violation> {
    match checker.check(history, initial) {
        Verdict::Linearizable => None,
        Verdict::Violation(violation) => Some(*violation),
        Verdict::Undecided(why) => panic!("{why:?} on a small history"),
    }
}

#[cfg(feature = "stateright")]
#[test]
fn verdicts_agree_with_stateright() {
    let (mut checker, mut tally) = (Checker::new(), Tally::default());
    for seed in 0..SEEDS {
        let (calls, initial) = sample(seed, 9);
        let expected = tester::is_linearizable(&calls, &initial);
        let found = decide(&mut checker, &history(&calls).0, &initial);
        assert_eq!(found.is_none(), expected, "seed {seed}: {}", show(&calls, &initial));
        assert!(is_falsified(seed) || expected, "seed {seed} was not falsified: {}", show(&calls, &initial));
        tally.count(&calls, expected);
    }
    tally.report("stateright");
}

#[test]
fn verdicts_and_explanations_agree_with_enumeration() {
    let (mut checker, mut tally) = (Checker::new(), Tally::default());
    for seed in SEEDS..2 * SEEDS {
        let (calls, initial) = sample(seed, 6);
        let expected = brute::is_linearizable(&calls, &initial);
        let (history, ids) = history(&calls);
        let found = decide(&mut checker, &history, &initial);
        assert_eq!(found.is_none(), expected, "seed {seed}: {}", show(&calls, &initial));
        match found {
            None => verify_witnesses(seed, &mut checker, &history, &calls, &initial),
            Some(violation) => verify_explanation(seed, &violation, &ids, &calls, &initial),
        }
        tally.count(&calls, expected);
    }
    tally.report("enumeration");
}

/// Asserts that each key has an order of all its returned calls that replays to the recorded outcomes.
fn verify_witnesses(seed: u64, checker: &mut Checker, history: &History, calls: &[Call], initial: &Map) {
    for key in history.keys() {
        let order =
            checker.witness(history, key, initial.get(&key).copied()).expect("the key is linearizable");
        let order: Vec<&Call> =
            order.iter().map(|&id| history.get(id).expect("an id of this history")).collect();
        assert!(brute::is_legal(&order, initial), "seed {seed}: {order:?}");
        let returned = |call: &&Call| call.key == key && matches!(call.fate, Fate::Returned { .. });
        let all = calls.iter().filter(returned).count();
        assert_eq!(order.iter().copied().filter(returned).count(), all, "seed {seed}");
    }
}

/// Asserts that the given order is legal and holds all calls that returned before the culprit. Also asserts
/// that exactly the right calls are suspects.
fn verify_explanation(seed: u64, violation: &Violation, ids: &[OpId], calls: &[Call], initial: &Map) {
    let call_of =
        |id: &OpId| &calls[ids.iter().position(|other| other == id).expect("an id of this history")];
    let Fate::Returned { at: stuck, .. } = call_of(&violation.culprit).fate else {
        panic!("seed {seed}: the culprit never returned")
    };
    let order: Vec<&Call> = violation.order.iter().map(call_of).collect();
    assert!(brute::is_legal(&order, initial), "seed {seed}: {violation}");
    for (id, call) in ids.iter().zip(calls).filter(|(_, call)| call.key == violation.key) {
        if matches!(call.fate, Fate::Returned { at, .. } if at < stuck) {
            assert!(violation.order.contains(id), "seed {seed}: {id} is missing\n{violation}");
        }
        let matters = call.fate != Fate::Failed && call.invoked <= stuck;
        assert_eq!(
            violation.calls.iter().any(|(other, _)| other == id),
            matters,
            "seed {seed}: {id}\n{violation}"
        );
        if matters && matches!(call.fate, Fate::Returned { .. }) {
            let unknown = calls.iter().filter(|other| other.key == violation.key).map(|other| {
                let fate = if std::ptr::eq(other, call) { Fate::Unknown } else { other.fate };
                Call { fate, ..*other }
            });
            let fine = brute::is_linearizable(&unknown.collect::<Vec<_>>(), initial);
            assert_eq!(violation.suspects.contains(id), fine, "seed {seed}: suspect {id}?\n{violation}");
        }
    }
}

#[test]
fn the_wide_search_agrees_with_the_narrow_one() {
    let (mut checker, mut tally) = (Checker::new(), Tally::default());
    for seed in 2 * SEEDS..2 * SEEDS + SEEDS / 4 {
        let (mut calls, initial) = sample(seed, 12);
        let narrow = decide(&mut checker, &history(&calls).0, &initial).is_none();
        // Pending operations that can change nothing fill the slots of the narrow search.
        let op = Op::CompareExchange { expected: Some(1000), new: Some(1001) };
        let idle = (0..130).map(|key| Call { client: 99, key: key % 2, op, invoked: 0, fate: Fate::Pending });
        calls.splice(0..0, idle);
        let wide = decide(&mut checker, &history(&calls).0, &initial).is_none();
        assert_eq!(narrow, wide, "seed {seed}: {}", show(&calls, &initial));
        tally.count(&calls, narrow);
    }
    tally.report("wide search");
}

#[test]
fn long_histories_of_an_atomic_map_pass_and_a_lost_value_does_not() {
    let mut checker = Checker::new();
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        // Many operations of unknown outcome over few values make hard instances. Real values are rarely
        // equal.
        let (values, mishaps) = if seed % 2 == 0 { (3, 100) } else { (1 << 40, 6) };
        let shape = generate::Shape { clients: 8, ops: 600, keys: 3, values, mishaps };
        let initial = generate::initial(&mut rng, &shape);
        let mut calls = generate::valid(&mut rng, &shape, &initial);
        assert!(decide(&mut checker, &history(&calls).0, &initial).is_none(), "seed {seed}");
        let end = calls.iter().map(|call| call.invoked).max().unwrap_or(0) + 1000;
        let lost = Fate::Returned { at: end + 1, outcome: Some(1 << 50).into() };
        calls.push(Call { client: 0, key: 1, op: Op::Get, invoked: end, fate: lost });
        let violation = decide(&mut checker, &history(&calls).0, &initial).expect("nobody wrote this value");
        assert_eq!(violation.calls.last().map(|(_, call)| call.invoked), Some(end), "seed {seed}");
    }
}
