//! Values of any length: random histories compared with a `BTreeMap`, round trips, and the memory that they
//! take.

use crate::support::{Dice, EmbeddedWorker, World, WorldOptions, runs_in_full, spec, walk};
use sherman_core::tree::range::Direction;
use sherman_core::{Error, Exchange, Format, Scan, TreeState};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A tree whose values have any length, with slots of `slot` bytes.
fn any_length(format: Format, key: usize, slot: usize, leaf: usize) -> TreeSpec {
    let spec = spec(format, key, slot, leaf, 256);
    TreeSpec { value_len: spec.value_len | TreeSpec::ANY_LENGTH, ..spec }
}

fn world() -> World {
    World::new(&WorldOptions { chunk_bytes: 8 << 20, memory_bytes: 512 << 20, ..WorldOptions::default() })
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Bytes that depend on the number everywhere.
fn bytes(len: usize, number: u64) -> Vec<u8> {
    let mut dice = Dice(number);
    let mut value: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| dice.next().to_le_bytes()).collect();
    value.truncate(len);
    value
}

/// A length from 0 to 1 MiB. Short ones are frequent.
fn length(dice: &mut Dice) -> usize {
    let most = [1, 17, 70, 300, 1500, 5000, 70_000, 1 << 20];
    let at = if dice.one_in(60) {
        7
    } else if dice.one_in(20) {
        6
    } else {
        dice.below(6) as usize
    };
    dice.below(most[at] + 1) as usize
}

/// A tree, and what it must hold.
struct Pair<'w> {
    worker: &'w EmbeddedWorker,
    tree: &'w TreeState,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Pair<'_> {
    fn check_scan(&self, from: u64, to: u64, direction: Direction, limit: Option<usize>) {
        let (from, to) = (key(from), key(to));
        let mut scan = Scan::new(self.tree, Bound::Included(&from), Bound::Excluded(&to), direction, 3)
            .expect("a range");
        if let Some(limit) = limit {
            scan.set_limit(limit);
        }
        let mut expected: Vec<_> = self.model.range(from..to).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut expected = expected.into_iter().take(limit.unwrap_or(usize::MAX));
        while block_on(self.worker.endpoint(), self.worker.op().refill(self.tree, &mut scan)).expect("a read")
        {
            while let Some((key, value)) = scan.next() {
                assert!(expected.next().is_some_and(|(k, v)| (&k[..], &v[..]) == (key, value)));
            }
        }
        assert!(expected.next().is_none());
    }

    fn step(&mut self, dice: &mut Dice, keys: u64) {
        let (worker, tree) = (self.worker, self.tree);
        let (endpoint, op) = (worker.endpoint(), worker.op());
        let (number, mut found) = (dice.below(keys), Vec::new());
        let key = key(number);
        let there = self.model.get(&key).cloned();
        let new = bytes(length(dice), dice.next());
        match dice.below(12) {
            0..=4 => {
                let was = block_on(endpoint, op.insert(tree, &key, &new, &mut found)).expect("an insert");
                assert_eq!(was.then_some(found), self.model.insert(key, new));
            }
            5..=6 => {
                let was = block_on(endpoint, op.remove(tree, &key, &mut found)).expect("a remove");
                assert_eq!(was.then_some(found), self.model.remove(&key));
            }
            7 => {
                let put = op.insert_if_absent(tree, &key, &new, &mut found);
                assert_eq!(block_on(endpoint, put).expect("an insert").then_some(found), there);
                self.model.entry(key).or_insert(new);
            }
            8 => {
                let expected = if dice.one_in(4) { Some(new.clone()) } else { there.clone() };
                let wanted = (!dice.one_in(3)).then_some(new);
                let exchange =
                    op.compare_exchange(tree, &key, expected.as_deref(), wanted.as_deref(), &mut found);
                let done = block_on(endpoint, exchange).expect("an exchange");
                let right = match &there {
                    _ if there == expected => Exchange::Done,
                    Some(_) => Exchange::Found,
                    None => Exchange::Absent,
                };
                assert_eq!(done, right);
                match (done, wanted) {
                    (Exchange::Done, Some(wanted)) => drop(self.model.insert(key, wanted)),
                    (Exchange::Done, None) => drop(self.model.remove(&key)),
                    (Exchange::Found, _) => assert_eq!(Some(found), there),
                    _ => {}
                }
            }
            9 => {
                let direction = if dice.one_in(2) { Direction::Forward } else { Direction::Backward };
                let limit = dice.one_in(2).then(|| dice.below(20) as usize);
                self.check_scan(number, number + 1 + dice.below(30), direction, limit);
            }
            _ => {
                let was = block_on(endpoint, op.get(tree, &key, &mut found)).expect("a get");
                assert_eq!(was.then_some(found), there);
            }
        }
    }
}

#[test]
fn random_histories_of_values_of_any_length_leave_what_a_btreemap_holds() {
    for (format, key_len, slot, leaf) in [
        (Format::LineHashed, 8, 16, 256),
        (Format::LineStamped, 8, 52, 576),
        (Format::LineStamped, 8, 90, 1024),
        (Format::SortedStamped, 8, 300, 2048),
    ] {
        let world = world();
        let (first, second) = (world.worker(0), world.worker(1));
        let spec = any_length(format, key_len, slot, leaf);
        let tree = block_on(first.endpoint(), first.tree("t", &spec)).expect("a tree");
        let mut dice = Dice(leaf as u64);
        let mut pair = Pair { worker: &first, tree: &tree, model: BTreeMap::new() };
        for step in 0..if runs_in_full() { 6000 } else { 1500 } {
            // Both compute servers free and use each other's places.
            pair.worker = if step / 50 % 2 == 0 { &first } else { &second };
            pair.step(&mut dice, 200);
        }
        pair.check_scan(0, 1000, Direction::Forward, None);
        let found = walk(&first, &tree);
        assert!(found.entries.iter().map(|(key, value)| (key, value)).eq(&pair.model), "{format:?}");
        world.assert_balanced(&[&found]);
        world.assert_at_rest();
        let check = block_on(first.endpoint(), first.check(&tree)).expect("a check");
        assert!(check.is_clean(), "{:?}", check.broken);
        // Without the tree nothing is left.
        let gone = if slot == 16 {
            block_on(first.endpoint(), first.clear(&tree)).expect("a clearing")
        } else {
            pair.model.len() as u64
        };
        assert_eq!(gone, pair.model.len() as u64);
        block_on(first.endpoint(), first.drop_tree("t")).expect("a drop");
        world.assert_balanced(&[]);
    }
}

/// The round trips of one operation.
fn cost(
    worker: &EmbeddedWorker,
    run: impl AsyncFnOnce(&sherman_core::Op<'_, sherman_embedded::EmbeddedEndpoint>),
) -> u64 {
    let op = worker.op();
    block_on(worker.endpoint(), run(&op));
    op.tally().round_trips
}

#[test]
fn a_put_takes_two_round_trips_and_a_get_one_or_two() {
    let world =
        World::new(&WorldOptions { memory_servers: 1, compute_servers: 1, ..WorldOptions::default() });
    let worker = world.worker(0);
    for (format, slot, leaf) in [(Format::LineHashed, 16, 1024), (Format::LineStamped, 52, 1024)] {
        let name = format!("{format:?}");
        let tree = block_on(worker.endpoint(), worker.tree(&name, &any_length(format, 8, slot, leaf)));
        let tree = tree.expect("a tree");
        let put = |number: u64, len: usize| {
            let value = bytes(len, number);
            cost(&worker, async |op| {
                op.put(&tree, &key(number), &value).await.expect("a put");
            })
        };
        // The index cache is warm, and the spans of these sizes are there.
        for number in 0..50 {
            put(number, [3, 1000, 2000][number as usize % 3]);
        }
        for (len, again) in [(3, 1000), (1000, 2000), (2000, 5), (5, 1000), (1000, 0)] {
            assert_eq!((put(7, len), put(7, again)), (2, 2), "{name}: {len}, then {again}");
        }
        let insert = cost(&worker, async |op| {
            op.insert(&tree, &key(8), &bytes(1000, 8), &mut Vec::new()).await.expect("an insert");
            op.insert(&tree, &key(8), &bytes(1000, 9), &mut Vec::new()).await.expect("an insert");
        });
        assert_eq!(insert, 4, "the old value comes with the list that frees it");
        let get = |number: u64| {
            cost(&worker, async |op| {
                op.get(&tree, &key(number), &mut Vec::new()).await.expect("a get");
            })
        };
        assert_eq!((get(7), get(8)), (1, 2), "{name}");
        let remove = |number: u64| {
            cost(&worker, async |op| {
                op.delete(&tree, &key(number)).await.expect("a remove");
            })
        };
        assert_eq!((remove(7), remove(8)), (2, 2), "{name}");
        let mut scan =
            Scan::new(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward, 32).expect("all");
        let scanned = cost(&worker, async |op| {
            op.refill(&tree, &mut scan).await.expect("entries");
        });
        assert!(scanned <= 3, "{name}: leaves, then all blocks at once: {scanned}");
    }
}

#[test]
fn a_value_that_no_block_can_hold_is_refused_and_changes_nothing() {
    let world = World::new(&WorldOptions { chunk_bytes: 1 << 20, ..WorldOptions::default() });
    let worker = world.worker(0);
    let tree = block_on(worker.endpoint(), worker.tree("t", &any_length(Format::LineHashed, 8, 16, 1024)));
    let tree = tree.expect("a tree");
    let most = (1 << 20) - 72;
    let put =
        |len| block_on(worker.endpoint(), worker.op().insert(&tree, &key(1), &vec![7; len], &mut Vec::new()));
    assert_eq!(put(most + 1), Err(Error::ValueTooLong { most, found: most + 1 }));
    assert_eq!(put(1 << 24), Err(Error::ValueTooLong { most, found: 1 << 24 }));
    let mut found = Vec::new();
    assert_eq!(block_on(worker.endpoint(), worker.op().get(&tree, &key(1), &mut found)), Ok(false));
    assert_eq!(put(most), Ok(false));
    assert_eq!(block_on(worker.endpoint(), worker.op().get(&tree, &key(1), &mut found)), Ok(true));
    assert_eq!(found, vec![7; most]);
    world.assert_balanced(&[&walk(&worker, &tree)]);
    let small = any_length(Format::LineHashed, 8, 12, 1024);
    let refused = block_on(worker.endpoint(), worker.tree("small", &small));
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
}

#[test]
fn memory_returns_to_the_level_of_the_first_round() {
    let world = World::new(&WorldOptions::default());
    let worker = world.worker(0);
    let tree = block_on(worker.endpoint(), worker.tree("t", &any_length(Format::LineHashed, 8, 16, 1024)));
    let tree = tree.expect("a tree");
    let mut levels = Vec::new();
    for round in 0..4 {
        let mut dice = Dice(3);
        let keys = 1500;
        for again in 0..2 {
            for number in 0..keys {
                let value = bytes(dice.below(3000) as usize, number + again);
                let (op, key, mut old) = (worker.op(), key(number), Vec::new());
                let put = op.insert(&tree, &key, &value, &mut old);
                assert_eq!(block_on(worker.endpoint(), put), Ok(again == 1), "round {round}");
            }
        }
        for number in 0..keys {
            let op = worker.op();
            let removed = block_on(worker.endpoint(), op.remove(&tree, &key(number), &mut Vec::new()));
            assert_eq!(removed, Ok(true));
        }
        levels.push(world.chunks());
        world.assert_balanced(&[&walk(&worker, &tree)]);
    }
    assert!(levels.iter().all(|level| *level == levels[0]), "{levels:?}");
}
