//! A memory server is lost: data on other servers stays usable, and no client waits for the lost one.

use super::scene::{Deed, die_at, lanes_held};
use sherman_core::survey::{Content, survey};
use sherman_core::{Error, Recovery, Techniques};
use sherman_fabric::{Clock, Verdict, sleep_until};
use sherman_sim::tree::{Fixture, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn operations_beside_a_lost_server_succeed_or_say_so_at_once() {
    let (mut done, mut lost) = (0, 0);
    for techniques in
        [Techniques::OURS, Techniques { combine: false, ..Techniques::OURS }, Techniques::SHERMAN]
    {
        for shape in [Shape::Four, Shape::LongEntries, Shape::WideKeys] {
            for seed in 0..20 {
                let gone = 1 + (seed % 2) as u16;
                let scenario = Scenario { shape, techniques, servers: 3, ..Scenario::default() };
                let mut fixture = Fixture::new(scenario, Knobs { time_jumps: false, ..Knobs::swarm(seed) });
                let compute = fixture.join();
                fixture.load(&compute, (0..60).map(|key| (4 * key, key)));
                let outcomes: Rc<RefCell<Vec<Result<bool, Error>>>> = Rc::default();
                let (worker, tree) = (compute.worker(), Arc::clone(&compute.tree));
                let (scenario, told) = (fixture.scenario.clone(), Rc::clone(&outcomes));
                let task = async move {
                    for number in 0..200 {
                        let (key, value) = (scenario.key(number * 37 % 240), scenario.value(number));
                        let outcome = worker.op().insert(&tree, &key, &value, &mut Vec::new()).await;
                        told.borrow_mut().push(outcome);
                    }
                };
                drop(fixture.sim.spawn_on(&compute.fabric, 0, "writer", task));
                fixture.sim.fault_at(50 + 20 * seed, Fault::Lose { server: gone });
                let run = fixture.sim.run(&mut Random::new(seed));
                assert!(run.is_done(), "{:?}", run.outcome);
                for outcome in outcomes.borrow().iter() {
                    match outcome {
                        Ok(_) => done += 1,
                        Err(Error::ServerLost { server }) if *server == gone => lost += 1,
                        Err(Error::OutcomeUnknown { .. }) => lost += 1,
                        // No timeout: lanes and redo slots of a healthy server are never held because of a
                        // lost one.
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

/// A memory server and a client are lost together. The data on that server is gone, but the client's lanes on
/// other servers become free.
#[test]
fn dead_clients_are_recovered_although_a_memory_server_is_lost() {
    let mut swept = 0;
    for step in (0..600).step_by(3) {
        let scenario = Scenario {
            shape: Shape::Four,
            servers: 2,
            loaded: 0,
            lease_nanos: 50_000,
            ..Scenario::default()
        };
        let mut fixture = Fixture::new(scenario, Knobs::default());
        let (dead, other) = (fixture.join(), fixture.join());
        fixture.load(&other, (0..12).map(|key| (2 * key, key)));
        let (worker, tree) = (dead.worker(), Arc::clone(&dead.tree));
        let pairs: Vec<_> =
            (0..12).map(|key| (fixture.scenario.key(2 * key + 1), fixture.scenario.value(key))).collect();
        let task = async move {
            for (key, value) in pairs {
                let _ = worker.op().insert(&tree, &key, &value, &mut Vec::new()).await;
            }
        };
        drop(fixture.sim.spawn_on(&dead.fabric, 0, "dies", task));
        fixture.sim.fault_at(step, Fault::Kill { compute_server: dead.fabric.number() });
        fixture.sim.fault_at(step, Fault::Lose { server: 1 });
        let _ = fixture.sim.run(&mut Random::new(step));
        let memory = fixture.sim.memory(0);
        swept += lanes_held(&memory);
        let worker = other.worker();
        let recovered = fixture.quiet(worker.recover_all(|_| false, Duration::from_secs(1)));
        assert_eq!(recovered, Ok(1), "step {step}");
        assert_eq!(lanes_held(&memory), 0, "step {step}");
    }
    assert!(swept > 10, "{swept} lanes were held by dead clients");
}

/// A client dies in the middle of a change, and a memory server is lost during its recovery, before event
/// number `step`. The function tries every third step until the recovery ends first. Returns the number of
/// recoveries.
fn lose_at_every_step(deed: Deed, effects: u64, gone: u16) -> Option<u64> {
    let scenario = Scenario { shape: Shape::Four, servers: 2, loaded: 0, ..Scenario::default() };
    let mut fixture = Fixture::new(scenario, Knobs::default());
    let loader = fixture.join();
    fixture.load(&loader, deed.loaded());
    // The id of a compute server decides at which memory server it begins.
    let victims = [(); 2].map(|()| fixture.join());
    let victim = &victims[(effects / 2 % 2) as usize];
    if !die_at(&mut fixture, victim, deed, effects, &mut Random::new(effects)) {
        return None;
    }
    fixture.sim.checkpoint();
    let mut recoveries = 0;
    for step in (0..).map(|number| 3 * number + effects % 3) {
        fixture.sim.rewind();
        let recoverer = fixture.join();
        let (worker, client) = (recoverer.worker(), victim.fabric.client());
        let recovered = fixture
            .sim
            .spawn_on(&recoverer.fabric, 0, "recovers", async move { worker.condemn(client).await });
        fixture.sim.fault_at(step, Fault::Lose { server: gone });
        let run = fixture.sim.run(&mut Random::new(step));
        let what = format!("{deed:?}, dies after {effects}, server {gone} lost at {step}");
        assert!(run.is_done(), "{what}: {:?}", run.outcome);
        recoveries += 1;
        match recovered.take().expect("it ended") {
            Err(Error::ServerLost { server: 0 }) if gone == 0 => continue,
            Ok(Recovery { verdict: Verdict::Recover, .. }) => {}
            other => panic!("{what}: {other:?}"),
        }
        let memory = fixture.sim.memory(0);
        assert_eq!(lanes_held(&memory), 0, "{what}");
        let left = survey(&memory, victim.shared.geometry_of(0), 0)
            .into_iter()
            .filter(|place| matches!(place.content, Content::Pending(_)) || place.span.owner == client);
        assert_eq!(left.count(), 0, "{what}: nodes and spans that the dead client still owns");
        // The recovery was done before the loss.
        if run.steps <= step {
            break;
        }
    }
    Some(recoveries)
}

/// The recovery skips everything that concerns the lost server, and does the rest.
#[test]
fn dead_clients_are_recovered_although_a_memory_server_is_lost_meanwhile() {
    for deed in Deed::ALL {
        let points = (1..).step_by(2).map_while(|effects| lose_at_every_step(deed, effects, 1));
        let recoveries: u64 = points.sum();
        println!("{deed:?}: {recoveries} recoveries");
        assert!(recoveries > 500);
    }
}

/// Without the members and the catalog, no client can be recovered.
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
        let mut fixture = Fixture::new(scenario, Knobs::default());
        // The creator of the tree still has free places for nodes, and would not leave without them.
        let [maker, compute] = [(); 2].map(|()| fixture.join());
        fixture.leave(&maker);
        let (worker, over) = (compute.worker(), Rc::new(Cell::new(false)));
        let at_its_end = Rc::clone(&over);
        let kept = fixture
            .sim
            .spawn_on(&compute.fabric, 0, "keeper", async move { worker.keep(|| over.get()).await });
        let worker = compute.worker();
        drop(fixture.sim.spawn_on(&compute.fabric, 1, "clock", async move {
            sleep_until(worker.endpoint(), worker.endpoint().now() + 500_000).await;
            at_its_end.set(true);
        }));
        fixture.sim.fault_at(5, Fault::Lose { server: gone });
        assert!(fixture.sim.run(&mut Random::new(1)).is_done());
        let kept = kept.take().expect("it ended");
        let expected = if gone == 0 { Err(Error::ServerLost { server: 0 }) } else { Ok(()) };
        assert_eq!(kept, expected);
        assert!(gone == 0 || compute.shared.participation().renewals > 5);
        // A client that cannot renew its lease any more does not leave in order.
        let fenced = Error::Fenced { client: compute.fabric.client() };
        let expected = if gone == 0 { Err(fenced) } else { Ok(()) };
        assert_eq!(fixture.quiet(compute.worker().depart()), expected);
    }
}
