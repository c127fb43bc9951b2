//! The options of `sherman load` and `sherman dump`, and their help.

use super::args::{CreateArgs, TreeArgs};
use super::rows::{FileFormat, Header};
use crate::parse::fill;
use clap::Args;
use std::path::PathBuf;

const LOAD_HELP: &str = "\
CSV has two columns, the key and the value; fields may be quoted. NDJSON has one object on each line, with the fields \"key\" and
\"value\" and no others, as in {\"key\": 7, \"value\": 700}; every other shape, such as [7, 700], is refused.

The command inserts many entries at once; if a key comes twice, the later line wins. It reports the number of the first line that is
no entry. It reads a file through before it changes anything, so that a bad line changes nothing. Of stdin it has inserted the entries
before the bad line. At the first insert that fails, the command starts no more and reports how many entries were acknowledged.

With --bulk the tree must be empty and the keys strictly ascending, as \"sherman dump\" writes them. That is much faster, and all
or nothing: no client sees a part of it, and a failure changes nothing. If the command fails and the tree that it created is
still empty, it drops that tree.

Exit code: 0 if all entries were loaded, 1 if there is no such tree, 2 for invalid usage, 3 if the operation failed or a line is no
entry.

Examples:
  sherman load orders.csv --cluster tcp://memory-1:7000 --tree orders --create
  sherman load users.ndjson --tree users --create --key-type text --value-type text --value-size 100
  sherman dump --tree orders | sherman load - --cluster unix:/run/other.sock --tree orders --create --bulk";

const DUMP_HELP: &str = "\
Writes every entry in the order of the keys. A dump is not a snapshot: it may show changes that others make meanwhile, or not. It
never misses a key that exists throughout, and shows no key twice.

Exit code: 0 if all entries were written, 1 if there is no such tree, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman dump orders.csv --cluster tcp://memory-1:7000 --tree orders
  sherman dump --tree users --key-type text --format ndjson | gzip > users.ndjson.gz";

/// The options of `sherman load`.
#[derive(Debug, Args)]
#[command(after_help = LOAD_HELP)]
pub struct LoadArgs {
    /// Read entries from this file; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Read this format [default: by the file's name, else csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<FileFormat>,

    /// Treat the first line of CSV as the names of the columns [default: auto]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub header: Option<Header>,

    /// Load an empty tree from sorted entries, all or nothing
    #[arg(long)]
    pub bulk: bool,

    /// Fill nodes to so many percent in a bulk load, 50 to 100
    #[arg(long, value_name = "PCT", default_value = "80", value_parser = fill, requires = "bulk")]
    pub fill: u32,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,

    /// What the tree is to be like.
    #[command(flatten)]
    pub create: CreateArgs,
}

/// The options of `sherman dump`.
#[derive(Debug, Args)]
#[command(after_help = DUMP_HELP)]
pub struct DumpArgs {
    /// Write entries to this file, replacing it; - is stdout
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Write this format [default: by the file's name, else csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<FileFormat>,

    /// Omit the line that names the columns of CSV
    #[arg(long)]
    pub no_header: bool,

    /// Print the result as JSON, and nothing else, to stdout; the entries must go to a file then
    #[arg(long)]
    pub json: bool,
}
