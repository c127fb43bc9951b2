//! Measures leases and redo records: no operation waits for them.

use crate::{cluster_with, key, tree, value, worker};
use sherman_core::{ComputeOptions, Techniques, TreeState, Worker};
use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::{Clock, Endpoint, Tally};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const LEASE_NANOS: u64 = 60_000_000;

/// Returns the costs of a lookup and of an update, both with a warm cache.
fn costs(worker: &Worker<EmbeddedEndpoint>, tree: &TreeState) -> [Tally; 2] {
    let (get, update) = (worker.op(), worker.op());
    let found = block_on(worker.endpoint(), get.get(tree, &key(1), &mut Vec::new()));
    let updated = block_on(worker.endpoint(), update.insert(tree, &key(1), &value(2), &mut Vec::new()));
    assert_eq!((found, updated), (Ok(true), Ok(true)));
    [get.tally(), update.tally()]
}

#[test]
fn leases_cost_operations_nothing_and_their_keeper_three_requests_each() {
    let cluster = cluster_with(LEASE_NANOS);
    let fabric = cluster.join().expect("a compute server");
    let worker = worker(&fabric, ComputeOptions::default(), |plain| plain);
    let tree = tree(&worker);
    block_on(worker.endpoint(), worker.op().insert(&tree, &key(1), &value(1), &mut Vec::new()))
        .expect("room");
    // With a warm cache and without a keeper, this shows what operations alone cost.
    costs(&worker, &tree);
    let alone = costs(&worker, &tree);
    assert_eq!(alone.map(|cost| cost.round_trips), [1, 2]);

    let (stop, compute) = (AtomicBool::new(false), Arc::clone(worker.compute()));
    thread::scope(|scope| {
        let began = worker.endpoint().now();
        let keeper = scope.spawn(|| {
            let keeper = Worker::new(fabric.endpoint(), Arc::clone(&compute));
            block_on(keeper.endpoint(), keeper.keep(|| stop.load(Ordering::Relaxed))).expect("it is alive");
            keeper.endpoint().counters().read()
        });
        let before = worker.endpoint().counters().read();
        let mut rounds = 0;
        while worker.endpoint().now() - began < 20 * LEASE_NANOS {
            assert_eq!(costs(&worker, &tree), alone);
            rounds += 1;
        }
        let spent = worker.endpoint().counters().read().since(&before);
        assert_eq!(
            (spent.round_trips, spent.calls),
            (3 * rounds, 0),
            "nothing but the operations themselves"
        );
        stop.store(true, Ordering::Relaxed);
        let kept = keeper.join().expect("it did not panic");
        let leases = (worker.endpoint().now() - began) as f64 / LEASE_NANOS as f64;
        assert_eq!((kept.round_trips, kept.verbs()), (0, 0), "a lease is kept by requests alone");
        assert!(kept.calls as f64 <= 3.0 * leases, "{} requests in {leases} leases", kept.calls);
        assert!(kept.calls >= 20, "{} requests in {leases} leases", kept.calls);
        assert_eq!(kept.calls, worker.compute().participation().renewals);
    });
}

/// Returns the cost of each of many changes, including splits, merges, growth and shrinking.
fn every_cost(techniques: Techniques) -> Vec<Tally> {
    // So many lanes that no two nodes share one. With records, nodes lie elsewhere, and a shared lane would
    // be one less to take.
    let options = EmbeddedOptions { memory_bytes: 64 << 20, ..EmbeddedOptions::default() };
    let cluster = EmbeddedCluster::new(options).expect("a cluster");
    let fabric = cluster.join().expect("a compute server");
    let worker = worker(&fabric, ComputeOptions { techniques, ..ComputeOptions::default() }, |plain| plain);
    let tree = tree(&worker);
    let mut costs = Vec::new();
    for number in (0..=255).map(|number: u8| number.wrapping_mul(97)) {
        let op = worker.op();
        block_on(worker.endpoint(), op.insert(&tree, &key(number), &value(1), &mut Vec::new()))
            .expect("room");
        costs.push(op.tally());
    }
    for number in (0..=255).map(|number: u8| number.wrapping_mul(59)) {
        let op = worker.op();
        assert_eq!(block_on(worker.endpoint(), op.remove(&tree, &key(number), &mut Vec::new())), Ok(true));
        costs.push(op.tally());
    }
    let merges = tree.merges();
    assert!(merges.leaves > 10 && merges.internal > 0 && merges.shrinks > 0, "{merges:?}");
    costs
}

#[test]
fn redo_records_cost_no_round_trip() {
    let (with, without) =
        (every_cost(Techniques::OURS), every_cost(Techniques { redo: false, ..Techniques::OURS }));
    let mut logged = 0;
    for (number, (with, without)) in with.iter().zip(&without).enumerate() {
        assert_eq!(with.round_trips, without.round_trips, "change {number}: {with:?}, {without:?}");
        assert_eq!((with.reads, with.atomics), (without.reads, without.atomics), "change {number}");
        logged += usize::from(with.writes > without.writes);
    }
    assert!(logged > 50, "only {logged} changes had a record");
}
