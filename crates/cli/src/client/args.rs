//! Options that choose a cluster and a tree, the types of keys and values, and the shape of a new tree.

use super::column::Form;
use crate::failure::Failure;
use crate::parse::{format, size};
use crate::target::ClusterOption;
use clap::Args;

/// A tree, and the types of its keys and values.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Use this tree [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub tree: Option<String>,

    /// Write and read keys as this type: u64, i64 (any of 8 to 128 bits), text, hex [default: u64 if they
    /// have 8 bytes, else hex]
    #[arg(long, value_name = "TYPE")]
    pub key_type: Option<Form>,

    /// Write and read values as this type [default: u64 if they have 8 bytes, else hex]
    #[arg(long, value_name = "TYPE")]
    pub value_type: Option<Form>,
}

impl TreeArgs {
    /// The cluster's URL.
    pub fn url(&self) -> Result<String, Failure> {
        self.target.required()
    }
}

/// The shape of a tree that the command creates.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Creating the tree")]
pub struct CreateArgs {
    /// Create the tree if it does not exist
    #[arg(long, requires = "tree")]
    pub create: bool,

    /// Set the size of keys, 1 to 1024 bytes; for text, the longest [default: the size of the type; 32 for
    /// text]
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "create")]
    pub key_size: Option<usize>,

    /// Set the size of values in bytes; for text, the longest [default: the size of the type; 32 for text]
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "create")]
    pub value_size: Option<usize>,

    /// Let values have any length, up to 1 MiB and more: as text, or with --value-type hex as any bytes
    #[arg(long, requires = "create", conflicts_with = "value_size")]
    pub any_length: bool,

    /// Set the size of leaves and internal nodes in bytes, a multiple of 64 from 256 to 64KiB [default: 1KiB]
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "create")]
    pub node_size: Option<usize>,

    /// Choose the node format: line-hashed, line-stamped, two-level, sorted, sorted-stamped [default:
    /// line-hashed]
    #[arg(long, value_name = "NAME", value_parser = format, requires = "create")]
    pub node_format: Option<sherman::Format>,
}

const TREES_HELP: &str = "\
Programs give the types of keys and values when they create a tree with the library. A tree that
this command created has no types, shown as -, and programs can open it with any types of its sizes.

Exit code: 0 on success, also if there are no trees; 2 for invalid usage; 3 if the operation failed.

Examples:
  sherman trees --cluster tcp://memory-1:7000,memory-2:7000
  SHERMAN_CLUSTER=unix:/run/sherman-0.sock sherman trees --json";

const STATS_HELP: &str = "\
Servers hand out memory in chunks. Compute servers divide chunks into nodes, so a chunk in use may
contain free nodes. Server 0 keeps the members, their leases and the names of trees.

Exit code: 0 on success, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman stats --cluster tcp://memory-1:7000,memory-2:7000
  sherman stats --json | jq '.servers[].bytes_used'";

/// The options of `sherman trees`.
#[derive(Debug, Args)]
#[command(after_help = TREES_HELP)]
pub struct TreesArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// The options of `sherman stats`.
#[derive(Debug, Args)]
#[command(after_help = STATS_HELP)]
pub struct StatsArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

const DROP_HELP: &str = "\
Frees the tree's memory and its name. Clients that still use the tree get an error. This cannot be
undone.

Without --yes the command asks for the tree's name on a terminal. Without a terminal it needs --yes.

Exit code: 0 if the tree was dropped; 1 if there is no such tree or you declined; 2 for invalid
usage; 3 if the operation failed.

Examples:
  sherman drop orders --cluster tcp://memory-1:7000,memory-2:7000
  sherman drop orders --yes --json";

const CLEAR_HELP: &str = "\
Removes every entry and keeps the tree. This cannot be undone. Entries that others insert meanwhile
may stay.

Without --yes the command asks for the tree's name on a terminal. Without a terminal it needs --yes.

Exit code: 0 if the tree was cleared; 1 if there is no such tree or you declined; 2 for invalid
usage; 3 if the operation failed.

Examples:
  sherman clear orders --cluster tcp://memory-1:7000,memory-2:7000
  sherman clear orders --yes --json";

/// The options of `sherman drop`.
#[derive(Debug, Args)]
#[command(after_help = DROP_HELP)]
pub struct DropArgs {
    /// The tree to drop.
    #[command(flatten)]
    pub of: WholeTreeArgs,
}

/// The options of `sherman clear`.
#[derive(Debug, Args)]
#[command(after_help = CLEAR_HELP)]
pub struct ClearArgs {
    /// The tree to clear.
    #[command(flatten)]
    pub of: WholeTreeArgs,
}

/// The tree that a command drops or clears.
#[derive(Debug, Args)]
pub struct WholeTreeArgs {
    /// Choose the tree by its name
    #[arg(value_name = "TREE")]
    pub tree: String,

    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Skip the confirmation
    #[arg(long)]
    pub yes: bool,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
