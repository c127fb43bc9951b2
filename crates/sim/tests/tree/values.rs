//! Schedules of trees whose values have any length: blocks of several sizes that are made, replaced, removed,
//! moved between volumes by splits and merges, and used again, by clients that die at any point. There are
//! 4,000 of them, or a part of as many as `SHERMAN_SCHEDULES` says.

use super::adversary::{assert_clean_with, explore};
use super::support::schedules;
use sherman_sim::tree::Hunt;

#[test]
fn values_of_any_length_survive_every_schedule() {
    let count = schedules() / 10;
    let explored = explore("values", 40 << 32, count, || Hunt::everywhere().with_values().explorer());
    assert_clean_with(&explored, count, &[("a split or a merge", explored.split_or_merge, 0.25)]);
}

#[test]
fn values_of_any_length_survive_any_death() {
    let count = schedules() / 5;
    let hunt = || Hunt::everywhere().with_crashes().with_values().explorer();
    let explored = explore("values, crashes", 41 << 32, count, hunt);
    let shown = [
        ("a split or a merge", explored.split_or_merge, 0.25),
        ("a death", explored.with.death, 0.3),
        ("a recovery while others go on", explored.with.recovery, 0.1),
    ];
    assert_clean_with(&explored, count, &shown);
}

#[test]
fn values_of_any_length_survive_the_loss_of_hosts() {
    let count = schedules() / 20;
    let hunt = || Hunt::everywhere().with_replicas().with_values().explorer();
    let explored = explore("values, replicas", 42 << 32, count, hunt);
    assert_clean_with(&explored, count, &[("a death", explored.with.death, 0.1)]);
}
