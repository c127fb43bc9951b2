//! The `sherman` command.
//!
//! Each command has a folder or a file: its options are in `args`, its work in the module itself.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the command line, and the options of `sherman bench` |
//! | [`bench`](mod@bench) | `sherman bench` |
//! | [`check`] | `sherman check` |
//! | [`client`] | `get`, `put`, `del`, `scan`, `load`, `dump`, `trees`, `drop`, `clear`, `stats` |
//! | [`cluster`] | `sherman cluster up` |
//! | [`completions`] | `sherman completions` |
//! | [`figures`] | `sherman figures` |
//! | [`hosts`] | `sherman drain`, `sherman rebalance` |
//! | [`litmus`] | `sherman litmus` |
//! | [`members`] | `sherman members`, `sherman fence` |
//! | [`serve`] | `sherman serve`: options on the command line and in a file, start, log |
//! | [`servers`] | `sherman servers`, `sherman declare-lost` |
//! | [`sim`] | `sherman sim explore` with its report, `sherman sim replay` |
//! | [`failure`] | one line on stderr and an exit code |
//! | [`output`] | where results go |
//! | [`parse`] | parses numbers, sizes and names |
//! | [`progress`] | the bar on a terminal |
//! | [`target`] | which cluster a command uses |
#![forbid(unsafe_code)]
// A command exports nothing: `pub` means that another file of the command uses the item.
#![allow(unreachable_pub)]

mod args;
mod bench;
mod check;
mod client;
mod cluster;
mod completions;
mod failure;
mod figures;
mod hosts;
mod litmus;
mod members;
mod output;
mod parse;
mod progress;
mod sensitivity;
mod serve;
mod servers;
mod sim;
mod target;

use args::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Arguments::try_parse() {
        Ok(Arguments { command }) => run(&command),
        Err(error) => match Failure::of_parse(&error) {
            None => return print_help(&error),
            Some(failure) => {
                let words: Vec<String> =
                    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
                Err(Failure::of_json_file(&error, &words).unwrap_or(failure))
            }
        },
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

/// Runs a command.
fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Cluster(args) => cluster::up::run(args),
        Command::Client(command) => client::run(command),
        Command::Bench(args) => bench::run(args).map(|()| ExitCode::SUCCESS),
        Command::Figures(args) => figures::run(args).map(|()| ExitCode::SUCCESS),
        Command::Sensitivity(args) => sensitivity::run(args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::run(args),
        Command::Members(args) => members::list(args),
        Command::Fence(args) => members::fence(args),
        Command::Servers(args) => servers::list(args),
        Command::DeclareLost(args) => servers::declare_lost(args),
        Command::Drain(args) => hosts::drain(args),
        Command::Rebalance(args) => hosts::rebalance(args),
        Command::Litmus(args) => litmus::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Completions(args) => completions::run(args),
    }
}

/// Prints help or the version to stdout. A request for them is not a failure.
fn print_help(asked: &clap::Error) -> ExitCode {
    match asked.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(3),
    }
}
