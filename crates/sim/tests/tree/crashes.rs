//! Schedules in which compute servers die, sleep, lose connections, are recovered and join again, with every
//! history checked. There are 10,000 of them, or as many as `SHERMAN_SCHEDULES` says: 300,000 in `.ci/run`.

use super::adversary::{assert_clean_with, explore};
use super::support::schedules;
use sherman_core::Format;
use sherman_core::mutant::{Mutant, plant};
use sherman_sim::Knobs;
use sherman_sim::tree::{Explored, Explorer, Hunt, Scenario, Shares};

fn assert_clean(explored: &Explored, count: u64) {
    let Shares { death, deaths, terminated, recovery, rejoin, reissue, scan, .. } = explored.with;
    let Shares { restart, cut_off, departure, catalog, .. } = explored.with;
    let shown = [
        ("a split or a merge", explored.split_or_merge, 0.25),
        ("a scan", scan, 0.5),
        ("a death", death, 0.3),
        ("several deaths", deaths, 0.04),
        ("a live client that is terminated", terminated, 0.1),
        ("a recovery while others go on", recovery, 0.15),
        ("a client that comes back", rejoin, 0.03),
        ("an id that is issued again", reissue, 0.003),
        ("a memory server that restarts", restart, 0.1),
        ("a client that alone loses a memory server", cut_off, 0.04),
        ("a client that leaves in order", departure, 0.08),
        ("trees that come and go", catalog, 0.15),
    ];
    assert_clean_with(explored, count, &shown);
}

/// Returns `share` percent of all schedules.
fn percent(share: u64) -> u64 {
    schedules() / 100 * share
}

fn check(name: &str, seed: u64, share: u64, format: Format) {
    let count = percent(share);
    assert_clean(&explore(name, seed, count, drawn(format)), count);
}

fn drawn(format: Format) -> impl Fn() -> Explorer + Sync {
    let knobs =
        move |seed| Knobs { verb_atomic: format == Format::TwoLevel, ..Knobs::swarm_with_crashes(seed) };
    move || Explorer::new(move |draw| Scenario::drawn_with_crashes(draw, format), knobs)
}

#[test]
fn line_hashed_trees_survive_any_death() {
    let count = percent(36);
    let explored = explore("line-hashed, crashes", 14 << 32, count, drawn(Format::LineHashed));
    assert_clean(&explored, count);
    let share = explored.share(explored.with.shared_read);
    assert!(share >= 0.04, "gets share READs in {:.2} % of schedules", 100.0 * share);
    let share = explored.share(explored.with.at_once);
    assert!(share >= 0.06, "operations end without a future in {:.2} % of schedules", 100.0 * share);
}

#[test]
fn line_stamped_trees_survive_any_death() {
    check("line-stamped, crashes", 10 << 32, 24, Format::LineStamped);
}

#[test]
fn sorted_trees_survive_any_death() {
    check("sorted, crashes", 11 << 32, 14, Format::Sorted);
    check("sorted-stamped, crashes", 12 << 32, 13, Format::SortedStamped);
}

#[test]
fn two_level_trees_survive_any_death_where_verbs_are_atomic_as_a_whole() {
    check("two-level, crashes", 13 << 32, 13, Format::TwoLevel);
}

#[test]
fn schedules_with_crashes_replay_to_the_same_trace() {
    let hashes = || {
        let mut explorer = drawn(Format::LineStamped)();
        (0..500).map(|seed| explorer.run(seed * 977).run.trace_hash).collect::<Vec<_>>()
    };
    assert_eq!(hashes(), hashes());
}

/// The bugs that such schedules found in the index are fixed. `docs/TESTING.md` describes how they were
/// found.
#[test]
fn a_violation_is_shrunk_to_less_that_violates_the_same_and_replays() {
    let _planted = plant(Some(Mutant::SweepBeforeReplay));
    let mut explorer = Hunt::of(Mutant::SweepBeforeReplay).explorer();
    // The recovery that shows the bug may also happen after the schedule, when the trace has ended.
    let telling = (0..20_000).any(|seed| {
        explorer.run(seed).violation.is_some() && {
            let told = shrink_and_replay(&mut explorer, seed);
            let words = [
                "CAS   lane",
                "WRITE leaf",
                "READ  leaf",
                "CALL  Fence",
                "dies",
                "begins: key",
                "header: version",
            ];
            words.iter().all(|word| told.contains(word))
        }
    });
    assert!(telling, "no schedule that shows the planted bug tells of all of it");
}

/// Shrinks the schedule of `seed`, which violates something, and replays it. Returns its trace.
fn shrink_and_replay(explorer: &mut Explorer, seed: u64) -> String {
    let whole = explorer.run(seed);
    let shrunk = explorer.shrink(seed).expect("the seed violates something");
    let property =
        |seen: &sherman_sim::tree::Seen| seen.violation.as_ref().map(|violation| violation.property);
    assert_eq!(property(&shrunk.seen), property(&whole));
    // The shrunk case may have more events than the original: fewer operations and faults are easier to
    // follow than fewer events.
    let operations: u32 = shrunk.case.operations.iter().sum();
    let all = explorer.fixture().map_or(0, |fixture| fixture.scenario.operations) * whole.clients;
    assert!(operations < all, "{operations} operations of {all}");
    assert!(shrunk.case.mishaps.len() <= explorer.case(seed).mishaps.len());
    let (again, events) = explorer.run_case(&shrunk.case, true);
    assert_eq!((again.run.trace_hash, events.len()), (shrunk.seen.run.trace_hash, shrunk.events.len()));
    explorer.tell(&events, again.violation.as_ref(), true).join("\n")
}
