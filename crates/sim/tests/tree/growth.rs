//! Growth from one empty leaf.

use sherman_core::{Format, Techniques};
use sherman_sim::tree::{Lab, Scenario, Shape};
use sherman_sim::{Knobs, Limits, Random};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Eight writers, two on each of four compute servers, all starting on the same empty leaf.
fn grow(format: Format, techniques: Techniques, seed: u64) {
    const WRITERS: u64 = 8;
    const KEYS: u64 = 1_000;
    let scenario = Scenario { shape: Shape::Four, format, techniques, servers: 2, ..Scenario::default() };
    let mut lab = Lab::new(scenario, Knobs { time_jumps: false, ..Knobs::swarm(seed) });
    lab.sim.set_limits(Limits { steps: 20_000_000, ..Limits::default() });
    let computes: Vec<_> = (0..WRITERS / 2).map(|_| lab.join()).collect();
    for writer in 0..WRITERS {
        let compute = &computes[(writer / 2) as usize];
        let (worker, tree, scenario) = (compute.worker(), Arc::clone(&compute.tree), lab.scenario.clone());
        let task = async move {
            for number in 0..KEYS / WRITERS {
                // Every writer's keys are spread over all of the key space.
                let key = (number * WRITERS + writer) * 37 % KEYS;
                let (key, value) = (scenario.key(key), scenario.value(key + 1));
                worker.op().insert(&tree, &key, &value, &mut Vec::new()).await.expect("nothing is in the way");
            }
        };
        drop(lab.sim.spawn_on(&compute.fabric, (writer % 2) as u32, "writer", task));
    }
    let run = lab.sim.run(&mut Random::swarm(seed));
    assert!(run.is_done(), "{:?}", run.outcome);
    let walk = lab.walk(&computes[0]).expect("a sound tree");
    let found: BTreeMap<u64, u64> = walk
        .entries
        .iter()
        .map(|(key, value)| (lab.scenario.key_id(key), lab.scenario.value_id(value).expect("a whole value")))
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
