//! Numbers as people read them, the same everywhere.

/// A number with up to four significant digits, and with `k`, `M` or `G` where it is large.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_nan() {
            "–"
        } else if value > 0.0 {
            "∞"
        } else {
            "−∞"
        };
        return sign.to_owned();
    }
    let size = value.abs();
    match size {
        _ if size >= 1e9 => digits(value / 1e9) + "G",
        _ if size >= 1e6 => digits(value / 1e6) + "M",
        _ if size >= 1e4 => digits(value / 1e3) + "k",
        _ => digits(value),
    }
}

/// The number with up to four significant digits, without zeros at the end.
fn digits(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 1000.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 10.0 => 2,
        _ if size >= 1.0 => 3,
        _ if size >= 0.1 => 4,
        _ if size >= 0.0001 => 6,
        _ if size == 0.0 => 0,
        _ => return format!("{value:.2e}"),
    };
    trimmed(format!("{value:.decimals$}"))
}

/// A decimal fraction without zeros at its end, and no negative zero.
pub fn trimmed(text: String) -> String {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A factor between two numbers, with two decimals.
pub fn factor(value: f64) -> String {
    if value.is_finite() && value < 1000.0 { format!("×{value:.2}") } else { format!("×{}", number(value)) }
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
            (19_890.0, "19.89k"),
            (1e9, "1G"),
            (0.9998, "0.9998"),
            (-1.5, "-1.5"),
            (0.004, "0.004"),
            (f64::NAN, "–"),
            (f64::NEG_INFINITY, "−∞"),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
    }
}
