//! The client commands: one process that joins a cluster, does one thing, and leaves.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | which cluster and tree, and how keys and values are written |
//! | [`column`] | keys and values between bytes and text |
//! | [`open`] | finding the tree, or making it |
//! | [`point`], [`point_args`] | `get`, `put`, `del` |
//! | [`scan`], [`scan_args`] | `scan` |
//! | [`rows`], [`csv`], [`ndjson`] | entries in files |
//! | [`load`], [`dump`], [`file_args`] | `load`, `dump` |
//! | [`trees`], [`stats`] | `trees`, `stats` |
//!
//! Every command is a function of an open [`Cluster`](sherman::Cluster) and its options that returns or writes its answer,
//! so that tests do several on one cluster; [`run`](run()) opens the cluster, prints, and makes exit codes of failures.

pub mod args;
mod column;
mod csv;
mod dump;
pub mod file_args;
mod load;
mod ndjson;
mod open;
mod point;
pub mod point_args;
mod rows;
mod scan;
pub mod scan_args;
mod stats;
mod trees;

use crate::args::Command;
use crate::failure::Failure;
use crate::output::print;
use serde_json::Value;
use sherman::Cluster;
use std::process::ExitCode;

/// What a command about one key says.
struct Answer {
    /// For people.
    text: String,
    /// For programs.
    json: Value,
    /// Whether what was asked for was there.
    found: bool,
}

impl Answer {
    /// Prints it; its exit code.
    fn tell(&self, json: bool) -> Result<ExitCode, Failure> {
        if json {
            print(&format!("{}\n", self.json))?;
        } else if !self.text.is_empty() {
            print(&format!("{}\n", self.text))?;
        }
        Ok(if self.found { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// Does what is asked; `None` if the command is not a client's.
pub fn run(command: &Command) -> Option<Result<ExitCode, Failure>> {
    let outcome = match command {
        Command::Get(args) => open(&args.at.cluster.cluster)
            .and_then(|cluster| point::get(&cluster, args))
            .and_then(|answer| answer.tell(args.json)),
        Command::Put(args) => open(&args.at.cluster.cluster)
            .and_then(|cluster| point::put(&cluster, args))
            .and_then(|answer| answer.tell(args.json)),
        Command::Del(args) => open(&args.at.cluster.cluster)
            .and_then(|cluster| point::del(&cluster, args))
            .and_then(|answer| answer.tell(args.json)),
        Command::Scan(args) => scan::run(args).map(done),
        Command::Load(args) => load::run(args).map(done),
        Command::Dump(args) => dump::run(args).map(done),
        Command::Trees(args) => trees::run(args).map(done),
        Command::Stats(args) => stats::run(args).map(done),
        _ => return None,
    };
    Some(outcome.map_err(Failure::into_failed))
}

fn done(_: ()) -> ExitCode {
    ExitCode::SUCCESS
}

fn open(url: &str) -> Result<Cluster, Failure> {
    Ok(Cluster::open(url)?)
}

#[cfg(test)]
mod testing {
    use clap::{Args, FromArgMatches};
    use sherman::Cluster;

    /// The options that a command line gives, without the cluster.
    pub fn parsed<A: Args>(line: &[&str]) -> A {
        let command = A::augment_args(clap::Command::new("test").no_binary_name(true));
        let line = [&["--cluster", "embedded:"], line].concat();
        let matches = command.try_get_matches_from(line).unwrap_or_else(|error| panic!("{error}"));
        A::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{error}"))
    }

    /// An empty cluster.
    pub fn cluster() -> Cluster {
        Cluster::open("embedded:?memory=64MiB&chunk=1MiB").expect("a cluster")
    }
}
