//! Measures a lookup in the index cache: nanoseconds for the whole path from the root word to the leaf's
//! address.
//!
//! `cargo run --release -p sherman-core -F measure --example cache_cost [leaves] [children
//! per node] [rounds] [servers]`
//!
//! The tree is the index of about 32 keys per leaf, with random 8-byte keys. Every internal node has a copy
//! in the cache. The keys come in random order. Each lookup waits for the one before, as a real operation
//! waits for its own lookup. On one server neighbours lie side by side, as after a bulk load. On several
//! servers they lie anywhere in 128 GiB of each.
#![allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use sherman_core::cache::IndexCache;
use sherman_core::node::{Format, Shape, SortedBody, TreeShape};
use sherman_core::root::RootWord;
use sherman_fabric::GlobalAddress;
use sherman_fabric::control::TreeSpec;
use std::hint::black_box;
use std::time::Instant;

const LOOKUPS: usize = 5_000;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let leaves: usize = arguments.next().unwrap_or(320_000);
    let fanout: usize = arguments.next().unwrap_or(40);
    let count: usize = arguments.next().unwrap_or(2_000).max(1);
    let servers: usize = arguments.next().unwrap_or(1).clamp(1, 65_536);
    let spec = TreeSpec {
        format: Format::LineStamped.number(),
        key_len: 8,
        value_len: 8,
        leaf_bytes: 1024,
        internal_bytes: 1024,
    };
    let shape = match TreeShape::new(&spec, 1) {
        Ok(shape) => shape.internal,
        Err(error) => return println!("{error}"),
    };
    if leaves < 2 || !(2..=shape.capacity()).contains(&fanout) {
        return println!("at least 2 leaves, and 2 to {} children per node", shape.capacity());
    }
    let cache = IndexCache::new(64 << 20, &shape);
    let root = fill(&cache, &shape, leaves, fanout, servers as u64);
    let below = leaves + cache.nodes() - 1;
    println!(
        "{leaves} leaves, {} copies, {} levels, {} bytes, {:.1} per child",
        cache.nodes(),
        root.level,
        cache.bytes(),
        cache.bytes() as f64 / below as f64
    );
    let mut rounds: Vec<f64> = (0..count as u64).map(|seed| round(&cache, root, seed)).collect();
    rounds.sort_by(f64::total_cmp);
    let (fastest, median) = (rounds[0], rounds[count / 2]);
    println!(
        "{fastest:.1} ns per lookup in the fastest of {count} rounds of {LOOKUPS}, {median:.1} in the median"
    );
}

/// Returns the next number of a pseudo-random sequence.
fn next(state: u64) -> u64 {
    let mixed = (state ^ state >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Caches copies of all internal nodes above `leaves` leaves. Returns the root.
fn fill(cache: &IndexCache, shape: &Shape, leaves: usize, fanout: usize, servers: u64) -> RootWord {
    let mut keys: Vec<u64> = (1..leaves as u64).map(next).collect();
    keys.push(0);
    keys.sort_unstable();
    let mut address = 0;
    let mut place = || {
        address += 1024;
        let place = if servers == 1 { address } else { next(address) % (1 << 27) * 1024 };
        GlobalAddress::new((address / 1024 % servers) as u16, place)
    };
    let mut below: Vec<(u64, GlobalAddress)> = keys.into_iter().map(|key| (key, place())).collect();
    let mut level = 0;
    while below.len() > 1 {
        level += 1;
        let mut above = Vec::new();
        let groups: Vec<&[(u64, GlobalAddress)]> = below.chunks(fanout).collect();
        for (at, group) in groups.iter().enumerate() {
            let mut body = SortedBody::empty(shape);
            for (index, (key, child)) in group.iter().enumerate() {
                body.insert(index, &key.to_be_bytes(), &child.to_bits().to_le_bytes());
            }
            let high = groups.get(at + 1).map(|next| next[0].0.to_be_bytes());
            let node = place();
            cache.keep(node, level, &group[0].0.to_be_bytes(), high.as_ref().map(|high| &high[..]), 1, &body);
            above.push((group[0].0, node));
        }
        below = above;
    }
    RootWord { address: below[0].1, level }
}

/// Runs one round and returns its nanoseconds per lookup.
fn round(cache: &IndexCache, root: RootWord, seed: u64) -> f64 {
    let start = Instant::now();
    let mut key = next(seed + 1);
    let mut hits = 0;
    for _ in 0..LOOKUPS {
        let found = cache.locate(black_box(root), &key.to_be_bytes(), 0);
        hits += usize::from(found.hit);
        key = next(key.wrapping_add(found.address.to_bits()));
    }
    let nanoseconds = start.elapsed().as_nanos() as f64;
    assert_eq!(hits, LOOKUPS, "every copy is there");
    nanoseconds / LOOKUPS as f64
}
