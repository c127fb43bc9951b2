//! The options of `sherman get`, `put` and `del`, and their help.

use super::args::{CreateArgs, TreeArgs};
use clap::Args;

const GET_HELP: &str = "\
Exit code: 0 if the key is there, 1 if it is not, 2 if that cannot be asked, 3 if it went wrong.

Examples:
  sherman get 7 --cluster tcp://memory-1:7000 --tree orders
  sherman get ada --tree users --key-type text --value-type hex
  if sherman get 7 --tree orders > value; then ...; fi";

const PUT_HELP: &str = "\
Says whether the key is new, or which value was replaced. With --if-absent the exit code is 1, and nothing is changed, if the
key is there.

Exit code: 0 if it was put, 1 if the key is there and --if-absent was asked, 2 if that cannot be asked, 3 if it went wrong.

Examples:
  sherman put 7 700 --cluster tcp://memory-1:7000 --tree orders
  sherman put ada 1815 --tree users --create --key-type text --key-size 40
  sherman put -- -7 700      (negative numbers of i64 keys need no --, other words that begin with - do)";

const DEL_HELP: &str = "\
Exit code: 0 if the key was there, 1 if it was not, 2 if that cannot be asked, 3 if it went wrong.

Examples:
  sherman del 7 --cluster tcp://memory-1:7000 --tree orders
  sherman del ada --tree users --key-type text --json";

/// The options of `sherman get`.
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
pub struct GetArgs {
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub key: String,

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `sherman put`.
#[derive(Debug, Args)]
#[command(after_help = PUT_HELP)]
pub struct PutArgs {
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub key: String,

    /// The value
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub value: String,

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Change nothing if the key is there
    #[arg(long)]
    pub if_absent: bool,

    /// Write JSON
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
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub key: String,

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}
