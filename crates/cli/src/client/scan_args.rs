//! The options of `sherman scan`, and their help.

use super::args::TreeArgs;
use crate::parse::positive;
use clap::Args;

const SCAN_HELP: &str = "\
Prints one line per entry, in the order of the keys: the key, a tab, the value. If keys are
hexadecimal, --from and --to may be the beginning of a key. --prefix prints all keys with a common
beginning, if keys are text or hexadecimal.

A scan is not a snapshot: it may or may not show changes that others make meanwhile. It never misses
a key that exists throughout, and never shows a key twice.

Exit code: 0 on success, also if there are no entries; 1 if there is no such tree; 2 for invalid
usage; 3 if the operation failed.

Examples:
  sherman scan --cluster tcp://memory-1:7000 --tree orders --limit 10
  sherman scan --tree orders --from 100 --to 200 --json
  sherman scan --tree orders --descending --limit 1
  sherman scan --tree users --key-type text --from a --to b
  sherman scan --tree users --key-type text --prefix user:";

/// The options of `sherman scan`.
#[derive(Debug, Args)]
#[command(after_help = SCAN_HELP)]
pub struct ScanArgs {
    /// The tree to scan.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Start at this key [default: the lowest]
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<String>,

    /// Stop before this key [default: after the highest]
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<String>,

    /// Print only keys that begin with this text, or with these hexadecimal digits
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,

    /// Print at most this many entries [default: all]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<u64>,

    /// Print entries from the highest key to the lowest
    #[arg(long)]
    pub descending: bool,

    /// Print the result as JSON, and nothing else, to stdout: one object with all entries
    #[arg(long)]
    pub json: bool,
}
