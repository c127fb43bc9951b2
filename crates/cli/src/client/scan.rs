//! `sherman scan`: prints the entries of a range of keys.

use super::open::{Opened, open};
use super::scan_args::ScanArgs;
use crate::failure::Failure;
use serde_json::json;
use sherman::Cluster;
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Bound;

/// Prints the entries to stdout.
pub fn run(args: &ScanArgs) -> Result<(), Failure> {
    let cluster = super::open(&args.at.url()?)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    scan(&cluster, args, &mut out).map(drop)
}

/// Writes the entries to `out` and returns their number.
fn scan(cluster: &Cluster, args: &ScanArgs, out: &mut dyn Write) -> Result<u64, Failure> {
    let opened = open(cluster, &args.at)?;
    let bound = |option: &str, text: &Option<String>| match text {
        Some(text) => {
            opened.key.parse_bound(text).map(Some).map_err(|reason| Failure::option(option, reason))
        }
        None => Ok(None),
    };
    let (from, to) = (bound("from", &args.from)?, bound("to", &args.to)?);
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        return Err(Failure::option("to", "it must not be below --from"));
    }
    let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    if let (Bound::Included(from), Bound::Excluded(to)) = (from, to)
        && from == to
    {
        return end(begin(out, &opened, args.json), out, 0, args.json);
    }
    let client = opened.tree.client()?;
    let mut range = match &args.prefix {
        Some(prefix) => {
            let prefix = opened.key.parse_prefix(prefix);
            client.prefix(prefix.map_err(|reason| Failure::option("prefix", reason))?)
        }
        None => client.range((from, to)),
    };
    if args.descending {
        range = range.descending();
    }
    if let Some(limit) = args.limit {
        range = range.limit(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    let mut written = begin(out, &opened, args.json);
    let mut entries = 0;
    while let (Ok(()), Some((key, value))) = (&written, range.advance()?) {
        written = line(out, &opened, key, value, args.json, entries == 0)?;
        entries += 1;
    }
    end(written, out, entries, args.json)
}

fn begin(out: &mut dyn Write, opened: &Opened, json: bool) -> std::io::Result<()> {
    if json { write!(out, "{{\"tree\": {}, \"entries\": [", json!(opened.name())) } else { Ok(()) }
}

/// Writes one entry. The inner result says whether the write succeeded.
fn line(
    out: &mut dyn Write,
    opened: &Opened,
    key: &[u8],
    value: &[u8],
    json: bool,
    first: bool,
) -> Result<std::io::Result<()>, Failure> {
    let key_failed = |reason| Failure::option("key-type", reason);
    let value_failed = |reason| Failure::option("value-type", reason);
    if json {
        let key = opened.key.json(key).map_err(key_failed)?;
        let value = opened.value.json(value).map_err(value_failed)?;
        let comma = if first { "\n" } else { ",\n" };
        return Ok(write!(out, "{comma}{}", json!({ "key": key, "value": value })));
    }
    let key = opened.key.show(key).map_err(key_failed)?;
    Ok(writeln!(out, "{key}\t{}", opened.value.show(value).map_err(value_failed)?))
}

/// Writes the end of the output. A reader that closed the pipe is not a failure.
fn end(written: std::io::Result<()>, out: &mut dyn Write, entries: u64, json: bool) -> Result<u64, Failure> {
    let ended = written
        .and_then(|()| if json { writeln!(out, "\n], \"count\": {entries}}}") } else { Ok(()) })
        .and_then(|()| out.flush());
    match ended {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cluster, parsed};
    use super::*;
    use serde_json::Value;

    fn scanned(cluster: &Cluster, line: &[&str]) -> Result<String, Failure> {
        let mut out = Vec::new();
        scan(cluster, &parsed(line), &mut out)?;
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    fn hundred() -> Cluster {
        let cluster = cluster();
        let client = cluster.tree::<u64, u64>("t").expect("a tree").client().expect("a client");
        for key in 0..100 {
            client.insert(key, key * 10).expect("an insert");
        }
        cluster
    }

    #[test]
    fn a_scan_is_the_range_that_was_asked_for() {
        let cluster = hundred();
        for (line, expected) in [
            (&["--from", "98"][..], "98\t980\n99\t990\n"),
            (&["--to", "2"], "0\t0\n1\t10\n"),
            (&["--from", "5", "--to", "7"], "5\t50\n6\t60\n"),
            (&["--descending", "--limit", "2"], "99\t990\n98\t980\n"),
            (&["--descending", "--from", "5", "--to", "7"], "6\t60\n5\t50\n"),
            (&["--from", "7", "--limit", "1"], "7\t70\n"),
            (&["--from", "5", "--to", "5"], ""),
            (&["--from", "100"], ""),
        ] {
            assert_eq!(scanned(&cluster, line).as_deref(), Ok(expected), "{line:?}");
        }
        assert_eq!(scanned(&cluster, &[]).expect("all").lines().count(), 100);
    }

    #[test]
    fn json_is_one_object_however_many_entries_there_are() {
        let cluster = hundred();
        for (line, count) in
            [(&["--limit", "3"][..], 3), (&["--from", "100"], 0), (&["--from", "1", "--to", "1"], 0)]
        {
            let said = scanned(&cluster, &[line, &["--json"]].concat()).expect("a scan");
            let json: Value = serde_json::from_str(&said).expect("JSON");
            assert_eq!((json["tree"].as_str(), json["count"].as_u64()), (Some("t"), Some(count)), "{line:?}");
            let entries = json["entries"].as_array().expect("entries");
            assert_eq!(entries.len() as u64, count);
            assert!(
                entries
                    .iter()
                    .all(|entry| entry["value"].as_u64() == entry["key"].as_u64().map(|key| key * 10))
            );
        }
    }

    #[test]
    fn hexadecimal_ends_may_be_beginnings_and_negative_numbers_sort_below() {
        let cluster = cluster();
        let client = cluster.tree::<[u8; 2], u8>("h").expect("a tree").client().expect("a client");
        for key in [[1, 0], [1, 9], [2, 0], [2, 1]] {
            client.insert(key, 0).expect("an insert");
        }
        assert_eq!(scanned(&cluster, &["--from", "01", "--to", "02"]).as_deref(), Ok("0100\t00\n0109\t00\n"));
        let client = cluster.tree::<i64, u64>("i").expect("a tree").client().expect("a client");
        for key in [5, -5, 0] {
            client.insert(key, 1).expect("an insert");
        }
        let signed = ["--tree", "i", "--key-type", "i64"];
        assert_eq!(scanned(&cluster, &signed).as_deref(), Ok("-5\t1\n0\t1\n5\t1\n"));
        let below = scanned(&cluster, &[&signed[..], &["--to", "-1"]].concat());
        assert_eq!(below.as_deref(), Ok("-5\t1\n"));
    }

    #[test]
    fn a_prefix_selects_the_keys_that_begin_with_it() {
        let cluster = cluster();
        let client =
            cluster.tree::<sherman::ShortBytes<7>, u8>("p").expect("a tree").client().expect("a client");
        for (key, value) in [("user", 1_u8), ("user:a", 2), ("user:b", 3), ("user;", 4), ("v", 5)] {
            client.insert(sherman::ShortBytes::new(key.as_bytes()).expect("it fits"), value).expect("room");
        }
        let text = ["--key-type", "text", "--value-type", "u8", "--prefix"];
        for (prefix, expected) in
            [("user:", "user:a\t2\nuser:b\t3\n"), ("v", "v\t5\n"), ("w", ""), ("user:a\u{1}", "")]
        {
            let found = scanned(&cluster, &[&text[..], &[prefix]].concat());
            assert_eq!(found.as_deref(), Ok(expected), "{prefix:?}");
        }
        let all = scanned(&cluster, &[&text[..], &["", "--descending", "--limit", "1"]].concat());
        assert_eq!(all.as_deref(), Ok("v\t5\n"));
        let hex = scanned(&cluster, &["--prefix", "76", "--value-type", "u8", "--key-type", "hex"]);
        assert_eq!(hex.as_deref(), Ok("7600000000000001\t5\n"));
        for (line, words) in [
            (&["--key-type", "text", "--prefix", "too long"][..], "--prefix: \"too long\""),
            (&["--key-type", "u64", "--prefix", "7"], "--prefix: keys of type u64 have no prefixes"),
        ] {
            let failure = scanned(&cluster, line).expect_err("refused");
            assert!(matches!(&failure, Failure::Usage(said) if said.starts_with(words)), "{failure}");
        }
    }

    #[test]
    fn a_range_that_cannot_be_is_refused() {
        let cluster = hundred();
        for (line, words) in [
            (&["--from", "9", "--to", "8"][..], "--to: it must not be below --from"),
            (&["--from", "x"], "--from: \"x\" is not a valid u64"),
            (&["--to", "-1"], "--to: \"-1\" is not a valid u64"),
            (&["--value-type", "text"], "--value-type: "),
        ] {
            let failure = scanned(&cluster, line).expect_err("refused");
            assert!(
                matches!(&failure, Failure::Usage(said) if said.starts_with(words)),
                "{line:?}: {failure}"
            );
        }
    }

    #[test]
    fn a_reader_that_goes_away_ends_the_scan_without_complaint() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(scan(&hundred(), &parsed(&[]), &mut Gone), Ok(1));
    }
}
