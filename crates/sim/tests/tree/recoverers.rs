//! Several recoverers of one client, and a recoverer that must not continue.

use super::scene::{Deed, assert_nothing_is_lost, die_at};
use sherman_core::{Error, Recovery};
use sherman_fabric::{Endpoint, FabricError, Peer, Refusal, Request, Response, Verdict, call};
use sherman_sim::tree::{Fixture, Scenario, Shape};
use sherman_sim::{Fault, Knobs, Random};
use std::sync::Arc;

#[test]
fn two_threads_of_a_compute_server_recover_a_member_once() {
    let (mut beside, mut after) = (0, 0);
    for seed in 0..40 {
        let mut fixture =
            Fixture::new(Scenario { shape: Shape::Four, loaded: 0, ..Scenario::default() }, Knobs::default());
        let [loader, victim, recoverer] = [(); 3].map(|()| fixture.join());
        fixture.load(&loader, Deed::Grow.loaded());
        assert!(die_at(&mut fixture, &victim, Deed::Grow, 8 + seed % 16, &mut Random::new(seed)));
        let threads = [0, 1].map(|thread| {
            let (worker, client) = (recoverer.worker(), victim.fabric.client());
            fixture
                .sim
                .spawn_on(&recoverer.fabric, thread, "recovers", async move { worker.condemn(client).await })
        });
        let run = fixture.sim.run(&mut Random::swarm(seed));
        assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
        let mut worked = 0;
        for outcome in threads.map(|thread| thread.take().expect("it ended")) {
            match outcome {
                Ok(Recovery { verdict: Verdict::Recover, .. }) => worked += 1,
                Ok(Recovery { verdict: Verdict::Recovering { by }, .. })
                    if by == recoverer.fabric.client() =>
                {
                    beside += 1
                }
                Ok(Recovery { verdict: Verdict::Gone, .. })
                | Err(Error::Refused(Refusal::NotAMember { .. })) => after += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert_eq!((worked, recoverer.shared.participation().recoveries), (1, 1), "seed {seed}");
        assert_nothing_is_lost(&mut fixture, &[&loader, &recoverer], &format!("seed {seed}"));
    }
    println!("the other thread came meanwhile {beside} times, later {after} times");
    assert!(beside > 0);
}

/// The client was condemned, but not fenced yet. Its verbs still work, but its lease has ended.
#[test]
fn a_client_declared_dead_learns_it_when_it_renews() {
    let mut fixture = Fixture::new(Scenario { loaded: 0, ..Scenario::default() }, Knobs::default());
    let [condemned, other] = [(); 2].map(|()| fixture.join());
    let (worker, judge, client) = (condemned.worker(), other.worker(), condemned.fabric.client());
    assert_eq!(fixture.quiet(worker.renew()), Ok(Vec::new()));
    let request = Request::Condemn { client };
    let said = fixture.quiet(call(judge.endpoint(), Peer::Control, request, judge.endpoint().counters()));
    assert_eq!(said, Ok(Response::Done));
    assert!(!condemned.shared.is_terminated());
    assert_eq!(fixture.quiet(worker.renew()), Err(Error::Fenced { client }));
    assert!(condemned.shared.is_terminated());
}

/// One of its own connections broke. It must not write changes that others would take for complete.
#[test]
fn a_client_whose_identity_ends_recovers_no_other() {
    let mut fixture =
        Fixture::new(Scenario { shape: Shape::Four, loaded: 0, ..Scenario::default() }, Knobs::default());
    let [victim, terminated, other] = [(); 3].map(|()| fixture.join());
    let [keeper, broken] = [(); 2].map(|()| terminated.worker());
    let endpoint = fixture.sim.endpoints(terminated.fabric.number()) - 1;
    let (compute_server, tree, key) =
        (terminated.fabric.number(), Arc::clone(&terminated.tree), fixture.scenario.key(1));
    fixture.sim.fault_at(0, Fault::Disconnect { compute_server, endpoint: Some(endpoint), server: 0 });
    let task = async move { broken.op().get(&tree, &key, &mut Vec::new()).await };
    let got = fixture.sim.spawn_on(&terminated.fabric, 0, "broken", task);
    assert!(fixture.sim.run(&mut Random::new(1)).is_done());
    assert!(matches!(got.take(), Some(Err(Error::Fabric(FabricError::Disconnected { .. })))), "it is broken");
    assert!(terminated.shared.is_terminated());
    let client = victim.fabric.client();
    let refused = fixture.quiet(keeper.condemn(client));
    assert_eq!(refused, Err(Error::Fenced { client: terminated.fabric.client() }));
    // The terminated compute server was the appointed recoverer, so it must be recovered first.
    let worker = other.worker();
    assert_eq!(
        fixture.quiet(worker.condemn(terminated.fabric.client())).map(|done| done.verdict),
        Ok(Verdict::Recover)
    );
    assert_eq!(fixture.quiet(worker.recover(client)).map(|done| done.verdict), Ok(Verdict::Recover));
}
