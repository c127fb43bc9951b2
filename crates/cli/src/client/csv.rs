//! Records of comma-separated values (RFC 4180). A field may be quoted. A quote inside a quoted field is
//! doubled. A quoted field may span several lines. Nothing is trimmed. Lines end in `\n` or `\r\n`.

/// Returns whether a record is complete: it does not end inside quotes.
pub fn is_complete(record: &[u8]) -> bool {
    record.iter().filter(|&&byte| byte == b'"').count().is_multiple_of(2)
}

/// Returns the fields of a record without its line end.
pub fn fields(record: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = record;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => plain(rest)?,
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => return Err("a field continues after its closing quote".to_owned()),
        }
    }
}

/// Returns a field without quotes, and the text after it.
fn plain(rest: &str) -> Result<(String, &str), String> {
    let (field, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
    if field.contains('"') {
        return Err("there is a quote inside a field that does not begin with a quote".to_owned());
    }
    Ok((field.to_owned(), after))
}

/// Returns a field, given the text after its opening quote, and the text after its closing quote.
fn unquote(quoted: &str) -> Result<(String, &str), String> {
    let mut field = String::new();
    let mut rest = quoted;
    loop {
        let (text, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        field.push_str(text);
        match after.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Ok((field, after)),
        }
    }
}

/// Formats a field, in quotes if it needs them.
pub fn quoted(field: &str) -> String {
    let special = |letter: char| matches!(letter, ',' | '"' | '\n' | '\r' | '\u{feff}');
    let spaced = field.starts_with(' ') || field.ends_with(' ');
    if spaced || field.contains(special) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_fall_into_fields() {
        for (record, expected) in [
            ("7,700", &["7", "700"][..]),
            ("7", &["7"]),
            ("", &[""]),
            (",", &["", ""]),
            ("a,b,c", &["a", "b", "c"]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"say \"\"hi\"\"\",\"two\nlines\"", &["say \"hi\"", "two\nlines"]),
            ("\"\",x", &["", "x"]),
            (" a , b ", &[" a ", " b "]),
        ] {
            assert_eq!(fields(record).expect("fields"), expected, "{record:?}");
        }
        for (record, words) in [
            ("a\"b,c", "inside a field"),
            ("\"a", "not closed"),
            ("\"a\"b,c", "after its closing quote"),
            ("\"a\"\",b", "not closed"),
        ] {
            assert!(fields(record).expect_err(record).contains(words), "{record:?}");
        }
    }

    #[test]
    fn what_is_quoted_is_unquoted() {
        for field in ["", "plain", "a,b", "say \"hi\"", "two\nlines", "\r", " spaced", "\u{feff}mark", "ü"] {
            let record = format!("{},{}", quoted(field), quoted(field));
            assert!(is_complete(record.as_bytes()));
            assert_eq!(fields(&record).expect("fields"), [field, field], "{record:?}");
        }
        assert_eq!(quoted("plain"), "plain");
        assert!(!is_complete(b"\"two"));
    }
}
