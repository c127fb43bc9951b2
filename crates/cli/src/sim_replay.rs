//! `sherman sim replay`: one schedule again.

use crate::failure::Failure;
use crate::output::print;
use crate::sim::exit_code;
use crate::sim_args::ReplayArgs;
use sherman_core::mutant::plant;
use sherman_eval::report::grouped;
use sherman_sim::Atlas;
use sherman_sim::trace::Event;
use sherman_sim::tree::{Explorer, Seen};
use std::fmt::Write;
use std::process::ExitCode;

/// The most events of a key that are told without being asked for.
const MOST_EVENTS: usize = 400;

/// Runs it and tells what happened.
pub fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let ReplayArgs { seed, world, trace } = args;
    let _planted = plant(world.mutant);
    let mut explorer = world.hunt().explorer();
    let (seen, events) = explorer.run_traced(*seed, true);
    let violated = seen.violation.is_some();
    let mut text = String::new();
    if *trace || violated {
        // All of it if it is asked for; else what concerns the key that the violation is about, if it is about one.
        let key = seen.violation.as_ref().and_then(|violation| violation.key).filter(|_| !trace);
        for line in told(&explorer, &events, key) {
            let _ = writeln!(text, "{line}");
        }
        if key.is_some() {
            text.push_str("these are the events that concern the key; --trace shows all of them\n");
        }
        text.push('\n');
    }
    text.push_str(&outcome(&seen));
    print(&text).map_err(Failure::into_unanswered)?;
    Ok(exit_code(world.mutant, violated))
}

/// The events in order, or those that concern a key: who did which verb on which line of which node.
fn told(explorer: &Explorer, events: &[Event], key: Option<u64>) -> Vec<String> {
    let Some(lab) = explorer.lab() else { return Vec::new() };
    match (Atlas::of(&lab.sim, lab.scenario.servers), key) {
        (Some(atlas), Some(key)) => atlas.tell_key(events, &lab.scenario.key(key), MOST_EVENTS),
        (Some(atlas), None) => atlas.tell(events),
        (None, _) => events.iter().map(ToString::to_string).collect(),
    }
}

/// What a schedule came to.
fn outcome(seen: &Seen) -> String {
    let mut text = String::new();
    let run = &seen.run;
    let _ = writeln!(text, "{} events, {} verbs", grouped(run.steps), grouped(run.verbs));
    let _ = writeln!(text, "trace hash  {:#018x}", run.trace_hash);
    match &seen.violation {
        None => text.push_str("violations  none\n"),
        Some(violation) => {
            let _ = writeln!(text, "{violation}");
        }
    }
    text
}
