//! Every planted bug is found. The test prints which checker finds it, and after how many schedules.
//! `docs/TESTING.md` has the same table. A plain `cargo test` searches briefly, and finds most of them.

#![allow(unreachable_pub, reason = "a test exports nothing")]

#[path = "../support/mod.rs"]
mod support;

use sherman_core::mutant::{Mutant, plant};
use sherman_sim::tree::{Directed, DirectedSchedule, Hunt, Property};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest number of schedules to search for a bug, as in `.ci/run`.
const MOST: u64 = 100_000;
/// The same in a plain `cargo test`, which finds `PLAIN_SHARE` percent of the bugs at least.
const PLAIN_MOST: u64 = 400;
const PLAIN_SHARE: usize = 60;
/// The largest number of schedules that are made for one bug.
const MOST_DIRECTED: u64 = 2_000;

/// The bugs that take longest. Their searches begin first, so that none of them runs alone at the end.
const SLOWEST: [Mutant; 5] = [
    Mutant::LinkRewritesLines,
    Mutant::FreeMarkedAgain,
    Mutant::LoadWaits,
    Mutant::LeaseUnchecked,
    Mutant::LeaseCheckedOnce,
];

/// A bug that was found.
struct Caught {
    mutant: Mutant,
    by: Property,
    /// Number of schedules until the bug was found.
    schedules: u64,
    shown_by: ShownBy,
}

/// The schedule that shows a bug.
#[derive(Clone, Copy)]
enum ShownBy {
    Seed(u64),
    Directed(DirectedSchedule),
}

/// Searches a bug in the scenarios that can show it, from the first seed on.
fn hunt(mutant: Mutant, most: u64) -> Option<Caught> {
    let _planted = plant(Some(mutant));
    if let Some(mut directed) = Directed::of(mutant) {
        let (schedule, violation, schedules) = directed.search(most.min(MOST_DIRECTED))?;
        return Some(Caught {
            mutant,
            by: violation.property,
            schedules,
            shown_by: ShownBy::Directed(schedule),
        });
    }
    let mut explorer = Hunt::of(mutant).explorer();
    (0..most).find_map(|seed| {
        let violation = explorer.run(seed).violation?;
        Some(Caught { mutant, by: violation.property, schedules: seed + 1, shown_by: ShownBy::Seed(seed) })
    })
}

/// Whether the schedule that shows the bug is clean without it.
fn is_clean_without(caught: &Caught) -> bool {
    let violation = match caught.shown_by {
        ShownBy::Seed(seed) => Hunt::of(caught.mutant).explorer().run(seed).violation,
        ShownBy::Directed(schedule) => Directed::of(caught.mutant).and_then(|mut plans| plans.run(schedule)),
    };
    violation.iter().for_each(|violation| println!("{violation}"));
    violation.is_none()
}

/// Searches all `mutants`, one per core at a time.
fn hunt_all(mutants: &[Mutant], most: u64) -> Vec<Option<Caught>> {
    let (next, caught) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let mut order = mutants.to_vec();
    order.sort_by_key(|mutant| !SLOWEST.contains(mutant));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(&mutant) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = hunt(mutant, most);
                    caught.lock().expect("nobody panics").insert(mutant, found);
                }
            });
        }
    });
    caught.into_inner().expect("nobody panics").into_values().collect()
}

#[test]
fn every_planted_bug_is_found() {
    // Restricts the search to some of them.
    let only = std::env::var("SHERMAN_MUTANTS").ok();
    let asked = |mutant: &Mutant| {
        only.as_deref().is_none_or(|names| names.split(',').any(|name| name == mutant.name()))
    };
    let mutants: Vec<Mutant> = Mutant::ALL.iter().copied().filter(asked).collect();
    // A search for some of them is thorough.
    let in_full = support::runs_in_full() || only.is_some();
    let caught = hunt_all(&mutants, if in_full { MOST } else { PLAIN_MOST });
    println!("| planted | what | found by | after |\n|---|---|---|---|");
    for (mutant, caught) in mutants.iter().zip(&caught) {
        let (by, after) = caught.as_ref().map_or(("–".to_owned(), "–".to_owned()), |caught| {
            (format!("{:?}", caught.by).to_lowercase(), caught.schedules.to_string())
        });
        println!("| `{mutant}` | {} | {by} | {after} |", mutant.what());
    }
    let missed: Vec<&Mutant> =
        mutants.iter().zip(&caught).filter(|(_, caught)| caught.is_none()).map(|(m, _)| m).collect();
    if in_full {
        assert!(missed.is_empty(), "not found in {MOST} schedules: {missed:?}");
    } else {
        let found = 100 * (mutants.len() - missed.len()) / mutants.len();
        assert!(found >= PLAIN_SHARE, "{found} % found in {PLAIN_MOST} schedules, not: {missed:?}");
    }
    let mut counts: Vec<u64> = caught.iter().flatten().map(|caught| caught.schedules).collect();
    counts.sort_unstable();
    let median = counts[counts.len() / 2];
    println!("{} planted bugs, median {median} schedules, most {}", counts.len(), counts[counts.len() - 1]);
    assert!(median <= 10_000);
    for caught in caught.iter().flatten() {
        assert!(is_clean_without(caught), "the schedule that shows {} fails without it too", caught.mutant);
    }
}

#[test]
fn the_documentation_names_every_planted_bug() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/TESTING.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    for mutant in Mutant::ALL {
        let row = format!("| `{mutant}` | {} |", mutant.what());
        assert!(page.contains(&row), "no row {row}");
    }
}
