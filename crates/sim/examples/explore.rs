//! Runs schedules of the tree and prints the results: `explore FORMAT FIRST COUNT
//! [torn|atomic|crashes|replicas|group|lives]`. With a COUNT of 0 it replays only the FIRST schedule and
//! prints every event. `MUTANT=name` plants that bug, and explores the scenarios that can find it.
//! `HUNT=name` explores the same scenarios without the bug. `FIRST=1` stops at the first violation.

use sherman_core::mutant::{Mutant, plant};
use sherman_core::{Cause, Format};
use sherman_sim::tree::{Explorer, Lives, Scenario};
use sherman_sim::{Atlas, Knobs};
use std::time::Instant;

/// Scenarios with a control group. `NODE=number` plants a bug of its nodes, `HOST=number` one of its hosts.
fn group_hunt() -> sherman_sim::tree::Hunt {
    let number = |variable| std::env::var(variable).ok().and_then(|at| at.parse::<usize>().ok());
    sherman_group::mutant::plant(number("NODE").map(|at| sherman_group::mutant::Mutant::ALL[at]));
    let hunt = sherman_sim::tree::Hunt::everywhere().with_group(3);
    number("HOST").map_or(hunt, |at| hunt.with_breach(sherman_sim::Breach::OF_GROUPS[at]))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let format = args.first().and_then(|name| Format::from_name(name)).unwrap_or(Format::LineStamped);
    let number = |at: usize, or: u64| args.get(at).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, count) = (number(1, 0), number(2, 10_000));
    let atomic = args.get(3).is_some_and(|word| word == "atomic");
    let torn = args.get(3).is_some_and(|word| word == "torn");
    let crashes = args.get(3).is_some_and(|word| word == "crashes");
    let replicas = args.get(3).is_some_and(|word| word == "replicas");
    let named = |variable| std::env::var(variable).ok().and_then(|name| Mutant::from_name(&name));
    let mutant = named("MUTANT");
    let _planted = plant(mutant);
    let endpoint = std::env::var("ENDPOINT").ok().and_then(|at| at.parse::<usize>().ok());
    sherman_replica::mutant::plant(endpoint.map(|at| sherman_replica::mutant::Mutant::ALL[at]));
    if args.get(3).is_some_and(|word| word == "lives") {
        if count == 0 {
            let (seen, events) = Lives::run_traced(first, true);
            events.iter().for_each(|line| println!("{line}"));
            return println!("{seen:#?}");
        }
        let began = Instant::now();
        let mut all = Lives::default();
        for seed in first..first + count {
            let seen = Lives::run(seed);
            if let Some(what) = &seen.violation {
                println!("seed {seed}: {what}");
            }
            all.merge(seen);
        }
        return println!("{all:?}; {:.0} lives/s", all.lives as f64 / began.elapsed().as_secs_f64());
    }
    let mut explorer = if let Some(mutant) = mutant.or(named("HUNT")) {
        sherman_sim::tree::Hunt::of(mutant).explorer()
    } else if args.get(3).is_some_and(|word| word == "group") {
        group_hunt().explorer()
    } else if let Some(breach) = std::env::var("BREACH").ok().and_then(|at| at.parse::<usize>().ok()) {
        let hunt = sherman_sim::tree::Hunt::everywhere().with_replicas();
        hunt.with_breach(sherman_sim::Breach::OF_REPLICATION[breach]).explorer()
    } else if replicas && args[0] == "all" {
        sherman_sim::tree::Hunt::everywhere().with_replicas().explorer()
    } else if replicas {
        Explorer::new(
            move |draw| Scenario::drawn_with_replicas(draw, format),
            move |seed| Knobs { verb_atomic: format == Format::TwoLevel, ..Knobs::swarm_with_crashes(seed) },
        )
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
        if let Some(atlas) =
            explorer.fixture().and_then(|fixture| Atlas::of(&fixture.sim, fixture.scenario.servers))
        {
            atlas.tell(&events).iter().for_each(|line| println!("{line}"));
        }
        println!("{seen:#?}");
        return println!("{}", seen.violation.map_or(String::new(), |violation| violation.to_string()));
    }
    if std::env::var_os("FIRST").is_some() {
        let found = (first..first + count).find_map(|seed| explorer.run(seed).violation);
        let found = found.map(|found| format!("{:?} by seed {}: {}", found.property, found.seed, found.what));
        return println!("{}", found.unwrap_or_else(|| "nothing is found".into()));
    }
    let began = Instant::now();
    let explored = explorer.explore(first..first + count);
    let seconds = began.elapsed().as_secs_f64();
    println!("{explored}; {:.0}/s", explored.schedules as f64 / seconds);
    let met =
        Cause::ALL.into_iter().map(|cause| format!("{} {}", explored.causes[cause as usize], cause.name()));
    println!("retries: {}", met.collect::<Vec<_>>().join(", "));
    for violation in &explored.violations {
        println!("{violation}\n");
    }
}
