//! `sherman bench`.

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::progress::Bar;
use sherman_eval::bench::run_median;
use sherman_eval::{BenchError, BenchOptions, Report};
use std::io::Write;
use std::path::Path;

/// Runs it and reports.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let options = args.options();
    if let Some(path) = &args.json {
        check_path(path)?;
    }
    let report = measure(&options, args.runs)?;
    match &args.json {
        Some(path) if is_stdout(path) => print(&json(&report)?),
        Some(path) => {
            std::fs::write(path, json(&report)?)
                .map_err(|error| Failure::Runtime(format!("writing {}: {error}", path.display())))?;
            print(&format!("{report}\n"))
        }
        None => print(&format!("{report}\n")),
    }
}

fn measure(options: &BenchOptions, runs: usize) -> Result<Report, BenchError> {
    let bar = Bar::new(options.length);
    let report = run_median(options, runs, &|number, progress| bar.show(number, runs, progress));
    bar.clear();
    // One run is no median of several.
    report.map(|report| if runs == 1 { Report { runs_mops: Vec::new(), ..report } } else { report })
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Complains about a file that cannot be written before the run, not after; creates nothing.
fn check_path(path: &Path) -> Result<(), Failure> {
    if is_stdout(path) {
        return Ok(());
    }
    if path.is_dir() {
        return Err(Failure::option("json", format!("{} is a directory, not a file", path.display())));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.file_name().is_none() || !parent.is_dir() {
        return Err(Failure::option("json", format!("there is no directory {}", parent.display())));
    }
    Ok(())
}

fn json(report: &Report) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| text + "\n").map_err(|error| Failure::Runtime(format!("writing JSON: {error}")))
}

/// Writes to stdout. A reader that went away is no failure of ours.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("writing to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
