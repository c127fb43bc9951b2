//! Real threads on embedded memory. Their histories are checked like simulated ones.

use sherman_core::{ComputeOptions, ComputeServer, Format, Techniques, Worker};
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_sim::history::{Call, Fate, History, Op, Outcome};
use sherman_sim::linear::Checker;
use sherman_sim::rng::Rng;
use sherman_sim::tree::{Scenario, Shape};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const COMPUTES: u32 = 2;
const THREADS: u32 = 2;
const OPERATIONS: u64 = 30_000;
const KEYS: usize = 24;

/// Runs the operations of one thread and returns its calls. All threads share the clock, and every reading of
/// it is a distinct time.
fn client(
    worker: &Worker<EmbeddedEndpoint>,
    scenario: &Scenario,
    clock: &AtomicU64,
    client: u32,
) -> Vec<Call> {
    let tree =
        block_on(worker.endpoint(), worker.tree("t", &scenario.shape.spec(scenario.format))).expect("a tree");
    let mut rng = Rng::new(u64::from(client) + 1);
    let mut found = Vec::new();
    (0..OPERATIONS)
        .map(|number| {
            let key = rng.below(KEYS) as u64;
            let value = (u64::from(client) << 32) + number;
            let insert = rng.one_in(2);
            let (key_bytes, value_bytes) = (scenario.key(key), scenario.value(value));
            let operation = worker.op();
            let invoked = clock.fetch_add(1, Ordering::SeqCst);
            let there = if insert {
                block_on(worker.endpoint(), operation.insert(&tree, &key_bytes, &value_bytes, &mut found))
            } else {
                block_on(worker.endpoint(), operation.get(&tree, &key_bytes, &mut found))
            };
            let at = clock.fetch_add(1, Ordering::SeqCst);
            let there = there.expect("nothing fails");
            let seen = there.then(|| scenario.value_id(&found).expect("a whole value"));
            let op = if insert { Op::Insert(value) } else { Op::Get };
            Call { client, key, op, invoked, fate: Fate::Returned { at, outcome: Outcome::Value(seen) } }
        })
        .collect()
}

fn hammer(format: Format, techniques: Techniques, atomicity: Atomicity) {
    let scenario = Scenario { shape: Shape::Four, format, techniques, ..Scenario::default() };
    let options =
        EmbeddedOptions { servers: 2, memory_bytes: 64 << 20, atomicity, ..EmbeddedOptions::default() };
    let cluster = EmbeddedCluster::new(options).expect("a cluster");
    let clock = AtomicU64::new(0);
    let mut history = History::new();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for compute in 0..COMPUTES {
            let fabric = cluster.join().expect("a compute server");
            let endpoint = fabric.endpoint();
            let options = ComputeOptions { techniques, ..ComputeOptions::default() };
            let shared =
                block_on(&endpoint, ComputeServer::open(&endpoint, options)).expect("a compute server");
            for thread in 0..THREADS {
                let (fabric, shared, scenario, clock) =
                    (fabric.clone(), Arc::clone(&shared), &scenario, &clock);
                threads.push(scope.spawn(move || {
                    let worker = Worker::new(fabric.endpoint(), shared);
                    client(&worker, scenario, clock, compute * THREADS + thread)
                }));
            }
        }
        for thread in threads {
            for call in thread.join().expect("a thread that ends") {
                history.record(call).expect("times run forward");
            }
        }
    });
    let verdict = Checker::new().check(&history, &BTreeMap::new());
    assert!(verdict.is_linearizable(), "{format:?}: {verdict}");
}

#[test]
fn threads_on_embedded_memory_are_linearizable() {
    hammer(Format::LineStamped, Techniques::OURS, Atomicity::Line);
    hammer(Format::LineStamped, Techniques::SHERMAN, Atomicity::Line);
    hammer(Format::Sorted, Techniques::OURS, Atomicity::Line);
    hammer(Format::SortedStamped, Techniques { cache: true, ..Techniques::NONE }, Atomicity::Line);
    hammer(Format::TwoLevel, Techniques::SHERMAN, Atomicity::Verb);
}
