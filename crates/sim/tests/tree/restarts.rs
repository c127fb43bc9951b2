//! Memory servers that restart, with or without their memory, and clients that alone lose a server.

use super::scene::{Deed, assert_nothing_is_lost, die_at, lanes_held};
use sherman_core::mutant::{Mutant, plant};
use sherman_core::{Error, Techniques};
use sherman_fabric::{FabricError, Refusal};
use sherman_sim::tree::{Compute, Fixture, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longer, in virtual time, than any recovery takes.
const PATIENCE: Duration = Duration::from_secs(1);

fn fixture() -> Fixture {
    let scenario =
        Scenario { shape: Shape::Four, servers: 2, loaded: 0, lease_nanos: 50_000, ..Scenario::default() };
    Fixture::new(scenario, Knobs::default())
}

/// An idle member loses a server as `lose` says, and a client that still reaches the server dies in the
/// middle of a change. Returns the world, the idle member and the dead client, or `None` if the change was
/// done before.
fn idle_member_loses(
    lose: impl Fn(&Compute) -> Fault,
    deed: Deed,
    effects: u64,
) -> Option<(Fixture, Compute, Compute)> {
    let mut fixture = fixture();
    let (idle, loader) = (fixture.join(), fixture.join());
    fixture.load(&loader, deed.loaded());
    fixture.leave(&loader);
    fixture.sim.strike(lose(&idle));
    let victims = [(); 2].map(|()| fixture.join());
    let [mut victim, other] = victims;
    if effects % 4 >= 2 {
        victim = other;
    }
    die_at(&mut fixture, &victim, deed, effects, &mut Random::new(effects)).then_some((fixture, idle, victim))
}

/// The idle member must not recover what it cannot reach: its recovery of the dead client fails, and another
/// member does it.
#[test]
fn a_member_that_cannot_reach_a_server_recovers_nobody_and_is_recovered_itself() {
    let losses: [fn(&Compute) -> Fault; 3] = [
        |idle| Fault::CutOff { compute_server: idle.fabric.number(), server: 1 },
        |_| Fault::Restart { server: 1 },
        |_| Fault::Restart { server: 0 },
    ];
    let mut recovered = 0;
    for (lose, deed) in losses.into_iter().flat_map(|lose| Deed::ALL.map(|deed| (lose, deed))) {
        for effects in 1.. {
            let Some((mut fixture, idle, victim)) = idle_member_loses(lose, deed, effects) else { break };
            let what = format!("{deed:?}, {}, dies after effect {effects}", lose(&idle));
            let worker = idle.worker();
            let outcome = fixture.quiet(worker.condemn(victim.fabric.client()));
            assert!(outcome.is_err() && idle.shared.is_terminated(), "{what}: {outcome:?}");
            assert!(
                fixture.quiet(worker.depart()).is_err(),
                "{what}: a terminated member does not leave in order"
            );
            let inspector = fixture.join();
            let worker = inspector.worker();
            recovered += fixture
                .quiet(worker.recover_all(|_| false, PATIENCE))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            for server in 0..2 {
                assert_eq!(lanes_held(&fixture.sim.memory(server)), 0, "{what}: server {server}");
            }
            let walk = fixture.quiet(worker.op().walk(&inspector.tree));
            walk.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    assert!(recovered > 300, "{recovered}");
}

/// The same schedule of events, with a recoverer that skips everything that it alone cannot reach, as the
/// code once did.
#[test]
fn a_private_view_that_a_server_is_lost_would_damage_the_tree() {
    let _planted = plant(Some(Mutant::PrivateLoss));
    let cases = Deed::ALL.into_iter().flat_map(|deed| (1..200).map(move |effects| (deed, effects)));
    let damaged = cases.filter(|&(deed, effects)| {
        let lost = idle_member_loses(|_| Fault::Restart { server: 1 }, deed, effects);
        let Some((mut fixture, idle, victim)) = lost else { return false };
        let worker = idle.worker();
        let _ = fixture.quiet(worker.condemn(victim.fabric.client()));
        lanes_held(&fixture.sim.memory(1)) > 0
    });
    assert!(damaged.count() > 0);
}

/// A server restarts without its memory. Its clients are terminated, no client reads wrong data, and no new
/// member is admitted.
#[test]
fn a_server_that_lost_its_memory_ends_its_clients_and_is_refused() {
    for seed in 0..120 {
        let gone = (seed % 2) as u16;
        let techniques = if seed % 3 == 0 { Techniques::SHERMAN } else { Techniques::OURS };
        let scenario = Scenario { techniques: Techniques { redo: true, ..techniques }, ..fixture().scenario };
        let mut fixture = Fixture::new(scenario, Knobs { time_jumps: false, ..Knobs::swarm(seed) });
        let computes = [(); 2].map(|()| fixture.join());
        fixture.load(&computes[0], (0..40).map(|key| (key, key)));
        let outcomes: Rc<RefCell<Vec<Result<(), Error>>>> = Rc::default();
        for (number, compute) in (0..).zip(&computes) {
            let (worker, tree, told) = (compute.worker(), Arc::clone(&compute.tree), Rc::clone(&outcomes));
            let scenario = fixture.scenario.clone();
            let task = async move {
                for round in 0..60 {
                    let key = (7 * round + number) % 40;
                    let mut found = Vec::new();
                    let outcome = match round % 3 {
                        0 => {
                            worker
                                .op()
                                .insert(&tree, &scenario.key(key), &scenario.value(key), &mut found)
                                .await
                        }
                        _ => worker.op().get(&tree, &scenario.key(key), &mut found).await,
                    };
                    if let Ok(there) = outcome {
                        assert!(
                            there && found == scenario.value(key),
                            "seed {seed}: key {key} holds {found:?}"
                        );
                    }
                    told.borrow_mut().push(outcome.map(drop));
                }
            };
            drop(fixture.sim.spawn_on(&compute.fabric, 0, "client", task));
        }
        fixture.sim.fault_at(20 + 7 * seed, Fault::Wipe { server: gone });
        let run = fixture.sim.run(&mut Random::new(seed));
        assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
        for outcome in outcomes.borrow().iter() {
            let ended = matches!(
                outcome,
                Ok(())
                    | Err(Error::Fenced { .. }
                        | Error::OutcomeUnknown { .. }
                        | Error::Fabric(FabricError::Disconnected { .. }))
            );
            assert!(ended, "seed {seed}: {outcome:?}");
        }
        // Server 0 knows server 1 by its memory. A new server 0 finds that server 1 belongs to another
        // cluster.
        let expected =
            if gone == 1 { Refusal::OtherMemory { server: 1 } } else { Refusal::OtherCluster { server: 1 } };
        assert_eq!(fixture.sim.join().err(), Some(expected), "seed {seed}");
    }
}

/// A client whose connection breaks while it holds a lane leaves in order, as a program does that ends after
/// an error. The lane is not stranded.
#[test]
fn an_exit_after_a_lost_connection_strands_nothing() {
    let mut stranded_before = 0;
    for step in 1..400 {
        let mut fixture = fixture();
        let (leaver, other) = (fixture.join(), fixture.join());
        fixture.load(&other, (0..12).map(|key| (2 * key, key)));
        let (worker, tree) = (leaver.worker(), Arc::clone(&leaver.tree));
        let pairs: Vec<_> =
            (0..12).map(|key| (fixture.scenario.key(2 * key + 1), fixture.scenario.value(key))).collect();
        let task = async move {
            for (key, value) in pairs {
                if worker.op().insert(&tree, &key, &value, &mut Vec::new()).await.is_err() {
                    break;
                }
            }
        };
        drop(fixture.sim.spawn_on(&leaver.fabric, 0, "leaves", task));
        fixture.sim.fault_at(step, Fault::CutOff { compute_server: leaver.fabric.number(), server: 1 });
        let _ = fixture.sim.run(&mut Random::new(step));
        stranded_before += lanes_held(&fixture.sim.memory(1));
        let worker = leaver.worker();
        let _ = fixture.quiet(worker.depart());
        let worker = other.worker();
        let recovered = fixture.quiet(worker.recover_all(|_| false, PATIENCE));
        assert!(recovered.is_ok(), "step {step}: {recovered:?}");
        assert_nothing_is_lost(&mut fixture, &[&other], &format!("step {step}"));
    }
    assert!(stranded_before > 5, "{stranded_before} lanes were held when the leaver left");
}
