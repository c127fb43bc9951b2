//! `sherman load`: entries of a file into a tree.
//!
//! Entries are read and put in batches, each with many operations under way; a batch is all that is in memory. The order of
//! lines is the order of changes to a key: equal keys of a batch follow each other, and so do batches.

use super::file_args::LoadArgs;
use super::open::{Opened, open_or_create};
use super::rows::{BadRow, FileFormat, Header, Row, Rows};
use crate::failure::Failure;
use crate::output::print;
use crate::progress::FileBar;
use serde_json::json;
use sherman::{BulkOptions, Cluster, Error, RawClient};
use sherman_eval::report::grouped;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Instant;

/// Entries of a batch.
const BATCH: usize = 4096;
/// Bytes after which a batch is full.
const BATCH_BYTES: usize = 1 << 20;

/// What was loaded.
#[derive(Debug, PartialEq, Eq)]
struct Loaded {
    entries: u64,
    /// Those whose key was there.
    replaced: u64,
}

/// Loads, and says what was loaded.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let is_stdin = args.file.as_os_str() == "-";
    let failed = |error: std::io::Error| Failure::Usage(format!("FILE: {}: {error}", args.file.display()));
    let (input, length): (Box<dyn BufRead>, _) = if is_stdin {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let file = File::open(&args.file).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if about.is_dir() {
            return Err(Failure::Usage(format!("FILE: {} is a directory", args.file.display())));
        }
        (Box::new(BufReader::with_capacity(1 << 16, file)), about.is_file().then_some(about.len()))
    };
    let began = Instant::now();
    let bar = FileBar::new(length);
    let loaded = super::open(args.at.url())
        .and_then(|cluster| load(&cluster, args, input, &|bytes, entries| bar.show(bytes, entries)));
    bar.clear();
    let Loaded { entries, replaced } = loaded?;
    let seconds = began.elapsed().as_secs_f64();
    print(&if args.json {
        format!("{}\n", json!({ "entries": entries, "replaced": replaced, "bulk": args.bulk, "seconds": seconds }))
    } else {
        let (entries, replaced) = (grouped(entries), grouped(replaced));
        format!("{entries} entries loaded in {seconds:.2} s, {replaced} of them in the place of others\n")
    })
}

/// Loads from `input`. `progress` learns of bytes read and entries loaded.
fn load(
    cluster: &Cluster,
    args: &LoadArgs,
    input: impl BufRead,
    progress: &dyn Fn(u64, u64),
) -> Result<Loaded, Failure> {
    let format = FileFormat::of(args.format, &args.file);
    if args.header.is_some() && format == FileFormat::Ndjson {
        return Err(Failure::option("header", "NDJSON has none"));
    }
    let opened = open_or_create(cluster, &args.at, &args.create)?;
    let rows = Rows::new(input, format, args.header.unwrap_or(Header::Auto), &opened);
    match args.bulk {
        true => bulk(&opened, args, rows, progress),
        false => one_by_one(&opened, rows, progress),
    }
}

fn one_by_one<R: BufRead>(opened: &Opened, mut rows: Rows<R>, progress: &dyn Fn(u64, u64)) -> Result<Loaded, Failure> {
    let client = opened.tree.client()?;
    let mut loaded = Loaded { entries: 0, replaced: 0 };
    loop {
        let (batch, bad) = next_batch(&mut rows);
        insert(&client, &batch, &mut loaded)?;
        progress(rows.bytes(), loaded.entries);
        if let Some(bad) = bad {
            let before = grouped(loaded.entries);
            return Err(Failure::Runtime(format!("{bad}; the {before} entries before it have been loaded")));
        }
        if batch.is_empty() {
            return Ok(loaded);
        }
    }
}

/// The next entries, and the line behind them if it is none. None at the end.
fn next_batch<R: BufRead>(rows: &mut Rows<R>) -> (Vec<Row>, Option<BadRow>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < BATCH && bytes < BATCH_BYTES {
        match rows.next() {
            Some(Ok(row)) => {
                bytes += row.key.len() + row.value.len();
                batch.push(row);
            }
            Some(Err(bad)) => return (batch, Some(bad)),
            None => break,
        }
    }
    (batch, None)
}

fn insert(client: &RawClient, batch: &[Row], loaded: &mut Loaded) -> Result<(), Failure> {
    let entries: Vec<(&[u8], &[u8])> = batch.iter().map(|row| (&row.key[..], &row.value[..])).collect();
    let mut first: Option<(u64, Error)> = None;
    let mut failed = 0_u64;
    for (row, outcome) in batch.iter().zip(client.insert_many(&entries)) {
        match outcome {
            Ok(old) => {
                loaded.entries += 1;
                loaded.replaced += u64::from(old.is_some());
            }
            Err(error) => {
                failed += 1;
                first.get_or_insert((row.line, error));
            }
        }
    }
    let Some((line, error)) = first else { return Ok(()) };
    let (done, more) = (grouped(loaded.entries), grouped(failed - 1));
    Err(Failure::Runtime(format!("line {line}: {error}; {done} entries have been loaded, {more} more failed likewise")))
}

fn bulk<R: BufRead>(
    opened: &Opened,
    args: &LoadArgs,
    rows: Rows<R>,
    progress: &dyn Fn(u64, u64),
) -> Result<Loaded, Failure> {
    let (line, bad) = (Cell::new(0), RefCell::new(None));
    let (mut rows, mut read) = (rows, 0_u64);
    let entries = std::iter::from_fn(|| match rows.next()? {
        Ok(row) => {
            line.set(row.line);
            read += 1;
            if read.is_multiple_of(BATCH as u64) {
                progress(rows.bytes(), read);
            }
            Some((row.key, row.value))
        }
        Err(found) => {
            *bad.borrow_mut() = Some(found);
            // No tree has keys of no bytes: it is refused, and with it the whole load. Ending here would complete it.
            Some((Vec::new(), Vec::new()))
        }
    });
    let options = BulkOptions::new().fill(f64::from(args.fill) / 100.0).threads(sherman_eval::options::cores());
    let loaded = opened.tree.bulk_load(entries, &options);
    if let Some(bad) = bad.into_inner() {
        return Err(Failure::Runtime(format!("{bad}; nothing has been loaded")));
    }
    match loaded {
        Ok(entries) => Ok(Loaded { entries, replaced: 0 }),
        Err(Error::Unsorted { .. }) => {
            let line = line.get();
            let reason = "a bulk load needs strictly ascending keys, and this one is not above the one before";
            Err(Failure::Runtime(format!("line {line}: {reason}; nothing has been loaded")))
        }
        Err(Error::NotEmpty) => Err(Failure::option("bulk", "the tree is not empty; load without it, or another tree")),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cluster, parsed};
    use super::*;

    fn loaded(cluster: &Cluster, line: &[&str], text: &str) -> Result<(u64, u64), Failure> {
        let args = parsed(&[&["-", "--tree", "t", "--create"], line].concat());
        load(cluster, &args, text.as_bytes(), &|_, _| ()).map(|loaded| (loaded.entries, loaded.replaced))
    }

    fn entries(cluster: &Cluster) -> Vec<(u64, u64)> {
        let client = cluster.open_tree::<u64, u64>("t").expect("a tree").client().expect("a client");
        client.range(..).collect::<Result<_, _>>().expect("a range")
    }

    fn csv(keys: impl Iterator<Item = u64>) -> String {
        keys.fold("key,value\n".to_owned(), |text, key| text + &format!("{key},{}\n", key * 10))
    }

    #[test]
    fn everything_in_a_file_is_put_whatever_its_order_and_length() {
        for keys in [0, 1, 4096, 4097, 10_000] {
            let cluster = cluster();
            let text = csv((0..keys).rev());
            assert_eq!(loaded(&cluster, &[], &text), Ok((keys, 0)));
            assert_eq!(entries(&cluster), (0..keys).map(|key| (key, key * 10)).collect::<Vec<_>>());
            assert_eq!(loaded(&cluster, &[], &text), Ok((keys, keys)), "again");
        }
    }

    #[test]
    fn the_later_line_of_a_key_wins() {
        let cluster = cluster();
        let text: String = (0..9_000).map(|line| format!("{},{line}\n", line % 3)).collect();
        assert_eq!(loaded(&cluster, &["--header", "no"], &text), Ok((9_000, 8_997)));
        assert_eq!(entries(&cluster), [(0, 8_997), (1, 8_998), (2, 8_999)]);
    }

    #[test]
    fn a_bad_line_ends_the_load_behind_those_before_it() {
        let cluster = cluster();
        let failure = loaded(&cluster, &[], "key,value\n1,10\n2,20\n3\n4,40\n").expect_err("line 4");
        let Failure::Runtime(said) = failure else { panic!("{failure}") };
        assert_eq!(said, "line 4: it has 1 fields, not a key and a value; the 2 entries before it have been loaded");
        assert_eq!(entries(&cluster), [(1, 10), (2, 20)]);
    }

    #[test]
    fn a_full_cluster_is_told_with_the_line_and_what_has_been_loaded() {
        let cluster = Cluster::open("embedded:?memory=12MiB&chunk=1MiB").expect("a cluster");
        let line = ["--value-size", "150", "--value-type", "hex"];
        let text: String = (0..60_000).map(|key| format!("{key},{}\n", "ab".repeat(150))).collect();
        let said = loaded(&cluster, &line, &text).expect_err("full").to_string();
        assert!(said.contains("line ") && said.contains("no memory server has a free chunk"), "{said}");
        let done = cluster.open_raw_tree("t").expect("a tree").client().expect("a client").len().expect("a count");
        assert!(said.contains(&format!("; {} entries have been loaded", grouped(done))), "{said}: {done}");
    }

    #[test]
    fn a_bulk_load_is_all_or_nothing() {
        let cluster = cluster();
        for (text, words) in [
            ("1,10\n3,30\n2,20\n", "line 3: a bulk load needs strictly ascending keys"),
            ("1,10\n1,20\n", "line 2: a bulk load needs strictly ascending keys"),
            ("1,10\n2,20\nx,30\n", "line 3: key: \"x\" is no u64; nothing has been loaded"),
        ] {
            let said = loaded(&cluster, &["--bulk"], text).expect_err(text).to_string();
            assert!(said.contains(words) && said.ends_with("nothing has been loaded"), "{said}");
            assert_eq!(entries(&cluster), []);
        }
        // Far enough that leaves have been written before it is noticed.
        let long = csv(0..20_000) + "bad\n";
        assert!(loaded(&cluster, &["--bulk"], &long).expect_err("bad").to_string().contains("line 20002: "));
        assert_eq!(entries(&cluster), []);
        assert_eq!(loaded(&cluster, &["--bulk", "--fill", "100"], &csv(0..20_000)), Ok((20_000, 0)));
        assert_eq!(entries(&cluster).len(), 20_000);
        let again = loaded(&cluster, &["--bulk"], &csv(0..5)).expect_err("not empty");
        assert!(matches!(&again, Failure::Usage(said) if said.contains("--bulk: the tree is not empty")), "{again}");
    }

    #[test]
    fn ndjson_has_no_header() {
        let cluster = cluster();
        let line = ["--format", "ndjson"];
        assert_eq!(loaded(&cluster, &line, "{\"key\": 1, \"value\": 2}\n"), Ok((1, 0)));
        let refused = loaded(&cluster, &[&line[..], &["--header", "yes"]].concat(), "").expect_err("refused");
        assert!(refused.to_string().contains("--header: NDJSON has none"), "{refused}");
    }

    #[test]
    fn progress_ends_at_all_bytes_and_entries() {
        let last = Cell::new((0, 0));
        let text = csv(0..5_000);
        let args = parsed(&["-", "--tree", "t", "--create"]);
        load(&cluster(), &args, text.as_bytes(), &|bytes, entries| last.set((bytes, entries))).expect("a load");
        assert_eq!(last.get(), (text.len() as u64, 5_000));
    }
}
