//! Runs schedules of the tree and prints what was seen: `explore FORMAT FIRST COUNT [torn|atomic|crashes]`. With a count of 0 it
//! replays the first alone and prints every event. `MUTANT=name` plants that bug, and explores where it is to be found.

use sherman_core::Format;
use sherman_core::mutant::{Mutant, plant};
use sherman_sim::tree::{Explorer, Scenario};
use sherman_sim::{Atlas, Knobs};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let format = args.first().and_then(|name| Format::from_name(name)).unwrap_or(Format::LineStamped);
    let number = |at: usize, or: u64| args.get(at).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, count) = (number(1, 0), number(2, 10_000));
    let atomic = args.get(3).is_some_and(|word| word == "atomic");
    let torn = args.get(3).is_some_and(|word| word == "torn");
    let crashes = args.get(3).is_some_and(|word| word == "crashes");
    let mutant = std::env::var("MUTANT").ok().and_then(|name| Mutant::from_name(&name));
    let _planted = plant(mutant);
    let mut explorer = if let Some(mutant) = mutant {
        sherman_sim::tree::Hunt::of(mutant).explorer()
    } else if crashes {
        Explorer::new(
            move |draw| Scenario::drawn_with_crashes(draw, format),
            move |seed| Knobs { verb_atomic: format == Format::TwoLevel, ..Knobs::swarm_with_crashes(seed) },
        )
    } else {
        Explorer::new(
            move |draw| Scenario { allow_torn_reads: torn, ..Scenario::drawn(draw, format) },
            move |seed| Knobs { verb_atomic: atomic, ..Knobs::swarm(seed) },
        )
    };
    if count == 0 {
        let (seen, events) = explorer.run_traced(first, true);
        if let Some(atlas) = explorer.lab().and_then(|lab| Atlas::of(&lab.sim, lab.scenario.servers)) {
            atlas.tell(&events).iter().for_each(|line| println!("{line}"));
        }
        println!("{seen:#?}");
        return println!("{}", seen.violation.map_or(String::new(), |violation| violation.to_string()));
    }
    let began = Instant::now();
    let explored = explorer.explore(first..first + count);
    let seconds = began.elapsed().as_secs_f64();
    println!("{explored}; {:.0}/s", explored.schedules as f64 / seconds);
    for violation in &explored.violations {
        println!("{violation}\n");
    }
}
