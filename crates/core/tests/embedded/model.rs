//! Runs random histories of all operations on one thread and compares them with a `BTreeMap`, in every
//! format.

use crate::support::model::{Action, Expect, Keys, Model};
use crate::support::{Dice, World, WorldOptions, atomicity, runs_in_full, spec};
use sherman_core::Format;
use sherman_core::tree::range::Direction;
use sherman_embedded::EmbeddedEndpoint;
use sherman_executor::block_on;
use sherman_fabric::{Clock, Counters, Endpoint, Space, execute};
use std::ops::Bound;
use std::time::Duration;

/// Returns a shape with leaves and internal nodes of four to eight entries, so that trees are high.
fn small(format: Format) -> sherman_fabric::control::TreeSpec {
    match format {
        Format::LineStamped => spec(format, 19, 12, 320, 256),
        Format::TwoLevel => spec(format, 16, 18, 256, 256),
        Format::LineHashed => spec(format, 16, 4, 256, 256),
        Format::Sorted | Format::SortedStamped => spec(format, 16, 20, 256, 256),
    }
}

fn bound(dice: &mut Dice, keys: &Keys) -> Bound<u64> {
    let number = dice.below(keys.count);
    match dice.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(number),
        _ => Bound::Excluded(number),
    }
}

/// Returns a random step; `shrink` of ten changes remove rather than add.
fn action(dice: &mut Dice, keys: &Keys, shrink: u64) -> Action {
    let (key, byte) = (dice.below(keys.count), dice.next() as u8 % 4);
    let less = dice.below(10) < shrink;
    match dice.below(16) {
        0..=5 => {
            if less {
                Action::Remove(key)
            } else {
                Action::Insert(key, byte)
            }
        }
        6..=7 => {
            if less {
                Action::Remove(key)
            } else {
                Action::InsertIfAbsent(key, byte)
            }
        }
        8..=10 => {
            let expect = match dice.below(4) {
                0 => Expect::Nothing,
                1 => Expect::Value(byte),
                _ => Expect::WhatIsThere,
            };
            Action::Exchange(key, expect, (!less).then(|| dice.next() as u8 % 4))
        }
        11..=13 => Action::Get(key),
        14 => {
            let direction = if dice.one_in(2) { Direction::Forward } else { Direction::Backward };
            Action::Scan(bound(dice, keys), bound(dice, keys), direction, 1 + dice.below(8) as usize)
        }
        _ => {
            if dice.one_in(20) {
                Action::Forget
            } else {
                Action::Get(key)
            }
        }
    }
}

#[test]
fn random_histories_leave_what_a_btreemap_holds_and_no_node_is_lost() {
    for format in Format::ALL {
        let world = World::new(&WorldOptions { atomicity: atomicity(format), ..WorldOptions::default() });
        let spec = small(format);
        let keys = Keys::new(usize::from(spec.key_len), 600, false);
        let mut model = Model::new(&world, "t", &spec, keys);
        let mut dice = Dice(u64::from(format.number()));
        for round in 0..60 {
            // Waves: the tree fills up, and empties again.
            let shrink = [2, 3, 5, 8, 9, 5][round % 6];
            for _ in 0..400 {
                let (who, action) = (dice.below(2) as usize, action(&mut dice, &keys, shrink));
                model.apply(who, &action);
            }
            let walk = model.check_tidy();
            world.assert_balanced(&[&walk]);
            world.assert_at_rest();
        }
    }
}

#[test]
fn a_tree_that_is_filled_and_emptied_is_one_empty_leaf_again_and_all_other_nodes_are_free() {
    for format in Format::ALL {
        for order in ["ascending", "descending", "random"] {
            let world = World::new(&WorldOptions { atomicity: atomicity(format), ..WorldOptions::default() });
            let spec = small(format);
            let keys = Keys::new(usize::from(spec.key_len), 2000, false);
            let mut model = Model::new(&world, "t", &spec, keys);
            let mut dice = Dice(7);
            let mut numbers: Vec<u64> = (0..keys.count).collect();
            for round in 0..if runs_in_full() { 3 } else { 2 } {
                for &number in &numbers {
                    model.apply(number as usize % 2, &Action::Insert(number, round));
                }
                let full = model.check();
                assert!(full.height() >= 4, "{format:?}: {:?}", full.nodes);
                world.assert_balanced(&[&full]);
                match order {
                    "descending" => numbers.reverse(),
                    "random" => {
                        (1..numbers.len()).for_each(|at| numbers.swap(at, dice.below(at as u64 + 1) as usize))
                    }
                    _ => {}
                }
                for (done, &number) in numbers.iter().enumerate() {
                    model.apply(number as usize % 2, &Action::Remove(number));
                    if done % 20 == 0 {
                        model.check_tidy();
                    }
                }
                let empty = model.check();
                world.assert_balanced(&[&empty]);
                assert_eq!(empty.nodes, [1], "{format:?}, {order}");
                world.assert_at_rest();
            }
        }
    }
}

#[test]
fn a_bulk_loaded_tree_of_any_size_empties_to_one_leaf() {
    for format in Format::ALL {
        let world = World::new(&WorldOptions { atomicity: atomicity(format), ..WorldOptions::default() });
        let spec = small(format);
        let keys = Keys::new(usize::from(spec.key_len), 1000, false);
        let mut model = Model::new(&world, "t", &spec, keys);
        let mut dice = Dice(3);
        for count in (0..150).step_by(if runs_in_full() { 1 } else { 2 }) {
            let mut numbers: Vec<u64> = (0..count).collect();
            let fill = [0.5, 0.8, 1.0][count as usize % 3];
            assert_eq!(model.load(count as usize, &numbers, 1, fill), Ok(count));
            let full = model.check();
            world.assert_balanced(&[&full]);
            assert_eq!(full.missing_separators, 0);
            match count / 3 % 3 {
                0 => {}
                1 => numbers.reverse(),
                _ => (1..numbers.len()).for_each(|at| numbers.swap(at, dice.below(at as u64 + 1) as usize)),
            }
            for number in numbers {
                model.apply(number as usize % 2, &Action::Remove(number));
            }
            let empty = model.check();
            world.assert_balanced(&[&empty]);
            assert_eq!(empty.nodes, [1], "{format:?}: {:?} emptied", full.nodes);
            world.assert_at_rest();
        }
    }
}

/// Takes or releases all lanes but one, under an id that is not a member's.
fn hold_all_lanes_but(endpoint: &EmbeddedEndpoint, lanes: u32, free: u32, held: bool) {
    let mut list = endpoint.list(0);
    for lane in (0..lanes).filter(|lane| *lane != free) {
        let shift = lane % 4 * 16;
        let (from, to) = if held { (0, 0x9999 << shift) } else { (0x9999 << shift, 0) };
        list.masked_cas(Space::OnChip, u64::from(lane / 4) * 8, from, to, 0xffff << shift);
    }
    block_on(endpoint, execute(endpoint, list, &Counters::default())).expect("the server is there");
}

#[test]
fn what_could_not_be_merged_in_time_is_merged_by_later_removes_nearby() {
    const LANES: u32 = 16;
    let options = WorldOptions { memory_servers: 1, lanes: Some(LANES), ..WorldOptions::default() };
    let world = World::new(&options);
    let spec = small(Format::LineStamped);
    let keys = Keys::new(usize::from(spec.key_len), 300, false);
    let mut model = Model::new(&world, "t", &spec, keys);
    for number in 0..keys.count {
        model.apply(0, &Action::Insert(number, 1));
    }
    // The third remove from a leaf of four tries to merge it, but another client holds the lane of its
    // parent.
    [100, 101, 104, 105].into_iter().for_each(|number| model.apply(0, &Action::Remove(number)));
    let stranger = world.cluster.join().expect("an id").endpoint();
    let removed = (0..LANES).any(|lane| {
        hold_all_lanes_but(&stranger, LANES, lane, true);
        let (worker, tree) = &model.members[0];
        let op = worker.op_within(Duration::from_millis(5));
        let removed = block_on(worker.endpoint(), op.remove(tree, &keys.key(102), &mut Vec::new()));
        hold_all_lanes_but(&stranger, LANES, lane, false);
        removed == Ok(true)
    });
    assert!(removed, "the leaf has a lane");
    model.map.remove(&keys.key(102));
    let began = stranger.now();
    let (later, now): (Vec<u64>, Vec<u64>) = (0..keys.count).partition(|number| number % 12 == 11);
    now.into_iter().for_each(|number| model.apply(0, &Action::Remove(number)));
    assert!(stranger.now() - began < 900_000_000, "the merge backoff is over too early for this test");
    assert!(model.check().nodes[0] > 50, "nothing is merged during a merge backoff");
    while stranger.now() - began < 1_500_000_000 {
        std::thread::yield_now();
    }
    later.into_iter().for_each(|number| model.apply(0, &Action::Remove(number)));
    assert_eq!(model.check().nodes, [1]);
    world.assert_at_rest();
}
