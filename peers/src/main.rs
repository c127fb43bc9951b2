//! The command: measures, prints the tables, and writes the requested files.

use clap::Parser;
use sherman_peers::args::Arguments;
use sherman_peers::error::Failure;
use sherman_peers::progress::Progress;
use sherman_peers::{bench, check, table};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(passed) => ExitCode::from(u8::from(!passed)),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command. Returns whether the check passed, if one was requested.
fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let options = arguments.options();
    let runs = options.peers.len() * options.mixes.len() * options.distributions.len() * options.runs;
    let mut progress = Progress::new(runs, options.seconds, arguments.quiet);
    let report = bench::run(&options, &mut progress)?;
    print!("{}", table::terminal(&report));
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| not_written(path, error.into()))?;
        write(path, &json)?;
    }
    if let Some(path) = &arguments.markdown {
        write(path, &table::markdown(&report))?;
    }
    Ok(!arguments.check || told(&check::check(&report)))
}

/// Prints what a check found and returns whether it passed.
fn told(findings: &check::Findings) -> bool {
    findings.failed.iter().for_each(|line| println!("below the bar: {line}"));
    let failed = findings.failed.len();
    println!(
        "checked {} cells: {}, {failed} failed",
        findings.checked,
        if findings.passed() { "passed" } else { "not passed" }
    );
    findings.passed()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| not_written(path, error))
}

fn not_written(path: &Path, error: std::io::Error) -> Failure {
    Failure::Write { path: path.to_owned(), error }
}
