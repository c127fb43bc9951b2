//! `sherman sim replay`: one schedule again.

use crate::failure::Failure;
use crate::output::print;
use crate::sim::exit_code;
use crate::sim_args::ReplayArgs;
use sherman_core::mutant::plant;
use sherman_eval::report::grouped;
use sherman_sim::tree::Seen;
use std::fmt::Write;
use std::process::ExitCode;

/// Runs it and tells what happened.
pub fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let ReplayArgs { seed, world, trace } = args;
    let _planted = plant(world.mutant);
    let (seen, events) = world.hunt().explorer().run_traced(*seed, true);
    let violated = seen.violation.is_some();
    let mut text = String::new();
    if *trace || violated {
        events.iter().for_each(|event| text.push_str(&format!("{event}\n")));
        text.push('\n');
    }
    text.push_str(&outcome(&seen));
    print(&text).map_err(Failure::into_unanswered)?;
    Ok(exit_code(world.mutant, violated))
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
