//! The redo record of a splitter that dies: it shows whether the split happened, whatever other clients did
//! since.

use sherman_core::Techniques;
use sherman_core::node::Header;
use sherman_core::redo::{Record, RecordKind};
use sherman_fabric::{GlobalAddress, Memory, Space};
use sherman_sim::tree::{Compute, Fixture, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::sync::Arc;

fn header(fixture: &Fixture, address: GlobalAddress) -> Option<Header> {
    let mut line = [0; 64];
    fixture.sim.memory(address.server()).load(Space::Host, address.offset(), &mut line);
    Header::decode(&line)
}

/// Whether `made` can be reached from `node` through siblings.
fn is_reachable(fixture: &Fixture, node: GlobalAddress, made: GlobalAddress) -> bool {
    let mut at = node;
    while let Some(header) = header(fixture, at) {
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

fn lanes_are_free(fixture: &Fixture) -> bool {
    (0..fixture.scenario.servers).all(|server| {
        let memory = fixture.sim.memory(server);
        (0..memory.size(Space::OnChip) / 8).all(|word| memory.load_u64(Space::OnChip, 8 * word) == 0)
    })
}

/// A client splits a full leaf and dies before event number `step`. If its lane is free by then, another
/// client splits the same leaf again.
fn split_and_die(techniques: Techniques, step: u64, seed: u64) -> (Fixture, Compute) {
    let scenario = Scenario { shape: Shape::Four, techniques, servers: 2, loaded: 0, ..Scenario::default() };
    let mut fixture = Fixture::new(scenario, Knobs::default());
    let loader = fixture.join();
    fixture.load(&loader, [(0, 1), (200, 1), (400, 1), (600, 1)]);
    let splitter = fixture.join();
    let (worker, tree) = (splitter.worker(), Arc::clone(&splitter.tree));
    let (key, value) = (fixture.scenario.key(300), fixture.scenario.value(3));
    let task = async move { worker.op().insert(&tree, &key, &value, &mut Vec::new()).await.is_ok() };
    drop(fixture.sim.spawn_on(&splitter.fabric, 0, "splitter", task));
    fixture.sim.fault_at(step, Fault::Kill { compute_server: splitter.fabric.number() });
    let _ = fixture.sim.run(&mut Random::new(seed));
    if lanes_are_free(&fixture) {
        let other = fixture.join();
        let worker = other.worker();
        for number in 1..4 {
            let (key, value) = (fixture.scenario.key(number), fixture.scenario.value(number));
            // This may fail, because the dead client's sibling is still pending. Only the state of the leaf
            // matters here.
            let op = worker.op();
            let _ = fixture.quiet(op.insert(&other.tree, &key, &value, &mut Vec::new()));
        }
    }
    (fixture, splitter)
}

#[test]
fn a_dead_splitters_record_tells_whether_the_split_happened() {
    let (mut happened, mut not, mut split_again) = (0, 0, 0);
    for techniques in [Techniques::OURS, Techniques { combine: false, ..Techniques::OURS }] {
        for seed in 0..8 {
            for step in 0..60 {
                let (fixture, splitter) = split_and_die(techniques, step, seed);
                for (server, offset) in splitter.shared.redo_slots().places() {
                    let mut slot = vec![0; splitter.shared.geometry().redo_slot_bytes as usize];
                    fixture.sim.memory(server).load(Space::Host, offset, &mut slot);
                    let Some(record) =
                        Record::decode(&slot).filter(|record| record.kind == RecordKind::Split)
                    else {
                        continue;
                    };
                    let version = header(&fixture, record.node).expect("a node").version;
                    let reachable = is_reachable(&fixture, record.node, record.made);
                    assert_eq!(
                        record.split_happened(version),
                        reachable,
                        "{techniques:?}, seed {seed}, step {step}"
                    );
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
