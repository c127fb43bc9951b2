//! A compute server that is alive but no longer makes progress: it terminates itself, and no client waits for
//! it permanently.

use sherman_core::Error;
use sherman_fabric::{Clock, Memory, Space, sleep_until, yield_now};
use sherman_sim::tree::{Compute, Fixture, Scenario, Shape};
use sherman_sim::{Knobs, Random, SimMemory};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

const LEASE: u64 = 100_000;

fn fixture() -> Fixture {
    let scenario = Scenario { shape: Shape::Four, loaded: 0, lease_nanos: LEASE, ..Scenario::default() };
    Fixture::new(scenario, Knobs { step_nanos: 100, ..Knobs::default() })
}

fn employ_keeper(fixture: &mut Fixture, compute: &Compute, over: &Rc<Cell<bool>>) {
    let (worker, stop) = (compute.worker(), Rc::clone(over));
    drop(fixture.sim.spawn_on(&compute.fabric, 8, "keeper", async move { worker.keep(|| stop.get()).await }));
    let (worker, stop) = (compute.worker(), Rc::clone(over));
    drop(fixture.sim.spawn_on(&compute.fabric, 9, "recoverer", async move {
        worker.recover_others(|| stop.get()).await
    }));
}

fn a_lane_is_held(memory: &SimMemory) -> bool {
    (0..memory.size(Space::OnChip) / 8).any(|word| memory.load_u64(Space::OnChip, 8 * word) != 0)
}

/// Polls `operation` until a lane is held, then stops and drops it.
async fn stop_under_a_lane(operation: impl Future, memory: SimMemory) {
    let mut operation = pin!(operation);
    while !a_lane_is_held(&memory) {
        let done = std::future::poll_fn(|cx| Poll::Ready(operation.as_mut().poll(cx).is_ready())).await;
        assert!(!done, "the operation ended without ever being seen to hold a lane");
        yield_now().await;
    }
}

#[test]
fn a_thread_that_stops_under_a_lane_ends_its_compute_servers_lease() {
    for seed in 0..20 {
        let mut fixture = fixture();
        let (wedged, other) = (fixture.join(), fixture.join());
        fixture.load(&other, (0..4).map(|key| (2 * key, key)));
        let over = Rc::new(Cell::new(false));
        for compute in [&wedged, &other] {
            employ_keeper(&mut fixture, compute, &over);
        }
        let (key, value) = (fixture.scenario.key(2), fixture.scenario.value(33));
        let (worker, tree) = (wedged.worker(), Arc::clone(&wedged.tree));
        let memory = fixture.sim.memory(0);
        let (its_key, its_value) = (key.clone(), value.clone());
        let stuck = fixture.sim.spawn_on(&wedged.fabric, 0, "stuck", async move {
            let operation = async { worker.op().insert(&tree, &its_key, &its_value, &mut Vec::new()).await };
            stop_under_a_lane(operation, memory).await;
            // The thread stands still: the worker is not dropped.
            std::future::pending::<()>().await;
        });
        // A thread of the same compute server queues behind it, and a thread of another one waits for the
        // lane.
        let waits = [&wedged, &other].map(|compute| {
            let (worker, tree) = (compute.worker(), Arc::clone(&compute.tree));
            let (key, value, over) = (key.clone(), value.clone(), Rc::clone(&over));
            let memory = fixture.sim.memory(0);
            let last = std::ptr::eq(compute, &other);
            fixture.sim.spawn_on(&compute.fabric, 1, "waits", async move {
                while !a_lane_is_held(&memory) {
                    yield_now().await;
                }
                let outcome = worker.op().insert(&tree, &key, &value, &mut Vec::new()).await;
                over.set(over.get() || last);
                outcome
            })
        });
        let _ = fixture.sim.run(&mut Random::new(seed));
        let [same, another] = waits.map(|wait| wait.take());
        assert!(matches!(same, Some(Err(Error::Fenced { .. }))), "seed {seed}: {same:?}");
        assert_eq!(another, Some(Ok(true)), "seed {seed}");
        assert!(wedged.shared.is_terminated() && !other.shared.is_terminated(), "seed {seed}");
        assert!(stuck.take().is_none() && !a_lane_is_held(&fixture.sim.memory(0)), "seed {seed}");
        assert_eq!(other.shared.participation().recoveries, 1, "seed {seed}");
    }
}

#[test]
fn a_worker_that_goes_while_it_holds_a_lane_ends_its_identity() {
    let mut fixture = fixture();
    let compute = fixture.join();
    fixture.load(&compute, [(0, 1)]);
    let (worker, tree) = (compute.worker(), Arc::clone(&compute.tree));
    let (key, value) = (fixture.scenario.key(0), fixture.scenario.value(33));
    let memory = fixture.sim.memory(0);
    let task = fixture.sim.spawn_on(&compute.fabric, 0, "goes", async move {
        let operation = async { worker.op().insert(&tree, &key, &value, &mut Vec::new()).await };
        stop_under_a_lane(operation, memory).await;
        drop(worker);
    });
    let _ = fixture.sim.run(&mut Random::new(1));
    task.take().expect("it goes");
    assert!(a_lane_is_held(&fixture.sim.memory(0)) && compute.shared.is_terminated());
}

/// On shared memory, a client that is stopped in the middle of a change cannot be fenced while it lives. A
/// waiting client gets `OwnerStalled`, and loses only the wait. When the stopped client runs again, it is
/// fenced, and its lanes become free.
#[test]
fn a_stalled_owner_is_named_to_waiters_and_is_recovered_once_it_runs_again() {
    for seed in 0..20 {
        let mut fixture = fixture();
        let (stalled, other) = (fixture.join(), fixture.join());
        fixture.load(&other, (0..4).map(|key| (2 * key, key)));
        let over = Rc::new(Cell::new(false));
        for compute in [&stalled, &other] {
            employ_keeper(&mut fixture, compute, &over);
        }
        let (key, value) = (fixture.scenario.key(2), fixture.scenario.value(33));
        let (worker, tree) = (stalled.worker(), Arc::clone(&stalled.tree));
        let memory = fixture.sim.memory(0);
        let (its_key, its_value) = (key.clone(), value.clone());
        let stuck = fixture.sim.spawn_on(&stalled.fabric, 0, "stuck", async move {
            let operation = async { worker.op().insert(&tree, &its_key, &its_value, &mut Vec::new()).await };
            stop_under_a_lane(operation, memory).await;
            std::future::pending::<()>().await;
        });
        // The client holds its lane within a hundred events.
        let (compute_server, steps) = (stalled.fabric.number(), 20_000);
        fixture.sim.fault_at(120, sherman_sim::Fault::Stall { compute_server, steps });
        let (worker, tree) = (other.worker(), Arc::clone(&other.tree));
        let (memory, ended) = (fixture.sim.memory(0), Rc::clone(&over));
        let waits = fixture.sim.spawn_on(&other.fabric, 1, "waits", async move {
            while !a_lane_is_held(&memory) {
                yield_now().await;
            }
            let mut told = 0;
            loop {
                let outcome = worker.op().insert(&tree, &key, &value, &mut Vec::new()).await;
                match outcome {
                    Err(Error::OwnerStalled { client }) => told = client.0,
                    outcome => {
                        ended.set(true);
                        return (told, worker.endpoint().now(), outcome);
                    }
                }
                sleep_until(worker.endpoint(), worker.endpoint().now() + LEASE / 4).await;
            }
        });
        let _ = fixture.sim.run(&mut Random::new(seed));
        let (told, at, outcome) = waits.take().expect("it ends");
        assert_eq!((told, outcome), (stalled.fabric.client().0, Ok(true)), "seed {seed}");
        assert!(at >= steps * 100, "seed {seed}: not before it ran again");
        assert!(!other.shared.is_terminated() && !a_lane_is_held(&fixture.sim.memory(0)), "seed {seed}");
        assert_eq!(other.shared.participation().recoveries, 1, "seed {seed}");
        assert!(stuck.take().is_none());
    }
}
