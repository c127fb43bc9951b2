//! Volumes in two copies: hosts die or are cut off, clients die and sleep, and nothing is lost
//! (`docs/REPLICATION.md`).

#![allow(unreachable_pub, reason = "a test exports nothing")]

mod costs;
mod group;
#[path = "../support/mod.rs"]
mod support;

use support::FULL;

use sherman_replica::mutant::{Mutant, plant};
use sherman_sim::Breach;
use sherman_sim::tree::crash::{Blow, CrashCase, Enumerated, Setup, VictimOp};
use sherman_sim::tree::{Explored, Hunt, Property};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One in this many of all schedules with crashes has replication, and the same in a plain `cargo test`.
const PART: u64 = 6;
const PLAIN_PART: u64 = 4;
/// The largest number of schedules to search for a planted bug.
const MOST: u64 = 20_000;
/// From this many schedules on, every operation is enumerated with every setup. That takes minutes.
const BY_HAND: u64 = 1_000_000;
/// The first of the seeds.
const SEEDS: u64 = 70 << 32;

/// Runs `work` for each number below `count` on two threads.
fn on_two_threads(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= count {
                        break;
                    }
                    work(number);
                }
            });
        }
    });
}

#[test]
fn lost_hosts_lose_no_acknowledged_change_and_show_no_stale_read() {
    let count = support::schedules() / if support::runs_in_full() { PART } else { PLAIN_PART };
    let all = Mutex::new(Explored::default());
    on_two_threads(2, |half| {
        let mut explorer = Hunt::everywhere().with_replicas().explorer();
        let first = SEEDS + half as u64 * (count / 2);
        let explored = explorer.explore(first..first + count / 2);
        all.lock().expect("nobody panicked").merge(explored);
    });
    let explored = all.into_inner().expect("nobody panicked");
    println!("{explored}");
    explored.violations.iter().for_each(|violation| println!("{violation}"));
    assert_eq!(explored.violated, 0);
    let (makings, failovers) = (explored.with.making, explored.with.failover_to_made);
    let losses = explored.with.losses;
    println!(
        "{makings} schedules made a copy again, {losses} lost hosts twice, {failovers} used a made copy"
    );
    assert!(makings > count / 8 && losses > count / 32 && failovers > count / 64);
    let (moving, swaps, left) = (explored.with.moving, explored.with.swap, explored.with.left);
    println!("{moving} schedules moved copies, {swaps} exchanged primary and backup, a host left in {left}");
    assert!(moving > count / 32 && left > count / 64);
    let came_back = explored.share(explored.with.rejoin);
    // Less the error of a share in so many schedules, three times its standard deviation.
    let error = 1.5 / (count as f64).sqrt();
    assert!(came_back > 0.4 - error, "clients came back in {came_back} of the schedules");
}

/// A host is lost after every effect of every kind of operation, alone and with the client. Or the client
/// dies alone.
/// Each operation has one in `part` of the setups, and each setup one in `part` of the operations.
fn enumerate(setups: &[Setup], operations: &[(VictimOp, usize)], part: usize) -> Enumerated {
    let blows: Vec<Blow> = Blow::of_hosts(2).into_iter().chain([Blow::DEATH]).collect();
    let cases = (0..setups.len()).flat_map(|setup| (0..operations.len()).map(move |other| (setup, other)));
    let cases: Vec<(Setup, (VictimOp, usize))> = cases
        .filter(|(setup, operation)| (setup + operation).is_multiple_of(part))
        .map(|(setup, operation)| (setups[setup], operations[operation]))
        .collect();
    let all = Mutex::new(Enumerated::default());
    on_two_threads(cases.len(), |number| {
        let (setup, (operation, height)) = cases[number];
        let mut case = CrashCase::new(operation, height, setup.replicated());
        let seed = number as u64;
        let enumerated = case.enumerate_blows(seed..seed + 1, &blows);
        all.lock().expect("nobody panicked").merge(enumerated);
    });
    all.into_inner().expect("nobody panicked")
}

#[test]
fn a_lost_host_after_any_effect_loses_nothing_and_blocks_no_client() {
    let setups = Setup::pairwise();
    let part = match support::schedules() {
        ..FULL => 12,
        FULL..BY_HAND => 3,
        BY_HAND.. => 1,
    };
    let all = enumerate(&setups, &VictimOp::usual(), part);
    let Enumerated { points, visited, schedules, violated, .. } = all;
    println!("{} setups: {points} points, {visited} visited, {schedules} schedules", setups.len());
    if let Some(violation) = all.violations.first() {
        all.violations.iter().for_each(|violation| println!("{violation}"));
        panic!("{violated} violations, the first: {violation}");
    }
    assert!(visited > 0 && visited * 100 >= points * 95, "{visited} of {points} points were visited");
}

/// The property that shows a bug, and the number of schedules until then.
type Caught = Option<(Property, u64)>;

/// Whether the schedule that shows a bug is in order without the bug.
fn is_clean(hunt: Hunt, seed: u64) -> bool {
    let violation = hunt.explorer().run(seed).violation;
    violation.iter().for_each(|violation| println!("{violation}"));
    violation.is_none()
}

/// Searches a bug.
fn hunt(hunt: Hunt, most: u64) -> Caught {
    let mut explorer = hunt.explorer();
    (0..most).find_map(|seed| Some((explorer.run(seed).violation?.property, seed + 1)))
}

#[test]
fn every_planted_bug_of_endpoint_and_control_is_found() {
    let (endpoint, control) = (Mutant::ALL, Breach::OF_REPLICATION);
    let found: Mutex<Vec<(String, Hunt, Caught)>> = Mutex::default();
    let most = if support::runs_in_full() { MOST } else { MOST / 5 };
    on_two_threads(endpoint.len() + control.len(), |number| {
        let all = Hunt::everywhere().with_replicas();
        let refused = endpoint.get(number) == Some(&Mutant::RefusedOnBackupOnly);
        // Drops and creations of trees race for a root word more often than growths do.
        let scenarios = if refused { all } else { all.without_catalog() };
        let (name, caught) = match endpoint.get(number) {
            Some(&mutant) => {
                plant(Some(mutant));
                let caught = hunt(scenarios, most);
                plant(None);
                (format!("{mutant:?}"), caught)
            }
            None => {
                let breach = control[number - endpoint.len()];
                (format!("{breach:?}"), hunt(scenarios.with_breach(breach), most))
            }
        };
        found.lock().expect("nobody panicked").push((name, scenarios, caught));
    });
    let found = found.into_inner().expect("nobody panicked");
    for (name, _, caught) in &found {
        println!("{name}: {caught:?}");
    }
    for (name, hunt, caught) in &found {
        let clean = caught.is_none_or(|(_, count)| is_clean(*hunt, count - 1));
        assert!(clean, "the schedule that shows {name} violates a property without it");
    }
    let missed: Vec<&String> =
        found.iter().filter(|(_, _, caught)| caught.is_none()).map(|(name, ..)| name).collect();
    assert!(missed.is_empty(), "not found in {most} schedules: {missed:?}");
}
