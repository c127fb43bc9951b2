//! The client commands. Each is one process that joins a cluster, runs one command, and leaves.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | which cluster and tree, and the types of keys and values |
//! | [`column`] | converts keys and values between bytes and text |
//! | [`open`] | opens or creates the tree |
//! | [`point`], [`point_args`] | `get`, `put`, `del` |
//! | [`scan`], [`scan_args`] | `scan` |
//! | [`rows`], [`csv`], [`ndjson`] | entries in files |
//! | [`load`], [`dump`], [`file_args`] | `load`, `dump` |
//! | [`trees`], [`stats`] | `trees`, `stats` |
//! | [`whole`] | `drop`, `clear` |
//!
//! Every command is a function of an open [`Cluster`](sherman::Cluster) and its options. It returns or writes
//! its answer, so that a test can run several commands on one cluster. [`run`](run()) opens the cluster,
//! prints, and turns failures into exit codes.

mod args;
mod column;
mod csv;
mod dump;
mod file_args;
mod load;
mod ndjson;
mod open;
mod point;
mod point_args;
mod rows;
mod scan;
mod scan_args;
mod stats;
mod trees;
mod whole;

use crate::failure::Failure;
use crate::output::print;
use args::{ClearArgs, DropArgs, StatsArgs, TreesArgs};
use clap::Subcommand;
use file_args::{DumpArgs, LoadArgs};
use point_args::{DelArgs, GetArgs, PutArgs};
use scan_args::ScanArgs;
use serde_json::Value;
use sherman::Cluster;
use std::process::ExitCode;

/// The commands of a client.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Look up a key
    Get(GetArgs),
    /// Put a value under a key
    Put(PutArgs),
    /// Remove a key
    Del(DelArgs),
    /// List the entries of a range of keys
    Scan(ScanArgs),
    /// Load the entries of a file, CSV or NDJSON, into a tree
    Load(LoadArgs),
    /// Write the entries of a tree to a file, CSV or NDJSON
    Dump(DumpArgs),
    /// List the trees of a cluster, and their shapes
    Trees(TreesArgs),
    /// Drop a tree, with all its entries
    Drop(DropArgs),
    /// Remove all entries of a tree
    Clear(ClearArgs),
    /// Show the servers, memory, members, leases and trees of a cluster
    Stats(StatsArgs),
}

/// The answer of a command about one key.
struct Answer {
    /// The answer as text.
    text: String,
    /// The answer as JSON.
    json: Value,
    /// Whether the key was found.
    found: bool,
}

impl Answer {
    /// Prints the answer and returns its exit code.
    fn tell(&self, json: bool) -> Result<ExitCode, Failure> {
        if json {
            print(&format!("{}\n", self.json))?;
        } else if !self.text.is_empty() {
            print(&format!("{}\n", self.text))?;
        }
        Ok(if self.found { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// Runs a command.
pub fn run(command: &ClientCommand) -> Result<ExitCode, Failure> {
    match command {
        ClientCommand::Get(args) => point::get(&open(&args.at.url()?)?, args)?.tell(args.json),
        ClientCommand::Put(args) => point::put(&open(&args.at.url()?)?, args)?.tell(args.json),
        ClientCommand::Del(args) => point::del(&open(&args.at.url()?)?, args)?.tell(args.json),
        ClientCommand::Scan(args) => scan::run(args).map(done),
        ClientCommand::Load(args) => load::run(args).map(done),
        ClientCommand::Dump(args) => dump::run(args).map(done),
        ClientCommand::Trees(args) => trees::run(args).map(done),
        ClientCommand::Drop(args) => whole::drop(&args.of).map(done),
        ClientCommand::Clear(args) => whole::clear(&args.of).map(done),
        ClientCommand::Stats(args) => stats::run(args).map(done),
    }
}

fn done(_: ()) -> ExitCode {
    ExitCode::SUCCESS
}

fn open(url: &str) -> Result<Cluster, Failure> {
    Ok(Cluster::open(url)?)
}

#[cfg(test)]
mod testing {
    use clap::Args;
    use sherman::Cluster;

    /// Parses a command line and returns its options, without the cluster.
    pub fn parsed<A: Args>(line: &[&str]) -> A {
        let command = A::augment_args(clap::Command::new("test").no_binary_name(true));
        let line = [&["--cluster", "embedded:"], line].concat();
        let matches = command.try_get_matches_from(line).unwrap_or_else(|error| panic!("{error}"));
        A::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns an empty cluster.
    pub fn cluster() -> Cluster {
        Cluster::open("embedded:?memory=64MiB&chunk=1MiB").expect("a cluster")
    }
}
