//! Real threads grow a tree from one empty leaf.

use sherman::{Cluster, ClusterOptions, Format, Techniques, TreeOptions};
use std::sync::Barrier;

const WRITERS: u64 = 8;
const KEYS: u64 = 6_000;

/// Eight threads, two on each of four compute servers, insert into one tree of four-entry leaves.
fn grow(format: Format, techniques: Techniques, url: &str) {
    let cluster = Cluster::open_with(url, ClusterOptions::new().techniques(techniques)).expect("a cluster");
    let options = TreeOptions::new().format(format).sizes(19, 12).leaf_bytes(320).internal_bytes(256);
    let start = Barrier::new(WRITERS as usize);
    let computes: Vec<Cluster> =
        (0..WRITERS / 2).map(|_| cluster.join().expect("a compute server")).collect();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (compute, start, options) = (&computes[(writer / 2) as usize], &start, &options);
            scope.spawn(move || {
                let tree = compute.raw_tree("grown", options).expect("the tree");
                let client = tree.client().expect("a client");
                start.wait();
                let mut found = Vec::new();
                for number in 0..KEYS / WRITERS {
                    let key = key((number * WRITERS + writer) * 3_571 % KEYS);
                    assert!(
                        !client.insert_into(&key, &key[..12], &mut found).expect("room"),
                        "inserted twice"
                    );
                    assert!(
                        client.get_into(&key, &mut found).expect("an answer"),
                        "a written key is missing"
                    );
                    assert_eq!(found, &key[..12]);
                }
            });
        }
    });
    let walk = cluster.raw_tree("grown", &options).expect("the tree").walk().expect("a sound tree");
    let keys: Vec<Vec<u8>> = walk.entries.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, (0..KEYS).map(key).collect::<Vec<_>>());
    assert!(walk.nodes.len() >= 5, "only {} levels", walk.nodes.len());
    println!("{format:?}: {:?} nodes a level", walk.nodes);
}

fn key(number: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(19, 0x5a);
    key
}

#[test]
fn eight_threads_grow_an_empty_leaf_to_five_levels() {
    grow(Format::LineStamped, Techniques::OURS, "embedded:?servers=2&memory=128MiB");
    grow(
        Format::LineStamped,
        Techniques::SHERMAN,
        "embedded:?servers=2&memory=128MiB&lane-bits=64&release=cas",
    );
    grow(Format::SortedStamped, Techniques::NONE, "embedded:?memory=128MiB&locks=host&release=faa");
    grow(
        Format::Sorted,
        Techniques { cache: true, ..Techniques::NONE },
        "embedded:?memory=128MiB&locks=host",
    );
    grow(Format::TwoLevel, Techniques::SHERMAN, "embedded:?servers=2&memory=128MiB&atomicity=verb");
}
