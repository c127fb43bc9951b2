//! `sherman dump`: writes the entries of a tree to a file.

use super::file_args::DumpArgs;
use super::open::{Opened, open};
use super::rows::{FileFormat, write};
use crate::failure::Failure;
use crate::output::print;
use crate::progress::FileBar;
use serde_json::json;
use sherman_eval::report::grouped;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::time::Instant;

/// The number of leaves read at once.
const PREFETCH: usize = 32;
/// The number of entries between two updates of the bar.
const STEP: u64 = 1024;

/// Dumps the tree. Prints a summary unless the entries go to stdout.
pub fn run(args: &DumpArgs) -> Result<(), Failure> {
    let is_stdout = args.file.as_os_str() == "-";
    if is_stdout && args.json {
        return Err(Failure::option("json", "the entries go to stdout. Name a FILE, or use --format ndjson"));
    }
    let format = FileFormat::of(args.format, &args.file);
    if args.no_header && format == FileFormat::Ndjson {
        return Err(Failure::option("no-header", "NDJSON has no header"));
    }
    let began = Instant::now();
    let cluster = args.timeout.open(&args.at.url()?)?;
    // Open the tree before the file: a wrong tree name must not empty the file.
    let opened = open(&cluster, &args.at)?;
    let (stdout, file);
    let out: &mut dyn Write = if is_stdout {
        stdout = std::io::stdout();
        &mut BufWriter::with_capacity(1 << 16, stdout.lock())
    } else {
        file = File::create(&args.file).map_err(|error| {
            Failure::Usage(format!("FILE: cannot create {}: {error}", args.file.display()))
        })?;
        &mut BufWriter::with_capacity(1 << 16, &file)
    };
    let bar =
        if is_stdout && std::io::stdout().is_terminal() { FileBar::hidden() } else { FileBar::new(None) };
    let entries = dump(&opened, format, !args.no_header, out, &|bytes, entries| bar.show(bytes, entries));
    bar.clear();
    let (entries, seconds) = (entries?, began.elapsed().as_secs_f64());
    match (is_stdout, args.json) {
        (true, _) => Ok(()),
        (false, true) => print(&format!("{}\n", json!({ "entries": entries, "seconds": seconds }))),
        (false, false) => print(&format!("{} entries written in {seconds:.2} s\n", grouped(entries))),
    }
}

/// Writes every entry to `out` and returns their number. If the reader closes the pipe, the dump ends without
/// an error.
fn dump(
    opened: &Opened,
    format: FileFormat,
    header: bool,
    out: &mut dyn Write,
    progress: &dyn Fn(u64, u64),
) -> Result<u64, Failure> {
    let client = opened.tree.client()?;
    let mut range = client.range(..).prefetch(PREFETCH);
    let (mut entries, mut bytes) = (0, 0);
    let mut written =
        if header && format == FileFormat::Csv { out.write_all(b"key,value\n") } else { Ok(()) };
    while written.is_ok()
        && let Some(entry) = range.advance()?
    {
        let line = write(entry, format, opened).map_err(|reason| {
            Failure::Usage(format!("entry {}: {reason} (see --key-type and --value-type)", entries + 1))
        })?;
        written = out.write_all(line.as_bytes());
        (entries, bytes) = (entries + 1, bytes + line.len() as u64);
        if entries % STEP == 0 {
            progress(bytes, entries);
        }
    }
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("cannot write the entries: {error}")))
        }
        _ => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::TreeArgs;
    use super::super::testing::{cluster, parsed};
    use super::*;
    use sherman::{Cluster, ShortBytes};

    fn dumped(cluster: &Cluster, line: &[&str], format: FileFormat, header: bool) -> Result<String, Failure> {
        let opened = open(cluster, &parsed::<TreeArgs>(line))?;
        let mut out = Vec::new();
        let entries = dump(&opened, format, header, &mut out, &|_, _| ())?;
        let text = String::from_utf8(out).expect("UTF-8");
        let lines = text.lines().count() as u64;
        assert!(lines >= entries, "a line each, at least");
        Ok(text)
    }

    #[test]
    fn a_dump_has_every_entry_in_order() {
        let cluster = cluster();
        let client = cluster.tree::<u64, i32>("t").expect("a tree").client().expect("a client");
        for key in (0..5_000_u64).rev() {
            client.insert(key, -(key as i32)).expect("an insert");
        }
        let signed = ["--value-type", "i32"];
        let csv = dumped(&cluster, &signed, FileFormat::Csv, true).expect("a dump");
        let expected =
            (0..5_000).fold("key,value\n".to_owned(), |text, key| text + &format!("{key},{}\n", -key));
        assert_eq!(csv, expected);
        let plain = dumped(&cluster, &signed, FileFormat::Csv, false).expect("a dump");
        assert_eq!(plain, expected["key,value\n".len()..]);
        let ndjson = dumped(&cluster, &signed, FileFormat::Ndjson, true).expect("a dump");
        assert!(
            ndjson.starts_with("{\"key\":0,\"value\":0}\n{\"key\":1,\"value\":-1}\n"),
            "{}",
            &ndjson[..100]
        );
        assert_eq!(ndjson.lines().count(), 5_000);
    }

    #[test]
    fn values_of_any_length_are_dumped_as_text_or_hex() {
        let cluster = cluster();
        let client = cluster.tree::<u64, Vec<u8>>("t").expect("a tree").client().expect("a client");
        let long = "ab".repeat(50_000);
        client.insert_many(&[(1, ""), (2, "ada"), (3, long.as_str())]).expect("inserts");
        let csv = dumped(&cluster, &[], FileFormat::Csv, false).expect("a dump");
        assert_eq!(csv, format!("1,\"\"\n2,ada\n3,{long}\n").replace("\"\"", ""));
        let hex = dumped(&cluster, &["--value-type", "hex"], FileFormat::Csv, false).expect("a dump");
        assert_eq!(hex, format!("1,\n2,616461\n3,{}\n", "6162".repeat(50_000)));
    }

    #[test]
    fn bytes_that_are_not_text_are_refused() {
        let cluster = cluster();
        let client = cluster.tree::<ShortBytes<7>, u64>("t").expect("a tree").client().expect("a client");
        client.insert(ShortBytes::new(b"say \"a,").expect("it fits"), 1).expect("an insert");
        let text = ["--key-type", "text"];
        let csv = dumped(&cluster, &text, FileFormat::Csv, false).expect("a dump");
        assert_eq!(csv, "\"say \"\"a,\",1\n");
        client.insert(ShortBytes::new(b"\xff").expect("it fits"), 2).expect("an insert");
        let failure = dumped(&cluster, &text, FileFormat::Csv, false).expect_err("not UTF-8");
        assert!(failure.to_string().contains("entry 2: ff00000000000001 is not text"), "{failure}");
    }
}
