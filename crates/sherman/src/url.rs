//! Cluster URLs: `embedded:?servers=2&memory=1GiB`.

use crate::error::OpenError;
use sherman_embedded::{Atomicity, EmbeddedOptions};
use sherman_fabric::Space;
use sherman_memory_server::{LaneWidth, ReleaseMode};
use std::time::Duration;

/// Parses a number of bytes: plain, or with one of `B KB MB GB TB KiB MiB GiB TiB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim() {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Parses a time: a whole number with one of `us ms s m h` behind.
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let nanos: u64 = match text[digits..].trim() {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(Duration::from_nanos)
}

/// The options an `embedded:` URL asks for.
pub(crate) fn parse_embedded(url: &str) -> Result<EmbeddedOptions, OpenError> {
    let bad = |reason: String| OpenError::BadUrl { url: url.to_owned(), reason };
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(bad("it has no scheme; try \"embedded:\"".to_owned()));
    };
    if scheme != "embedded" {
        return Err(bad(format!("scheme {scheme:?} is not known; this version has \"embedded:\"")));
    }
    let query = match rest.strip_prefix('?') {
        Some(query) => query,
        None if rest.is_empty() => "",
        None => return Err(bad(format!("\"embedded:\" is followed by \"?\" and parameters, not by {rest:?}"))),
    };
    let mut options = EmbeddedOptions::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) =
            parameter.split_once('=').ok_or_else(|| bad(format!("parameter {parameter:?} has no value")))?;
        set(&mut options, name, value).map_err(bad)?;
    }
    Ok(options)
}

fn set(options: &mut EmbeddedOptions, name: &str, value: &str) -> Result<(), String> {
    let bytes = || {
        parse_bytes(value).ok_or_else(|| format!("{name}={value:?} is not a size; write for example 512MiB or 2GiB"))
    };
    let choice = |allowed: &str| format!("{name}={value:?} is none of {allowed}");
    match name {
        "servers" => {
            options.servers = value.parse().map_err(|_| format!("servers={value:?} is not a number up to 65535"))?;
        }
        "memory" => options.memory_bytes = bytes()?,
        "on-chip" => options.on_chip_bytes = bytes()?,
        "chunk" => options.format.chunk_bytes = bytes()?,
        "lease" => {
            let lease = parse_time(value).map(|time| time.as_nanos() as u64).filter(|&nanos| nanos > 0);
            options.format.lease_nanos =
                lease.ok_or_else(|| format!("lease={value:?} is not a time; write for example 200ms or 3s"))?;
        }
        "lane-bits" => {
            options.format.locks.width = match value {
                "16" => LaneWidth::Bits16,
                "64" => LaneWidth::Bits64,
                _ => return Err(choice("16, 64")),
            };
        }
        "locks" => {
            options.format.locks.space = match value {
                "on-chip" => Space::OnChip,
                "host" => Space::Host,
                _ => return Err(choice("on-chip, host")),
            };
        }
        "release" => {
            options.format.locks.release = match value {
                "write" => ReleaseMode::Write,
                "faa" => ReleaseMode::Faa,
                "cas" => ReleaseMode::Cas,
                _ => return Err(choice("write, faa, cas")),
            };
        }
        "atomicity" => {
            options.atomicity = match value {
                "line" => Atomicity::Line,
                "verb" => Atomicity::Verb,
                _ => return Err(choice("line, verb")),
            };
        }
        _ => {
            return Err(format!(
                "parameter {name:?} is not known; there are servers, memory, on-chip, chunk, lease, lane-bits, locks, \
                 release, atomicity"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("1GiB"), Some(1 << 30));
        assert_eq!(parse_bytes("3 MB"), Some(3_000_000));
        for bad in ["", "GiB", "1.5GiB", "-1", "1Gi", "99999999999999999999", "99999999TiB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(parse_time("3 s"), Some(Duration::from_secs(3)));
        assert_eq!(parse_time("2m"), parse_time("120s"));
        for bad in ["", "200", "ms", "1.5s", "-1s", "1 fortnight", "99999999999999h"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_url_sets_what_it_names_and_nothing_else() {
        let options = parse_embedded("embedded:?servers=2&memory=1GiB&lane-bits=64&locks=host").expect("a good URL");
        assert_eq!((options.servers, options.memory_bytes), (2, 1 << 30));
        assert_eq!(options.format.locks.width, LaneWidth::Bits64);
        assert_eq!(options.format.locks.space, Space::Host);
        let brief = parse_embedded("embedded:?lease=200ms").expect("a good URL");
        assert_eq!(brief.format.lease_nanos, 200_000_000);
        assert_eq!(parse_embedded("embedded:").expect("a good URL").servers, 1);
    }

    #[test]
    fn a_bad_url_says_what_is_wrong() {
        for (url, word) in [
            ("", "scheme"),
            ("embedded", "scheme"),
            ("carrier-pigeon:?servers=1", "carrier-pigeon"),
            ("embedded:servers=2", "followed"),
            ("embedded:?servers", "no value"),
            ("embedded:?servers=-1", "servers"),
            ("embedded:?memory=lots", "size"),
            ("embedded:?speed=max", "speed"),
            ("embedded:?lane-bits=32", "16, 64"),
            ("embedded:?lease=200", "200ms or 3s"),
            ("embedded:?lease=0s", "200ms or 3s"),
        ] {
            let error = parse_embedded(url).expect_err(url).to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
