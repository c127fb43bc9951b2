//! Tidying up that cannot be done at once: it is tried again, but not for longer than it may, nor while nobody could help it.

use sherman_core::{Cause, Op};
use sherman_fabric::{Endpoint, FabricError, Refusal, Request, call};
use sherman_sim::tree::{Compute, Lab, Scenario, Shape};
use sherman_sim::{Knobs, SimEndpoint};

/// A tree of `keys` even keys in full leaves, one of which was split where its parent did not hear of it; and a compute server
/// that has nothing to do with that.
fn unposted(keys: u64, odd: u64) -> (Lab, Compute) {
    let scenario = Scenario { shape: Shape::Four, loaded: 0, ..Scenario::default() };
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
    let (worker, class) = (greedy.worker(), greedy.tree.shape().leaf.class());
    for server in 0..lab.scenario.servers {
        let take_all = async {
            let counters = worker.endpoint().counters();
            while call(worker.endpoint(), server, Request::AllocChunk { class }, counters).await.is_ok() {}
            call(worker.endpoint(), server, Request::AllocChunk { class }, counters).await
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
