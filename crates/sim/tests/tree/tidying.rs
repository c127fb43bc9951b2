//! Tidying up that cannot be done at once: it is tried again, but not for longer than it may, nor while nobody could help it.

use sherman_core::{Cause, Op};
use sherman_fabric::{Endpoint, FabricError, Refusal, Request, call};
use sherman_sim::tree::{Compute, Lab, Scenario, Shape};
use sherman_sim::{Knobs, Random, SimEndpoint};
use std::sync::Arc;

/// A tree of `keys` even keys in full leaves, one of which was split where its parent did not hear of it; and a compute server
/// that has nothing to do with that.
fn unposted(keys: u64, odd: u64) -> (Lab, Compute) {
    let scenario = Scenario { shape: Shape::Four, loaded: 0, span_places: 2, ..Scenario::default() };
    let mut lab = Lab::new(scenario, Knobs::default());
    let loader = lab.join();
    lab.load(&loader, (0..keys).map(|key| (2 * key, key)));
    lab.load_unposted(&loader, &[(odd, 1)]);
    let other = lab.join();
    let walk = lab.walk(&other).expect("a sound tree");
    assert_eq!((walk.nodes.len(), walk.missing_separators), (2, 1), "{keys} keys, {odd} unposted");
    (lab, other)
}

/// Removes a key, and tells of the operation.
fn remove<T>(lab: &mut Lab, compute: &Compute, key: u64, tell: impl FnOnce(&Op<'_, SimEndpoint>) -> T) -> T {
    let (worker, key) = (compute.worker(), lab.scenario.key(key));
    let op = worker.op();
    let mut old = Vec::new();
    lab.quiet(op.remove(&compute.tree, &key, &mut old)).expect("a quiet tree gives what it has");
    tell(&op)
}

#[test]
fn a_merge_that_had_to_post_a_separator_first_is_tried_again_and_counted() {
    let (mut lab, other) = unposted(20, 17);
    // The next leaf's keys: whoever goes for those of the unposted one posts its separator on the way.
    let again = (12..16).map(|key| remove(&mut lab, &other, 2 * key, |op| op.retries().get(Cause::Merge)));
    assert!(again.sum::<u64>() > 0, "nothing had to be tried again");
    let walk = lab.walk(&other).expect("a sound tree");
    assert_eq!((walk.nodes, walk.missing_separators), (vec![5, 1], 0), "posted, and then merged");
}

/// Takes all memory that is left.
fn exhaust(lab: &mut Lab) {
    let greedy = lab.join();
    let (worker, shape) = (greedy.worker(), greedy.tree.shape());
    let classes = [shape.leaf.class(), shape.internal.class()];
    for (server, class) in (0..lab.scenario.servers).flat_map(|server| classes.map(|class| (server, class))) {
        let take_all = async {
            let counters = worker.endpoint().counters();
            let more = || call(worker.endpoint(), server, Request::AllocSpans { class, count: 64 }, counters);
            while more().await.is_ok() {}
            more().await
        };
        assert_eq!(lab.quiet(take_all), Err(FabricError::Refused(Refusal::OutOfMemory)));
    }
}

/// A merge needs a separator that its full parent has no room for, and there is no memory for a new parent: a truce begins.
/// Nobody posts separators during one, so going on would be in vain.
#[test]
fn a_merge_whose_separator_cannot_be_posted_gives_up_at_once() {
    let mut met = 0;
    for (keys, odd) in [(21, 17), (22, 17), (24, 17), (24, 21)] {
        let (mut lab, other) = unposted(keys, odd);
        exhaust(&mut lab);
        for key in (12..16).map(|key| 2 * key) {
            let before = other.tree.separators_skipped();
            let (verbs, again) =
                remove(&mut lab, &other, key, |op| (op.tally().verbs(), op.retries().get(Cause::Merge)));
            let skipped = other.tree.separators_skipped() - before;
            met += skipped;
            assert!(verbs < 100 && (skipped == 0 || again == 0), "{keys} keys, {key} removed: {verbs} verbs, {again}");
        }
    }
    println!("{met} merges lacked a separator that could not be posted");
    assert!(met > 0);
}

/// A tree whose next key, the highest, makes its root split: so many keys it has.
fn about_to_grow() -> u64 {
    let mut lab =
        Lab::new(Scenario { shape: Shape::Four, loaded: 0, span_places: 2, ..Scenario::default() }, Knobs::default());
    let loader = lab.join();
    (0..)
        .find(|&key| {
            lab.load(&loader, [(key, key)]);
            lab.walk(&loader).expect("a sound tree").nodes.len() == 3
        })
        .expect("trees grow")
}

/// Whoever split the root died before it put a new one above its halves. Nobody else will: who tidies up there must not wait for it.
#[test]
fn a_root_that_was_split_and_never_grown_is_grown_by_who_needs_it() {
    let keys = about_to_grow();
    let mut met = 0;
    for effects in 0.. {
        let mut lab = Lab::new(
            Scenario { shape: Shape::Four, loaded: 0, span_places: 2, ..Scenario::default() },
            Knobs::default(),
        );
        let [loader, victim, other] = [(); 3].map(|()| lab.join());
        lab.load(&loader, (0..keys).map(|key| (key, key)));
        let (worker, tree) = (victim.worker(), Arc::clone(&victim.tree));
        let (key, value) = (lab.scenario.key(keys), lab.scenario.value(keys));
        drop(lab.sim.spawn_on(&victim.fabric, 0, "victim", async move {
            worker.op().insert(&tree, &key, &value, &mut Vec::new()).await
        }));
        lab.sim.kill_after(victim.fabric.number(), effects);
        let _ = lab.sim.run(&mut Random::new(effects));
        if !lab.sim.is_dead(victim.fabric.number()) {
            break;
        }
        lab.quiet(other.worker().condemn(victim.fabric.client())).expect("it is recovered");
        if lab.walk(&other).expect("a sound tree").nodes[1..] != [2] {
            continue;
        }
        met += 1;
        for key in (keys / 2..=keys).rev() {
            let verbs = remove(&mut lab, &other, key, |op| op.tally().verbs());
            assert!(verbs <= 60, "killed after {effects}, key {key}: {verbs} verbs");
        }
        let walk = lab.walk(&other).expect("a sound tree");
        assert_ne!(walk.nodes[1..], [2], "killed after {effects}: {} separators are missing", walk.missing_separators);
    }
    assert!(met > 0, "nobody died between a split of the root and its growth");
    println!("{keys} keys; {met} deaths between the split of the root and its growth");
}
