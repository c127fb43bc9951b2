//! A memory server is lost: what lies elsewhere goes on, and nobody waits for what will not come.

use sherman_core::{Error, Techniques};
use sherman_sim::tree::{Lab, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

#[test]
fn operations_beside_a_lost_server_succeed_or_say_so_at_once() {
    let (mut done, mut lost) = (0, 0);
    for techniques in [Techniques::OURS, Techniques { combine: false, ..Techniques::OURS }, Techniques::SHERMAN] {
        for shape in [Shape::Four, Shape::LongEntries, Shape::WideKeys] {
            for seed in 0..20 {
                let gone = 1 + (seed % 2) as u16;
                let scenario = Scenario { shape, techniques, servers: 3, ..Scenario::default() };
                let mut lab = Lab::new(scenario, Knobs { time_jumps: false, ..Knobs::swarm(seed) });
                let compute = lab.join();
                lab.load(&compute, (0..60).map(|key| (4 * key, key)));
                let outcomes: Rc<RefCell<Vec<Result<bool, Error>>>> = Rc::default();
                let (worker, tree) = (compute.worker(), Arc::clone(&compute.tree));
                let (scenario, told) = (lab.scenario.clone(), Rc::clone(&outcomes));
                let task = async move {
                    for number in 0..200 {
                        let (key, value) = (scenario.key(number * 37 % 240), scenario.value(number));
                        let outcome = worker.op().insert(&tree, &key, &value, &mut Vec::new()).await;
                        told.borrow_mut().push(outcome);
                    }
                };
                drop(lab.sim.spawn_on(&compute.fabric, 0, "writer", task));
                lab.sim.fault_at(50 + 20 * seed, Fault::Lose { server: gone });
                let run = lab.sim.run(&mut Random::new(seed));
                assert!(run.is_done(), "{:?}", run.outcome);
                for outcome in outcomes.borrow().iter() {
                    match outcome {
                        Ok(_) => done += 1,
                        Err(Error::ServerLost { server }) if *server == gone => lost += 1,
                        Err(Error::OutcomeUnknown { .. }) => lost += 1,
                        // No timeout: a healthy server's lanes and redo slots are never held for a lost one's sake.
                        Err(error) => panic!("{techniques:?}, {shape:?}, seed {seed}: {error}"),
                    }
                }
                assert!(compute.shared.local_locks().all_free());
            }
        }
    }
    println!("{done} operations succeeded, {lost} met the lost server");
    assert!(done > 1_000 && lost > 1_000);
}
