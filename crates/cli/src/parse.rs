//! Parses numbers, sizes and names of the command line.

use sherman_eval::options::MAX_THREADS;
use sherman_sim::nic::Params;

/// Parses a number: digits, with `_` between them, and a suffix `k`, `M` or `G`.
fn count(text: &str) -> Result<u64, String> {
    let bad = || "write a whole number, as in 20000, 500k or 10M".to_owned();
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    if !digits.starts_with(|digit: char| digit.is_ascii_digit()) {
        return Err(bad());
    }
    let number: u64 = digits.replace('_', "").parse().map_err(|_| bad())?;
    number.checked_mul(unit).ok_or_else(bad)
}

/// Parses a parameter of the NIC model and its value.
pub fn parameter(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write a name and a number, as in units=8")?;
    let value = count(value)?;
    if Params::PAPER.clone().set(name, value) {
        return Ok((name.to_owned(), value));
    }
    let names = Params::FIELDS.map(|field| field.0).join(", ");
    Err(format!("the model has no parameter {name:?}; it has {names}"))
}

/// Parses a number that is not 0.
pub fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("there must be at least one".to_owned()),
        number => Ok(number),
    }
}

/// Parses a number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    let number = count(text).ok().and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| (1..=MAX_THREADS).contains(number))
        .ok_or_else(|| format!("write a number from 1 to {MAX_THREADS}"))
}

/// Parses a number of runs.
pub fn runs(text: &str) -> Result<usize, String> {
    let number = count(text).ok().and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| (1..=1000).contains(number))
        .ok_or_else(|| "write a number from 1 to 1000".to_owned())
}

/// Parses a number of bytes.
pub fn size(text: &str) -> Result<usize, String> {
    let bytes = sherman_layout::units::parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "write a size, as in 512, 1KiB or 64MiB".to_owned())
}

/// Parses a time in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0 && seconds.is_finite());
    number.ok_or_else(|| "write a number of seconds above 0, as in 0.5 or 30".to_owned())
}

/// Parses a time in seconds, which may be 0.
pub fn seconds_or_none(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&seconds: &f64| seconds >= 0.0 && seconds.is_finite());
    number.ok_or_else(|| "write a number of seconds from 0 on, as in 0.5 or 30".to_owned())
}

/// Parses a percentage.
pub fn percent(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|percent| (0..=100).contains(percent));
    number.ok_or_else(|| "write a whole number from 0 to 100".to_owned())
}

/// Parses a fill level of nodes, in percent.
pub fn fill(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|percent| (50..=100).contains(percent));
    number.ok_or_else(|| "write a whole number from 50 to 100".to_owned())
}

/// Parses a skew.
pub fn theta(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|theta| (0.0..1.0).contains(theta));
    number.ok_or_else(|| "write a number from 0 (uniform) to below 1, as in 0.99".to_owned())
}

/// Parses a member's id.
pub fn member(text: &str) -> Result<sherman::ComputeId, String> {
    let number = text.parse().ok().filter(|&number: &u16| number > 0);
    number
        .map(sherman::ComputeId)
        .ok_or_else(|| "write an id from 1 to 65535, as \"sherman members\" lists them".to_owned())
}

/// Parses the name of a node format.
pub fn format(name: &str) -> Result<sherman::Format, String> {
    let names = sherman::Format::ALL.map(sherman::Format::name).join(", ");
    sherman::Format::from_name(name).ok_or_else(|| format!("no format has this name; available are {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        for (text, number) in
            [("0", 0), ("20000", 20_000), ("10k", 10_000), ("1M", 1_000_000), ("1_000", 1000)]
        {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for bad in ["", "k", "-1", "1.5M", "1 M", "_1", "1Q", "é", "20000000000G", "+1"] {
            assert!(count(bad).is_err(), "{bad}");
        }
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert!(size("64Mi").is_err());
    }
}
