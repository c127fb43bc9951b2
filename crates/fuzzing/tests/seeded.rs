//! Every fuzz target on inputs of a seeded generator: what `cargo fuzz` does for hours, for a moment, without it.
//!
//! Each target runs in a thread of its own, watched: one that does not end is told by its seed.

use sherman_fuzzing::{Reached, TARGETS, Target};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// No single input takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers that are the same on every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// An input: bytes, of which some are rarely anything but small, as those are that choose.
fn input(seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let len = numbers.next() % [64, 300, 1500][(seed % 3) as usize];
    let small = numbers.next().is_multiple_of(4);
    (0..len)
        .map(|_| numbers.next() as u8 & if small && numbers.next().is_multiple_of(2) { 0x0f } else { 0xff })
        .collect()
}

/// Runs a target on `inputs` inputs; how many were taken for the truth.
fn run(target: Target, inputs: u64) -> u64 {
    let (done, progress) = channel();
    let worker = thread::spawn(move || {
        let mut taken = 0;
        for seed in 0..inputs {
            done.send(seed).expect("the watch waits");
            taken += u64::from(target(&input(seed)) == Reached::Taken);
        }
        taken
    });
    let mut last = 0;
    loop {
        match progress.recv_timeout(PATIENCE) {
            Ok(seed) => last = seed,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("seed {last} does not end"),
        }
    }
    worker.join().unwrap_or_else(|_| panic!("seed {last}"))
}

fn target(name: &str) -> Target {
    TARGETS.into_iter().find(|(known, _)| *known == name).expect("a target").1
}

#[test]
fn bytes_that_are_no_node_stop_no_client() {
    let taken = run(target("node"), 150_000);
    assert!(taken > 40_000, "only {taken} were taken for nodes");
}

#[test]
fn bytes_that_are_no_superblock_are_refused() {
    let taken = run(target("superblock"), 200_000);
    assert!((1_000..199_000).contains(&taken), "{taken} were taken for superblocks");
}

#[test]
fn damaged_tables_are_refused_or_served() {
    let taken = run(target("server"), 30_000);
    assert!((3_000..27_000).contains(&taken), "{taken} were opened");
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    let taken = run(target("redo"), 200_000);
    assert!((10_000..190_000).contains(&taken), "{taken} were taken for records");
}

#[test]
fn what_the_dead_left_behind_stops_no_recoverer() {
    let taken = run(target("replay"), 6_000);
    assert!((1_000..5_900).contains(&taken), "{taken} were recovered to the end");
}

#[test]
fn a_tree_that_lies_stops_no_client() {
    let taken = run(target("tree"), 4_000);
    assert!(taken > 500, "only {taken} were noticed");
}
