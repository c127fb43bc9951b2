//! Several that would recover somebody.

use super::scene::{Deed, assert_nothing_is_lost, die_at};
use sherman_core::{Error, Recovery};
use sherman_fabric::{Refusal, Verdict};
use sherman_sim::tree::{Lab, Scenario, Shape};
use sherman_sim::{Knobs, Random};

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
                Ok(Recovery { verdict: Verdict::Recover, places: 1.., .. }) => worked += 1,
                Ok(Recovery { verdict: Verdict::Recover, records: 0, lanes: 0, places: 0 }) => beside += 1,
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
