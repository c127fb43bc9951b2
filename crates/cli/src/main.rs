//! The `sherman` command.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the command line, and the options of `sherman bench` |
//! | [`check_args`] | the options of `sherman check` |
//! | [`parse`] | how numbers, sizes and names are written |
//! | [`bench`](mod@bench) | `sherman bench` |
//! | [`check`] | `sherman check` |
//! | [`members_args`] | the options of `sherman members` and `sherman fence` |
//! | [`members`] | `sherman members`, `sherman fence` |
//! | [`sim_args`] | the options of `sherman sim` |
//! | [`sim`], [`sim_report`] | `sherman sim explore`, and what it tells |
//! | [`sim_replay`] | `sherman sim replay` |
//! | [`output`] | where results go |
//! | [`progress`] | the bar on a terminal |
//! | [`failure`] | one line on stderr and an exit code |
#![forbid(unsafe_code)]

mod args;
mod bench;
mod check;
mod check_args;
mod failure;
mod members;
mod members_args;
mod output;
mod parse;
mod progress;
mod sim;
mod sim_args;
mod sim_replay;
mod sim_report;

use args::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Arguments::try_parse() {
        Ok(Arguments { command: Command::Bench(args) }) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Ok(Arguments { command: Command::Check(args) }) => check::run(&args),
        Ok(Arguments { command: Command::Members(args) }) => members::list(&args),
        Ok(Arguments { command: Command::Fence(args) }) => members::fence(&args),
        Ok(Arguments { command: Command::Sim(args) }) => sim::run(&args),
        Err(error) => match Failure::of_parse(&error) {
            None => return print_help(&error),
            Some(failure) => Err(failure),
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

/// Help and version were asked for: they are no failures, and their text goes to stdout.
fn print_help(asked: &clap::Error) -> ExitCode {
    match asked.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
