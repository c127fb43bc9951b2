//! A compute server dies after each of its effects, in every operation there is.

use sherman_sim::tree::crash::{Enumerated, Play, Plot, Setup};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Schedules of each play.
const SEEDS: u64 = 5;
/// Plays between two words on how far it is.
const TOLD: usize = 1000;

/// Enumerates every play of `setups` on two threads.
fn enumerate(what: &str, plots: &[(Plot, usize)], setups: &[Setup]) -> Enumerated {
    let plays = setups.iter().flat_map(|setup| plots.iter().map(|&(plot, height)| (plot, height, *setup)));
    let plays: Vec<(Plot, usize, Setup)> = plays.collect();
    let began = Instant::now();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Enumerated::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(&(plot, height, setup)) = plays.get(number) else { break };
                    if number > 0 && number % TOLD == 0 {
                        println!("{number} of {} plays after {:.0} s", plays.len(), began.elapsed().as_secs_f64());
                    }
                    let enumerated = Play::new(plot, height, setup).enumerate(0..SEEDS);
                    all.lock().expect("nobody panicked").merge(enumerated);
                }
            });
        }
    });
    let all = all.into_inner().expect("nobody panicked");
    let Enumerated { points, visited, schedules, violated, .. } = all;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what}: {} plays, {points} points, {visited} visited, {schedules} schedules, {violated} violations; {seconds:.0} s",
        plays.len()
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
fn whoever_dies_after_any_effect_leaves_nothing_lost_and_nobody_stuck() {
    assert_clean(&enumerate("every pair of settings", &Plot::usual(), &Setup::pairwise()));
}

#[test]
#[ignore = "takes half an hour or more: every combination of techniques, with every format"]
fn whoever_dies_after_any_effect_with_any_techniques_leaves_nothing_lost_and_nobody_stuck() {
    assert_clean(&enumerate("every combination of techniques", &Plot::all(), &Setup::all()));
}
