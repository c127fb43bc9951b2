//! Growth from one empty leaf.

use sherman_core::{Format, Techniques};
use sherman_sim::tree::{Fixture, Scenario, Shape};
use sherman_sim::{Knobs, Limits, Random};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs eight writers, two on each of four compute servers. All start on the same empty leaf.
fn grow(format: Format, techniques: Techniques, seed: u64) {
    const WRITERS: u64 = 8;
    const KEYS: u64 = 1_000;
    let scenario = Scenario { shape: Shape::Four, format, techniques, servers: 2, ..Scenario::default() };
    let mut fixture = Fixture::new(scenario, Knobs { time_jumps: false, ..Knobs::swarm(seed) });
    fixture.sim.set_limits(Limits { steps: 20_000_000, ..Limits::default() });
    let computes: Vec<_> = (0..WRITERS / 2).map(|_| fixture.join()).collect();
    for writer in 0..WRITERS {
        let compute = &computes[(writer / 2) as usize];
        let (worker, tree, scenario) =
            (compute.worker(), Arc::clone(&compute.tree), fixture.scenario.clone());
        let task = async move {
            for number in 0..KEYS / WRITERS {
                // The keys of every writer are spread over the whole key space.
                let key = (number * WRITERS + writer) * 37 % KEYS;
                let (key, value) = (scenario.key(key), scenario.value(key + 1));
                worker
                    .op()
                    .insert(&tree, &key, &value, &mut Vec::new())
                    .await
                    .expect("nothing is in the way");
            }
        };
        drop(fixture.sim.spawn_on(&compute.fabric, (writer % 2) as u32, "writer", task));
    }
    let run = fixture.sim.run(&mut Random::swarm(seed));
    assert!(run.is_done(), "{:?}", run.outcome);
    let walk = fixture.walk(&computes[0]).expect("a sound tree");
    let found: BTreeMap<u64, u64> = walk
        .entries
        .iter()
        .map(|(key, value)| {
            (fixture.scenario.key_id(key), fixture.scenario.value_id(value).expect("a whole value"))
        })
        .collect();
    assert_eq!(found, (0..KEYS).map(|key| (key, key + 1)).collect());
    assert!(walk.height() >= 5, "only {} levels: {:?}", walk.height(), walk.nodes);
    println!("{format:?} seed {seed}: {:?} nodes a level, {} verbs", walk.nodes, run.verbs);
}

#[test]
fn eight_writers_grow_an_empty_leaf_to_five_levels() {
    for seed in 0..4 {
        grow(Format::LineStamped, Techniques::OURS, seed);
        grow(Format::LineStamped, Techniques::SHERMAN, seed);
        grow(Format::Sorted, Techniques::NONE, seed);
    }
}
