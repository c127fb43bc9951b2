//! `sherman bench`.

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::progress::Bar;
use crate::target::{announce, described};
use sherman_eval::bench::{Progress, run_median};
use sherman_eval::{BenchError, BenchOptions, Report, simulated};
use std::cell::Cell;
use std::time::Duration;

/// The default number of runs on the model: enough to show a spread.
const SIMULATED_RUNS: usize = 3;

/// Runs the benchmark and prints its report.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    args.output.check_path()?;
    let options = args.options(args.target.given()?);
    if options.cluster.as_deref().is_some_and(simulated::is_simulated) {
        let runs = args.runs.unwrap_or(SIMULATED_RUNS);
        let bar = Bar::new(options.length);
        let announced = Announced::new(&options);
        let report = simulated::run(&options, runs, &|number| {
            announced.once();
            bar.show(number, runs, Progress::Measuring(Duration::ZERO));
        });
        bar.clear();
        let report = report?;
        return args.output.write(&report, serde_json::to_string_pretty(&report));
    }
    let report = measure(&options, args.runs.unwrap_or(1))?;
    args.output.write(&report, serde_json::to_string_pretty(&report))
}

fn measure(options: &BenchOptions, runs: usize) -> Result<Report, BenchError> {
    let bar = Bar::new(options.length);
    let announced = Announced::new(options);
    let report = run_median(options, runs, &|number, progress| {
        announced.once();
        bar.show(number, runs, progress);
    });
    bar.clear();
    // One run has no median, so the report does not list the runs.
    report.map(|report| if runs == 1 { Report { runs_mops: Vec::new(), ..report } } else { report })
}

/// Prints the cluster when the run begins, so that a refused run prints only one line on stderr.
struct Announced {
    what: String,
    done: Cell<bool>,
}

impl Announced {
    fn new(options: &BenchOptions) -> Self {
        Self { what: described(options.cluster.as_deref()), done: Cell::new(false) }
    }

    fn once(&self) {
        if !self.done.replace(true) {
            announce(&self.what);
        }
    }
}
