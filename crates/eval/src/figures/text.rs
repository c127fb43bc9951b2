//! Formats numbers for people, the same everywhere.

use crate::report::grouped;

/// Formats a number for tables: up to four significant digits, or more before the point.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "–".to_owned(),
        f64::INFINITY => "∞".to_owned(),
        f64::NEG_INFINITY => "−∞".to_owned(),
        _ if value.abs() < 1e4 => digits(value),
        _ if value.abs() < 1e15 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(libm::round(value.abs()) as u64))
        }
        _ => exponential(value),
    }
}

/// Formats a number for axes: with `k`, `M` or `G` if it is large.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() || size >= 1e13 => number(value),
        _ if size >= 1e9 => digits(value / 1e9) + "G",
        _ if size >= 1e6 => digits(value / 1e6) + "M",
        _ if size >= 1e4 => digits(value / 1e3) + "k",
        _ => digits(value),
    }
}

/// Formats a number with up to four significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 1000.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 10.0 => 2,
        _ if size >= 1.0 => 3,
        _ if size >= 0.1 => 4,
        _ if size >= 0.01 => 5,
        _ if size >= 0.001 => 6,
        _ if size >= 0.0001 => 7,
        _ if size == 0.0 => 0,
        _ => return exponential(value),
    };
    trimmed(format!("{value:.decimals$}"))
}

/// Formats a very small or very large number.
fn exponential(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => format!("{}e{exponent}", trimmed(mantissa.to_owned())),
        None => text,
    }
}

/// Removes trailing zeros of a decimal fraction, and the sign of a negative zero.
pub(super) fn trimmed(text: String) -> String {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a factor between two numbers, with two decimals. There is none, for example, between a gain and a
/// loss.
pub(super) fn factor(value: f64) -> String {
    match value {
        _ if value.is_nan() || value < 1.0 => "–".to_owned(),
        _ if value < 1000.0 => format!("×{value:.2}"),
        _ => format!("×{}", number(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.34, "0.34"),
            (23.6, "23.6"),
            (1.0, "1"),
            (528.0, "528"),
            (4096.0, "4096"),
            (19_890.0, "19,890"),
            (-1e9, "-1,000,000,000"),
            (1e300, "1e300"),
            (0.00001, "1e-5"),
            (0.0773654, "0.07737"),
            (0.9998, "0.9998"),
            (-1.5, "-1.5"),
            (0.004, "0.004"),
            (f64::NAN, "–"),
            (f64::NEG_INFINITY, "−∞"),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
        let axis = [10_000.0, 2_500_000.0, 1e9, 1e300, 0.5, 4096.0].map(short);
        assert_eq!(axis, ["10k", "2.5M", "1G", "1e300", "0.5", "4096"]);
    }

    #[test]
    fn a_factor_is_at_least_one() {
        assert_eq!([1.0, 2.456, 45_678.9].map(factor), ["×1.00", "×2.46", "×45,679"]);
        assert_eq!([-0.01, f64::NAN, f64::INFINITY].map(factor), ["–", "–", "×∞"]);
    }
}
