//! `sherman sim explore`: exits with 0 if no property was violated, with 1 if one was. With a planted bug it
//! is the other way round.

pub mod args;
pub mod mutant;
pub mod replay;
pub mod report;

use crate::failure::Failure;
use crate::progress::SimBar;
use crate::sim::args::{ExploreArgs, SimArgs, SimCommand};
use crate::sim::report::ExploreReport;
use crate::target::announce;
use sherman_eval::options::cores;
use sherman_sim::tree::Many;
use std::process::ExitCode;
use std::time::Instant;

/// Describes the target of the command, which is never a cluster.
pub const WORLD: &str = "a simulated world, not on a cluster";

/// Runs a command.
pub fn run(args: &SimArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Explore(args) => explore(args),
        SimCommand::Replay(args) => crate::sim::replay::run(args),
    }
}

/// Returns success if the result is the expected one: no violation, or with a planted bug a violation.
pub fn exit_code(planted: bool, violated: bool) -> ExitCode {
    if planted == violated { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn explore(args: &ExploreArgs) -> Result<ExitCode, Failure> {
    args.output.check_path()?;
    let ExploreArgs { seed, schedules, world, .. } = args;
    let Some(end) = seed.checked_add(*schedules) else {
        return Err(Failure::option(
            "seed",
            format!("there are fewer than {schedules} seeds from {seed} on"),
        ));
    };
    let threads = args.threads.unwrap_or_else(cores);
    let many = Many { seeds: *seed..end, threads, only_first: world.planted.is_some() };
    announce(WORLD);
    let bar = SimBar::new(*schedules);
    let hunt = world.hunt();
    let began = Instant::now();
    let explored =
        many.explore(|| (hunt.explorer(), world.planted.plant()), |done, violated| bar.show(done, violated));
    let seconds = began.elapsed().as_secs_f64();
    bar.clear();
    let report = ExploreReport::new(args, threads, seconds, &explored);
    args.output.write(&report, serde_json::to_string_pretty(&report))?;
    Ok(exit_code(world.planted.is_some(), explored.violated > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_bug_turns_good_and_bad_round() {
        let (good, bad) = (ExitCode::SUCCESS, ExitCode::from(1));
        assert_eq!((exit_code(false, false), exit_code(false, true)), (good, bad));
        assert_eq!((exit_code(true, true), exit_code(true, false)), (good, bad));
    }
}
