//! About ninety thousand schedules without deaths, with every history checked. A plain `cargo test` runs a
//! sixth of them.

use super::support::runs_in_full;
use sherman_core::Format;
use sherman_sim::Knobs;
use sherman_sim::tree::{Explored, Explorer, Hunt, Mix, Scenario, Shares};
use std::time::Instant;

/// Explores `count` seeds from `first` on two threads.
pub fn explore(what: &str, first: u64, count: u64, make: impl Fn() -> Explorer + Sync) -> Explored {
    let began = Instant::now();
    let half = first + count / 2;
    let mut explored = Explored::default();
    std::thread::scope(|scope| {
        let halves = [first..half, half..first + count].map(|seeds| scope.spawn(|| make().explore(seeds)));
        for half in halves {
            explored.merge(half.join().expect("a schedule does not panic"));
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    println!("{what}: {explored}; {seconds:.0} s ({:.0}/s)", explored.schedules as f64 / seconds);
    explored
}

/// Asserts that there is no violation, and that the schedules are meaningful: long, nearly all different, and
/// with enough of each kind of event. `shown` holds the kind of event, the number of schedules that have it,
/// and the smallest accepted share.
pub fn assert_clean_with(explored: &Explored, count: u64, shown: &[(&str, u64, f64)]) {
    if let Some(violation) = explored.violations.first() {
        panic!("{} violations, the first: {violation}", explored.violated);
    }
    assert_eq!(explored.schedules, count);
    assert!(explored.median_verbs() >= 60, "schedules are too short to mean much");
    assert!(explored.fewest_clients >= 3);
    assert!(explored.distinct() >= 0.99);
    for &(what, number, least) in shown {
        let share = explored.share(number);
        assert!(share >= least, "{:.2} % of schedules have {what}", 100.0 * share);
    }
}

fn assert_clean(explored: &Explored, count: u64) {
    let Shares { split, merge, internal_merge, shrink, reuse, scan, .. } = explored.with;
    // Consecutive seeds share a scenario, so the shares of few schedules differ more.
    let least = |share: f64| if runs_in_full() { share } else { share / 2.0 };
    let shown = [
        ("a split", split, least(0.25)),
        ("a merge", merge, least(0.25)),
        ("a merge of internal nodes", internal_merge, least(0.01)),
        ("a shrink", shrink, least(0.02)),
        ("a place used again", reuse, least(0.08)),
        ("a scan", scan, least(0.75)),
    ];
    assert_clean_with(explored, count, &shown);
}

fn drawn(format: Format) -> impl Fn() -> Explorer + Sync {
    move || Explorer::new(move |draw| Scenario::drawn(draw, format), Knobs::swarm)
}

/// Explores `count` schedules, or a sixth of them, and asserts that they are clean.
fn check(what: &str, first: u64, count: u64, make: impl Fn() -> Explorer + Sync) {
    let count = if runs_in_full() { count } else { count / 6 };
    assert_clean(&explore(what, first, count, make), count);
}

/// Index caches hold two or three nodes, so copies replace each other all the time.
#[test]
fn trees_with_small_caches_are_linearizable_under_the_adversary() {
    let count = if runs_in_full() { 20_000 } else { 2_000 };
    let hunt = Hunt::everywhere().with_small_caches();
    let explored = explore("small caches", 7 << 32, count, || hunt.explorer());
    let Shares { split, merge, scan, .. } = explored.with;
    let shown = [("a split", split, 0.1), ("a merge", merge, 0.1), ("a scan", scan, 0.5)];
    assert_clean_with(&explored, count, &shown);
}

/// The leaves of these scenarios hold at least six entries, so fewer schedules split and merge than with
/// other formats, and internal nodes hardly ever merge.
#[test]
fn line_hashed_trees_are_linearizable_under_the_adversary() {
    let count = if runs_in_full() { 40_000 } else { 7_000 };
    let explored = explore("line-hashed", 4 << 32, count, drawn(Format::LineHashed));
    let Shares { split, merge, shrink, reuse, scan, shared_read, at_once, resumed, .. } = explored.with;
    let shown = [
        ("a shared READ", shared_read, 0.2),
        ("an operation without a future", at_once, 0.1),
        ("an insert that went on as a future", resumed, 0.03),
        ("a split", split, 0.12),
        ("a merge", merge, 0.12),
        ("a shrink", shrink, 0.02),
        ("a place used again", reuse, 0.01),
        ("a scan", scan, 0.75),
    ];
    assert_clean_with(&explored, count, &shown);
}

#[test]
fn line_stamped_trees_are_linearizable_under_the_adversary() {
    check("line-stamped", 0, 24_000, drawn(Format::LineStamped));
}

#[test]
fn sorted_trees_are_linearizable_under_the_adversary() {
    check("sorted", 1 << 32, 12_000, drawn(Format::Sorted));
    check("sorted-stamped", 2 << 32, 40_000, drawn(Format::SortedStamped));
}

#[test]
fn two_level_trees_are_linearizable_where_verbs_are_atomic_as_a_whole() {
    let make = || {
        let knobs = |seed| Knobs { verb_atomic: true, ..Knobs::swarm(seed) };
        Explorer::new(|draw| Scenario::drawn(draw, Format::TwoLevel), knobs)
    };
    check("two-level, verbs atomic", 3 << 32, 12_000, make);
}

/// The paper's versions accept torn nodes if READs tear, as the authors' artifact says itself. Readers and
/// writers of the same few keys of a tree that is about to split show it soon.
#[test]
fn two_level_trees_are_caught_where_reads_tear() {
    let make = || {
        let choose = |draw| Scenario {
            allow_torn_reads: true,
            first: Mix::READ_AND_GROW,
            then: Mix::READ_AND_GROW,
            hot: 4,
            ..Scenario::drawn(draw, Format::TwoLevel)
        };
        Explorer::new(choose, |seed| Knobs { step_nanos: 100, ..Knobs::swarm(seed) })
    };
    let caught = (0..10).find_map(|part| {
        let explored = explore("two-level, READs tear", (4 << 32) + part * 2_000, 2_000, make);
        explored.violations.into_iter().next()
    });
    println!("the first: {}", caught.expect("the paper's format is caught in 20,000 schedules"));
}

#[test]
fn a_thousand_seeds_replay_to_the_same_trace() {
    let hashes = || {
        let mut explorer = drawn(Format::LineStamped)();
        (0..1_000).map(|seed| explorer.run(seed * 977).run.trace_hash).collect::<Vec<_>>()
    };
    assert_eq!(hashes(), hashes());
}

#[test]
fn a_seed_replays_alone_as_it_ran_among_others() {
    let mut among = drawn(Format::LineStamped)();
    let hashes: Vec<u64> = (0..200).map(|seed| among.run(seed).run.trace_hash).collect();
    for seed in [0, 63, 64, 130, 199] {
        let (seen, events) = drawn(Format::LineStamped)().run_traced(seed, true);
        assert_eq!(seen.run.trace_hash, hashes[seed as usize], "seed {seed}");
        assert!(!events.is_empty());
    }
}
