//! Numbers with units, as options, configuration files and cluster URLs have them.

use std::time::Duration;

/// Parses a number of bytes: plain, or with one of `B KB MB GB TB KiB MiB GiB TiB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let unit = |unit: &str| {
        let units =
            ["B", "KB", "MB", "GB", "TB"].iter().zip(0..).map(|(name, power)| (*name, 1000_u64.pow(power)));
        let binary = ["", "KiB", "MiB", "GiB", "TiB"]
            .iter()
            .zip(0..)
            .map(|(name, power)| (*name, 1024_u64.pow(power)));
        units.chain(binary).find(|(name, _)| *name == unit).map(|(_, bytes)| bytes)
    };
    with_unit(text, unit)
}

/// Parses a time: a whole number followed by one of `us ms s m h`.
pub fn parse_time(text: &str) -> Option<Duration> {
    let unit = |unit: &str| match unit {
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    };
    with_unit(text, unit).map(Duration::from_nanos)
}

/// Parses a whole number and multiplies it with the unit behind it.
fn with_unit(text: &str, unit: impl FnOnce(&str) -> Option<u64>) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse::<u64>().ok()?.checked_mul(unit(text[digits..].trim())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        let sizes = [("4096", 4096), ("7B", 7), ("3 MB", 3_000_000), ("1GiB", 1 << 30), ("2TiB", 2 << 40)];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for bad in ["", "GiB", "1.5GiB", "-1", "1Gi", "1K", "1iB", "99999999999999999999", "99999999TiB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
        assert_eq!(parse_time("3 s"), Some(Duration::from_secs(3)));
        assert_eq!(parse_time("2m"), parse_time("120s"));
        for bad in ["", "200", "ms", "1.5s", "-1s", "1 fortnight", "99999999999999h"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }
}
