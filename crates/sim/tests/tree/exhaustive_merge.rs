//! Every interleaving of a merge with a reader, a scan or a writer, on leaves of four entries.
//!
//! The merger's own READs arrive in ascending order of units. Next to a reader this loses no case. Next to a
//! writer it loses only torn images of the nodes that the merger reads without lanes. The merger uses those
//! only as a hint.

use sherman_core::{Direction, Error, Format, Op as TreeOp, Scan, Techniques};
use sherman_sim::history::{History, Op};
use sherman_sim::linear::{Checker, Pair, Sweep};
use sherman_sim::tree::{Compute, Fixture, Scenario, Shape, join};
use sherman_sim::{
    Actor, Bounds, Choice, ChoiceKind, Exhaustive, Knobs, Limits, Report, Scheduler, Sim, VolumeEndpoint,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The operation of one client.
#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    Scan(Direction),
}

/// The observations of the clients.
#[derive(Default)]
struct Seen {
    history: RefCell<History>,
    sweeps: RefCell<Vec<Sweep>>,
}

/// Loaded in descending order, and the last key removed again: leaves with the keys 0 and 2, 4 and 6, 10 to
/// 14 under one root. Removing 2 merges the first two: 4 and 6 move left.
const LOADED: [u64; 8] = [14, 12, 10, 8, 6, 4, 2, 0];
const UNLOADED: u64 = 8;
const LAST: u64 = 14;

/// Runs the steps in every order, each on a compute server of its own that knows the tree as it was loaded.
fn every_interleaving(format: Format, steps: &[Step], lists: u64) -> Report {
    let techniques = Techniques { redo: false, ..Techniques::OURS };
    let scenario = Scenario { shape: Shape::Four, format, techniques, ..Scenario::default() };
    // Units of one WRITE land in ascending order here. The random schedulers land them in any order.
    let knobs = Knobs { overtake: false, write_units_any_order: false, ..Knobs::default() };
    let mut fixture = Fixture::new(scenario.clone(), knobs);
    let mut initial: BTreeMap<u64, u64> = LOADED.into_iter().map(|key| (key, 100 + key)).collect();
    initial.remove(&UNLOADED);
    let loader = fixture.join();
    fixture.load(&loader, LOADED.map(|key| (key, 100 + key)));
    fixture.unload(&loader, [UNLOADED]);
    let nodes = fixture.walk(&loader).expect("a sound tree").nodes;
    assert!(nodes[0] >= 3 && nodes.len() == 2, "{nodes:?}: three leaves or more under a root");
    fixture.sim.checkpoint();
    fixture.sim.set_limits(Limits { lists_per_task: lists, ..Limits::default() });
    let Fixture { mut sim, .. } = fixture;
    let (mut checker, mut merged) = (Checker::new(), 0);
    let mut search = Exhaustive::new(Bounds { executions: 3_000_000, ..Bounds::default() });
    while search.begin() {
        sim.rewind();
        let seen: Rc<Seen> = Rc::default();
        let computes: Vec<Compute> = steps.iter().map(|_| knowing(&mut sim, &scenario)).collect();
        let cast = steps.iter().zip(&computes).enumerate();
        let endpoints: Vec<u32> = cast
            .map(|(client, (&step, compute))| {
                cast_as(&mut sim, &scenario, compute, client as u32, step, &seen)
            })
            .collect();
        let run = sim.run(&mut InOrder { search: &mut search, merger: endpoints[0] });
        if matches!(run.outcome, sherman_sim::Outcome::ListLimit | sherman_sim::Outcome::StepLimit) {
            search.truncate();
        }
        merged += computes.iter().map(|compute| compute.tree.merges().leaves).sum::<u64>();
        check(&mut checker, &seen, &initial, steps);
    }
    assert!(merged > 0, "some executions reach the merge's end");
    search.report()
}

/// Also checks executions that were cut: their answers so far are real.
fn check(checker: &mut Checker, seen: &Seen, initial: &BTreeMap<u64, u64>, steps: &[Step]) {
    let mut history = seen.history.borrow_mut();
    for sweep in seen.sweeps.borrow().iter() {
        sweep.check_order().unwrap_or_else(|flaw| panic!("{steps:?}: {flaw}"));
        sweep.observe(&mut history, &initial.keys().copied().collect()).expect("times that make sense");
    }
    let verdict = checker.check(&history, initial);
    assert!(verdict.is_linearizable(), "{steps:?}: {verdict}");
}

/// Adds a compute server that knows the root and the path to every leaf, and is allowed to change memory.
fn knowing(sim: &mut Sim, scenario: &Scenario) -> Compute {
    let compute = join(sim, scenario);
    let worker = compute.worker();
    sim.block_on(async { worker.op().get(&compute.tree, &scenario.key(0), &mut Vec::new()).await })
        .expect("alone, nothing has to be waited for")
        .expect("a quiet tree answers");
    sim.block_on(worker.activate()).expect("nothing has to be waited for").expect("there is memory");
    compute
}

/// Tries everything except other orders of the units that the merger fetches.
struct InOrder<'s> {
    search: &'s mut Exhaustive,
    /// The merger's endpoint.
    merger: u32,
}

impl Scheduler for InOrder<'_> {
    fn pick(&mut self, choices: &[Choice]) -> usize {
        let merger = |actor| matches!(actor, Actor::QueuePair { endpoint, .. } if endpoint == self.merger);
        if choices.iter().all(|choice| choice.kind == ChoiceKind::Fetch && merger(choice.actor)) {
            return 0;
        }
        self.search.pick(choices)
    }

    fn wants_state(&self) -> bool {
        true
    }

    fn enter(&mut self, state: u64) -> bool {
        self.search.enter(state)
    }
}

/// Spawns a client. Returns its endpoint.
fn cast_as(
    sim: &mut Sim,
    scenario: &Scenario,
    compute: &Compute,
    client: u32,
    step: Step,
    seen: &Rc<Seen>,
) -> u32 {
    let (worker, compute_tree, seen, scenario) =
        (compute.worker(), Arc::clone(&compute.tree), Rc::clone(seen), scenario.clone());
    let spawner = sim.spawner();
    let endpoint = worker.endpoint().inner().number();
    let task = async move {
        let tree = &*compute_tree;
        // A reader makes one attempt. A second attempt would be that of a later reader, and those are
        // covered.
        let once = || worker.op_within(Duration::ZERO);
        // The order of calls and answers is part of the state, because the checker depends on it.
        spawner.note(u64::from(client));
        let (key, asked) = match step {
            Step::Get(key) => (key, Op::Get),
            Step::Insert(key, value) => (key, Op::Insert(value)),
            Step::Remove(key) => (key, Op::Remove),
            Step::Scan(direction) => {
                let began = seen.history.borrow_mut().moment();
                let backward = direction == Direction::Backward;
                let mut sweep =
                    Sweep { client, backward, low: 0, high: LAST, began, pairs: Vec::new(), ended: None };
                let mut scan =
                    Scan::new(tree, Bound::Unbounded, Bound::Unbounded, direction, 4).expect("a legal range");
                loop {
                    match once().refill(tree, &mut scan).await {
                        Ok(true) => {}
                        Ok(false) => {
                            sweep.ended = Some(seen.history.borrow_mut().moment());
                            break;
                        }
                        Err(Error::Timeout { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                    let at = seen.history.borrow_mut().moment();
                    while let Some((key, value)) = scan.next() {
                        // A torn value reads as a value that no client wrote, which no order explains.
                        let value = scenario.value_id(value).unwrap_or(u64::MAX);
                        sweep.pairs.push(Pair { key: scenario.key_id(key), value, at });
                    }
                    spawner.note(0x200 + u64::from(client));
                }
                seen.sweeps.borrow_mut().push(sweep);
                return spawner.note(0x100 + u64::from(client));
            }
        };
        let call = seen.history.borrow_mut().invoke(client, key, asked);
        let mut found = Vec::new();
        let (bytes, op): (_, TreeOp<'_, VolumeEndpoint>) =
            (scenario.key(key), if asked == Op::Get { once() } else { worker.op() });
        let outcome = match step {
            Step::Insert(_, value) => op.insert(tree, &bytes, &scenario.value(value), &mut found).await,
            Step::Remove(_) => op.remove(tree, &bytes, &mut found).await,
            _ => op.get(tree, &bytes, &mut found).await,
        };
        let mut history = seen.history.borrow_mut();
        match outcome {
            Ok(there) => {
                let value = there.then(|| scenario.value_id(&found).unwrap_or(u64::MAX));
                history.ret(call, value).expect("called once");
            }
            Err(Error::Timeout { .. }) => history.failed(call).expect("called once"),
            Err(error) => panic!("{error}"),
        }
        spawner.note(0x100 + u64::from(client));
    };
    drop(sim.spawn_on(&compute.fabric, client, "client", task));
    endpoint
}

/// Number of lists that the merger needs up to the end of the merge. Its later work on the root is cut.
const MERGER: u64 = 12;

#[test]
#[ignore = "takes minutes: run by hand, with --ignored"]
fn every_interleaving_of_a_merge_with_a_reader_is_linearizable() {
    for (what, reader) in [
        ("a get of what moves", Step::Get(4)),
        ("a get of what stays", Step::Get(0)),
        ("a get of what is removed", Step::Get(2)),
        ("a scan across", Step::Scan(Direction::Forward)),
        ("a scan back across", Step::Scan(Direction::Backward)),
    ] {
        let report = every_interleaving(Format::LineStamped, &[Step::Remove(2), reader], MERGER);
        println!("a merge and {what}: {report:?}");
        assert!(report.finished, "{what}: {report:?}");
    }
}

#[test]
#[ignore = "takes minutes: run by hand, with --ignored"]
fn every_interleaving_of_a_merge_with_a_writer_is_linearizable() {
    for (what, writer) in
        [("an update of what moves", Step::Insert(4, 7)), ("an insert into what grows", Step::Insert(1, 7))]
    {
        let report = every_interleaving(Format::LineStamped, &[Step::Remove(2), writer], MERGER);
        println!("a merge and {what}: {report:?}");
        assert!(report.finished, "{what}: {report:?}");
    }
}
