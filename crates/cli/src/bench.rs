//! `sherman bench`.

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::output::{check_path, write};
use crate::progress::Bar;
use sherman_eval::bench::run_median;
use sherman_eval::{BenchError, BenchOptions, Report};

/// Runs it and reports.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let options = args.options();
    check_path(args.json.as_deref())?;
    let report = measure(&options, args.runs)?;
    write(&report, serde_json::to_string_pretty(&report), args.json.as_deref())
}

fn measure(options: &BenchOptions, runs: usize) -> Result<Report, BenchError> {
    let bar = Bar::new(options.length);
    let report = run_median(options, runs, &|number, progress| bar.show(number, runs, progress));
    bar.clear();
    // One run is no median of several.
    report.map(|report| if runs == 1 { Report { runs_mops: Vec::new(), ..report } } else { report })
}
