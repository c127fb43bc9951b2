//! Drops an operation's future at every await point.

use crate::wrapped::Wrapped;
use crate::{cluster, key, lanes_are_free, tree, value, worker};
use sherman_core::session::Session;
use sherman_core::{ComputeOptions, Techniques, Worker};
use sherman_executor::block_on;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Polls an operation `polls` times while its session runs, then drops it. Returns true if it was done
/// before.
fn poll_then_drop<F: Future>(session: &Session<Worker<Wrapped>>, operation: F, polls: usize) -> bool {
    let mut operation = pin!(operation);
    let mut left = polls;
    session.run(std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        if operation.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }))
}

#[test]
fn dropping_a_future_at_any_await_point_leaves_no_lane_held_and_no_half_made_change() {
    for techniques in [Techniques::OURS, Techniques::SHERMAN, Techniques::NONE] {
        for polls in 0.. {
            let cluster = cluster();
            let fabric = cluster.join().expect("a compute server");
            let options = ComputeOptions { techniques, ..ComputeOptions::default() };
            let plain = worker(&fabric, options.clone(), |endpoint| endpoint);
            let tree = tree(&plain);
            for number in [0, 2, 4, 6] {
                let op = plain.op();
                block_on(plain.endpoint(), op.insert(&tree, &key(number), &value(number), &mut Vec::new()))
                    .expect("room");
            }
            let compute = Arc::clone(plain.compute());
            let session = Session::new(worker(&fabric, options, Wrapped::late));
            // The leaf is full: the insert splits it, and grows a root over both halves.
            let shared = Arc::clone(&tree);
            let insert = session.start(|worker| async move {
                worker.op().insert(&shared, &key(3), &value(3), &mut Vec::new()).await
            });
            let finished = poll_then_drop(&session, insert, polls);
            let slow = Arc::clone(session.seat().compute());
            drop(session);
            assert!(lanes_are_free(&cluster), "a lane is held after {polls} polls");
            assert!(
                slow.local_locks().all_free()
                    && slow.redo_slots().all_free()
                    && compute.local_locks().all_free()
            );
            let op = plain.op();
            let walk = block_on(plain.endpoint(), op.walk(&tree)).expect("a sound tree");
            let keys: Vec<u8> = walk.entries.iter().map(|(key, _)| key[0]).collect();
            assert_eq!(keys, [0, 2, 3, 4, 6], "after {polls} polls");
            assert_eq!((walk.nodes, walk.missing_separators), (vec![2, 1], 0), "after {polls} polls");
            if finished {
                assert!(polls > 6, "a split with growth awaits more often than {polls} times");
                break;
            }
        }
    }
}
