//! What a server tells while it serves: one line of stderr for each event, with its fields behind it.
//!
//! Events are few: the first refusals of each kind, and what an operator should know. Verbs are never told.

use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Has everything from warnings on told on stderr.
pub fn to_stderr() {
    // If somebody listens already, that one stays.
    let _ = tracing::subscriber::set_global_default(Lines);
}

/// Writes events as lines.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && *about.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        eprintln!("{level}: {}", line.text());
    }

    // There are no spans: events alone are enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event on its way to its line.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    /// On one line, whatever a client put into it.
    fn text(&self) -> String {
        let whole = format!("{}{}", self.message, self.fields);
        whole
            .chars()
            .flat_map(|letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] })
            .collect()
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// What events come to, instead of stderr.
    struct Heard(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Heard {
        fn enabled(&self, about: &Metadata<'_>) -> bool {
            Lines.enabled(about)
        }
        fn event(&self, event: &Event<'_>) {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().expect("no panic").push(line.text());
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn an_event_is_one_line_with_its_fields() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Heard(Arc::clone(&heard)), || {
            tracing::warn!(count = 3, "refused: {}", "two\nlines\u{1b}");
            tracing::info!("nobody needs to know");
            tracing::error!("bad");
        });
        assert_eq!(*heard.lock().expect("no panic"), ["refused: two\\nlines\\u{1b} count=3", "bad"]);
    }
}
