//! The options of `sherman get`, `put` and `del`, and their help.

use super::args::{CreateArgs, TreeArgs};
use clap::Args;

const GET_HELP: &str = "\
Exit code: 0 if the key exists, 1 if the key or the tree does not, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman get 7 --cluster tcp://memory-1:7000 --tree orders
  sherman get ada --tree users --key-type text --value-type hex
  if sherman get 7 --tree orders > value; then ...; fi";

const PUT_HELP: &str = "\
Says whether the key is new, or which value it replaced. With --if-absent a key that exists stays as it is.

Exit code: 0 if the value was put, 1 if --if-absent found the key or there is no such tree, 2 for invalid usage, 3 if the operation
failed.

Examples:
  sherman put 7 700 --cluster tcp://memory-1:7000 --tree orders
  sherman put ada 1815 --tree users --create --key-type text --key-size 40
  sherman put -- -7 700      (negative numbers of i64 keys need no --, other words that begin with - do)";

const DEL_HELP: &str = "\
Exit code: 0 if the key was removed, 1 if the key or the tree does not exist, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman del 7 --cluster tcp://memory-1:7000 --tree orders
  sherman del ada --tree users --key-type text --json";

/// The options of `sherman get`.
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
pub struct GetArgs {
    /// Look this key up
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub key: String,

    /// Where.
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

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Change nothing if the key exists
    #[arg(long)]
    pub if_absent: bool,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,

    /// What the tree is to be like.
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

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
