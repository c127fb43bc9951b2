//! Every fuzz target on inputs of a seeded generator: a short run of what `cargo fuzz` does for hours,
//! without `cargo fuzz`.
//!
//! Each target runs in a thread of its own under a watchdog. If an input does not end, the watchdog reports
//! its seed.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod inputs;

use inputs::{frames, input};
use sherman_fuzzing::source::Source;
use sherman_fuzzing::{Reached, TARGETS, Target};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Far longer than any single input takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a target on `inputs` inputs. Returns how many of them it accepted.
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
fn the_state_of_a_dead_client_stops_no_recoverer() {
    let taken = run(target("replay"), 6_000);
    assert!((1_000..5_900).contains(&taken), "{taken} were recovered to the end");
}

#[test]
fn a_tree_that_lies_stops_no_client() {
    let taken = run(target("tree"), 4_000);
    assert!(taken > 500, "only {taken} were noticed");
}

#[test]
fn bytes_that_are_no_frame_are_refused_and_never_read_past() {
    let (began, count) = (Instant::now(), frames(400_000));
    let taken = run(target("frames"), count);
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} inputs in {seconds:.1} s, {:.0} a second, {taken} understood", count as f64 / seconds);
    assert!((count / 5..count * 9 / 10).contains(&taken), "{taken} of {count} were understood");
}

#[test]
fn an_input_that_is_used_up_goes_on_as_zeroes() {
    let mut source = Source::new(&[1, 2, 3]);
    assert_eq!((source.u16(), source.is_empty()), (0x201, false));
    assert_eq!((source.bytes(3), source.is_empty()), (vec![3, 0, 0], true));
    assert_eq!((source.byte(), source.u64(), source.below(7), source.key(2)), (0, 0, 0, vec![0, 0]));
}

#[test]
fn damage_stays_inside() {
    let mut image = [7; 70];
    for seed in 0..=255_u8 {
        let input: Vec<u8> = (0..80).map(|at: u8| at.wrapping_mul(seed).wrapping_add(seed >> 3)).collect();
        Source::new(&input).damage(&mut image);
    }
    assert!(image.iter().any(|byte| *byte != 7));
    Source::new(&[1]).damage(&mut []);
}
