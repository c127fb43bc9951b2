//! Writes the text format that Prometheus reads (version 0.0.4). A few lines of code, no registry, no I/O.
//!
//! The caller's names must consist of letters, digits and underscores. Label values may be any text.

use std::fmt::{Display, Write};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text under construction: one family of samples after the other.
#[derive(Clone, Debug, Default)]
pub struct Text(String);

impl Text {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// A total that only grows, except when the process restarts.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.sample(name, &[], value);
    }

    /// A value that rises and falls.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.sample(name, &[], value);
    }

    /// Totals of one kind, distinguished by one label.
    pub fn counters<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.head(name, help, "counter");
        for (value_of_label, value) in samples {
            self.sample(name, &[(label, value_of_label.as_ref())], value);
        }
    }

    /// Writes the help and type lines, before the first sample of a family.
    pub fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.line(format_args!("{name}"));
        for (number, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            self.line(format_args!("{}{label}=\"{text}\"", if number == 0 { '{' } else { ',' }));
        }
        self.line(format_args!("{} {value}\n", if labels.is_empty() { "" } else { "}" }));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // A write to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_what_prometheus_reads() {
        let mut text = Text::new();
        text.counter("verbs_total", "Verbs\nof all kinds", 7);
        text.gauge("uptime_seconds", "Since it began", 1.5);
        text.counters("refused_total", "By reason", "reason", [("bad_frame", 1), ("a \"b\" \\ c\n", 2)]);
        let expected = "# HELP verbs_total Verbs\\nof all kinds\n# TYPE verbs_total counter\nverbs_total 7\n\
            # HELP uptime_seconds Since it began\n# TYPE uptime_seconds gauge\nuptime_seconds 1.5\n\
            # HELP refused_total By reason\n# TYPE refused_total counter\n\
            refused_total{reason=\"bad_frame\"} 1\n\
            refused_total{reason=\"a \\\"b\\\" \\\\ c\\n\"} 2\n";
        assert_eq!(text.finish(), expected);
    }
}
