//! `sherman check`: exit code 0 if all is sound, 1 if something is damaged, 2 if that could not be found out.

use crate::check_args::CheckArgs;
use crate::failure::Failure;
use crate::output::{check_path, write};
use crate::progress::CheckBar;
use sherman_eval::{CheckReport, check};
use std::process::ExitCode;

/// Checks and reports.
pub fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    check_path(args.json.as_deref())?;
    let bar = CheckBar::default();
    let options = args.options();
    if options.is_audit() {
        let report = check::audit(&options, &|progress| bar.show(progress));
        bar.clear();
        let report = report.map_err(Failure::of_check)?;
        write(&report, serde_json::to_string_pretty(&report), args.json.as_deref())
            .map_err(Failure::into_unanswered)?;
        return Ok(if report.clean { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let report = check::run(&options, &|progress| bar.show(progress));
    bar.clear();
    let report = report.map_err(Failure::of_check)?;
    write(&report, serde_json::to_string_pretty(&report), args.json.as_deref()).map_err(Failure::into_unanswered)?;
    Ok(exit_code(&report))
}

fn exit_code(report: &CheckReport) -> ExitCode {
    if report.clean { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_eval::CheckOptions;

    #[test]
    fn a_tree_that_is_not_clean_is_exit_code_1() {
        let options = CheckOptions { keys: Some(100), seconds: Some(0.0), ..CheckOptions::default() };
        let report = check::run(&options, &|_| ()).expect("a check");
        assert_eq!(exit_code(&report), ExitCode::SUCCESS);
        assert_eq!(exit_code(&CheckReport { clean: false, ..report }), ExitCode::from(1));
    }
}
