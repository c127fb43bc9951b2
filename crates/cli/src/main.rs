//! The `sherman` command.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | options, their help, and how numbers and sizes are written |
//! | [`bench`](mod@bench) | `sherman bench` |
//! | [`progress`] | the bar on a terminal |
//! | [`failure`] | one line on stderr and an exit code: 2 for what was asked, 1 for what happened |
#![forbid(unsafe_code)]

mod args;
mod bench;
mod failure;
mod progress;

use args::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Arguments::try_parse() {
        Ok(Arguments { command: Command::Bench(args) }) => bench::run(&args),
        Err(error) => match Failure::of_parse(&error) {
            None => return print_help(&error),
            Some(failure) => Err(failure),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
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
