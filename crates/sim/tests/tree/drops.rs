//! Trees that are made, filled and dropped in turn, in a small memory.

use super::scene::{about_to_grow, assert_nothing_is_lost, die_during, die_growing};
use super::support::runs_in_full;
use sherman_core::Error;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{Endpoint, Peer, Verdict, call, calls};
use sherman_sim::tree::{Drops, Fixture, Scenario};
use sherman_sim::{Knobs, Random};

/// Number of schedules of a full run.
const SEEDS: u64 = 300;

#[test]
fn trees_of_two_node_sizes_that_come_and_go_use_nothing_up() {
    let seeds = if runs_in_full() { SEEDS } else { SEEDS / 3 };
    let mut all = Drops::default();
    for seed in 0..seeds {
        let seen = Drops::run(seed);
        assert_eq!(seen.violation, None, "seed {seed}");
        all.merge(seen);
    }
    println!("{all:?}");
    assert!(all.dropped > seeds && all.killed > seeds / 4 && all.rejoined > seeds / 8, "{all:?}");
    assert!(all.found > seeds && all.full > seeds / 4, "{all:?}");
}

/// A client drops a tree whose root has a right neighbour, and dies after each of its effects. So it also
/// dies when it has freed that neighbour and not yet the root.
#[test]
fn a_client_that_dies_while_it_drops_a_tree_whose_root_was_split_and_never_grown_is_recovered() {
    let keys = about_to_grow();
    let split = (1..).find(|&effects| {
        let (mut fixture, [_, other]) = die_growing(keys, effects).expect("it dies before the growth");
        fixture.walk(&other).expect("a sound tree").nodes[1..] == [2]
    });
    let split = split.expect("a split precedes the growth");
    for effects in 1.. {
        let (mut fixture, [loader, other]) = die_growing(keys, split).expect("it died before");
        let dropper = fixture.join();
        let (worker, name) = (dropper.worker(), dropper.tree.info().name.clone());
        let end = async move { worker.drop_tree(&name).await };
        if !die_during(&mut fixture, &dropper, end, effects, &mut Random::new(effects)) {
            assert!(effects > 50, "a drop has only {effects} effects");
            break;
        }
        let recovered = fixture.quiet(other.worker().condemn(dropper.fabric.client()));
        let verdict = recovered.map(|recovery| recovery.verdict);
        assert!(matches!(verdict, Ok(Verdict::Recover | Verdict::Gone)), "{effects} effects: {verdict:?}");
        assert_nothing_is_lost(&mut fixture, &[&loader, &other], &format!("{effects} effects"));
    }
}

/// A client reads the root word of a dropped tree, which belongs to a tree of smaller nodes by now. That
/// tree's root is the last node that memory has room for. A larger node there would end beyond memory.
#[test]
fn a_root_word_that_belongs_to_another_tree_is_not_corrupt() {
    let mut fixture = Fixture::new(Scenario { servers: 1, ..Scenario::default() }, Knobs::default());
    let [reader, owner, greedy] = [(); 3].map(|()| fixture.join());
    let (worker, small) = (owner.worker(), owner.tree.info().spec);
    let large = TreeSpec { leaf_bytes: small.leaf_bytes + 256, ..small };
    let class = owner.tree.shape().leaf.class();
    let memory = owner.shared.geometry().memory_bytes;
    let dropped = fixture.quiet(async {
        worker.tree("large", &large).await?;
        reader.worker().open_tree("large").await
    });
    let dropped = dropped.expect("there is room for a tree");
    let greedy = greedy.worker();
    let root = fixture.quiet(async {
        // Then the chunk of its redo area has another area, and no chunk is kept for one.
        greedy.activate().await?;
        let counters = greedy.endpoint().counters();
        let mut last = None;
        while let Ok(spans) =
            call(greedy.endpoint(), Peer::Volume(0), calls::AllocSpans { class, count: 64 }, counters).await
        {
            last = spans.into_iter().max_by_key(|span| span.offset).or(last);
        }
        let last = last.expect("there is memory");
        assert_eq!(last.offset + last.bytes, memory, "the last span ends where memory ends");
        call(
            greedy.endpoint(),
            Peer::Volume(0),
            calls::FreeSpans { spans: vec![(last.offset, true)] },
            counters,
        )
        .await?;
        worker.drop_tree("large").await?;
        let tree = worker.tree("small", &small).await?;
        assert_eq!(tree.info().root_word, dropped.info().root_word, "it has the entry of the dropped tree");
        let walk = worker.op().walk(&tree).await?;
        Ok::<_, Error>(walk.places[0])
    });
    let root = root.expect("there is room for one leaf");
    assert!(root.offset() + u64::from(large.leaf_bytes) > memory, "{root:?}");
    let key = fixture.scenario.key(1);
    let found = fixture.quiet(reader.worker().op().get(&dropped, &key, &mut Vec::new()));
    assert_eq!(found, Err(Error::NoSuchTree { name: "large".to_owned() }));
}
