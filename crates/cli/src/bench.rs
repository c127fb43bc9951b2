//! `sherman bench`.

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::output::{check_path, write};
use crate::progress::Bar;
use sherman_eval::bench::{Progress, run_median};
use sherman_eval::{BenchError, BenchOptions, Report, simulated};
use std::time::Duration;

/// Runs on the model, unless it is said how many: enough to have a spread.
const SIMULATED_RUNS: usize = 3;

/// Runs it and reports.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let options = args.options();
    check_path(args.json.as_deref())?;
    if args.is_simulated() {
        let runs = args.runs.unwrap_or(SIMULATED_RUNS);
        let bar = Bar::new(options.length);
        let report = simulated::run(&options, runs, &|number| {
            bar.show(number, runs, Progress::Measuring(Duration::ZERO));
        });
        bar.clear();
        let report = report?;
        return write(&report, serde_json::to_string_pretty(&report), args.json.as_deref());
    }
    let report = measure(&options, args.runs.unwrap_or(1))?;
    write(&report, serde_json::to_string_pretty(&report), args.json.as_deref())
}

fn measure(options: &BenchOptions, runs: usize) -> Result<Report, BenchError> {
    let bar = Bar::new(options.length);
    let report = run_median(options, runs, &|number, progress| bar.show(number, runs, progress));
    bar.clear();
    // One run is no median of several.
    report.map(|report| if runs == 1 { Report { runs_mops: Vec::new(), ..report } } else { report })
}
