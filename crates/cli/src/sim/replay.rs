//! `sherman sim replay`: runs one schedule again.

use crate::failure::Failure;
use crate::output::print;
use crate::sim::args::ReplayArgs;
use crate::sim::report::ViolationReport;
use crate::sim::{WORLD, exit_code};
use crate::target::announce;
use serde_json::json;
use sherman_eval::report::grouped;
use sherman_sim::tree::Seen;
use std::fmt::Write;
use std::process::ExitCode;

/// Runs the schedule and prints the result.
pub fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let ReplayArgs { seed, world, trace, json } = args;
    announce(WORLD);
    let _planted = world.planted.plant();
    let mut explorer = world.hunt().explorer();
    let (seen, events) = explorer.run_traced(*seed, *trace);
    let violated = seen.violation.is_some();
    if *json {
        let found = seen.violation.as_ref().map(ViolationReport::of);
        let run = &seen.run;
        let hash = format!("{:#018x}", run.trace_hash);
        let report = json!({
            "seed": seed,
            "events": run.steps,
            "verbs": run.verbs,
            "trace_hash": hash,
            "violation": found,
        });
        print(&format!("{report}\n"))?;
        return Ok(exit_code(world.planted.is_some(), violated));
    }
    let mut text = String::new();
    if *trace {
        lines(&mut text, &explorer.tell(&events, None, true));
    } else if let Some(shrunk) = violated.then(|| explorer.shrink(*seed)).flatten() {
        lines(&mut text, &explorer.tell(&shrunk.events, shrunk.seen.violation.as_ref(), false));
        let _ = writeln!(
            text,
            "the smallest schedule found in {} runs: {}",
            grouped(shrunk.runs.into()),
            shrunk.case
        );
        let _ = writeln!(text, "{}\nthe requested schedule (--trace shows it):", outcome(&shrunk.seen));
    }
    text.push_str(&outcome(&seen));
    print(&text)?;
    Ok(exit_code(world.planted.is_some(), violated))
}

/// Appends lines, and an empty line.
fn lines(text: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text.push('\n');
}

/// Describes the outcome of a schedule.
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
