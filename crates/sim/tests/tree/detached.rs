//! Dropping the handle of an operation at every await point: the operation runs to its end.

use sherman_core::Techniques;
use sherman_fabric::{Memory, Space, yield_now};
use sherman_sim::tree::{Lab, Scenario, Shape};
use sherman_sim::{Knobs, Random};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Polls `handle` `polls` times, letting the world move in between, and drops it. True if it was done before.
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
        // A full leaf: the insert splits it and its parent learns of it.
        for polls in 0.. {
            let scenario = Scenario { shape: Shape::Four, techniques, loaded: 0, ..Scenario::default() };
            let mut lab = Lab::new(scenario, Knobs::default());
            let compute = lab.join();
            lab.load(&compute, (0..4).map(|key| (2 * key, key)));
            let (worker, tree) = (compute.worker(), Arc::clone(&compute.tree));
            let (key, value) = (lab.scenario.key(3), lab.scenario.value(33));
            let spawner = lab.sim.spawner();
            let fabric = compute.fabric.clone();
            let user = lab.sim.spawn("user", async move {
                let operation = async move { worker.op().insert(&tree, &key, &value, &mut Vec::new()).await };
                let handle = spawner.spawn(Some(&fabric), 0, "operation", operation);
                poll_then_drop(handle, polls).await
            });
            assert!(lab.sim.run(&mut Random::new(polls as u64)).is_done());
            let walk = lab.walk(&compute).expect("a sound tree");
            let keys: Vec<u64> = walk.entries.iter().map(|(key, _)| lab.scenario.key_id(key)).collect();
            assert_eq!((keys, walk.nodes.clone(), walk.missing_separators), (vec![0, 2, 3, 4, 6], vec![2, 1], 0));
            let memory = lab.sim.memory(0);
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
