//! `sherman sim explore`: exit code 0 if no property was violated, 1 if one was; the other way round if a bug is planted.

use crate::failure::Failure;
use crate::progress::SimBar;
use crate::sim_args::{ExploreArgs, SimArgs, SimCommand};
use crate::sim_report::ExploreReport;
use crate::target::announce;
use sherman_core::mutant::{Mutant, plant};
use sherman_eval::options::cores;
use sherman_sim::tree::Many;
use std::process::ExitCode;
use std::time::Instant;

/// What the command runs on: never a cluster.
pub const WORLD: &str = "a simulated world, not on a cluster";

/// Runs a command.
pub fn run(args: &SimArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Explore(args) => explore(args),
        SimCommand::Replay(args) => crate::sim_replay::run(args),
    }
}

/// Whether what was seen is what was hoped for: nothing, or a planted bug.
pub fn exit_code(mutant: Option<Mutant>, violated: bool) -> ExitCode {
    if mutant.is_some() == violated { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn explore(args: &ExploreArgs) -> Result<ExitCode, Failure> {
    args.output.check_path()?;
    let ExploreArgs { seed, schedules, world, .. } = args;
    let Some(end) = seed.checked_add(*schedules) else {
        return Err(Failure::option("seed", format!("there are no {schedules} seeds from {seed} on")));
    };
    let threads = args.threads.unwrap_or_else(cores);
    let many = Many { seeds: *seed..end, threads, only_first: world.mutant.is_some() };
    announce(WORLD);
    let bar = SimBar::new(*schedules);
    let hunt = world.hunt();
    let began = Instant::now();
    let explored = many.explore(|| (hunt.explorer(), plant(world.mutant)), |done, violated| bar.show(done, violated));
    let seconds = began.elapsed().as_secs_f64();
    bar.clear();
    let report = ExploreReport::new(args, threads, seconds, &explored);
    args.output.write(&report, serde_json::to_string_pretty(&report))?;
    Ok(exit_code(world.mutant, explored.violated > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_bug_turns_good_and_bad_round() {
        let (good, bad) = (ExitCode::SUCCESS, ExitCode::from(1));
        assert_eq!((exit_code(None, false), exit_code(None, true)), (good, bad));
        let mutant = Some(Mutant::NoFreeMark);
        assert_eq!((exit_code(mutant, true), exit_code(mutant, false)), (good, bad));
    }
}
