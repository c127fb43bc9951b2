//! What a splitter that dies leaves behind: its record tells whether the split happened, whatever others did since.

use sherman_core::Techniques;
use sherman_core::node::Header;
use sherman_core::redo::{Kind, Record};
use sherman_fabric::{GlobalAddress, Memory, Space};
use sherman_sim::tree::{Compute, Lab, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::sync::Arc;

fn header(lab: &Lab, address: GlobalAddress) -> Option<Header> {
    let mut line = [0; 64];
    lab.sim.memory(address.server()).load(Space::Host, address.offset(), &mut line);
    Header::decode(&line)
}

/// Whether `made` can be reached from `node` through siblings.
fn is_reachable(lab: &Lab, node: GlobalAddress, made: GlobalAddress) -> bool {
    let mut at = node;
    while let Some(header) = header(lab, at) {
        if at == made {
            return true;
        }
        if header.sibling.is_null() {
            return false;
        }
        at = header.sibling;
    }
    false
}

fn lanes_are_free(lab: &Lab) -> bool {
    (0..lab.scenario.servers).all(|server| {
        let memory = lab.sim.memory(server);
        (0..memory.size(Space::OnChip) / 8).all(|word| memory.load_u64(Space::OnChip, 8 * word) == 0)
    })
}

/// A client splits a full leaf and dies before event number `step`. If its lane is free by then, another splits the same
/// leaf again.
fn split_and_die(techniques: Techniques, step: u64, seed: u64) -> (Lab, Compute) {
    let scenario = Scenario { shape: Shape::Four, techniques, servers: 2, loaded: 0, ..Scenario::default() };
    let mut lab = Lab::new(scenario, Knobs::default());
    let loader = lab.join();
    lab.load(&loader, [(0, 1), (200, 1), (400, 1), (600, 1)]);
    let splitter = lab.join();
    let (worker, tree) = (splitter.worker(), Arc::clone(&splitter.tree));
    let (key, value) = (lab.scenario.key(300), lab.scenario.value(3));
    let task = async move { worker.op().insert(&tree, &key, &value, &mut Vec::new()).await.is_ok() };
    drop(lab.sim.spawn_on(&splitter.fabric, 0, "splitter", task));
    lab.sim.fault_at(step, Fault::Kill { compute_server: splitter.fabric.number() });
    let _ = lab.sim.run(&mut Random::new(seed));
    if lanes_are_free(&lab) {
        let other = lab.join();
        let worker = other.worker();
        for number in 1..4 {
            let (key, value) = (lab.scenario.key(number), lab.scenario.value(number));
            // May fail: the dead client's sibling is still pending. What matters is what the leaf shows by then.
            let op = worker.op();
            let _ = lab.quiet(op.insert(&other.tree, &key, &value, &mut Vec::new()));
        }
    }
    (lab, splitter)
}

#[test]
fn a_dead_splitters_record_tells_whether_the_split_happened() {
    let (mut happened, mut not, mut split_again) = (0, 0, 0);
    for techniques in [Techniques::OURS, Techniques { combine: false, ..Techniques::OURS }] {
        for seed in 0..8 {
            for step in 0..60 {
                let (lab, splitter) = split_and_die(techniques, step, seed);
                for (server, offset) in splitter.shared.redo_slots().places() {
                    let mut slot = vec![0; splitter.shared.geometry().redo_slot_bytes as usize];
                    lab.sim.memory(server).load(Space::Host, offset, &mut slot);
                    let Some(record) = Record::decode(&slot).filter(|record| record.kind == Kind::Split) else {
                        continue;
                    };
                    let version = header(&lab, record.node).expect("a node").version;
                    let reachable = is_reachable(&lab, record.node, record.made);
                    assert_eq!(record.split_happened(version), reachable, "{techniques:?}, seed {seed}, step {step}");
                    happened += u32::from(reachable);
                    not += u32::from(!reachable);
                    split_again += u32::from(reachable && version != record.version);
                }
            }
        }
    }
    println!("{happened} happened, {not} did not; of the first {split_again} nodes were split again since");
    assert!(happened > 0 && not > 0 && split_again > 0, "{happened} {not} {split_again}");
}
