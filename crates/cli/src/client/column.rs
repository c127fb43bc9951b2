//! Converts keys and values between bytes and text.
//!
//! The command handles keys and values as byte strings, whatever the types of the tree. A [`Form`] is a text
//! representation of bytes. A [`Column`] is a form that fits the size in a tree.
//!
//! The bytes are the same as those of the library's codecs. Integers are big-endian with the sign bit
//! flipped. Text is [`ShortBytes`](sherman::ShortBytes). The order of the bytes is therefore the order of the
//! numbers and of the byte strings.

use serde_json::Value;
use sherman::ShortLayout;
use std::fmt::Write;
use std::str::FromStr;

/// The text representation of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An unsigned integer of this many bytes.
    Unsigned(usize),
    /// A signed integer of this many bytes.
    Signed(usize),
    /// Text of any length up to a limit.
    Text,
    /// Bytes as hexadecimal digits.
    Hex,
}

impl Form {
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        match self {
            Self::Unsigned(bytes) => format!("u{}", 8 * bytes),
            Self::Signed(bytes) => format!("i{}", 8 * bytes),
            Self::Text => "text".to_owned(),
            Self::Hex => "hex".to_owned(),
        }
    }

    /// Returns the default form for values of `bytes` bytes.
    pub fn of_size(bytes: usize) -> Self {
        if bytes == 8 { Self::Unsigned(8) } else { Self::Hex }
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let integers =
            [1, 2, 4, 8, 16].into_iter().flat_map(|bytes| [Self::Unsigned(bytes), Self::Signed(bytes)]);
        let mut all = integers.chain([Self::Text, Self::Hex]);
        all.find(|form| form.name() == name).ok_or_else(|| {
            "available are u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, text, hex".to_owned()
        })
    }
}

/// The keys or the values of a tree, and their text representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    form: Form,
    /// `None` if they have any length.
    bytes: Option<usize>,
}

impl Column {
    /// Makes a column of `bytes` bytes in `form`, or in the default form for that size. Returns the reason if
    /// the form does not fit.
    pub fn new(form: Option<Form>, bytes: usize) -> Result<Self, String> {
        let form = form.unwrap_or_else(|| Form::of_size(bytes));
        let name = form.name();
        match form {
            Form::Unsigned(own) | Form::Signed(own) if own != bytes => Err(format!(
                "{name} has {own} bytes, but the tree stores {bytes}. Use hex, which fits any size"
            )),
            Form::Text if ShortLayout::of_size(bytes).is_none() => Err(format!(
                "the {bytes} bytes that the tree stores cannot be text. Use hex, which fits any size"
            )),
            _ => Ok(Self { form, bytes: Some(bytes) }),
        }
    }

    /// Makes a column of values of any length in `form`, or as text.
    pub fn of_any_length(form: Option<Form>) -> Self {
        Self { form: form.unwrap_or(Form::Text), bytes: None }
    }

    /// Returns the bytes that `text` represents.
    pub fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        match self.form {
            Form::Unsigned(bytes) => {
                self.integer(text, text.parse().ok().and_then(|number| unsigned(number, bytes)))
            }
            Form::Signed(bytes) => {
                self.integer(text, text.parse().ok().and_then(|number| signed(number, bytes)))
            }
            Form::Text => self.text(text),
            Form::Hex => match (hex(text)?, self.bytes) {
                (other, Some(own)) if other.len() != own => {
                    Err(format!("{text:?} has {} bytes, but the tree stores {own}", other.len()))
                }
                (bytes, _) => Ok(bytes),
            },
        }
    }

    /// Parses a bound of a range. Unlike in `parse`, hexadecimal digits may be a prefix of a key.
    pub fn parse_bound(&self, text: &str) -> Result<Vec<u8>, String> {
        let mut digits = text.to_owned();
        if self.form == Form::Hex {
            // The prefix is padded with zeros. A key with this prefix is at or above the padded bound. Every
            // other key is on the same side of the prefix and of the padded bound.
            let missing = (2 * self.bytes.unwrap_or_default()).saturating_sub(text.len()) / 2;
            digits.extend(std::iter::repeat_n("00", missing));
        }
        self.parse(&digits)
    }

    /// Parses the beginning of keys.
    pub fn parse_prefix(&self, text: &str) -> Result<Vec<u8>, String> {
        match self.form {
            Form::Unsigned(_) | Form::Signed(_) => {
                Err(format!("keys of type {} have no prefixes. Use --from and --to", self.form.name()))
            }
            Form::Text => self.text(text).map(|_| text.as_bytes().to_vec()),
            Form::Hex => hex(text),
        }
    }

    fn integer(&self, text: &str, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, String> {
        bytes.ok_or_else(|| format!("{text:?} is not a valid {}", self.form.name()))
    }

    fn text(&self, text: &str) -> Result<Vec<u8>, String> {
        let Some(bytes) = self.bytes else { return Ok(text.as_bytes().to_vec()) };
        let layout = ShortLayout::of_size(bytes).ok_or("text does not fit this tree")?;
        layout.encode(text.as_bytes()).map_err(|error| format!("{text:?}: {error}"))
    }

    /// Returns `bytes` as text, or the reason if they are not valid text.
    pub fn show(&self, bytes: &[u8]) -> Result<String, String> {
        match self.form {
            Form::Unsigned(own) | Form::Signed(own) if own != bytes.len() => {
                Err(format!("{} has {} bytes. Use hex, which shows any bytes", digits(bytes), bytes.len()))
            }
            Form::Unsigned(_) => Ok(number(bytes).to_string()),
            Form::Signed(own) => Ok(signed_number(bytes, own).to_string()),
            Form::Text => {
                let layout = self.bytes.map(ShortLayout::of_size);
                let string = layout.map_or(Some(bytes), |layout| layout?.decode(bytes));
                let text = string.and_then(|string| std::str::from_utf8(string).ok());
                text.map(str::to_owned)
                    .ok_or_else(|| format!("{} is not text. Use hex, which shows any bytes", digits(bytes)))
            }
            Form::Hex => Ok(digits(bytes)),
        }
    }

    /// Returns `bytes` as JSON: integers of up to 64 bits as numbers, everything else as strings.
    pub fn json(&self, bytes: &[u8]) -> Result<Value, String> {
        match self.form {
            Form::Unsigned(own) | Form::Signed(own) if own != bytes.len() => {
                self.show(bytes).map(Value::from)
            }
            Form::Unsigned(1..=8) => Ok(Value::from(number(bytes) as u64)),
            Form::Signed(own @ 1..=8) => Ok(Value::from(signed_number(bytes, own) as i64)),
            _ => self.show(bytes).map(Value::from),
        }
    }

    /// Returns the bytes that `json` represents: a string, or a number for an integer form.
    pub fn parse_json(&self, json: &Value) -> Result<Vec<u8>, String> {
        match (json, self.form) {
            (Value::String(text), _) => self.parse(text),
            (Value::Number(number), Form::Unsigned(_) | Form::Signed(_)) if !number.is_f64() => {
                self.parse(&number.to_string())
            }
            (Value::Number(number), Form::Unsigned(_) | Form::Signed(_)) => {
                Err(format!("{number} is not a whole number of 64 bits. Write larger numbers as strings"))
            }
            _ => Err(format!("{json} is not a {}", if self.is_integer() { "number" } else { "string" })),
        }
    }

    fn is_integer(&self) -> bool {
        matches!(self.form, Form::Unsigned(_) | Form::Signed(_))
    }
}

fn unsigned(number: u128, bytes: usize) -> Option<Vec<u8>> {
    let all = number.to_be_bytes();
    let (above, own) = all.split_at(all.len() - bytes);
    above.iter().all(|&byte| byte == 0).then(|| own.to_vec())
}

/// Encodes like the library's codec. The sign bit is flipped, so that the order of the bytes is the order of
/// the numbers.
fn signed(number: i128, bytes: usize) -> Option<Vec<u8>> {
    let flipped = number.wrapping_add(lowest(bytes).wrapping_neg());
    let fits = number >= lowest(bytes) && number <= !lowest(bytes);
    fits.then_some(flipped as u128).and_then(|number| unsigned(number, bytes))
}

/// Returns the lowest signed integer of this many bytes.
fn lowest(bytes: usize) -> i128 {
    i128::MIN >> (128 - 8 * bytes)
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

fn signed_number(bytes: &[u8], own: usize) -> i128 {
    (number(bytes) as i128).wrapping_add(lowest(own))
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("{text:?} is not hexadecimal: write two digits for each byte");
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(bad());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad()))
        .collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn column(form: &str, bytes: usize) -> Column {
        Column::new(Some(form.parse().expect("a form")), bytes).expect("it fits")
    }

    fn encoded<T: sherman::Value>(value: T) -> Vec<u8> {
        let mut bytes = vec![0; T::LEN];
        value.encode(&mut bytes);
        bytes
    }

    #[test]
    fn bytes_are_those_of_the_library() {
        for number in [0, 7, u64::MAX] {
            assert_eq!(column("u64", 8).parse(&number.to_string()), Ok(encoded(number)));
        }
        for number in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(column("i64", 8).parse(&number.to_string()), Ok(encoded(number)));
        }
        assert_eq!(column("i16", 2).parse("-300"), Ok(encoded(-300_i16)));
        assert_eq!(column("u8", 1).parse("255"), Ok(encoded(255_u8)));
        for number in [i128::MIN, -1, i128::MAX] {
            assert_eq!(column("i128", 16).parse(&number.to_string()), Ok(encoded(number)));
        }
        let ada: sherman::ShortBytes<16> = "ada".parse().expect("it fits");
        assert_eq!(column("text", 17).parse("ada"), Ok(encoded(ada)));
        assert_eq!(column("hex", 3).parse("00fFa0"), Ok(vec![0, 255, 160]));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (form, bytes, texts) in [
            ("u64", 8, &["0", "18446744073709551615"][..]),
            ("i32", 4, &["-2147483648", "-1", "0", "2147483647"]),
            ("i128", 16, &["-170141183460469231731687303715884105728", "5"]),
            ("u128", 16, &["340282366920938463463374607431768211455"]),
            ("text", 9, &["", "ada", "größer", "a\nb,\"c"]),
            ("hex", 2, &["0000", "beef"]),
            ("hex", 0, &[""]),
        ] {
            let column = column(form, bytes);
            for text in texts {
                let bytes = column.parse(text).expect("bytes");
                assert_eq!(column.show(&bytes).as_deref(), Ok(*text), "{form}");
                let json = column.json(&bytes).expect("JSON");
                assert_eq!(column.parse_json(&json), Ok(bytes), "{form} {json}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_reason() {
        for (form, bytes, text, word) in [
            ("u64", 8, "-1", "not a valid u64"),
            ("u64", 8, "18446744073709551616", "not a valid u64"),
            ("u8", 1, "256", "not a valid u8"),
            ("i8", 1, "-129", "not a valid i8"),
            ("i8", 1, "128", "not a valid i8"),
            ("i64", 8, "1.5", "not a valid i64"),
            ("u64", 8, "", "not a valid u64"),
            ("text", 4, "four", "4 bytes do not fit into 3"),
            ("hex", 2, "abc", "two digits"),
            ("hex", 2, "zz00", "hexadecimal"),
            ("hex", 2, "é", "hexadecimal"),
            ("hex", 2, "ab", "1 bytes, but the tree stores 2"),
        ] {
            let reason = column(form, bytes).parse(text).expect_err(text);
            assert!(reason.contains(word), "{form} {text}: {reason}");
        }
        assert!(Column::new(Some(Form::Unsigned(8)), 4).expect_err("too short").contains("u64 has 8 bytes"));
        assert!(Column::new(Some(Form::Text), 0).expect_err("no room").contains("cannot be text"));
        for bad in [json!(1.5), json!(null), json!([1]), json!(true)] {
            assert!(column("u64", 8).parse_json(&bad).is_err(), "{bad}");
        }
        assert!(column("text", 9).parse_json(&json!(7)).is_err());
        assert!("u7".parse::<Form>().expect_err("no such").contains("u128"));
        assert!(column("text", 5).show(b"ab\0\0\x09").expect_err("no text").contains("6162000009"));
        assert!(column("text", 3).show(b"\xff\xff\x02").is_err(), "not UTF-8");
    }

    #[test]
    fn values_of_any_length_are_text_or_hex() {
        let long = "größer, ".repeat(1000);
        for (form, texts) in [(None, &["", "ada", &long][..]), (Some(Form::Hex), &["", "00ff", "abcdef"])] {
            let column = Column::of_any_length(form);
            for text in texts {
                let bytes = column.parse(text).expect("bytes");
                assert_eq!(column.show(&bytes).as_deref(), Ok(*text));
                assert_eq!(column.parse_json(&column.json(&bytes).expect("JSON")), Ok(bytes));
            }
        }
        let numbers = Column::of_any_length(Some(Form::Unsigned(8)));
        assert_eq!(numbers.parse("7").and_then(|bytes| numbers.show(&bytes)), Ok("7".to_owned()));
        assert!(numbers.show(b"seven").expect_err("five bytes").contains("Use hex"));
        assert!(Column::of_any_length(None).show(b"\xff").expect_err("no text").contains("Use hex"));
    }

    #[test]
    fn without_a_form_eight_bytes_are_a_number() {
        assert_eq!(Column::new(None, 8), Ok(column("u64", 8)));
        assert_eq!(Column::new(None, 4), Ok(column("hex", 4)));
    }

    #[test]
    fn an_end_of_a_range_may_be_the_beginning_of_a_key() {
        assert_eq!(column("hex", 3).parse_bound("ab"), Ok(vec![0xab, 0, 0]));
        assert_eq!(column("hex", 3).parse_bound(""), Ok(vec![0, 0, 0]));
        assert!(column("hex", 3).parse_bound("abc").is_err());
        assert!(column("hex", 3).parse_bound("aabbccdd").is_err());
        assert_eq!(column("u64", 8).parse_bound("7"), column("u64", 8).parse("7"));
    }
}
