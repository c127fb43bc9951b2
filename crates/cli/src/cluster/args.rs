//! The options of `sherman cluster up`, and their help.

use crate::serve::config::{Bytes, Time};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

const UP_HELP: &str = "\
Starts --servers times \"sherman serve\" on this host and prints the cluster's URL. Then it waits for
one of these events:
  - SIGINT (Ctrl-C) or SIGTERM
  - the end of the time of --for
  - the end of COMMAND, which it runs with SHERMAN_CLUSTER set to the URL

Then it stops the servers, the last one first, and removes the files that it made. The memory is
lost. If this command itself is killed, the servers stop, too.

Without a COMMAND the URL is the first line on stdout. With a COMMAND only the command writes to
stdout.

Exit code: that of COMMAND, if there is one, or 128 plus the number of the signal that ended it.
Otherwise 0 after a signal or --for, 2 for invalid usage, and 3 if the operation failed, for example
because a server ended by itself. With --replicas 2 that is no failure as long as others run: it is
reported on stderr, and the cluster goes on.

Examples:
  sherman cluster up --servers 3
  sherman cluster up --servers 2 --tcp --memory 256MiB --for 10s --url-file url
  sherman cluster up --servers 2 --shm
  sherman cluster up --servers 3 --replicas 2
  sherman cluster up -- sh -c 'sherman put 7 700 --create --tree orders && sherman get 7'";

/// The options of `sherman cluster`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct ClusterArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Start a cluster of processes on this host, and stop it again
    Up(UpArgs),
}

/// The options of `sherman cluster up`.
#[derive(Debug, Args)]
#[command(after_long_help = UP_HELP, after_help = "Details, exit codes and examples: see --help")]
pub struct UpArgs {
    /// Start this many memory servers, 1 to 64
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub servers: u16,

    /// Connect through Unix sockets: the default
    #[arg(long, conflicts_with_all = ["tcp", "shm"])]
    pub unix: bool,

    /// Connect through TCP on 127.0.0.1, on free ports
    #[arg(long)]
    pub tcp: bool,

    /// Share the servers' memory with compute servers on this host
    #[arg(long, conflicts_with = "tcp")]
    pub shm: bool,

    /// Keep all data this many times, 1 or 2: with 2, no data is lost when a server dies
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub replicas: u8,

    /// Give each server this much memory
    #[arg(long, value_name = "BYTES", default_value = "1GiB")]
    pub memory: Bytes,

    /// Declare a client dead when it has not renewed its lease for this time
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub lease: Time,

    /// Put sockets into this directory [default: a new one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Admit only clients that know the secret in this file
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,

    /// Write the URL to this file, too, while the cluster is up
    #[arg(long, value_name = "FILE")]
    pub url_file: Option<PathBuf>,

    /// End after this time, as in 10s [default: never]
    #[arg(long = "for", value_name = "TIME", conflicts_with = "command")]
    pub length: Option<Time>,

    /// Print what was started as JSON, on one line, to stdout
    #[arg(long, conflicts_with = "command")]
    pub json: bool,

    /// Run this command with SHERMAN_CLUSTER set, and end with it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
