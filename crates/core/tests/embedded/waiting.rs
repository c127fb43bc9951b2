//! Waiting ends at a deadline, in an error that names its cause.

use crate::{LANES, cluster, key, lanes_are_free, tree, value, worker};
use sherman_core::{Cause, ComputeOptions, Error, Techniques};
use sherman_embedded::EmbeddedEndpoint;
use sherman_executor::block_on;
use sherman_fabric::{Clock, Counters, Endpoint, Space, execute};
use std::time::Duration;

/// Sets every lane from one value to another.
fn set_lanes(endpoint: &EmbeddedEndpoint, from: u64, to: u64) {
    let mut list = endpoint.list(0);
    for word in 0..u64::from(LANES) * 2 / 8 {
        list.cas(Space::OnChip, 8 * word, from, to);
    }
    block_on(endpoint, execute(endpoint, list, &Counters::default())).expect("the server is there");
}

#[test]
fn a_lane_that_stays_held_ends_in_a_timeout_that_names_it() {
    for techniques in [Techniques::OURS, Techniques::SHERMAN, Techniques::NONE] {
        let cluster = cluster();
        let fabric = cluster.join().expect("a compute server");
        let stranger = cluster.join().expect("another").endpoint();
        let timeout = Duration::from_millis(50);
        let worker =
            worker(&fabric, ComputeOptions { techniques, timeout, ..ComputeOptions::default() }, |plain| {
                plain
            });
        let tree = tree(&worker);
        let insert = |number: u8| {
            let op = worker.op();
            block_on(worker.endpoint(), op.insert(&tree, &key(1), &value(number), &mut Vec::new()))
        };
        assert_eq!(insert(1), Ok(false));
        set_lanes(&stranger, 0, 0x9999_9999_9999_9999);
        let began = worker.endpoint().now();
        match insert(2) {
            Err(Error::Timeout { cause: Cause::LaneHeld, waited }) => assert!(waited >= timeout),
            other => panic!("{techniques:?}: {other:?}"),
        }
        assert!(worker.endpoint().now() - began < 5_000_000_000, "the deadline was kept");
        // Readers take no lane.
        let mut found = Vec::new();
        let op = worker.op();
        assert_eq!(block_on(worker.endpoint(), op.get(&tree, &key(1), &mut found)), Ok(true));
        assert_eq!(found, value(1), "nothing was changed");
        set_lanes(&stranger, 0x9999_9999_9999_9999, 0);
        assert_eq!(insert(3), Ok(true));
        assert!(lanes_are_free(&cluster) && worker.compute().local_locks().all_free());
    }
}
