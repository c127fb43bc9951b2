//! The options of `sherman load` and `sherman dump`, and their help.

use super::args::{CreateArgs, TreeArgs};
use super::rows::{FileFormat, Header};
use crate::parse::fill;
use clap::Args;
use std::path::PathBuf;

const LOAD_HELP: &str = "\
CSV has two columns, the key and the value; fields may be quoted. NDJSON has an object with \"key\" and \"value\" on each line.
Entries are put one after the other, many of them under way at once; if a key comes twice, the later line wins. A line that is
no entry ends the load and is told with its number: the entries before it have been put.

With --bulk the tree must be empty and the keys strictly ascending, as \"sherman dump\" writes them. That is much faster, and all
or nothing: nobody sees a part of it, and after a failure nothing was changed.

Exit code: 0 if all was loaded, 2 if that cannot be asked, 3 if it went wrong.

Examples:
  sherman load orders.csv --cluster tcp://memory-1:7000 --tree orders --create
  sherman load users.ndjson --tree users --create --key-type text --value-type text --value-size 100
  sherman dump --tree orders | sherman load - --cluster unix:/run/other.sock --tree orders --create --bulk";

const DUMP_HELP: &str = "\
Writes every entry in the order of the keys. A dump is not a snapshot: what others change meanwhile may show or not, but a key
that is there throughout is never missed, and none comes twice.

Exit code: 0 if all was written, 2 if that cannot be asked, 3 if it went wrong.

Examples:
  sherman dump orders.csv --cluster tcp://memory-1:7000 --tree orders
  sherman dump --tree users --key-type text --format ndjson | gzip > users.ndjson.gz";

/// The options of `sherman load`.
#[derive(Debug, Args)]
#[command(after_help = LOAD_HELP)]
pub struct LoadArgs {
    /// The file; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// How entries are written [default: by the file's name, else csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<FileFormat>,

    /// Whether the first line of CSV names the columns [default: auto]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub header: Option<Header>,

    /// Load an empty tree from sorted entries, all or nothing
    #[arg(long)]
    pub bulk: bool,

    /// How full a bulk load makes nodes, 50 to 100 percent
    #[arg(long, value_name = "PCT", default_value = "80", value_parser = fill, requires = "bulk")]
    pub fill: u32,

    /// Write JSON
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
    /// The file, written anew; - is stdout
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,

    /// Where.
    #[command(flatten)]
    pub at: TreeArgs,

    /// How entries are written [default: by the file's name, else csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<FileFormat>,

    /// Write no line that names the columns of CSV
    #[arg(long)]
    pub no_header: bool,

    /// Tell the outcome as JSON; the entries must go to a file then
    #[arg(long)]
    pub json: bool,
}
