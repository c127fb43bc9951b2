//! A compute server dies after each of its effects, in every kind of operation.

#![allow(unreachable_pub, reason = "a test exports nothing")]

mod setups;
#[path = "../support/mod.rs"]
mod support;

use sherman_sim::tree::crash::{CrashCase, Enumerated, Setup, VictimOp};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Number of schedules of each [`CrashCase`].
const SEEDS: u64 = 5;
/// A plain `cargo test` takes one in this many setups.
const PLAIN_STEP: usize = 5;
/// Number of [`CrashCase`]s between two progress messages.
const PLAYS_PER_MESSAGE: usize = 1000;

/// Enumerates every [`CrashCase`] of `setups` on two threads.
fn enumerate(what: &str, operations: &[(VictimOp, usize)], setups: &[Setup]) -> Enumerated {
    let cases = setups
        .iter()
        .flat_map(|setup| operations.iter().map(|&(operation, height)| (operation, height, *setup)));
    let cases: Vec<(VictimOp, usize, Setup)> = cases.collect();
    let began = Instant::now();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Enumerated::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(&(operation, height, setup)) = cases.get(number) else { break };
                    if number > 0 && number % PLAYS_PER_MESSAGE == 0 {
                        println!(
                            "{number} of {} cases after {:.0} s",
                            cases.len(),
                            began.elapsed().as_secs_f64()
                        );
                    }
                    let enumerated = CrashCase::new(operation, height, setup).enumerate(0..SEEDS);
                    all.lock().expect("nobody panicked").merge(enumerated);
                }
            });
        }
    });
    let all = all.into_inner().expect("nobody panicked");
    let Enumerated { points, visited, schedules, violated, .. } = all;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what}: {} cases, {points} points, {visited} visited, {schedules} schedules, {violated} violations; \
         {seconds:.0} s",
        cases.len()
    );
    all
}

fn assert_clean(all: &Enumerated) {
    if let Some(violation) = all.violations.first() {
        panic!("{} violations, the first: {violation}", all.violated);
    }
    assert_eq!(all.visited, all.points, "every point at which it can die is visited");
    assert!(all.points > 0);
}

#[test]
fn a_death_after_any_effect_loses_nothing_and_blocks_no_client() {
    let setups = Setup::pairwise();
    if support::runs_in_full() {
        assert_clean(&enumerate("every pair of settings", &VictimOp::usual(), &setups));
    } else {
        let some: Vec<Setup> = setups.into_iter().step_by(PLAIN_STEP).collect();
        assert_clean(&enumerate("some settings", &VictimOp::usual(), &some));
    }
}

/// Gets and inserts begin without futures. A death can come between any two units of their lists.
#[test]
fn a_death_after_any_effect_of_an_operation_without_a_future_loses_nothing() {
    let all = enumerate("operations without futures", &VictimOp::begun_at_once(), &Setup::inline());
    assert_clean(&all);
}

#[test]
#[ignore = "takes half an hour or more: every combination of techniques, with every format"]
fn a_death_after_any_effect_with_any_techniques_loses_nothing_and_blocks_no_client() {
    assert_clean(&enumerate("every combination of techniques", &VictimOp::all(), &Setup::all()));
}
