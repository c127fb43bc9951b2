//! Memory servers that restart, with their memory or without, and clients that alone lose one.

use super::scene::{Deed, assert_nothing_is_lost, die_at, lanes_held};
use sherman_core::mutant::{Mutant, plant};
use sherman_core::{Error, Techniques};
use sherman_fabric::{FabricError, Refusal};
use sherman_sim::tree::{Compute, Lab, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longer, in virtual time, than any recovery takes.
const PATIENCE: Duration = Duration::from_secs(1);

fn lab() -> Lab {
    let scenario = Scenario { shape: Shape::Four, servers: 2, loaded: 0, lease_nanos: 50_000, ..Scenario::default() };
    Lab::new(scenario, Knobs::default())
}

/// A member that is idle loses a server, and others that see it die in the middle of a change. How the idle one lost it.
fn idle_member_loses(lose: impl Fn(&Compute) -> Fault, deed: Deed, effects: u64) -> Option<(Lab, Compute, Compute)> {
    let mut lab = lab();
    let (idle, loader) = (lab.join(), lab.join());
    lab.load(&loader, deed.loaded());
    lab.leave(&loader);
    lab.sim.strike(lose(&idle));
    let victims = [(); 2].map(|()| lab.join());
    let [mut victim, other] = victims;
    if effects % 4 >= 2 {
        victim = other;
    }
    die_at(&mut lab, &victim, deed, effects, &mut Random::new(effects)).then_some((lab, idle, victim))
}

/// Whatever the idle member cannot reach stays for one that can: its own recovery of the dead does not end.
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
            let Some((mut lab, idle, victim)) = idle_member_loses(lose, deed, effects) else { break };
            let what = format!("{deed:?}, {}, dies after effect {effects}", lose(&idle));
            let worker = idle.worker();
            let outcome = lab.quiet(worker.condemn(victim.fabric.client()));
            assert!(outcome.is_err() && idle.shared.is_doomed(), "{what}: {outcome:?}");
            assert!(lab.quiet(worker.depart()).is_err(), "{what}: a doomed member does not leave in order");
            let inspector = lab.join();
            let worker = inspector.worker();
            recovered +=
                lab.quiet(worker.recover_all(|_| false, PATIENCE)).unwrap_or_else(|error| panic!("{what}: {error}"));
            for server in 0..2 {
                assert_eq!(lanes_held(&lab.sim.memory(server)), 0, "{what}: server {server}");
            }
            let walk = lab.quiet(worker.op().walk(&inspector.tree));
            walk.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    assert!(recovered > 300, "{recovered}");
}

/// The same schedule of events, with a recoverer that passes over what it alone cannot reach, as the code once did.
#[test]
fn a_private_view_that_a_server_is_lost_would_damage_the_tree() {
    let _planted = plant(Some(Mutant::PrivateLoss));
    let cases = Deed::ALL.into_iter().flat_map(|deed| (1..200).map(move |effects| (deed, effects)));
    let damaged = cases.filter(|&(deed, effects)| {
        let lost = idle_member_loses(|_| Fault::Restart { server: 1 }, deed, effects);
        let Some((mut lab, idle, victim)) = lost else { return false };
        let worker = idle.worker();
        let _ = lab.quiet(worker.condemn(victim.fabric.client()));
        lanes_held(&lab.sim.memory(1)) > 0
    });
    assert!(damaged.count() > 0);
}

/// A server comes back without its memory: its clients end, nobody reads what is not there, and nobody is let in.
#[test]
fn a_server_that_lost_its_memory_ends_its_clients_and_is_refused() {
    for seed in 0..120 {
        let gone = (seed % 2) as u16;
        let techniques = if seed % 3 == 0 { Techniques::SHERMAN } else { Techniques::OURS };
        let scenario = Scenario { techniques: Techniques { redo: true, ..techniques }, ..lab().scenario };
        let mut lab = Lab::new(scenario, Knobs { time_jumps: false, ..Knobs::swarm(seed) });
        let computes = [(); 2].map(|()| lab.join());
        lab.load(&computes[0], (0..40).map(|key| (key, key)));
        let outcomes: Rc<RefCell<Vec<Result<(), Error>>>> = Rc::default();
        for (number, compute) in (0..).zip(&computes) {
            let (worker, tree, told) = (compute.worker(), Arc::clone(&compute.tree), Rc::clone(&outcomes));
            let scenario = lab.scenario.clone();
            let task = async move {
                for round in 0..60 {
                    let key = (7 * round + number) % 40;
                    let mut found = Vec::new();
                    let outcome = match round % 3 {
                        0 => worker.op().insert(&tree, &scenario.key(key), &scenario.value(key), &mut found).await,
                        _ => worker.op().get(&tree, &scenario.key(key), &mut found).await,
                    };
                    if let Ok(there) = outcome {
                        assert!(there && found == scenario.value(key), "seed {seed}: key {key} holds {found:?}");
                    }
                    told.borrow_mut().push(outcome.map(drop));
                }
            };
            drop(lab.sim.spawn_on(&compute.fabric, 0, "client", task));
        }
        lab.sim.fault_at(20 + 7 * seed, Fault::Wipe { server: gone });
        let run = lab.sim.run(&mut Random::new(seed));
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
        // Server 0 knows server 1 by its memory; a server 0 that is new itself finds server 1 to be another cluster's.
        let expected = if gone == 1 { Refusal::OtherMemory { server: 1 } } else { Refusal::OtherCluster { server: 1 } };
        assert_eq!(lab.sim.join().err(), Some(expected), "seed {seed}");
    }
}

/// A client whose connection breaks under a lane leaves in order, as a program does that ends after an error: the lane is not stranded.
#[test]
fn an_exit_after_a_lost_connection_strands_nothing() {
    let mut stranded_before = 0;
    for step in 1..400 {
        let mut lab = lab();
        let (leaver, other) = (lab.join(), lab.join());
        lab.load(&other, (0..12).map(|key| (2 * key, key)));
        let (worker, tree) = (leaver.worker(), Arc::clone(&leaver.tree));
        let pairs: Vec<_> = (0..12).map(|key| (lab.scenario.key(2 * key + 1), lab.scenario.value(key))).collect();
        let task = async move {
            for (key, value) in pairs {
                if worker.op().insert(&tree, &key, &value, &mut Vec::new()).await.is_err() {
                    break;
                }
            }
        };
        drop(lab.sim.spawn_on(&leaver.fabric, 0, "leaves", task));
        lab.sim.fault_at(step, Fault::CutOff { compute_server: leaver.fabric.number(), server: 1 });
        let _ = lab.sim.run(&mut Random::new(step));
        stranded_before += lanes_held(&lab.sim.memory(1));
        let worker = leaver.worker();
        let _ = lab.quiet(worker.depart());
        let worker = other.worker();
        let recovered = lab.quiet(worker.recover_all(|_| false, PATIENCE));
        assert!(recovered.is_ok(), "step {step}: {recovered:?}");
        assert_nothing_is_lost(&mut lab, &[&other], &format!("step {step}"));
    }
    assert!(stranded_before > 5, "{stranded_before} lanes were held when the leaver left");
}
