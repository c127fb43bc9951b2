//! `sherman figures`: the paper's evaluation, on a model of its machines.

pub mod args;

use crate::failure::Failure;
use crate::figures::args::FiguresArgs;
use crate::output::print;
use crate::progress::FiguresBar;
use crate::target::announce;
use serde_json::json;
use sherman_eval::experiment;
use sherman_eval::figures::{self, Figure, FiguresError, Output, Scale, Source, Summary};
use sherman_eval::options::cores;
use std::path::Path;

/// Runs the experiments and writes the figures.
pub fn run(args: &FiguresArgs) -> Result<(), Failure> {
    let sources = figures::pick(figures::all(), &args.only)?;
    let out = match &args.out {
        Some(out) if !args.list => out,
        _ => return list(&sources, args.json),
    };
    let output = Output::open(out)?;
    let mut scale = if args.quick { Scale::quick(args.seed) } else { Scale::full(args.seed) };
    scale.operations = args.ops.unwrap_or(scale.operations);
    scale.runs = args.runs.map_or(scale.runs, |runs| runs as u64);
    announce("a model of the paper's machines in virtual time, not on a cluster");
    let bar = FiguresBar::default();
    let threads = args.threads.unwrap_or_else(cores);
    let made = figures::run(&sources, &scale, threads, &output.kept(), &experiment::run, &|progress| {
        bar.show(progress)
    });
    bar.clear();
    // The output was writable at the start, so a later failure is not the fault of an option.
    let made = made.map_err(at_run_time)?;
    output.write(&scale, &made).map_err(at_run_time)?;
    tell(&output.page(), &made, args.json)
}

fn at_run_time(error: FiguresError) -> Failure {
    Failure::Runtime(error.to_string())
}

fn list(sources: &[Source], json: bool) -> Result<(), Failure> {
    if json {
        let names = sources.iter().map(|source| json!({ "name": source.name, "title": source.title }));
        return print(&format!("{}\n", json!({ "figures": names.collect::<Vec<_>>() })));
    }
    print(&sources.iter().map(|source| format!("{:<18} {}\n", source.name, source.title)).collect::<String>())
}

/// Prints the path of the page, and how close the model comes to the paper.
fn tell(page: &Path, made: &[Figure], json: bool) -> Result<(), Failure> {
    let summary = Summary::of(made);
    if json {
        let names: Vec<_> = made.iter().map(|figure| figure.name).collect();
        let Summary { judged, within_1_5, beyond_3 } = summary;
        let told = json!({
            "page": page.display().to_string(),
            "figures": names,
            "judged": judged,
            "within_1_5": within_1_5,
            "beyond_3": beyond_3,
        });
        return print(&format!("{told}\n"));
    }
    print(&format!("{}\nthe paper's numbers: {summary}\n", page.display()))
}
