//! Cleanup that cannot be done at once: clients retry it, but within limits, and not while no retry can
//! succeed.

use super::scene::{about_to_grow, die_growing};
use sherman_core::{Cause, Op};
use sherman_fabric::{Endpoint, FabricError, Peer, Refusal, call, calls};
use sherman_sim::tree::{Compute, Fixture, Scenario, Shape};
use sherman_sim::{Knobs, VolumeEndpoint};

/// Creates a tree of `keys` even keys in full leaves. One leaf was split without a separator in its parent.
/// Returns a compute server that took no part in that.
fn unposted(keys: u64, odd: u64) -> (Fixture, Compute) {
    let scenario = Scenario { shape: Shape::Four, loaded: 0, span_places: 2, ..Scenario::default() };
    let mut fixture = Fixture::new(scenario, Knobs::default());
    let loader = fixture.join();
    fixture.load(&loader, (0..keys).map(|key| (2 * key, key)));
    fixture.load_unposted(&loader, &[(odd, 1)]);
    let other = fixture.join();
    let walk = fixture.walk(&other).expect("a sound tree");
    assert_eq!((walk.nodes.len(), walk.missing_separators), (2, 1), "{keys} keys, {odd} unposted");
    (fixture, other)
}

/// Removes a key, and returns what `tell` says about the operation.
fn remove<T>(
    fixture: &mut Fixture,
    compute: &Compute,
    key: u64,
    tell: impl FnOnce(&Op<'_, VolumeEndpoint>) -> T,
) -> T {
    let (worker, key) = (compute.worker(), fixture.scenario.key(key));
    let op = worker.op();
    let mut old = Vec::new();
    fixture.quiet(op.remove(&compute.tree, &key, &mut old)).expect("a quiet tree gives what it has");
    tell(&op)
}

#[test]
fn a_merge_that_had_to_post_a_separator_first_is_tried_again_and_counted() {
    let (mut fixture, other) = unposted(20, 17);
    // The keys of the next leaf: an operation on the keys of the unposted leaf would post its separator on
    // the way.
    let again =
        (12..16).map(|key| remove(&mut fixture, &other, 2 * key, |op| op.retries().get(Cause::Merge)));
    assert!(again.sum::<u64>() > 0, "nothing had to be tried again");
    let walk = fixture.walk(&other).expect("a sound tree");
    assert_eq!((walk.nodes, walk.missing_separators), (vec![5, 1], 0), "posted, and then merged");
}

/// Allocates all remaining memory.
fn exhaust(fixture: &mut Fixture) {
    let greedy = fixture.join();
    let (worker, shape) = (greedy.worker(), greedy.tree.shape());
    let classes = [shape.leaf.class(), shape.internal.class()];
    for (server, class) in
        (0..fixture.scenario.servers).flat_map(|server| classes.map(|class| (server, class)))
    {
        let take_all = async {
            let counters = worker.endpoint().counters();
            let more = || {
                call(
                    worker.endpoint(),
                    Peer::Volume(server),
                    calls::AllocSpans { class, count: 64 },
                    counters,
                )
            };
            while more().await.is_ok() {}
            more().await
        };
        assert_eq!(fixture.quiet(take_all), Err(FabricError::Refused(Refusal::OutOfMemory)));
    }
}

/// A merge needs a separator, its full parent has no room for it, and there is no memory for a new parent: a
/// merge backoff begins. No client posts separators during the backoff, so a retry would be useless.
#[test]
fn a_merge_whose_separator_cannot_be_posted_gives_up_at_once() {
    let mut met = 0;
    for (keys, odd) in [(21, 17), (22, 17), (24, 17), (24, 21)] {
        let (mut fixture, other) = unposted(keys, odd);
        exhaust(&mut fixture);
        for key in (12..16).map(|key| 2 * key) {
            let before = other.tree.separators_skipped();
            let (verbs, again) =
                remove(&mut fixture, &other, key, |op| (op.tally().verbs(), op.retries().get(Cause::Merge)));
            let skipped = other.tree.separators_skipped() - before;
            met += skipped;
            assert!(
                verbs < 100 && (skipped == 0 || again == 0),
                "{keys} keys, {key} removed: {verbs} verbs, {again}"
            );
        }
    }
    println!("{met} merges lacked a separator that could not be posted");
    assert!(met > 0);
}

/// The client that split the root died before it put a new root above the halves. No other client will do
/// that by itself, so a client that cleans up there must not wait for it.
#[test]
fn a_root_that_was_split_and_never_grown_is_grown_by_the_next_client_that_needs_it() {
    let keys = about_to_grow();
    let mut met = 0;
    for effects in 0.. {
        let Some((mut fixture, [_, other])) = die_growing(keys, effects) else { break };
        if fixture.walk(&other).expect("a sound tree").nodes[1..] != [2] {
            continue;
        }
        met += 1;
        for key in (keys / 2..=keys).rev() {
            let verbs = remove(&mut fixture, &other, key, |op| op.tally().verbs());
            assert!(verbs <= 60, "killed after {effects}, key {key}: {verbs} verbs");
        }
        let walk = fixture.walk(&other).expect("a sound tree");
        assert_ne!(
            walk.nodes[1..],
            [2],
            "killed after {effects}: {} separators are missing",
            walk.missing_separators
        );
    }
    assert!(met > 0, "nobody died between a split of the root and its growth");
    println!("{keys} keys; {met} deaths between the split of the root and its growth");
}
