//! Reads and writes the entries of files one by one, with line numbers, in bounded memory.

use super::column::Column;
use super::open::Opened;
use super::{csv, ndjson};
use clap::ValueEnum;
use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

/// The longest record, in bytes. A key and a value of the largest sizes fit several times.
const MAX_RECORD: usize = 1 << 20;

/// The format of entries in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// Comma-separated values: key,value
    Csv,
    /// One JSON object per line: {"key": 7, "value": 700}
    Ndjson,
}

impl FileFormat {
    /// Returns the requested format, or else the format that the file name implies.
    pub fn of(said: Option<Self>, path: &Path) -> Self {
        let named = path.extension().and_then(|extension| extension.to_str());
        said.unwrap_or(match named {
            Some("ndjson" | "jsonl") => Self::Ndjson,
            _ => Self::Csv,
        })
    }
}

/// Whether the first record of a CSV file names the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Header {
    /// Yes, if it is key,value
    Auto,
    /// Yes, always
    Yes,
    /// No, it is an entry
    No,
}

/// An entry.
pub struct Row {
    /// The line it begins on, from 1.
    pub line: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// A line that cannot be read, or is not an entry.
#[derive(Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// The entries of a file, up to its end or the first bad line.
pub struct Rows<R> {
    input: R,
    format: FileFormat,
    header: Header,
    key: Column,
    value: Column,
    /// Lines read.
    lines: u64,
    /// Bytes read.
    bytes: u64,
    record: Vec<u8>,
    over: bool,
}

impl<R: BufRead> Rows<R> {
    /// Reads the entries in `input` for a tree.
    pub fn new(input: R, format: FileFormat, header: Header, tree: &Opened) -> Self {
        let (key, value) = (tree.key, tree.value);
        Self { input, format, header, key, value, lines: 0, bytes: 0, record: Vec::new(), over: false }
    }

    /// Returns the number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads a record that is not empty. Returns the line where it begins, or `None` at the end.
    fn read_record(&mut self) -> Result<Option<u64>, BadRow> {
        loop {
            self.record.clear();
            let first = self.lines + 1;
            let bad = |reason: String| BadRow { line: first, reason };
            loop {
                let room = MAX_RECORD - self.record.len();
                let limit = (room + 1) as u64;
                let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.record);
                let read = read.map_err(|error| bad(format!("cannot read the input: {error}")))?;
                self.bytes += read as u64;
                if read > room {
                    return Err(bad(format!(
                        "the record has more than {MAX_RECORD} bytes; is a quote not closed?"
                    )));
                }
                self.lines += u64::from(read > 0);
                if read == 0 || self.format == FileFormat::Ndjson || csv::is_complete(&self.record) {
                    break;
                }
            }
            if self.record.is_empty() {
                return Ok(None);
            }
            if first == 1 && self.record.starts_with(b"\xef\xbb\xbf") {
                self.record.drain(..3);
            }
            let end = self.record.strip_suffix(b"\n").map_or(self.record.len(), |record| record.len());
            let end = self.record[..end].strip_suffix(b"\r").map_or(end, |record| record.len());
            self.record.truncate(end);
            if !self.record.trim_ascii().is_empty() {
                return Ok(Some(first));
            }
        }
    }

    fn read(&mut self) -> Result<Option<Row>, BadRow> {
        while let Some(line) = self.read_record()? {
            let bad = |reason: String| BadRow { line, reason };
            let record = std::str::from_utf8(&self.record).map_err(|_| bad("it is not UTF-8".to_owned()))?;
            let (key, value) = match self.format {
                FileFormat::Ndjson => ndjson::parse(record, &self.key, &self.value).map_err(bad)?,
                FileFormat::Csv => {
                    let fields = csv::fields(record).map_err(bad)?;
                    let header = std::mem::replace(&mut self.header, Header::No);
                    if header == Header::Yes || header == Header::Auto && is_header(&fields) {
                        continue;
                    }
                    let [key, value] = &fields[..] else {
                        return Err(bad(format!("it has {} fields, not a key and a value", fields.len())));
                    };
                    let key = self.key.parse(key).map_err(|reason| bad(format!("key: {reason}")))?;
                    (key, self.value.parse(value).map_err(|reason| bad(format!("value: {reason}")))?)
                }
            };
            return Ok(Some(Row { line, key, value }));
        }
        Ok(None)
    }
}

fn is_header(fields: &[String]) -> bool {
    matches!(fields, [key, value] if key.eq_ignore_ascii_case("key") && value.eq_ignore_ascii_case("value"))
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = Result<Row, BadRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let row = self.read().transpose();
        self.over = !matches!(row, Some(Ok(_)));
        row
    }
}

/// Formats an entry as a line, with the line end.
pub fn write(entry: (&[u8], &[u8]), format: FileFormat, tree: &Opened) -> Result<String, String> {
    match format {
        FileFormat::Ndjson => Ok(ndjson::line(entry, &tree.key, &tree.value)? + "\n"),
        FileFormat::Csv => {
            let (key, value) = (tree.key.show(entry.0)?, tree.value.show(entry.1)?);
            Ok(format!("{},{}\n", csv::quoted(&key), csv::quoted(&value)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::column::Form;
    use super::*;

    /// Returns the lines, keys and values of a file whose keys and values are numbers.
    fn read(text: &[u8], format: FileFormat, header: Header) -> Result<Vec<(u64, String, String)>, BadRow> {
        read_as(text, format, header, Form::Unsigned(8), 8)
    }

    fn read_as(
        text: &[u8],
        format: FileFormat,
        header: Header,
        form: Form,
        bytes: usize,
    ) -> Result<Vec<(u64, String, String)>, BadRow> {
        let column = Column::new(Some(form), bytes).expect("a column");
        let (lines, bytes, record) = (0, 0, Vec::new());
        let rows = Rows {
            input: text,
            format,
            header,
            key: column,
            value: column,
            lines,
            bytes,
            record,
            over: false,
        };
        let show = |bytes: &[u8]| column.show(bytes).expect("text");
        rows.map(|row| row.map(|row| (row.line, show(&row.key), show(&row.value)))).collect()
    }

    fn row(line: u64, key: &str, value: &str) -> (u64, String, String) {
        (line, key.to_owned(), value.to_owned())
    }

    #[test]
    fn csv_is_read_with_and_without_a_header() {
        let csv = |text: &str, header| read(text.as_bytes(), FileFormat::Csv, header);
        let both = Ok(vec![row(2, "1", "10"), row(3, "2", "20")]);
        for text in
            ["key,value\n1,10\n2,20\n", "KEY,Value\r\n1,10\r\n2,20", "\u{feff}key,value\n1,10\n\"2\",20\n"]
        {
            assert_eq!(csv(text, Header::Auto), both, "{text:?}");
            assert_eq!(csv(text, Header::Yes), both, "{text:?}");
            assert!(
                csv(text, Header::No).expect_err("no number").reason.contains("not a valid u64"),
                "{text:?}"
            );
        }
        assert_eq!(
            csv("1,10\n\n2,20\n", Header::Auto),
            Ok(vec![row(1, "1", "10"), row(3, "2", "20")]),
            "blank lines"
        );
        assert_eq!(csv("1,10\n2,20\n", Header::Yes), Ok(vec![row(2, "2", "20")]), "whatever the first is");
        for nothing in ["", "\n\n", "key,value\n", "\u{feff}"] {
            assert_eq!(csv(nothing, Header::Auto), Ok(Vec::new()), "{nothing:?}");
        }
    }

    #[test]
    fn a_header_is_looked_for_once() {
        let text = b"key,value\nkey,value\n";
        let rows = read_as(text, FileFormat::Csv, Header::Auto, Form::Text, 17);
        assert_eq!(rows, Ok(vec![row(2, "key", "value")]));
    }

    #[test]
    fn quoted_fields_go_on_over_lines_and_lines_are_still_counted() {
        let text = "\"two\nlines\",a\n\"\",\"b\"\"\"\nbad\n";
        let rows = read_as(text.as_bytes(), FileFormat::Csv, Header::No, Form::Text, 17);
        assert_eq!(
            rows,
            Err(BadRow { line: 4, reason: "it has 1 fields, not a key and a value".to_owned() })
        );
        let rows = read_as(&text.as_bytes()[..text.len() - 4], FileFormat::Csv, Header::No, Form::Text, 17);
        assert_eq!(rows, Ok(vec![row(1, "two\nlines", "a"), row(3, "", "b\"")]));
    }

    #[test]
    fn ndjson_is_read_line_by_line() {
        let ndjson = |text: &str| read(text.as_bytes(), FileFormat::Ndjson, Header::Auto);
        let text = "{\"key\": 1, \"value\": 10}\n\n{\"value\":\"20\",\"key\":\"2\"}";
        assert_eq!(ndjson(text), Ok(vec![row(1, "1", "10"), row(3, "2", "20")]));
        for (bad, words) in [
            ("{\"key\": 1}", "missing field `value`"),
            ("{\"key\": 1, \"value\": 2, \"color\": 3}", "unknown field `color`"),
            ("{\"key\": 1, \"value\": 2.5}", "value: 2.5"),
            ("{\"key\": -1, \"value\": 2}", "key: \"-1\" is not a valid u64"),
            ("[1, 2]", "not a JSON object"),
            ("[1, 2]x", "not a JSON object"),
            ("7", "not a JSON object"),
            ("null", "not a JSON object"),
            ("\"key\"", "not a JSON object"),
            ("{\"key\": [1], \"value\": 2}", "key: [1]"),
            ("{\"key\": 1, \"value\": {\"key\": 2}}", "value: "),
            ("{\"key\": 1, \"key\": 2, \"value\": 3}", "duplicate field"),
            ("{\"key\": 1, \"value\": 2} {\"key\": 3, \"value\": 4}", "trailing characters"),
            ("{\"key\": 1,", "column 10: EOF"),
        ] {
            let text = format!("{{\"key\":1,\"value\":1}}\n{bad}\n");
            let bad_row = ndjson(&text).expect_err(bad);
            assert!(bad_row.line == 2 && bad_row.reason.contains(words), "{bad_row}");
            assert!(!bad_row.reason.contains('\n'));
        }
    }

    #[test]
    fn a_line_that_is_not_an_entry_is_refused_with_its_number() {
        for (text, line, words) in [
            (&b"1,2\n3\n"[..], 2, "1 fields"),
            (b"1,2\n3,4,5\n", 2, "3 fields"),
            (b"1,2\n\n\nx,4\n", 4, "key: \"x\" is not a valid u64"),
            (b"1,2\n3,-4", 2, "value: \"-4\" is not a valid u64"),
            (b"1,2\n\"3,4\n", 2, "not closed"),
            (b"\xff,1\n", 1, "not UTF-8"),
        ] {
            let bad = read(text, FileFormat::Csv, Header::Auto).expect_err("bad");
            assert!(bad.line == line && bad.reason.contains(words), "{bad}");
        }
    }

    #[test]
    fn a_record_without_an_end_is_given_up_before_it_fills_the_memory() {
        let endless = std::io::BufReader::new(std::io::repeat(b'1'));
        let column = Column::new(None, 8).expect("a column");
        let (format, header, record) = (FileFormat::Csv, Header::Auto, Vec::new());
        let (key, value) = (column, column);
        let mut rows =
            Rows { input: endless, format, header, key, value, lines: 0, bytes: 0, record, over: false };
        let bad = rows.next().expect("something").err().expect("no entry");
        assert!(bad.line == 1 && bad.reason.contains("more than"), "{bad}");
        assert!(rows.next().is_none() && rows.bytes() <= MAX_RECORD as u64 + 1);
    }

    #[test]
    fn the_format_is_known_by_the_name_of_the_file() {
        let of = |said, name| FileFormat::of(said, Path::new(name));
        assert_eq!(of(None, "a.ndjson"), FileFormat::Ndjson);
        assert_eq!(of(None, "a.jsonl"), FileFormat::Ndjson);
        assert_eq!(
            (of(None, "a.csv"), of(None, "-"), of(None, "a")),
            (FileFormat::Csv, FileFormat::Csv, FileFormat::Csv)
        );
        assert_eq!(of(Some(FileFormat::Csv), "a.ndjson"), FileFormat::Csv);
    }
}
