//! The options of `sherman scan`, and their help.

use super::args::TreeArgs;
use crate::parse::positive;
use clap::Args;

const SCAN_HELP: &str = "\
Writes a line for each entry, key and value with a tab between them, in the order of the keys. Of keys in hexadecimal, --from
and --to may be the beginning of a key. A scan is not a snapshot: what others change meanwhile may show or not, but a key that
is there throughout is never missed, and none comes twice.

Exit code: 0, also if there are none; 2 if that cannot be asked, 3 if it went wrong.

Examples:
  sherman scan --cluster tcp://memory-1:7000 --tree orders --limit 10
  sherman scan --tree orders --from 100 --to 200 --json
  sherman scan --tree orders --descending --limit 1
  sherman scan --tree users --key-type text --from a --to b";

/// The options of `sherman scan`.
#[derive(Debug, Args)]
#[command(after_help = SCAN_HELP)]
pub struct ScanArgs {
    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// The lowest key
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<String>,

    /// The lowest key that does not belong to it any more
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<String>,

    /// So many entries at most
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<u64>,

    /// From the highest key to the lowest
    #[arg(long)]
    pub descending: bool,

    /// Write JSON: one object with all entries
    #[arg(long)]
    pub json: bool,
}
