//! A memory server is lost: what lies elsewhere goes on, and nobody waits for what will not come.

use super::scene::{Deed, die_at, lanes_held};
use sherman_core::survey::{Content, survey};
use sherman_core::{Error, Recovery, Techniques};
use sherman_fabric::{Clock, Verdict, sleep_until};
use sherman_sim::tree::{Lab, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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

/// A memory server goes together with a client: what was there is gone, but the client's lanes elsewhere are given back.
#[test]
fn the_dead_are_recovered_although_a_memory_server_is_lost() {
    let mut swept = 0;
    for step in (0..600).step_by(3) {
        let scenario =
            Scenario { shape: Shape::Four, servers: 2, loaded: 0, lease_nanos: 50_000, ..Scenario::default() };
        let mut lab = Lab::new(scenario, Knobs::default());
        let (dead, other) = (lab.join(), lab.join());
        lab.load(&other, (0..12).map(|key| (2 * key, key)));
        let (worker, tree) = (dead.worker(), Arc::clone(&dead.tree));
        let pairs: Vec<_> = (0..12).map(|key| (lab.scenario.key(2 * key + 1), lab.scenario.value(key))).collect();
        let task = async move {
            for (key, value) in pairs {
                let _ = worker.op().insert(&tree, &key, &value, &mut Vec::new()).await;
            }
        };
        drop(lab.sim.spawn_on(&dead.fabric, 0, "dies", task));
        lab.sim.fault_at(step, Fault::Kill { compute_server: dead.fabric.number() });
        lab.sim.fault_at(step, Fault::Lose { server: 1 });
        let _ = lab.sim.run(&mut Random::new(step));
        let memory = lab.sim.memory(0);
        swept += lanes_held(&memory);
        let worker = other.worker();
        let recovered = lab.quiet(worker.recover_all(|_| false, Duration::from_secs(1)));
        assert_eq!(recovered, Ok(1), "step {step}");
        assert_eq!(lanes_held(&memory), 0, "step {step}");
    }
    assert!(swept > 10, "{swept} lanes were held by the dead");
}

/// Somebody dies in the middle of something, and a memory server is lost while it is being recovered: before the event number
/// `step`, for as many steps as that takes. How many recoveries that were.
fn lose_at_every_step(deed: Deed, effects: u64, gone: u16) -> Option<u64> {
    let scenario = Scenario { shape: Shape::Four, servers: 2, loaded: 0, ..Scenario::default() };
    let mut lab = Lab::new(scenario, Knobs::default());
    let loader = lab.join();
    lab.load(&loader, deed.loaded());
    // By their ids compute servers begin at one memory server or the other.
    let victims = [(); 2].map(|()| lab.join());
    let victim = &victims[(effects / 2 % 2) as usize];
    if !die_at(&mut lab, victim, deed, effects, &mut Random::new(effects)) {
        return None;
    }
    lab.sim.checkpoint();
    let mut recoveries = 0;
    for step in (0..).map(|number| 3 * number + effects % 3) {
        lab.sim.rewind();
        let recoverer = lab.join();
        let (worker, client) = (recoverer.worker(), victim.fabric.client());
        let recovered = lab.sim.spawn_on(&recoverer.fabric, 0, "recovers", async move { worker.condemn(client).await });
        lab.sim.fault_at(step, Fault::Lose { server: gone });
        let run = lab.sim.run(&mut Random::new(step));
        let what = format!("{deed:?}, dies after {effects}, server {gone} lost at {step}");
        assert!(run.is_done(), "{what}: {:?}", run.outcome);
        recoveries += 1;
        match recovered.take().expect("it ended") {
            Err(Error::ServerLost { server: 0 }) if gone == 0 => continue,
            Ok(Recovery { verdict: Verdict::Recover, .. }) => {}
            other => panic!("{what}: {other:?}"),
        }
        let memory = lab.sim.memory(0);
        assert_eq!(lanes_held(&memory), 0, "{what}");
        let left = survey(&memory, victim.shared.geometry_of(0), 0)
            .into_iter()
            .filter(|place| matches!(place.content, Content::Pending(_)) || place.span.owner == client);
        assert_eq!(left.count(), 0, "{what}: nodes and spans that are still the dead one's");
        // Lost when it was done.
        if run.steps <= step {
            break;
        }
    }
    Some(recoveries)
}

/// Whatever is asked of a server that is gone is passed over, and the rest is done.
#[test]
fn the_dead_are_recovered_although_a_memory_server_is_lost_meanwhile() {
    for deed in Deed::ALL {
        let points = (1..).step_by(2).map_while(|effects| lose_at_every_step(deed, effects, 1));
        let recoveries: u64 = points.sum();
        println!("{deed:?}: {recoveries} recoveries");
        assert!(recoveries > 500);
    }
}

/// Nobody can be recovered without members and catalog.
#[test]
fn a_recovery_ends_when_the_server_that_keeps_members_is_lost() {
    for deed in Deed::ALL {
        let points = (1..).step_by(12).map_while(|effects| lose_at_every_step(deed, effects, 0));
        assert!(points.sum::<u64>() > 100);
    }
}

#[test]
fn a_keeper_ends_when_the_server_that_keeps_members_is_lost_and_goes_on_beside_any_other() {
    for gone in [0, 1] {
        let scenario = Scenario { servers: 2, loaded: 0, lease_nanos: 50_000, ..Scenario::default() };
        let mut lab = Lab::new(scenario, Knobs::default());
        // Who made the tree has places for nodes left, and would not leave without them.
        let [maker, compute] = [(); 2].map(|()| lab.join());
        lab.leave(&maker);
        let (worker, over) = (compute.worker(), Rc::new(Cell::new(false)));
        let at_its_end = Rc::clone(&over);
        let kept = lab.sim.spawn_on(&compute.fabric, 0, "keeper", async move { worker.keep(|| over.get()).await });
        let worker = compute.worker();
        drop(lab.sim.spawn_on(&compute.fabric, 1, "clock", async move {
            sleep_until(worker.endpoint(), worker.endpoint().now() + 500_000).await;
            at_its_end.set(true);
        }));
        lab.sim.fault_at(5, Fault::Lose { server: gone });
        assert!(lab.sim.run(&mut Random::new(1)).is_done());
        let kept = kept.take().expect("it ended");
        let expected = if gone == 0 { Err(Error::ServerLost { server: 0 }) } else { Ok(()) };
        assert_eq!(kept, expected);
        assert!(gone == 0 || compute.shared.participation().renewals > 5);
        let worker = compute.worker();
        assert_eq!(lab.quiet(worker.depart()), expected, "who leaves says so there too");
    }
}
