//! A few seconds of all kinds of tests. Mutation runs repeat it for every mutant (`docs/TESTING.md`).

#[path = "tree/ended.rs"]
mod ended;
#[path = "tree/scene.rs"]
mod scene;
#[path = "tree/tidying.rs"]
mod tidying;

use sherman_core::Format;
use sherman_sim::Knobs;
use sherman_sim::tree::crash::{Play, Plot, Setup};
use sherman_sim::tree::{Explorer, Scenario};

#[test]
fn a_few_schedules_of_every_format_are_clean() {
    for format in Format::ALL {
        let atomic = format == Format::TwoLevel;
        let knobs = move |seed| Knobs { verb_atomic: atomic, ..Knobs::swarm(seed) };
        let mut explorer = Explorer::new(move |draw| Scenario::drawn(draw, format), knobs);
        for seed in (0..24).flat_map(|draw| (0..24).map(move |seed| 64 * draw + seed)) {
            let seen = explorer.run(seed);
            assert!(seen.violation.is_none(), "{}", seen.violation.expect("there is one"));
        }
    }
}

#[test]
fn a_few_schedules_with_crashes_of_every_format_are_clean() {
    for format in Format::ALL {
        let atomic = format == Format::TwoLevel;
        let knobs = move |seed| Knobs { verb_atomic: atomic, ..Knobs::swarm_with_crashes(seed) };
        let mut explorer = Explorer::new(move |draw| Scenario::drawn_with_crashes(draw, format), knobs);
        for seed in (0..32).flat_map(|draw| (0..40).map(move |seed| 64 * draw + seed)) {
            let seen = explorer.run(seed);
            assert!(seen.violation.is_none(), "{}", seen.violation.expect("there is one"));
        }
    }
}

#[test]
fn a_death_in_a_few_plays_loses_nothing() {
    for setup in Setup::pairwise().into_iter().step_by(4) {
        for (plot, height) in Plot::all() {
            let enumerated = Play::new(plot, height, setup).enumerate(0..1);
            assert_eq!(enumerated.visited, enumerated.points);
            assert!(enumerated.violations.is_empty(), "{}", enumerated.violations[0]);
        }
    }
}
