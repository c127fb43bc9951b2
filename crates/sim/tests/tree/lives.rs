//! Hundreds of short lives in each schedule, with deaths at any effect of joining, changing and leaving.

use super::support::runs_in_full;
use sherman_sim::tree::Lives;

/// Number of schedules of a full run.
const SEEDS: u64 = 300;

#[test]
fn clients_that_come_and_go_use_nothing_up() {
    let seeds = if runs_in_full() { SEEDS } else { SEEDS / 3 };
    let mut all = Lives::default();
    for seed in 0..seeds {
        let seen = Lives::run(seed);
        assert_eq!(seen.violation, None, "seed {seed}");
        all.merge(seen);
    }
    println!("{all:?}");
    assert!(all.lives > 100 * seeds && all.operations > all.lives / 2, "{all:?}");
    assert!(all.left > all.lives / 2 && all.killed > all.lives / 8 && all.silent > all.lives / 16, "{all:?}");
}
