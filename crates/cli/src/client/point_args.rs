//! The options of `sherman get`, `put` and `del`, and their help.

use super::args::{CreateArgs, TreeArgs};
use clap::Args;

const GET_HELP: &str = "\
Exit code: 0 if the key exists; 1 if the key or the tree does not exist; 2 for invalid usage; 3 if
the operation failed.

Examples:
  sherman get 7 --cluster tcp://memory-1:7000 --tree orders
  sherman get ada --tree users --key-type text --value-type hex
  if sherman get 7 --tree orders > value; then ...; fi";

const PUT_HELP: &str = "\
Prints whether the key is new, or which value was replaced. With --if-absent an existing key keeps
its value.

Exit code: 0 if the value was put; 1 if --if-absent found the key or there is no such tree; 2 for
invalid usage; 3 if the operation failed.

Examples:
  sherman put 7 700 --cluster tcp://memory-1:7000 --tree orders
  sherman put ada 1815 --tree users --create --key-type text --key-size 40
  sherman put --tree users -- -x 700      (a key that begins with - needs --, unless it is a number)";

const DEL_HELP: &str = "\
Exit code: 0 if the key was removed; 1 if the key or the tree does not exist; 2 for invalid usage; 3
if the operation failed.

Examples:
  sherman del 7 --cluster tcp://memory-1:7000 --tree orders
  sherman del ada --tree users --key-type text --json";

/// The options of `sherman get`.
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
pub struct GetArgs {
    /// Look up this key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub key: String,

    /// The tree to read.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// The options of `sherman put`.
#[derive(Debug, Args)]
#[command(after_help = PUT_HELP)]
pub struct PutArgs {
    /// Put the value under this key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub key: String,

    /// Put this value
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub value: String,

    /// The tree to change.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Change nothing if the key exists
    #[arg(long)]
    pub if_absent: bool,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,

    /// The shape of the tree, if the command creates it.
    #[command(flatten)]
    pub create: CreateArgs,
}

/// The options of `sherman del`.
#[derive(Debug, Args)]
#[command(after_help = DEL_HELP)]
pub struct DelArgs {
    /// Remove this key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub key: String,

    /// The tree to change.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
