//! Measures a recovery in trees of different sizes: the cost depends on what the dead client held, and on
//! nothing else.
//!
//! `SHERMAN_NODES=10000000000` measures trees of up to 10 GB of nodes.

use crate::worker;
use sherman_core::{ComputeOptions, Loading, Recovery, TreeState, Worker};
use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{Clock, Endpoint, Tally, Verdict};
use std::time::Duration;

const NODE: u32 = 1024;
const SPEC: TreeSpec =
    TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: NODE, internal_bytes: NODE };
/// Entries that the client inserts before it dies.
const INSERTED: u64 = 20_000;

/// Loads a tree of about `bytes` bytes of nodes. Returns the number of entries.
fn load(worker: &Worker<EmbeddedEndpoint>, tree: &TreeState, bytes: u64) -> u64 {
    let entries = bytes / u64::from(NODE) * 40;
    let op = worker.op();
    let load = async {
        let mut loading = Loading::new(tree, 0.9);
        let mut written = Vec::new();
        for key in 0..entries {
            let batch = loading.push(&op, tree, &(key << 8).to_be_bytes(), &key.to_be_bytes()).await?;
            if let Some(batch) = batch {
                written.push(op.write_leaves(tree, &batch).await?);
            }
        }
        for batch in loading.finish(&op).await?.into_iter().flatten() {
            written.push(op.write_leaves(tree, &batch).await?);
        }
        op.complete_load(tree, &mut loading, written).await
    };
    block_on(worker.endpoint(), load).expect("a load")
}

struct Cost {
    nodes: u64,
    recovery: Recovery,
    tally: Tally,
    took: Duration,
}

/// Recovers a client that inserted at the right end of a tree of `bytes` bytes.
fn recovery_in(bytes: u64) -> Cost {
    let options =
        EmbeddedOptions { memory_bytes: bytes + bytes / 2 + (128 << 20), ..EmbeddedOptions::default() };
    let cluster = EmbeddedCluster::new(options).expect("a cluster");
    let fabrics = [(); 3].map(|()| cluster.join().expect("a compute server"));
    let [loader, victim, survivor] =
        fabrics.each_ref().map(|fabric| worker(fabric, ComputeOptions::default(), |plain| plain));
    let tree = block_on(loader.endpoint(), loader.tree("t", &SPEC)).expect("a tree");
    let entries = load(&loader, &tree, bytes);
    for number in 0..INSERTED {
        let key = (entries << 8) + number;
        let (op, mut old) = (victim.op(), Vec::new());
        let (key, value) = (key.to_be_bytes(), number.to_be_bytes());
        let inserted = block_on(victim.endpoint(), op.insert(&tree, &key, &value, &mut old));
        assert_eq!(inserted, Ok(false));
    }
    let before = survivor.endpoint().counters().read();
    let began = survivor.endpoint().now();
    let recovery =
        block_on(survivor.endpoint(), survivor.condemn(victim.compute().client())).expect("a recovery");
    let took = Duration::from_nanos(survivor.endpoint().now() - began);
    assert_eq!(recovery.verdict, Verdict::Recover);
    let tally = survivor.endpoint().counters().read().since(&before);
    let check = block_on(survivor.endpoint(), survivor.check(&tree)).expect("a check");
    assert_eq!((check.broken_count, check.entries), (0, entries + INSERTED), "{:?}", check.broken);
    let nodes: u64 = check.levels.iter().map(|level| level.bytes).sum();
    Cost { nodes, recovery, tally, took }
}

#[test]
fn a_recovery_costs_what_the_dead_one_held_not_what_there_is() {
    let most: u64 =
        std::env::var("SHERMAN_NODES").map_or(100_000_000, |text| text.parse().expect("a number of bytes"));
    println!("| nodes | spans | verbs | requests | bytes | time |\n|---|---|---|---|---|---|");
    let costs = [most / 100, most / 10, most].map(recovery_in);
    for Cost { nodes, recovery, tally, took } in &costs {
        let (mega, bytes) = (nodes / 1_000_000, tally.bytes_read + tally.bytes_written);
        println!(
            "| {mega} MB | {} | {} | {} | {bytes} | {took:.1?} |",
            recovery.spans,
            tally.verbs(),
            tally.calls
        );
    }
    let ratio = |of: fn(&Cost) -> u64| {
        let all = costs.each_ref().map(of);
        *all.iter().max().expect("three") as f64 / *all.iter().min().expect("three") as f64
    };
    let ratios =
        [ratio(|cost| cost.tally.verbs()), ratio(|cost| cost.tally.bytes_read + cost.tally.bytes_written)];
    assert!(ratios.iter().all(|ratio| *ratio < 1.2), "{ratios:?}");
}
