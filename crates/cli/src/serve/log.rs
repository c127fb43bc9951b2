//! The log of a server: one line on stderr for each event.
//!
//! ```text
//! 2026-03-01T12:00:00.123Z info: a client joined client=3 incarnation=1 peer=10.0.0.7:41022
//! ```
//!
//! A line has the time in UTC, the level, the message, and the fields. Events are rare: members that join,
//! leave and die, the first refusals of each kind, and warnings for the operator. The server never logs
//! verbs.

use clap::ValueEnum;
use serde::Deserialize;
use std::fmt::{Debug, Display, Write};
use std::time::{Duration, SystemTime};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Which events the server logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Events that need the operator's attention.
    Warn,
    /// Also clients that join, leave and are recovered.
    #[default]
    Info,
}

/// Logs events to stderr.
pub fn to_stderr(level: LogLevel) {
    let most = match level {
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
    };
    // If another subscriber is already set, it stays.
    let _ = tracing::subscriber::set_global_default(Lines { most });
}

/// Writes each event as a line.
struct Lines {
    most: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && *about.level() <= self.most
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine::default();
        event.record(&mut line);
        let text = format!("{}\n", line.text(SystemTime::now(), *event.metadata().level()));
        // One write per line, so that lines of several threads do not mix. If the log cannot be written, the
        // server continues.
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), text.as_bytes());
    }

    // Only events are enabled, so there are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The parts of a log line, collected from an event.
#[derive(Default)]
struct LogLine {
    message: String,
    fields: String,
}

impl LogLine {
    /// Formats the line. It stays one line, whatever text a client sent.
    fn text(&self, at: SystemTime, level: Level) -> String {
        let level = level.as_str().to_ascii_lowercase();
        let whole = format!("{} {level}: {}{}", rfc3339(at), self.message, self.fields);
        whole
            .chars()
            .flat_map(
                |letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] },
            )
            .collect()
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Formats a time as in RFC 3339: in UTC, to the millisecond.
fn rfc3339(at: SystemTime) -> impl Display {
    // A clock before 1970 is not set, so the log shows 1970-01-01.
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second, milli) = (second / 3600, second / 60 % 60, second % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Returns year, month and day for a number of days since 1970-01-01. Years start in March, so that a leap
/// day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097; // Days of 400 years.
    let days = days + 719_468; // From 0000-03-01.
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // From March.
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Collects the lines instead of writing them to stderr.
    struct Heard(Lines, Arc<Mutex<Vec<String>>>);

    impl Subscriber for Heard {
        fn enabled(&self, about: &Metadata<'_>) -> bool {
            self.0.enabled(about)
        }
        fn event(&self, event: &Event<'_>) {
            let mut line = LogLine::default();
            event.record(&mut line);
            self.1
                .lock()
                .expect("no panic")
                .push(line.text(SystemTime::UNIX_EPOCH, *event.metadata().level()));
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn heard(most: Level) -> Vec<String> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Heard(Lines { most }, Arc::clone(&heard)), || {
            tracing::warn!(count = 3, client = None::<u16>, "refused: {}", "two\nlines\u{1b}");
            tracing::info!(client = Some(4), peer = %"10.0.0.7:1", "a client joined");
            tracing::debug!("only for developers");
        });
        heard.lock().expect("no panic").clone()
    }

    #[test]
    fn an_event_is_one_line_with_its_time_and_its_fields() {
        let warning = "1970-01-01T00:00:00.000Z warn: refused: two\\nlines\\u{1b} count=3";
        assert_eq!(heard(Level::WARN), [warning]);
        let joined = "1970-01-01T00:00:00.000Z info: a client joined client=4 peer=10.0.0.7:1";
        assert_eq!(heard(Level::INFO), [warning, joined]);
    }

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, milli, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (951_868_800, 0, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, 5, "2024-02-29T00:00:00.005Z"),
            (1_767_225_599, 50, "2025-12-31T23:59:59.050Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(milli);
            assert_eq!(rfc3339(at).to_string(), text);
        }
    }
}
