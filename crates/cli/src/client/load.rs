//! `sherman load`: loads the entries of a file into a tree.
//!
//! The command reads and inserts entries in batches, each with many operations in flight. One batch at a time
//! is in memory. Changes to a key happen in the order of the lines: equal keys of a batch follow each other,
//! and batches follow each other.
//!
//! The command reads a file twice. The first pass finds a line that is not an entry, before anything changes.
//! Stdin can be read only once.
//!
//! Neighbouring keys share a leaf and its lock. In file order, the operations in flight of a sorted batch
//! would all wait for each other. The command therefore inserts a sorted batch in an order that spreads these
//! operations over the batch.

use super::file_args::LoadArgs;
use super::open::{Opened, open_or_create, undo};
use super::rows::{BadRow, FileFormat, Header, Row, Rows};
use crate::failure::Failure;
use crate::output::print;
use crate::progress::FileBar;
use serde_json::json;
use sherman::{BulkOptions, Cluster, Error, RawClient};
use sherman_eval::report::grouped;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

/// Entries of a batch. The first few thousand entries of a sorted batch share few leaves, so a batch must be
/// much larger.
const BATCH: usize = 32_768;
/// A batch is full after this many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// The number of entries between two progress updates of a bulk load.
const STEP: u64 = 4096;
/// The number of stretches of a sorted batch that are inserted in parallel: one per operation in flight. A
/// stretch is a run of neighbouring entries.
const STRETCHES: usize = 64;
/// How long inserts in flight may still wait after the first one failed.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many times inserts with an unknown outcome are repeated. The outcome is unknown if the client had to
/// rejoin the cluster.
const REPEATS: u32 = 8;
/// From this many sorted entries on, the command prints a hint about bulk loads.
const MANY: u64 = 10_000;

/// The counts of a load.
#[derive(Debug, PartialEq, Eq)]
struct Loaded {
    entries: u64,
    /// Entries whose key existed before.
    replaced: u64,
}

/// Loads the file and prints the counts.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let url = args.at.url()?;
    let is_stdin = args.file.as_os_str() == "-";
    let failed =
        |error: std::io::Error| Failure::Usage(format!("FILE: cannot open {}: {error}", args.file.display()));
    let buffered = |file| -> Box<dyn BufRead> { Box::new(BufReader::with_capacity(1 << 16, file)) };
    let (input, preview, length): (Box<dyn BufRead>, _, _) = if is_stdin {
        (Box::new(std::io::stdin().lock()), None, None)
    } else {
        let file = File::open(&args.file).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if about.is_dir() {
            return Err(Failure::Usage(format!("FILE: {} is a directory", args.file.display())));
        }
        // Only a regular file can be read twice; a pipe cannot.
        let preview = about.is_file().then(|| File::open(&args.file)).transpose().map_err(failed)?;
        (buffered(file), preview.map(buffered), about.is_file().then_some(about.len()))
    };
    let began = Instant::now();
    let bar = FileBar::new(length);
    let cluster = args.timeout.open(&url)?;
    let loaded = load(&cluster, args, input, preview, &|bytes, entries| bar.show(bytes, entries));
    bar.clear();
    let (Loaded { entries, replaced }, hint) = loaded?;
    if hint {
        eprintln!("hint: the keys are sorted and the tree was empty: --bulk loads them faster");
    }
    let seconds = began.elapsed().as_secs_f64();
    print(&if args.json {
        format!(
            "{}\n",
            json!({ "entries": entries, "replaced": replaced, "bulk": args.bulk, "seconds": seconds })
        )
    } else {
        let (entries, replaced) = (grouped(entries), grouped(replaced));
        format!("{entries} entries loaded in {seconds:.2} s; {replaced} of them replaced an older entry\n")
    })
}

/// Loads from `input`. If the file can be read twice, `preview` is read first to check all of it. `progress`
/// gets the bytes read and the entries loaded. Also returns whether a bulk load would have been faster.
fn load<R: BufRead>(
    cluster: &Cluster,
    args: &LoadArgs,
    input: R,
    preview: Option<R>,
    progress: &dyn Fn(u64, u64),
) -> Result<(Loaded, bool), Failure> {
    let format = FileFormat::of(args.format, &args.file);
    if args.header.is_some() && format == FileFormat::Ndjson {
        return Err(Failure::option("header", "NDJSON has no header"));
    }
    let opened = open_or_create(cluster, &args.at, &args.create)?;
    let rows = |input| Rows::new(input, format, args.header.unwrap_or(Header::Auto), &opened);
    let loaded = match (args.bulk, preview) {
        (true, _) => bulk(&opened, args, rows(input), progress).map(|loaded| (loaded, false)),
        (false, None) => one_by_one(&opened, rows(input), progress),
        (false, Some(preview)) => {
            expect_entries(rows(preview)).and_then(|()| one_by_one(&opened, rows(input), progress))
        }
    };
    loaded.map_err(|failure| undo(cluster, &opened, failure))
}

/// Refuses a file with a line that is not an entry.
fn expect_entries<R: BufRead>(mut rows: Rows<R>) -> Result<(), Failure> {
    match rows.find_map(Result::err) {
        Some(bad) => Err(Failure::Runtime(format!("{bad}; nothing has been loaded"))),
        None => Ok(()),
    }
}

fn one_by_one<R: BufRead>(
    opened: &Opened,
    mut rows: Rows<R>,
    progress: &dyn Fn(u64, u64),
) -> Result<(Loaded, bool), Failure> {
    let client = opened.tree.client()?;
    let (mut sorted, mut highest) = (client.is_empty()?, Vec::new());
    let mut loaded = Loaded { entries: 0, replaced: 0 };
    loop {
        let (batch, bad) = next_batch(&mut rows);
        let order = order(&batch);
        sorted &= order == Some(Ordering::Less)
            && batch.first().is_none_or(|row| loaded.entries == 0 || row.key > highest);
        insert(&client, &spread(&batch, order), &mut loaded)?;
        progress(rows.bytes(), loaded.entries);
        if let Some(bad) = bad {
            let before = grouped(loaded.entries);
            return Err(Failure::Runtime(format!("{bad}; the {before} entries before it have been loaded")));
        }
        match batch.into_iter().next_back() {
            None => {
                let hint = sorted && loaded.entries >= MANY;
                return Ok((loaded, hint));
            }
            Some(last) => highest = last.key,
        }
    }
}

/// Returns how each key of a batch compares with the next, if that is the same for all and no two keys are
/// equal. A batch of one is ascending.
fn order(batch: &[Row]) -> Option<Ordering> {
    let is = |wanted| batch.windows(2).all(|pair| pair[0].key.cmp(&pair[1].key) == wanted);
    [Ordering::Less, Ordering::Greater].into_iter().find(|&wanted| is(wanted))
}

/// Returns a batch in the order of its inserts. A sorted batch takes one entry of each stretch in turn. Any
/// other batch keeps its order, because only such a batch can hold equal keys, whose order matters.
fn spread(batch: &[Row], order: Option<Ordering>) -> Vec<&Row> {
    if order.is_none() {
        return batch.iter().collect();
    }
    let length = batch.len().div_ceil(STRETCHES).max(1);
    let nth_of_all = |nth: usize| batch.chunks(length).filter_map(move |stretch| stretch.get(nth));
    (0..length).flat_map(nth_of_all).collect()
}

/// Returns the next entries, and the bad line after them if there is one. The batch is empty at the end of
/// the file.
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

/// Inserts until the first failure, and reports it with the number of acknowledged entries. If the outcome of
/// an insert is unknown, the insert is repeated. That is safe because inserting the same entry twice has the
/// same effect as once. The count of replaced entries may then be one too high for each such insert. Inserts
/// that were cut short ([`PATIENCE`]) because of such an outcome are repeated too.
fn insert(client: &RawClient, batch: &[&Row], loaded: &mut Loaded) -> Result<(), Failure> {
    let is_unknown = |(_, error): &(u64, Error)| matches!(error, Error::OutcomeUnknown { .. });
    let was_cut_short = |(_, error): &(u64, Error)| match error {
        Error::NotRejoined { waited, .. } | Error::Timeout { waited, .. } => *waited < client.timeout(),
        _ => false,
    };
    let mut left = batch.to_vec();
    for _ in 0..REPEATS {
        let (failures, open) = insert_once(client, &left, loaded);
        let repeats = failures.iter().any(is_unknown)
            && failures.iter().all(|failure| is_unknown(failure) || was_cut_short(failure));
        if !repeats {
            return report(failures, loaded);
        }
        left = open;
    }
    let (failures, _) = insert_once(client, &left, loaded);
    report(failures, loaded)
}

/// Inserts until the first failure. Returns the entries that failed, and all entries not known to be loaded,
/// in the order of the batch.
fn insert_once<'r>(
    client: &RawClient,
    batch: &[&'r Row],
    loaded: &mut Loaded,
) -> (Vec<(u64, Error)>, Vec<&'r Row>) {
    let entries: Vec<(&[u8], &[u8])> = batch.iter().map(|row| (&row.key[..], &row.value[..])).collect();
    let (mut failures, mut open) = (Vec::new(), Vec::new());
    for (row, outcome) in batch.iter().zip(client.insert_until_failure(&entries, PATIENCE)) {
        match outcome {
            Some(Ok(old)) => {
                loaded.entries += 1;
                loaded.replaced += u64::from(old.is_some());
                continue;
            }
            Some(Err(error)) => failures.push((row.line, error)),
            None => {}
        }
        open.push(*row);
    }
    (failures, open)
}

/// Returns the failure of a load, if there was one.
fn report(failures: Vec<(u64, Error)>, loaded: &Loaded) -> Result<(), Failure> {
    let more = grouped((failures.len() as u64).saturating_sub(1));
    // Inserts that were cut short waited less than the first failed insert.
    let waited =
        |error: &Error| if let Error::Timeout { waited, .. } = error { *waited } else { Duration::MAX };
    let Some((line, error)) = failures.into_iter().max_by_key(|(_, error)| waited(error)) else {
        return Ok(());
    };
    let done = grouped(loaded.entries);
    Err(Failure::Runtime(format!(
        "line {line}: {error}; {done} entries have been loaded, and {more} other inserts in flight failed"
    )))
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
            if read.is_multiple_of(STEP) {
                progress(rows.bytes(), read);
            }
            Some((row.key, row.value))
        }
        Err(found) => {
            *bad.borrow_mut() = Some(found);
            // No tree has keys of zero bytes, so the tree refuses this entry and the whole load. Returning
            // `None` here would complete the load.
            Some((Vec::new(), Vec::new()))
        }
    });
    let options =
        BulkOptions::new().fill(f64::from(args.fill) / 100.0).threads(sherman_eval::options::cores());
    let loaded = opened.tree.bulk_load(entries, &options);
    if let Some(bad) = bad.into_inner() {
        return Err(Failure::Runtime(format!("{bad}; nothing has been loaded")));
    }
    match loaded {
        Ok(entries) => Ok(Loaded { entries, replaced: 0 }),
        Err(Error::Unsorted { .. }) => {
            let line = line.get();
            let reason =
                "a bulk load needs strictly ascending keys, but this key is not above the key before it";
            Err(Failure::Runtime(format!("line {line}: {reason}; nothing has been loaded")))
        }
        Err(Error::NotEmpty) => Err(Failure::option(
            "bulk",
            "the tree is not empty. Load without --bulk, or load into another tree",
        )),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cluster, parsed};
    use super::*;
    use serde_json::json;

    fn loaded(cluster: &Cluster, line: &[&str], text: &str) -> Result<(u64, u64), Failure> {
        let args = parsed(&[&["-", "--tree", "t", "--create"], line].concat());
        load(cluster, &args, text.as_bytes(), None, &|_, _| ())
            .map(|(loaded, _)| (loaded.entries, loaded.replaced))
    }

    #[test]
    fn values_of_any_length_are_loaded_and_a_bulk_load_of_them_is_refused() {
        let cluster = cluster();
        let long = "größer, \"".repeat(3000);
        let rows: String = (0..50_u64)
            .map(|key| {
                format!("{}\n", json!({ "key": key, "value": if key % 2 == 0 { &long } else { "x" } }))
            })
            .collect();
        let any = ["--any-length", "--format", "ndjson"];
        assert_eq!(loaded(&cluster, &any, &rows), Ok((50, 0)));
        assert_eq!(loaded(&cluster, &any, &rows), Ok((50, 50)));
        let tree = cluster.open_tree::<u64, String>("t").expect("the tree").client().expect("a client");
        assert_eq!(tree.get(48).expect("a get"), Some(long));
        assert_eq!((tree.get(49).expect("a get"), tree.len()), (Some("x".to_owned()), Ok(50)));
        let sized = loaded(&cluster, &["--value-size", "8"], "1,2\n").expect_err("of any length");
        assert!(sized.to_string().contains("any length"), "{sized}");
        tree.clear().expect("a clearing");
        let bulk = loaded(&cluster, &["--any-length", "--bulk"], "1,2\n").expect_err("no bulk load");
        assert!(bulk.to_string().contains("insert the entries"), "{bulk}");
    }

    /// Returns no entries if a failed load left no tree.
    fn entries(cluster: &Cluster) -> Vec<(u64, u64)> {
        let client = match cluster.open_tree::<u64, u64>("t") {
            Err(Error::NoSuchTree { .. }) => return Vec::new(),
            tree => tree.expect("a tree").client().expect("a client"),
        };
        client.range(..).collect::<Result<_, _>>().expect("a range")
    }

    fn csv(keys: impl Iterator<Item = u64>) -> String {
        keys.fold("key,value\n".to_owned(), |text, key| text + &format!("{key},{}\n", key * 10))
    }

    #[test]
    fn everything_in_a_file_is_put_whatever_its_order_and_length() {
        for keys in [0, 1, BATCH as u64, BATCH as u64 + 1, 80_000] {
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

    fn batch(keys: impl IntoIterator<Item = u64>) -> Vec<Row> {
        let row = |(at, key): (usize, u64)| Row {
            line: at as u64,
            key: key.to_be_bytes().to_vec(),
            value: Vec::new(),
        };
        keys.into_iter().enumerate().map(row).collect()
    }

    #[test]
    fn a_sorted_batch_is_spread_and_any_other_stays_in_order() {
        let lines =
            |batch: &[Row]| spread(batch, order(batch)).iter().map(|row| row.line).collect::<Vec<_>>();
        for length in [0, 1, 2, 63, 64, 65, 1_000, 32_768] {
            for sorted in [batch(0..length), batch((0..length).rev())] {
                let mut found = lines(&sorted);
                assert!(length < 200 || found[1] > found[0] + 10, "{length}: neighbours are apart");
                found.sort_unstable();
                assert_eq!(found, (0..length).collect::<Vec<_>>(), "every entry once");
            }
        }
        for keys in [vec![1, 1], vec![1, 2, 2, 3], vec![3, 2, 2], vec![1, 3, 2], vec![2, 1, 3]] {
            let batch = batch(keys);
            assert_eq!(
                (order(&batch), lines(&batch)),
                (None, (0..batch.len() as u64).collect()),
                "as they come"
            );
        }
    }

    #[test]
    fn a_bad_line_of_a_file_changes_nothing() {
        let (cluster, args) = (cluster(), parsed(&["-", "--tree", "t", "--create"]));
        let text = "key,value\n1,10\n2,20\n3\n4,40\n";
        let failure =
            load(&cluster, &args, text.as_bytes(), Some(text.as_bytes()), &|_, _| ()).expect_err("line 4");
        assert!(failure.to_string().ends_with("not a key and a value; nothing has been loaded"), "{failure}");
        assert!(cluster.trees().expect("trees").is_empty(), "the tree goes, too");
    }

    #[test]
    fn a_bad_line_ends_the_load_behind_those_before_it() {
        let cluster = cluster();
        let failure = loaded(&cluster, &[], "key,value\n1,10\n2,20\n3\n4,40\n").expect_err("line 4");
        let Failure::Runtime(said) = failure else { panic!("{failure}") };
        assert_eq!(
            said,
            "line 4: it has 1 fields, not a key and a value; the 2 entries before it have been loaded"
        );
        assert_eq!(entries(&cluster), [(1, 10), (2, 20)]);
    }

    #[test]
    fn a_full_cluster_fails_with_the_line_and_the_number_of_loaded_entries() {
        let cluster = Cluster::open("embedded:?memory=12MiB&chunk=1MiB").expect("a cluster");
        let line = ["--value-size", "150", "--value-type", "hex"];
        let text: String = (0..60_000).map(|key| format!("{key},{}\n", "ab".repeat(150))).collect();
        let said = loaded(&cluster, &line, &text).expect_err("full").to_string();
        assert!(said.contains("line ") && said.contains("no memory server has a free chunk"), "{said}");
        let done =
            cluster.open_raw_tree("t").expect("a tree").client().expect("a client").len().expect("a count");
        assert!(said.contains(&format!("; {} entries have been loaded", grouped(done))), "{said}: {done}");
    }

    #[test]
    fn a_bulk_load_is_all_or_nothing() {
        let cluster = cluster();
        for (text, words) in [
            ("1,10\n3,30\n2,20\n", "line 3: a bulk load needs strictly ascending keys"),
            ("1,10\n1,20\n", "line 2: a bulk load needs strictly ascending keys"),
            ("1,10\n2,20\nx,30\n", "line 3: key: \"x\" is not a valid u64; nothing has been loaded"),
        ] {
            let said = loaded(&cluster, &["--bulk"], text).expect_err(text).to_string();
            assert!(said.contains(words) && said.ends_with("nothing has been loaded"), "{said}");
            assert_eq!(entries(&cluster), []);
        }
        // The bad line comes late enough that the load has already written leaves.
        let long = csv(0..20_000) + "bad\n";
        assert!(loaded(&cluster, &["--bulk"], &long).expect_err("bad").to_string().contains("line 20002: "));
        assert_eq!(entries(&cluster), []);
        assert_eq!(loaded(&cluster, &["--bulk", "--fill", "100"], &csv(0..20_000)), Ok((20_000, 0)));
        assert_eq!(entries(&cluster).len(), 20_000);
        let again = loaded(&cluster, &["--bulk"], &csv(0..5)).expect_err("not empty");
        assert!(
            matches!(&again, Failure::Usage(said) if said.contains("--bulk: the tree is not empty")),
            "{again}"
        );
    }

    #[test]
    fn ndjson_has_no_header() {
        let cluster = cluster();
        let line = ["--format", "ndjson"];
        assert_eq!(loaded(&cluster, &line, "{\"key\": 1, \"value\": 2}\n"), Ok((1, 0)));
        let refused = loaded(&cluster, &[&line[..], &["--header", "yes"]].concat(), "").expect_err("refused");
        assert!(refused.to_string().contains("--header: NDJSON has no header"), "{refused}");
    }

    #[test]
    fn progress_ends_at_all_bytes_and_entries() {
        let last = Cell::new((0, 0));
        let text = csv(0..5_000);
        let args = parsed(&["-", "--tree", "t", "--create"]);
        load(&cluster(), &args, text.as_bytes(), None, &|bytes, entries| last.set((bytes, entries)))
            .expect("a load");
        assert_eq!(last.get(), (text.len() as u64, 5_000));
    }
}
