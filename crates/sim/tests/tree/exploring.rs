//! The parts of an exploration: operations are drawn as a mix says, and threads do not change totals.

use sherman_core::Format;
use sherman_sim::Knobs;
use sherman_sim::rng::Rng;
use sherman_sim::tree::{Asked, Explored, Explorer, Many, Mix, Scenario};
use std::ops::Range;

fn explore(threads: usize, seeds: Range<u64>, only_first: bool) -> Explored {
    // READs tear, and the two-level format does not detect that, so some schedules violate a property.
    let make = || {
        let choose = |draw| Scenario { allow_torn_reads: true, ..Scenario::drawn(draw, Format::TwoLevel) };
        (Explorer::new(choose, Knobs::swarm), ())
    };
    Many { seeds, threads, only_first }.explore(make, |_, _| ())
}

#[test]
fn totals_do_not_depend_on_the_number_of_threads() {
    let seeds = 5_000_000_000..5_000_006_000;
    let [one, three] = [1, 3].map(|threads| explore(threads, seeds.clone(), false));
    assert_eq!((one.schedules, three.schedules), (6_000, 6_000));
    assert_eq!(one.hashes, three.hashes);
    assert!(one.violated > 1 && one.violated == three.violated);
    let [a, b] =
        [&one, &three].map(|of| of.violations.iter().map(|violation| violation.seed).collect::<Vec<_>>());
    assert_eq!(a, b);
    assert!(a.is_sorted() && a.len() <= 8);
    let first = explore(2, seeds.clone(), true);
    assert_eq!((first.violated, first.violations[0].seed), (1, a[0]));
    assert_eq!(first.schedules, a[0] - seeds.start + 1, "nothing after the first violation counts");
}

#[test]
fn a_mix_draws_every_kind_about_as_often_as_it_says() {
    let mut rng = Rng::new(3);
    let drawn: Vec<Asked> = (0..1_600).map(|_| Mix::SHRINK.draw(&mut rng)).collect();
    let count = |kind| drawn.iter().filter(|&&asked| asked == kind).count();
    assert!((800..1_000).contains(&count(Asked::Remove)), "{}", count(Asked::Remove));
    assert!((140..260).contains(&count(Asked::Range)), "{}", count(Asked::Range));
    assert_eq!(count(Asked::InsertIfAbsent), 0);
}
