//! What a reader may conclude from units of different moments (F1, F2).
//!
//! A [`History`] is a node of four lines that goes through a series of writes, unit by unit. It also records
//! what the tree (the node and its siblings) held at each moment. A reader's image takes each line from any
//! moment. Its operation spans the moments of its earliest and latest line. A result is a **violation** if no
//! moment in that span allows it: a key reported absent that was there throughout, or a value that was never
//! current.
//!
//! The tests try all mixtures of all histories here, without sampling, except where a node must have more
//! lines.

mod check;
mod history;
mod internal;
mod lines;

use super::*;
use check::{Violation, violations, violations_among_samples};
use history::{History, Op, Rule};

/// Everything that can happen to a full leaf: ghosts (entries outside the fences), reuse of their slots,
/// changes in the sibling, a merge.
const LIFE: [Op; 14] = [
    Op::Put(60),
    Op::Split(15),
    Op::PutInSibling(63),
    Op::Put(12),
    Op::Put(11),
    Op::Remove(12),
    Op::RemoveFromSibling(61),
    Op::RemoveFromSibling(62),
    Op::RemoveFromSibling(64),
    Op::RemoveFromSibling(65),
    Op::RemoveFromSibling(50),
    Op::Merge,
    Op::Put(61),
    Op::Remove(10),
];

fn life(shape: &Shape, version: u16, rule: Rule) -> History<'_> {
    let keys = [10, 20, 50, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69];
    let mut history = History::new(shape, version, rule, &keys[..shape.capacity.min(keys.len())]);
    for op in LIFE {
        history.run(op, false);
    }
    history
}

/// A few shapes of four lines: narrow and wide fences, one to many entries per line.
fn small_leaves(format: Format) -> Vec<Shape> {
    [(8, 8), (8, 22), (20, 8), (1, 0)]
        .into_iter()
        .filter_map(|(key, value)| {
            Shape::new(crate::node::NodeKind::Leaf, format, TREE, 256, key, value).ok()
        })
        .collect()
}

fn safe_formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| format.safe_when_reads_tear())
}

fn assert_none(found: &[Violation], history: &History<'_>) {
    if let Some(violation) = found.iter().min_by_key(|violation| violation.span()) {
        panic!("{} violations, the smallest: {}", found.len(), violation.show(history));
    }
}

#[test]
fn no_mixture_of_a_leafs_whole_life_misleads_a_reader() {
    for format in safe_formats() {
        for shape in small_leaves(format).iter().filter(|shape| shape.payload_len > 0) {
            for version in [1, 0xfffe] {
                let history = life(shape, version, Rule::Sound);
                let (accepted, found) = violations(&history);
                assert_none(&found, &history);
                assert!(accepted > history.moments.len(), "more than the whole images are accepted");
            }
        }
    }
}

#[test]
fn no_mixture_of_random_lives_misleads_a_reader() {
    for format in safe_formats() {
        for shape in &small_leaves(format) {
            for seed in 0..if runs_in_full() { 100 } else { 25 } {
                let history = History::random(shape, seed, 30);
                let (_, found) = violations(&history);
                assert_none(&found, &history);
            }
        }
    }
}

#[test]
fn no_mixture_of_a_place_that_is_freed_and_used_again_misleads_a_reader() {
    for format in safe_formats() {
        for shape in small_leaves(format).iter().filter(|shape| shape.payload_len > 0) {
            let history = second_hand(shape, Rule::Sound);
            let (_, found) = violations(&history);
            assert_none(&found, &history);
        }
    }
}

#[test]
fn no_mixture_of_long_entries_misleads_a_reader() {
    let mut accepted = 0;
    let seeds = if runs_in_full() { 20 } else { 8 };
    for format in safe_formats() {
        for (key, value, bytes) in [(8, 53, 576), (20, 100, 1024)] {
            let shape = leaf_shape(format, key, value, bytes);
            for seed in 0..seeds {
                let history = History::random(&shape, seed, 60);
                let (count, found) = violations_among_samples(&history, seed, 3_000);
                assert_none(&found, &history);
                accepted += count;
            }
        }
    }
    assert!(accepted > 400 * seeds as usize, "only {accepted}");
}

#[test]
fn two_level_accepts_torn_nodes_where_units_tear_and_none_where_verbs_are_atomic() {
    let shape = leaf_shape(Format::TwoLevel, 8, 8, 256);
    let history = life(&shape, 1, Rule::Sound);
    let (_, found) = violations(&history);
    let smallest =
        found.iter().min_by_key(|violation| violation.span()).expect("the paper's format is not safe");
    println!("{} violations, the smallest: {}", found.len(), smallest.show(&history));
    assert!(smallest.times.iter().any(|time| *time != smallest.times[0]), "a whole image misleads no reader");
    let atomic = life(&shape, 1, Rule::VerbsAreAtomic);
    for seed in 0..60 {
        let random = History::random_with(&shape, seed, 60, Rule::VerbsAreAtomic);
        for history in [&atomic, &random] {
            for time in 0..history.moments.len() {
                assert_none(&check::judge(history, &[time; 4]), history);
            }
        }
    }
}

#[test]
fn without_the_floor_a_reader_misses_keys() {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let (_, found) = violations(&life(&shape, 1, Rule::FloorNeverRises));
    assert!(!found.is_empty(), "this test cannot see what the floor is for");
}

/// A leaf whose place is freed and reused twice.
fn second_hand(shape: &Shape, rule: Rule) -> History<'_> {
    let mut history = History::new(shape, 0xffff, rule, &[10, 20, 30, 60]);
    history.run(Op::FreeAndReuse { low: 5, keys: &[15, 20, 25] }, false);
    history.run(Op::Put(21), false);
    history.run(Op::FreeAndReuse { low: 0, keys: &[10, 20] }, true);
    history
}

#[test]
fn without_a_version_that_goes_on_a_reader_is_misled_by_lines_of_the_places_last_user() {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let (_, found) = violations(&second_hand(&shape, Rule::ReuseRestartsVersions));
    assert!(!found.is_empty(), "this test cannot see what the version of a place is for");
}

#[test]
fn without_stamps_renewed_by_entry_writes_a_reader_misses_keys() {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let (_, found) = violations(&life(&shape, 1, Rule::EntriesKeepTheirStamp));
    assert!(!found.is_empty(), "this test cannot see what an entry's stamp is for");
}
