//! Compute servers reuse each other's nodes: a place that one frees by a merge, the other uses again. Cached
//! pointers to the old node then lead to an arbitrary node.

use sherman::{Cluster, OpKind, TreeOptions};

/// The most round trips that a lookup may take, however stale its cached nodes are. It takes a few to the
/// right, then all the way from the root.
const MOST: usize = 32;

#[test]
fn a_pointer_to_a_place_that_is_used_again_costs_no_walk_through_the_tree() {
    let first = Cluster::open("embedded:?servers=2&memory=256MiB").expect("a cluster");
    let second = first.join().expect("another");
    let options = TreeOptions::new().node_bytes(256);
    let trees =
        [&first, &second].map(|cluster| cluster.tree_with::<u64, u64>("t", &options).expect("a tree"));
    let clients = trees.each_ref().map(|tree| tree.client().expect("a client"));
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    for number in 0..40_000 {
        clients[0].insert(key(number), number).expect("room");
    }
    for burst in 0..160 {
        for (number, client) in clients.iter().enumerate() {
            for turn in 0..500 {
                let key = key((burst * 104_729 + turn * 31 + number as u64 * 13) % 80_000);
                let done = if turn % 2 == 0 { client.insert(key, turn) } else { client.remove(key) };
                done.expect("an answer");
            }
        }
    }
    for tree in &trees {
        let client = tree.client().expect("a client");
        for number in 0..80_000 {
            client.get(key(number)).expect("an answer");
        }
        let stats = client.stats();
        let most = stats.kind(OpKind::Get).round_trips().into_keys().max();
        assert!(most.is_some_and(|most| most <= MOST), "{:?}", stats.kind(OpKind::Get).round_trips());
    }
    assert!(trees[0].check().expect("a check").is_clean());
}
