//! Fills a tree, empties it and fills it again. It takes no more memory than the first time.

use crate::support::{Dice, EmbeddedWorker, World, WorldOptions, runs_in_full, spec, walk};
use sherman_core::tree::range::{Direction, Scan};
use sherman_core::{Format, TreeState};
use sherman_executor::block_on;
use sherman_fabric::Clock;
use std::ops::Bound;

/// Returns the `number`th key. All keys differ, and they are in no order.
fn key(number: u64) -> [u8; 8] {
    Dice(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next().to_be_bytes()
}

/// Counts the pairs that a full scan delivers, and asserts that they ascend.
fn count(worker: &EmbeddedWorker, tree: &TreeState) -> u64 {
    let mut scan =
        Scan::new(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward, 16).expect("a good range");
    let op = worker.op();
    let (mut count, mut last) = (0, None);
    while block_on(worker.endpoint(), op.refill(tree, &mut scan)).expect("a scan") {
        while let Some((key, _)) = scan.next() {
            let key: [u8; 8] = key.try_into().expect("eight bytes");
            assert!(last < Some(key), "keys come in order and once");
            last = Some(key);
            count += 1;
        }
    }
    count
}

fn fill_and_empty(keys: u64, memory_bytes: u64, chunk_bytes: u64) {
    let world = World::new(&WorldOptions {
        memory_servers: 1,
        compute_servers: 1,
        memory_bytes,
        chunk_bytes,
        lanes: None,
        ..WorldOptions::default()
    });
    let worker = world.worker(0);
    let spec = spec(Format::LineStamped, 8, 8, 1024, 1024);
    let tree = block_on(worker.endpoint(), worker.tree("t", &spec)).expect("a tree");
    let live = || world.census().made - world.census().freed;
    let mut first = None;
    let mut old = Vec::new();
    for round in 0..4_u64 {
        let began = worker.endpoint().now();
        for number in 0..keys {
            let op = worker.op();
            let there =
                block_on(worker.endpoint(), op.insert(&tree, &key(number), &number.to_be_bytes(), &mut old));
            assert_eq!(there, Ok(false));
        }
        let filled = worker.endpoint().now();
        let (nodes, chunks) = (live(), world.chunks());
        assert_eq!(count(&worker, &tree), keys);
        let counted = worker.endpoint().now();
        // Removes every third key first, so that leaves empty slowly.
        for number in (0..3).flat_map(|rest| (0..keys).filter(move |number| number % 3 == rest)) {
            let op = worker.op();
            assert_eq!(block_on(worker.endpoint(), op.remove(&tree, &key(number), &mut old)), Ok(true));
            assert_eq!(old, number.to_be_bytes());
        }
        let emptied = worker.endpoint().now();
        println!(
            "round {round}: {keys} keys in {nodes} nodes and {chunks} chunks; filled in {:.1} s, scanned in \
             {:.1} s, emptied in {:.1} s to {} node(s), {} chunks",
            (filled - began) as f64 / 1e9,
            (counted - filled) as f64 / 1e9,
            (emptied - counted) as f64 / 1e9,
            live(),
            world.chunks(),
        );
        let (nodes_then, chunks_then) = *first.get_or_insert((nodes, chunks));
        assert!(nodes.abs_diff(nodes_then) * 50 <= nodes_then, "{nodes} nodes, {nodes_then} at first");
        assert!(world.chunks() <= chunks_then, "more chunks than the first time");
        let empty = walk(&worker, &tree);
        assert_eq!(empty.nodes, [1]);
        world.assert_balanced(&[&empty]);
        world.assert_at_rest();
    }
}

#[test]
fn a_tree_that_is_refilled_takes_no_more_memory_than_the_first_time() {
    fill_and_empty(if runs_in_full() { 200_000 } else { 60_000 }, 256 << 20, 1 << 20);
}

/// Takes some minutes: `cargo test --release -p sherman-core --test refill -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes and a gigabyte"]
fn ten_million_keys_refilled_take_no_more_memory_than_the_first_time() {
    fill_and_empty(10_000_000, 2 << 30, 8 << 20);
}
