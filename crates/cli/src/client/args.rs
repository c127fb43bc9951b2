//! Which cluster and tree, how keys and values are written, and what a tree that is made is like.

use super::column::Form;
use crate::parse::{format, size};
use clap::Args;
use std::path::PathBuf;

/// The cluster.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// The cluster, as in tcp://a:7000,b:7000, unix:/run/a.sock,/run/b.sock, shm:/run/a.sock or verbs://a:7000
    #[arg(long, value_name = "URL", env = "SHERMAN_CLUSTER", hide_env_values = true)]
    pub cluster: String,
}

/// A tree, and how its keys and values are written.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// The tree (default: the only one)
    #[arg(long, value_name = "NAME")]
    pub tree: Option<String>,

    /// How keys are written: u64, i64 (any of 8 to 128 bits), text, hex [default: u64 if they have 8 bytes, else hex]
    #[arg(long, value_name = "TYPE")]
    pub key_type: Option<Form>,

    /// How values are written, likewise
    #[arg(long, value_name = "TYPE")]
    pub value_type: Option<Form>,
}

impl TreeArgs {
    /// The cluster's URL.
    pub fn url(&self) -> &str {
        &self.cluster.cluster
    }
}

/// What a tree that is not there yet is to be like.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Making the tree")]
pub struct CreateArgs {
    /// Make the tree if it is not there
    #[arg(long, requires = "tree")]
    pub create: bool,

    /// Bytes of a key, 1 to 1024; of text, the most [default: those of the type; 32 for text]
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "create")]
    pub key_size: Option<usize>,

    /// Bytes of a value; of text, the most [default: those of the type; 32 for text]
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "create")]
    pub value_size: Option<usize>,

    /// Bytes of leaves and internal nodes: a multiple of 64 from 256 to 64KiB [default: 1KiB]
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "create")]
    pub node_size: Option<usize>,

    /// The node format: line-stamped, two-level, sorted, sorted-stamped [default: line-stamped]
    #[arg(long, value_name = "NAME", value_parser = format, requires = "create")]
    pub node_format: Option<sherman::Format>,
}

const TREES_HELP: &str = "\
Examples:
  sherman trees --cluster tcp://memory-1:7000,memory-2:7000
  SHERMAN_CLUSTER=unix:/run/sherman-0.sock sherman trees --json";

const STATS_HELP: &str = "\
Memory is handed out in chunks, from which compute servers cut nodes; a chunk in use may have free nodes in it. Server 0
keeps the members, their leases and the names of trees.

Examples:
  sherman stats --cluster tcp://memory-1:7000,memory-2:7000
  sherman stats --json | jq '.servers[].bytes_used'";

/// The options of `sherman trees`.
#[derive(Debug, Args)]
#[command(after_help = TREES_HELP)]
pub struct TreesArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// Write the result to FILE as JSON; - or nothing writes it, and nothing else, to stdout
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// The options of `sherman stats`.
#[derive(Debug, Args)]
#[command(after_help = STATS_HELP)]
pub struct StatsArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// Write the result to FILE as JSON; - or nothing writes it, and nothing else, to stdout
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}
