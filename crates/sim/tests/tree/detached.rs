//! Drops the handle of an operation at every await point: the operation still runs to its end.

use sherman_core::Techniques;
use sherman_fabric::{Memory, Space, yield_now};
use sherman_sim::tree::{Fixture, Scenario, Shape};
use sherman_sim::{Knobs, Random};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Polls `handle` `polls` times, lets the world move in between, and drops it. Returns true if the operation
/// was done before.
async fn poll_then_drop(handle: impl Future, polls: usize) -> bool {
    let mut handle = pin!(handle);
    for _ in 0..polls {
        let done = std::future::poll_fn(|cx| Poll::Ready(handle.as_mut().poll(cx).is_ready())).await;
        if done {
            return true;
        }
        yield_now().await;
    }
    false
}

#[test]
fn dropping_an_operation_anywhere_leaves_no_lane_held_and_nothing_half_made() {
    for techniques in [Techniques::OURS, Techniques::SHERMAN] {
        // The leaf is full: the insert splits it and posts the separator to its parent.
        for polls in 0.. {
            let scenario = Scenario { shape: Shape::Four, techniques, loaded: 0, ..Scenario::default() };
            let mut fixture = Fixture::new(scenario, Knobs::default());
            let compute = fixture.join();
            fixture.load(&compute, (0..4).map(|key| (2 * key, key)));
            let (worker, tree) = (compute.worker(), Arc::clone(&compute.tree));
            let (key, value) = (fixture.scenario.key(3), fixture.scenario.value(33));
            let spawner = fixture.sim.spawner();
            let fabric = compute.fabric.clone();
            let user = fixture.sim.spawn("user", async move {
                let operation = async move { worker.op().insert(&tree, &key, &value, &mut Vec::new()).await };
                let handle = spawner.spawn(Some(&fabric), 0, "operation", operation);
                poll_then_drop(handle, polls).await
            });
            assert!(fixture.sim.run(&mut Random::new(polls as u64)).is_done());
            let walk = fixture.walk(&compute).expect("a sound tree");
            let keys: Vec<u64> = walk.entries.iter().map(|(key, _)| fixture.scenario.key_id(key)).collect();
            assert_eq!(
                (keys, walk.nodes.clone(), walk.missing_separators),
                (vec![0, 2, 3, 4, 6], vec![2, 1], 0)
            );
            let memory = fixture.sim.memory(0);
            for word in 0..memory.size(Space::OnChip) / 8 {
                assert_eq!(memory.load_u64(Space::OnChip, 8 * word), 0, "a lane is held after {polls} polls");
            }
            assert!(compute.shared.local_locks().all_free() && compute.shared.redo_slots().all_free());
            if user.take().expect("the user is done") {
                println!("{techniques:?}: dropped at each of {polls} polls");
                assert!(polls > 6, "an insert with a split awaits more often than that");
                break;
            }
        }
    }
}
