//! Counts the cost of every path in round trips.

use sherman_core::{Cause, Direction, Exchange, Format, Scan, Techniques};
use sherman_fabric::Tally;
use sherman_sim::tree::{Caches, Compute, Fixture, Scenario, Shape};
use sherman_sim::{Knobs, Random};
use std::cell::RefCell;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

fn fixture(format: Format, techniques: Techniques, loaded: u64) -> (Fixture, Compute) {
    let scenario = Scenario { format, techniques, loaded, caches: Caches::Warm, ..Scenario::default() };
    let knobs = Knobs { verb_atomic: format == Format::TwoLevel, ..Knobs::default() };
    let mut fixture = Fixture::new(scenario, knobs);
    let compute = fixture.join();
    fixture.load(&compute, (0..loaded).map(|key| (2 * key, key)));
    fixture.warm(&compute, (0..loaded).map(|key| 2 * key));
    (fixture, compute)
}

fn insert(fixture: &mut Fixture, compute: &Compute, key: u64) -> Tally {
    let worker = compute.worker();
    let op = worker.op();
    let (key, value) = (fixture.scenario.key(key), fixture.scenario.value(77));
    fixture.quiet(op.insert(&compute.tree, &key, &value, &mut Vec::new())).expect("a quiet tree");
    op.tally()
}

fn get(fixture: &mut Fixture, compute: &Compute, key: u64) -> Tally {
    let worker = compute.worker();
    let op = worker.op();
    let key = fixture.scenario.key(key);
    fixture.quiet(op.get(&compute.tree, &key, &mut Vec::new())).expect("a quiet tree");
    op.tally()
}

#[test]
fn a_warm_get_is_one_read() {
    for format in Format::ALL {
        let (mut fixture, compute) = fixture(format, Techniques::OURS, 40);
        let node = u64::from(fixture.scenario.shape.spec(format).leaf_bytes);
        // Of a hashed leaf, four lines without the header.
        let node = if format == Format::LineHashed { (node - 64).min(256) } else { node };
        for key in [0, 7, 40, 78] {
            let tally = get(&mut fixture, &compute, key);
            assert_eq!(
                tally,
                Tally { round_trips: 1, reads: 1, bytes_read: node, ..Tally::default() },
                "{format:?}"
            );
        }
    }
}

#[test]
fn a_warm_update_takes_three_round_trips_as_sherman_and_two_as_ours() {
    // Format, techniques, round trips, and bytes written except the two of the release.
    for (format, techniques, round_trips, bytes) in [
        (Format::TwoLevel, Techniques::SHERMAN, 3, 17..=17),
        (Format::LineStamped, Techniques::SHERMAN, 3, 1..=64),
        (Format::LineStamped, Techniques::OURS, 2, 1..=64),
        (Format::LineHashed, Techniques::SHERMAN, 3, 1..=64),
        (Format::LineHashed, Techniques::OURS, 2, 1..=64),
        (Format::TwoLevel, Techniques { redo: false, ..Techniques::OURS }, 2, 17..=17),
        (Format::SortedStamped, Techniques { cache: true, ..Techniques::NONE }, 4, 256..=256),
    ] {
        let (mut fixture, compute) = fixture(format, techniques, 40);
        for key in [0, 22, 78] {
            let tally = insert(&mut fixture, &compute, key);
            assert_eq!(
                (tally.round_trips, tally.reads, tally.atomics),
                (round_trips, 1, 1),
                "{format:?} {techniques:?}"
            );
            assert!(
                bytes.contains(&(tally.bytes_written - 2)),
                "{format:?}: {} bytes",
                tally.bytes_written - 2
            );
        }
    }
}

#[test]
fn an_insert_without_a_split_costs_what_an_update_does() {
    let (mut fixture, compute) = fixture(Format::LineStamped, Techniques::OURS, 4);
    let before = fixture.walk(&compute).expect("a sound tree").nodes;
    let tally = insert(&mut fixture, &compute, 1);
    assert_eq!((tally.round_trips, tally.writes), (2, 2));
    assert_eq!(fixture.walk(&compute).expect("a sound tree").nodes, before);
}

/// `[record, sibling, header, (entry), linked, cleared, release]` is one list. The parent follows, like any
/// other write.
#[test]
fn a_split_on_one_server_leaves_as_one_list() {
    for (techniques, leaf, parent) in [(Techniques::OURS, 2, 2), (Techniques::SHERMAN, 3, 3)] {
        let (mut fixture, compute) = fixture(Format::LineStamped, techniques, 12);
        let nodes = |fixture: &mut Fixture| fixture.walk(&compute).expect("a sound tree").nodes;
        let before = nodes(&mut fixture);
        let mut split = None;
        for key in 0..12 {
            fixture.warm(&compute, [2 * key + 1]);
            let tally = insert(&mut fixture, &compute, 2 * key + 1);
            if nodes(&mut fixture) != before {
                split = Some(tally);
                break;
            }
        }
        let tally = split.expect("twelve more keys split a leaf of nine");
        assert_eq!(tally.round_trips, leaf + parent, "{techniques:?}: {tally:?}");
        // Leaf: sibling, header, link, release, and perhaps the entry's line. Parent: the node, release.
        // `Techniques::OURS` logs both.
        let logs = if techniques.redo { 4 } else { 0 };
        assert!((6 + logs..=7 + logs).contains(&tally.writes), "{techniques:?}: {tally:?}");
    }
}

/// Four threads of one compute server want one leaf. The thread that gets the lane by handover pays only for
/// READ and WRITE.
#[test]
fn a_write_after_a_handover_takes_two_round_trips() {
    let ours = Techniques { handover: true, ..Techniques::OURS };
    for (techniques, fresh) in [(Techniques::SHERMAN, 3), (ours, 2)] {
        let mut handed_over = 0;
        for seed in 0..200 {
            let (mut fixture, compute) = fixture(Format::LineStamped, techniques, 12);
            let seen: Rc<RefCell<Vec<(Tally, u64, u64)>>> = Rc::default();
            for thread in 0..4 {
                let (worker, tree, seen) = (compute.worker(), Arc::clone(&compute.tree), Rc::clone(&seen));
                let (key, value) = (fixture.scenario.key(6), fixture.scenario.value(thread));
                let task = async move {
                    for _ in 0..3 {
                        let op = worker.op();
                        op.insert(&tree, &key, &value, &mut Vec::new()).await.expect("nothing is in the way");
                        seen.borrow_mut().push((
                            op.tally(),
                            op.handovers(),
                            op.retries().get(Cause::LaneHeld),
                        ));
                    }
                };
                drop(fixture.sim.spawn_on(&compute.fabric, thread as u32, "writer", task));
            }
            assert!(fixture.sim.run(&mut Random::swarm(seed)).is_done());
            for &(tally, handovers, held) in seen.borrow().iter() {
                handed_over += handovers;
                assert_eq!(held, 0, "one compute server does not contend with itself for the lane");
                // The releaser never finds that its successor has left: no operation times out here.
                assert_eq!(
                    tally.round_trips,
                    if handovers == 1 { 2 } else { fresh },
                    "{techniques:?}: {tally:?}"
                );
            }
        }
        assert!(handed_over > 100, "handovers happen: {handed_over}");
    }
}

#[test]
fn a_cold_get_descends_level_by_level() {
    let scenario = Scenario { shape: Shape::Four, loaded: 60, ..Scenario::default() };
    let mut fixture = Fixture::new(scenario, Knobs::default());
    let loader = fixture.join();
    fixture.load(&loader, (0..60).map(|key| (key, key)));
    let height = fixture.walk(&loader).expect("a sound tree").height() as u64;
    assert!(height >= 3);
    let cold = fixture.join();
    // The root word, then one node per level.
    assert_eq!(get(&mut fixture, &cold, 30).round_trips, 1 + height);
    assert_eq!(get(&mut fixture, &cold, 30).round_trips, 1);
}

fn remove(fixture: &mut Fixture, compute: &Compute, key: u64) -> Tally {
    let worker = compute.worker();
    let op = worker.op();
    let key = fixture.scenario.key(key);
    assert!(
        fixture.quiet(op.remove(&compute.tree, &key, &mut Vec::new())).expect("a quiet tree"),
        "it was there"
    );
    op.tally()
}

const BOTH: [(Techniques, u64); 2] = [(Techniques::OURS, 2), (Techniques::SHERMAN, 3)];

#[test]
fn a_remove_without_a_merge_takes_two_round_trips_as_ours_and_three_as_sherman() {
    for format in Format::ALL {
        for (techniques, round_trips) in BOTH {
            let (mut fixture, compute) = fixture(format, techniques, 40);
            for key in [0, 22, 50] {
                let tally = remove(&mut fixture, &compute, key);
                let found = (tally.round_trips, tally.reads, tally.atomics);
                assert_eq!(found, (round_trips, 1, 1), "{format:?} {techniques:?} key {key}");
            }
            assert_eq!(compute.tree.merges(), Default::default());
        }
    }
}

/// The cost is the same whether it changes anything or not: the decision is made under the lane.
#[test]
fn a_conditional_change_costs_what_an_update_does() {
    for (techniques, round_trips) in BOTH {
        let (mut fixture, compute) = fixture(Format::LineStamped, techniques, 4);
        let worker = compute.worker();
        for (key, there) in [(0, true), (1, false), (1, true)] {
            let (op, key, value) = (worker.op(), fixture.scenario.key(key), fixture.scenario.value(9));
            let found = fixture.quiet(op.insert_if_absent(&compute.tree, &key, &value, &mut Vec::new()));
            assert_eq!(
                (found.expect("a quiet tree"), op.tally().round_trips),
                (there, round_trips),
                "{techniques:?}"
            );
        }
        let [a, b] = [9, 10].map(|id| fixture.scenario.value(id));
        for (key, expected, new, outcome) in [
            (1, Some(&a), Some(&b), Exchange::Done),
            (1, Some(&a), None, Exchange::Found),
            (3, Some(&a), None, Exchange::Absent),
            (3, None, Some(&a), Exchange::Done),
            (3, Some(&a), None, Exchange::Done),
        ] {
            let (op, key) = (worker.op(), fixture.scenario.key(key));
            let (expected, new) = (expected.map(Vec::as_slice), new.map(Vec::as_slice));
            let found =
                fixture.quiet(op.compare_exchange(&compute.tree, &key, expected, new, &mut Vec::new()));
            assert_eq!(
                (found.expect("a quiet tree"), op.tally().round_trips),
                (outcome, round_trips),
                "{techniques:?}"
            );
        }
    }
}

/// The cached parent names the leaves, and they are read in one round trip.
#[test]
fn a_warm_range_of_leaves_on_one_server_is_one_round_trip() {
    for format in Format::ALL {
        let (mut fixture, compute) = fixture(format, Techniques::OURS, 40);
        let leaves = fixture.walk(&compute).expect("a sound tree").nodes[0];
        fixture.warm(&compute, [0]);
        let worker = compute.worker();
        for direction in [Direction::Forward, Direction::Backward] {
            for prefetch in 1..=leaves {
                let scan = Scan::new(&compute.tree, Bound::Unbounded, Bound::Unbounded, direction, prefetch);
                let mut scan = scan.expect("a legal range");
                let (mut entries, mut refills) = (0, 0);
                loop {
                    let op = worker.op();
                    let more = fixture.quiet(op.refill(&compute.tree, &mut scan)).expect("a quiet tree");
                    if !more {
                        assert_eq!(
                            op.tally().round_trips,
                            0,
                            "{format:?}: the last leaf said that it was the last"
                        );
                        break;
                    }
                    let read = prefetch.min(leaves - refills * prefetch) as u64;
                    let tally = op.tally();
                    assert_eq!(
                        (tally.round_trips, tally.reads),
                        (1, read),
                        "{format:?} {direction:?} {prefetch}"
                    );
                    refills += 1;
                    while scan.next().is_some() {
                        entries += 1;
                    }
                }
                assert_eq!((entries, refills), (40, leaves.div_ceil(prefetch)), "{format:?} {direction:?}");
            }
        }
    }
}

/// After the remove, the merge reads the parent and the two leaves without lanes, which is mostly all. Then
/// it needs one CAS per lane, the three nodes under their lanes, and one list that writes all and releases
/// the lanes.
#[test]
fn a_merge_on_one_server_costs_what_is_said_here() {
    for (techniques, removal) in BOTH {
        let scenario = Scenario { shape: Shape::Four, techniques, ..Scenario::default() };
        let mut fixture = Fixture::new(scenario, Knobs::default());
        let compute = fixture.join();
        // The leaves have the keys 0 to 4, 6 to 10, 12 to 16 and 18 to 22. The keys 4 and 10 are removed
        // again.
        fixture.load(&compute, (0..12).rev().map(|key| (2 * key, key)));
        fixture.unload(&compute, [4, 10]);
        fixture.warm(&compute, (0..12).map(|key| 2 * key));
        let before = fixture.walk(&compute).expect("a sound tree");
        fixture.warm(&compute, [0]);
        let tally = remove(&mut fixture, &compute, 2);
        let merges = compute.tree.merges();
        println!("{techniques:?}: {tally:?} {merges:?}");
        assert_eq!((merges.leaves, merges.internal, merges.shrinks), (1, 0, 0), "{:?}", before.nodes);
        let lanes = tally.atomics - 1;
        assert!((1..=3).contains(&lanes), "nodes may share lanes");
        let (parent, leaves, under_lanes, write) = (1, 2, 1, 1);
        assert_eq!(
            tally.round_trips,
            removal + parent + leaves + lanes + under_lanes + write,
            "{techniques:?}"
        );
    }
}
