//! `sherman check`: exits with 0 if every invariant holds, with 1 if something is damaged.

pub mod args;

use crate::check::args::CheckArgs;
use crate::failure::Failure;
use crate::progress::CheckBar;
use sherman_eval::check;
use std::process::ExitCode;

/// Runs the check and prints its report.
pub fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    args.output.check_path()?;
    let options = args.options()?;
    let bar = CheckBar::default();
    if options.is_audit() {
        let report = check::audit(&options, &|progress| bar.show(progress));
        bar.clear();
        let report = report?;
        args.output.write(&report, serde_json::to_string_pretty(&report))?;
        return Ok(exit_code(report.clean));
    }
    let report = check::run(&options, &|progress| bar.show(progress));
    bar.clear();
    let report = report?;
    args.output.write(&report, serde_json::to_string_pretty(&report))?;
    Ok(exit_code(report.clean))
}

fn exit_code(clean: bool) -> ExitCode {
    if clean { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_eval::CheckOptions;

    #[test]
    fn a_tree_that_is_not_clean_is_exit_code_1() {
        let options = CheckOptions { keys: Some(100), seconds: Some(0.0), ..CheckOptions::default() };
        let report = check::run(&options, &|_| ()).expect("a check");
        assert_eq!(exit_code(report.clean), ExitCode::SUCCESS);
        assert_eq!(exit_code(false), ExitCode::from(1));
    }
}
