//! Measures the node codecs: nanoseconds per operation on a full leaf of 8-byte keys and values, for each
//! format.
//!
//! `cargo run --release -p sherman-core -F measure --example node_cost [leaf bytes]`
//!
//! Each figure is the fastest of many short rounds over leaves that stay in the cache, with keys in a
//! scrambled order. So it shows the cost of the codec, without the cost of memory or of other load on the
//! machine.
//!
//! The last four columns collect all entries of full leaves. In the first of them the slots are in order. In
//! the others a tenth, half, or all of the entries were put at random behind the rest. Each column uses many
//! leaves of its kind, so that the processor cannot learn a single leaf.
#![allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use sherman_core::node::draft::{NodePlace, Upsert};
use sherman_core::node::{Draft, Format, Lookup, Node, Removed, Scratch, TreeShape};
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{ComputeId, GlobalAddress};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 200;
const OPERATIONS: usize = 1_000;

fn main() {
    let bytes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1024);
    println!(
        "ns per operation, {bytes}-byte leaf, 8-byte keys and values, fastest of {ROUNDS} rounds of \
         {OPERATIONS}"
    );
    println!(
        "{:<15} {:>8} {:>8} {:>10} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "format",
        "entries",
        "open",
        "open+hit",
        "open+miss",
        "update",
        "insert",
        "remove",
        "split",
        "absorb",
        "len",
        "sorted",
        "mostly",
        "half",
        "random"
    );
    for format in Format::ALL {
        let spec = TreeSpec {
            format: format.number(),
            key_len: 8,
            value_len: 8,
            leaf_bytes: bytes,
            internal_bytes: bytes,
        };
        match TreeShape::new(&spec, 1) {
            Ok(shape) => report(format, &shape),
            Err(error) => println!("{:<15} {error}", format.name()),
        }
    }
}

fn report(format: Format, shape: &TreeShape) {
    let full = full_leaf(shape);
    let image = full.image();
    let keys = scrambled(shape.leaf.capacity() as u64);
    let open = fastest(|i| {
        black_box(i);
        u64::from(Node::open(&shape.leaf, black_box(image), 0).is_ok())
    });
    let lookup = |key: u64| match Node::open(&shape.leaf, black_box(image), 0) {
        Ok(node) => node.find(&key.to_be_bytes()),
        Err(_) => Lookup::Torn,
    };
    let hit = fastest(|i| u64::from(matches!(lookup(keys[i % keys.len()]), Lookup::Found(_))));
    let miss = fastest(|i| u64::from(lookup(keys[i % keys.len()] + 1) == Lookup::Absent));
    let mut old = Vec::new();
    let mut draft = full.clone();
    let update = fastest(|i| {
        let key = keys[i % keys.len()].to_be_bytes();
        u64::from(matches!(draft.upsert(&key, &(i as u64).to_le_bytes(), &mut old), Upsert::Updated(_)))
    });
    let most = partly_full_leaf(shape, shape.leaf.capacity() - 1);
    let last = keys.iter().copied().max().unwrap_or(0).to_be_bytes();
    let mut buffer = Vec::new();
    let insert = fastest(|_| {
        let Ok(node) = Node::open(&shape.leaf, most.image(), 0) else { return 0 };
        let mut draft = Draft::of(&shape.leaf, &node, std::mem::take(&mut buffer));
        let done = matches!(draft.upsert(&last, &last, &mut old), Upsert::Inserted(_));
        buffer = draft.into_image();
        u64::from(done)
    });
    let split = fastest(|i| {
        let Ok(node) = Node::open(&shape.leaf, image, 0) else { return 0 };
        let mut draft = Draft::of(&shape.leaf, &node, std::mem::take(&mut buffer));
        let key = (keys[i % keys.len()] + 1).to_be_bytes();
        let split = draft.split_leaf(&key, &key, place(1));
        black_box(split.right.image());
        buffer = draft.into_image();
        1
    });
    let remove = fastest(|i| {
        let Ok(node) = Node::open(&shape.leaf, image, 0) else { return 0 };
        let mut draft = Draft::of(&shape.leaf, &node, std::mem::take(&mut buffer));
        let done = matches!(draft.remove(&keys[i % keys.len()].to_be_bytes(), &mut old), Removed::Gone(_));
        buffer = draft.into_image();
        u64::from(done)
    });
    let (left, right) = halves(shape);
    let absorb = fastest(|_| {
        let mut draft = Draft::of(&shape.leaf, &left.node(), std::mem::take(&mut buffer));
        let done = draft.absorb(&right.node()).is_some();
        buffer = draft.into_image();
        u64::from(done)
    });
    let len = fastest(|_| u64::from(black_box(&full).node().len() == keys.len()));
    let collects = [0, 10, 50, 100].map(|percent| collect_cost(shape, percent));
    print!("{:<15} {:>8} {open:>8.1} {hit:>10.1} {miss:>10.1} {update:>8.1}", format.name(), keys.len());
    print!(" {insert:>8.1} {remove:>8.1} {split:>8.1} {absorb:>8.1} {len:>8.1}");
    for collect in collects {
        print!(" {collect:>8.1}");
    }
    println!();
}

/// Measures how long it takes to collect all entries of a full leaf. `percent` of the entries were put at
/// random behind the others.
fn collect_cost(shape: &TreeShape, percent: u64) -> f64 {
    let capacity = shape.leaf.capacity() as u64;
    let leaves: Vec<Draft<'_>> = (0..64)
        .map(|seed: u64| {
            let mix = |key: &u64| (key ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let mut late: Vec<u64> = (1..=capacity).map(|n| n * 10).collect();
            late.sort_by_key(mix);
            let mut early = late.split_off((capacity * percent / 100) as usize);
            early.sort_unstable();
            let entries: Vec<u8> =
                early.iter().flat_map(|key| [key.to_be_bytes(), key.to_le_bytes()].concat()).collect();
            let mut leaf =
                Draft::filled(&shape.leaf, 0, &[0; 8], None, GlobalAddress::NULL, place(1), &entries, false);
            for key in late {
                leaf.upsert(&key.to_be_bytes(), &key.to_le_bytes(), &mut Vec::new());
            }
            leaf
        })
        .collect();
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    fastest(|i| {
        out.clear();
        let whole =
            leaves[i % leaves.len()].node().collect(&[0; 8], Some(&[0xff; 8]), &mut scratch, &mut out);
        u64::from(whole && out.len() == 16 * capacity as usize)
    })
}

/// Returns two neighbours that fit into one leaf. The left one has ghosts.
fn halves(shape: &TreeShape) -> (Draft<'_>, Draft<'_>) {
    let mut left = partly_full_leaf(shape, shape.leaf.capacity());
    let split = left.split_leaf(&[0, 0, 0, 0, 0, 0, 0, 1], &[0; 8], place(1));
    left.remove(&[0, 0, 0, 0, 0, 0, 0, 1], &mut Vec::new());
    (left, split.right)
}

fn place(version: u16) -> NodePlace {
    NodePlace { address: GlobalAddress::new(0, 4096), version, owner: ComputeId(1), used: true }
}

/// Returns keys 10, 20, 30, … in an order that helps no search.
fn scrambled(count: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (1..=count).map(|n| n * 10).collect();
    keys.sort_by_key(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    keys
}

fn full_leaf(shape: &TreeShape) -> Draft<'_> {
    partly_full_leaf(shape, shape.leaf.capacity())
}

fn partly_full_leaf(shape: &TreeShape, entries: usize) -> Draft<'_> {
    let mut draft = Draft::new(&shape.leaf, 0, &[0; 8], None, GlobalAddress::NULL, place(1));
    draft.link();
    let mut keys = scrambled(shape.leaf.capacity() as u64);
    let largest = keys.iter().copied().max();
    keys.sort_by_key(|key| (Some(*key) == largest, key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    for key in keys.into_iter().take(entries) {
        draft.upsert(&key.to_be_bytes(), &key.to_le_bytes(), &mut Vec::new());
    }
    draft
}

/// Returns the time of one call in the fastest round. Every call must return 1, because the time of a failed
/// call means nothing.
fn fastest(mut call: impl FnMut(usize) -> u64) -> f64 {
    let round = |_| {
        let start = Instant::now();
        let done: u64 = (0..OPERATIONS).map(&mut call).sum();
        let nanoseconds = start.elapsed().as_nanos() as f64;
        assert_eq!(done, OPERATIONS as u64, "an operation did not do what it should");
        nanoseconds / OPERATIONS as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
