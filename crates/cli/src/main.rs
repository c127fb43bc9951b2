//! The `sherman` command.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the command line, and the options of `sherman bench` |
//! | [`check_args`] | the options of `sherman check` |
//! | [`parse`] | how numbers, sizes and names are written |
//! | [`bench`](mod@bench) | `sherman bench` |
//! | [`check`] | `sherman check` |
//! | [`client`] | `get`, `put`, `del`, `scan`, `load`, `dump`, `trees`, `drop`, `clear`, `stats` |
//! | [`serve_args`], [`serve_config`] | the options of `sherman serve`, on the command line and in a file |
//! | [`serve_options`] | what they come to, checked |
//! | [`serve`], [`serve_start`] | `sherman serve` |
//! | [`serve_log`] | what a server tells on stderr |
//! | [`cluster`] | `sherman cluster up` |
//! | [`figures`], [`figures_args`] | `sherman figures` |
//! | [`litmus`], [`litmus_args`], [`litmus_device`] | `sherman litmus` |
//! | [`completions`] | `sherman completions` |
//! | [`members_args`] | the options of `sherman members` and `sherman fence` |
//! | [`members`] | `sherman members`, `sherman fence` |
//! | [`servers`], [`servers_args`] | `sherman servers`, `sherman declare-lost` |
//! | [`sim_args`] | the options of `sherman sim` |
//! | [`sim`], [`sim_report`] | `sherman sim explore`, and what it tells |
//! | [`sim_replay`] | `sherman sim replay` |
//! | [`target`] | which cluster a command runs on |
//! | [`output`] | where results go |
//! | [`progress`] | the bar on a terminal |
//! | [`failure`] | one line on stderr and an exit code |
#![forbid(unsafe_code)]

mod args;
mod bench;
mod check;
mod check_args;
mod client;
mod cluster;
mod completions;
mod failure;
mod figures;
mod figures_args;
mod litmus;
mod litmus_args;
mod litmus_device;
mod members;
mod members_args;
mod output;
mod parse;
mod progress;
mod serve;
mod serve_args;
mod serve_config;
mod serve_kept;
mod serve_log;
mod serve_options;
mod serve_start;
mod serve_verbs;
mod servers;
mod servers_args;
mod sim;
mod sim_args;
mod sim_replay;
mod sim_report;
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
                let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
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
        Command::Check(args) => check::run(args),
        Command::Members(args) => members::list(args),
        Command::Fence(args) => members::fence(args),
        Command::Servers(args) => servers::list(args),
        Command::DeclareLost(args) => servers::declare_lost(args),
        Command::Litmus(args) => litmus::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Completions(args) => completions::run(args),
    }
}

/// Help and version were asked for: they are no failures, and their text goes to stdout.
fn print_help(asked: &clap::Error) -> ExitCode {
    match asked.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(3),
    }
}
