//! Several that would recover somebody, and one that must not.

use super::scene::{Deed, assert_nothing_is_lost, die_at};
use sherman_core::{Error, Recovery};
use sherman_fabric::{Endpoint, FabricError, Refusal, Request, Response, Verdict, call};
use sherman_sim::tree::{Lab, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::sync::Arc;

#[test]
fn two_threads_of_a_compute_server_recover_somebody_once() {
    let (mut beside, mut after) = (0, 0);
    for seed in 0..40 {
        let mut lab = Lab::new(Scenario { shape: Shape::Four, loaded: 0, ..Scenario::default() }, Knobs::default());
        let [loader, victim, recoverer] = [(); 3].map(|()| lab.join());
        lab.load(&loader, Deed::Grow.loaded());
        assert!(die_at(&mut lab, &victim, Deed::Grow, 8 + seed % 16, &mut Random::new(seed)));
        let threads = [0, 1].map(|thread| {
            let (worker, client) = (recoverer.worker(), victim.fabric.client());
            lab.sim.spawn_on(&recoverer.fabric, thread, "recovers", async move { worker.condemn(client).await })
        });
        let run = lab.sim.run(&mut Random::swarm(seed));
        assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
        let mut worked = 0;
        for outcome in threads.map(|thread| thread.take().expect("it ended")) {
            match outcome {
                Ok(Recovery { verdict: Verdict::Recover, .. }) => worked += 1,
                Ok(Recovery { verdict: Verdict::Recovering { by }, .. }) if by == recoverer.fabric.client() => {
                    beside += 1
                }
                Ok(Recovery { verdict: Verdict::Gone, .. }) | Err(Error::Refused(Refusal::NotAMember { .. })) => {
                    after += 1
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert_eq!((worked, recoverer.shared.participation().recoveries), (1, 1), "seed {seed}");
        assert_nothing_is_lost(&mut lab, &[&loader, &recoverer], &format!("seed {seed}"));
    }
    println!("the other thread came meanwhile {beside} times, later {after} times");
    assert!(beside > 0);
}

/// It was condemned, but nobody has fenced it yet: verbs still work, but its lease is at an end.
#[test]
fn who_is_taken_for_dead_hears_of_it_when_it_renews() {
    let mut lab = Lab::new(Scenario { loaded: 0, ..Scenario::default() }, Knobs::default());
    let [condemned, other] = [(); 2].map(|()| lab.join());
    let (worker, judge, client) = (condemned.worker(), other.worker(), condemned.fabric.client());
    assert_eq!(lab.quiet(worker.renew()), Ok(Vec::new()));
    let request = Request::Condemn { client };
    let said = lab.quiet(call(judge.endpoint(), 0, request, judge.endpoint().counters()));
    assert_eq!(said, Ok(Response::Done));
    assert!(!condemned.shared.is_doomed());
    assert_eq!(lab.quiet(worker.renew()), Err(Error::Fenced { client }));
    assert!(condemned.shared.is_doomed());
}

/// A connection of its own broke: it is not to write what others will take for finished.
#[test]
fn who_is_at_its_own_end_recovers_nobody() {
    let mut lab = Lab::new(Scenario { shape: Shape::Four, loaded: 0, ..Scenario::default() }, Knobs::default());
    let [victim, doomed, other] = [(); 3].map(|()| lab.join());
    let [keeper, broken] = [(); 2].map(|()| doomed.worker());
    let endpoint = lab.sim.endpoints(doomed.fabric.number()) - 1;
    let (compute_server, tree, key) = (doomed.fabric.number(), Arc::clone(&doomed.tree), lab.scenario.key(1));
    lab.sim.fault_at(0, Fault::Disconnect { compute_server, endpoint: Some(endpoint), server: 0 });
    let task = async move { broken.op().get(&tree, &key, &mut Vec::new()).await };
    let got = lab.sim.spawn_on(&doomed.fabric, 0, "broken", task);
    assert!(lab.sim.run(&mut Random::new(1)).is_done());
    assert!(matches!(got.take(), Some(Err(Error::Fabric(FabricError::Disconnected { .. })))), "it is broken");
    assert!(doomed.shared.is_doomed());
    let client = victim.fabric.client();
    let refused = lab.quiet(keeper.condemn(client));
    assert_eq!(refused, Err(Error::Fenced { client: doomed.fabric.client() }));
    // It had been appointed: it goes first.
    let worker = other.worker();
    assert_eq!(lab.quiet(worker.condemn(doomed.fabric.client())).map(|done| done.verdict), Ok(Verdict::Recover));
    assert_eq!(lab.quiet(worker.recover(client)).map(|done| done.verdict), Ok(Verdict::Recover));
}
